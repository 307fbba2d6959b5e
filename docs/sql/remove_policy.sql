-- Removes policy 42 with all that belongs to it, on any of the three databases. While dibs is
-- stopped, by dibs_owner, and after what is to be kept has been copied elsewhere.
-- Never the policy with the highest id: its id, and with it its coupons' ids, would be given again.

BEGIN;
DELETE FROM coupon WHERE policy_id = 42;
DELETE FROM refused_claim WHERE policy_id = 42;
DELETE FROM claim_key WHERE policy_id = 42;
DELETE FROM entering_coupon WHERE policy_id = 42;
DELETE FROM reserve_coupon WHERE policy_id = 42;
DELETE FROM short_code_policy WHERE policy_id = 42;
DELETE FROM dead_letter WHERE policy_id = 42;
DELETE FROM outbox WHERE policy_id = 42;
DELETE FROM outbox_counter WHERE policy_id = 42;
DELETE FROM lease WHERE policy_id = 42;
DELETE FROM steward WHERE policy_id = 42;
DELETE FROM policy WHERE id = 42;
COMMIT;
