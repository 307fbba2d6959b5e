-- The table of coupons in partitions of 1,000 policies each. By dibs_owner, while dibs is stopped:
--     mysql -u dibs_owner dibs < mysql_partitions.sql

ALTER TABLE coupon PARTITION BY RANGE (policy_id) (
    PARTITION coupon_0 VALUES LESS THAN (1000),
    PARTITION coupon_1000 VALUES LESS THAN (2000),
    PARTITION coupon_2000 VALUES LESS THAN (3000),
    PARTITION coupon_rest VALUES LESS THAN MAXVALUE
);
