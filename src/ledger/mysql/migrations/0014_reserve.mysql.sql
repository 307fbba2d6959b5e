-- Coupons that the fallback gave, by their users: a claim of the gate with the same request id is the
-- same wish, and is merged into its coupon.
CREATE TABLE IF NOT EXISTS reserve_coupon (
    policy_id BIGINT      NOT NULL,
    user_id   VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    seq       BIGINT      NOT NULL,
    PRIMARY KEY (policy_id, user_id, seq)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
INSERT IGNORE INTO reserve_coupon (policy_id, user_id, seq)
SELECT policy_id, user_id, seq FROM coupon WHERE lease_id = 0;
