-- What audits found and repairs did about it, for good. A row whose done_at is NULL is a repair that
-- was asked for and is under way: a policy's steward sets its stock right while it builds the policy
-- anew.
CREATE TABLE IF NOT EXISTS repair (
    asked_at  BIGINT        NOT NULL,
    policy_id BIGINT        NOT NULL,
    done_at   BIGINT,
    plan      VARCHAR(1000) NOT NULL,
    outcome   VARCHAR(1000) NOT NULL,
    PRIMARY KEY (asked_at, policy_id),
    KEY repair_open (policy_id, done_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
