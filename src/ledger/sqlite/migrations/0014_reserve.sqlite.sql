-- Coupons that the fallback gave, by their users: a claim of the gate with the same request id is the
-- same wish, and is merged into its coupon.
CREATE TABLE reserve_coupon (
    policy_id INTEGER NOT NULL,
    user_id   TEXT    NOT NULL,
    seq       INTEGER NOT NULL,
    PRIMARY KEY (policy_id, user_id, seq)
) STRICT, WITHOUT ROWID;
INSERT INTO reserve_coupon (policy_id, user_id, seq)
SELECT policy_id, user_id, seq FROM coupon WHERE lease_id = 0;
