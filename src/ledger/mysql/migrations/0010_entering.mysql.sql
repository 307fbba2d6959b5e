-- Coupons that the fallback gave, or bound a key to, while the gate was away, and that the gate has
-- not heard of yet. Whoever finds one tells the gate. `changes` rises when there is more to tell.
CREATE TABLE IF NOT EXISTS entering_coupon (
    policy_id BIGINT NOT NULL,
    seq       BIGINT NOT NULL,
    changes   BIGINT NOT NULL,
    PRIMARY KEY (policy_id, seq)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
