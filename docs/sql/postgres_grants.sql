-- What dibs_serve may do, table by table. After every `dibs migrate`, by dibs_owner:
--     psql -U dibs_owner -d shop -f postgres_grants.sql

GRANT SELECT ON schema_migration, short_code_policy TO dibs_serve;
GRANT SELECT, INSERT, UPDATE ON policy, lease, coupon, steward, outbox_counter, duty TO dibs_serve;
GRANT SELECT, INSERT, UPDATE ON repair, sink_state, claim_total TO dibs_serve;
GRANT SELECT, INSERT, UPDATE ON action, refused_claim, reserve_coupon, claim_key TO dibs_serve;
GRANT SELECT, INSERT ON secret TO dibs_serve;
GRANT SELECT, INSERT, DELETE ON blocked_user TO dibs_serve;
GRANT SELECT, INSERT, UPDATE, DELETE ON dead_letter, outbox TO dibs_serve;
GRANT SELECT, INSERT, UPDATE, DELETE ON writer, steward_holder, entering_coupon, claim_total_batch TO dibs_serve;
-- Only for `dibs audit --repair`, which writes leases with the numbers they had.
GRANT UPDATE ON SEQUENCE lease_id_seq TO dibs_serve;

-- Orders, products and the ranking.
GRANT SELECT, INSERT, UPDATE ON product, sale_day TO dibs_serve;
GRANT SELECT, INSERT, UPDATE, DELETE ON sale_order TO dibs_serve;
GRANT SELECT, INSERT, DELETE ON sale_item TO dibs_serve;
GRANT SELECT, INSERT, DELETE ON sale_feed, sale_moment, product_signal TO dibs_serve;
GRANT SELECT, UPDATE ON sale_counter TO dibs_serve;
