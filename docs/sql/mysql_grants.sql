-- What dibs_serve may do, table by table. After every `dibs migrate`, by dibs_owner:
--     mysql -u dibs_owner dibs < mysql_grants.sql

GRANT SELECT ON schema_migration TO dibs_serve;
GRANT SELECT ON short_code_policy TO dibs_serve;
GRANT SELECT, INSERT, UPDATE ON policy TO dibs_serve;
GRANT SELECT, INSERT, UPDATE ON lease TO dibs_serve;
GRANT SELECT, INSERT, UPDATE ON coupon TO dibs_serve;
GRANT SELECT, INSERT, UPDATE ON steward TO dibs_serve;
GRANT SELECT, INSERT, UPDATE ON outbox_counter TO dibs_serve;
GRANT SELECT, INSERT, UPDATE ON duty TO dibs_serve;
GRANT SELECT, INSERT, UPDATE ON repair TO dibs_serve;
GRANT SELECT, INSERT, UPDATE ON sink_state TO dibs_serve;
GRANT SELECT, INSERT, UPDATE ON claim_total TO dibs_serve;
GRANT SELECT, INSERT, UPDATE ON action TO dibs_serve;
GRANT SELECT, INSERT, UPDATE ON refused_claim TO dibs_serve;
GRANT SELECT, INSERT, UPDATE ON reserve_coupon TO dibs_serve;
GRANT SELECT, INSERT, UPDATE, DELETE ON outbox TO dibs_serve;
GRANT SELECT, INSERT, UPDATE, DELETE ON writer TO dibs_serve;
GRANT SELECT, INSERT, UPDATE, DELETE ON steward_holder TO dibs_serve;
GRANT SELECT, INSERT, UPDATE, DELETE ON entering_coupon TO dibs_serve;
GRANT SELECT, INSERT, UPDATE, DELETE ON claim_total_batch TO dibs_serve;

-- No row of these is ever changed; but to leave a row alone that is there already, MySQL wants UPDATE.
GRANT SELECT, INSERT, UPDATE ON claim_key TO dibs_serve;
GRANT SELECT, INSERT, UPDATE ON secret TO dibs_serve;
GRANT SELECT, INSERT, UPDATE, DELETE ON blocked_user TO dibs_serve;
GRANT SELECT, INSERT, UPDATE, DELETE ON dead_letter TO dibs_serve;

-- Orders, products and the ranking.
GRANT SELECT, INSERT, UPDATE ON product TO dibs_serve;
GRANT SELECT, INSERT, UPDATE, DELETE ON sale_order TO dibs_serve;
GRANT SELECT, INSERT, DELETE ON sale_item TO dibs_serve;
GRANT SELECT, INSERT, UPDATE ON sale_day TO dibs_serve;
GRANT SELECT, INSERT, DELETE ON sale_feed TO dibs_serve;
GRANT SELECT, INSERT, DELETE ON sale_moment TO dibs_serve;
GRANT SELECT, INSERT, DELETE ON product_signal TO dibs_serve;
GRANT SELECT, UPDATE ON sale_counter TO dibs_serve;
