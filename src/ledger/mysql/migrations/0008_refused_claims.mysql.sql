-- Claims that the database does not take as coupons, because a rule of the shop's own (a trigger, a
-- foreign key, a check) refuses them: each is VOID, and its unit has returned. The table has no rules
-- but its key, so that this much can always be written down.
CREATE TABLE IF NOT EXISTS refused_claim (
    policy_id    BIGINT       NOT NULL,
    seq          BIGINT       NOT NULL,
    user_id      VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    nth          INT          NOT NULL,
    request_id   BINARY(16)   NOT NULL,
    lease_id     BIGINT       NOT NULL,
    requested_at BIGINT       NOT NULL,
    refused_at   BIGINT       NOT NULL,
    reason       VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    PRIMARY KEY (policy_id, seq),
    KEY refused_claim_user (user_id, policy_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
