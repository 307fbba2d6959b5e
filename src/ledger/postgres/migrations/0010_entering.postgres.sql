-- Coupons that the fallback gave, or bound a key to, while the gate was away, and that the gate has
-- not heard of yet. Whoever finds one tells the gate. `changes` rises when there is more to tell.
CREATE TABLE entering_coupon (
    policy_id bigint NOT NULL,
    seq       bigint NOT NULL,
    changes   bigint NOT NULL,
    PRIMARY KEY (policy_id, seq)
);
