-- What audits found and repairs did about it, for good. A row whose done_at is NULL is a repair that
-- was asked for and is under way: a policy's steward sets its stock right while it builds the policy
-- anew.
CREATE TABLE repair (
    asked_at  INTEGER NOT NULL,
    policy_id INTEGER NOT NULL,
    done_at   INTEGER,
    plan      TEXT    NOT NULL,
    outcome   TEXT    NOT NULL,
    PRIMARY KEY (asked_at, policy_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX repair_open ON repair (policy_id) WHERE done_at IS NULL;
