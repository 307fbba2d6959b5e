-- The table of coupons in partitions of 1,000 policies each. By dibs_owner, while dibs is stopped:
--     psql -U dibs_owner -d shop -1 -f postgres_partitions.sql
-- Afterwards run postgres_grants.sql again. All policies there are must have ids below 1000, or
-- raise the numbers below.

ALTER TABLE coupon RENAME TO coupon_0;
ALTER INDEX coupon_pkey RENAME TO coupon_0_pkey;
ALTER INDEX coupon_user_slot RENAME TO coupon_0_user_slot;

CREATE TABLE coupon (LIKE coupon_0 INCLUDING ALL) PARTITION BY RANGE (policy_id);
ALTER TABLE coupon ATTACH PARTITION coupon_0 FOR VALUES FROM (MINVALUE) TO (1000);
CREATE TABLE coupon_1000 PARTITION OF coupon FOR VALUES FROM (1000) TO (2000);
CREATE TABLE coupon_2000 PARTITION OF coupon FOR VALUES FROM (2000) TO (3000);

-- For ids that nobody has made a partition for.
CREATE TABLE coupon_rest PARTITION OF coupon DEFAULT;
