-- What audits found and repairs did about it, for good. A row whose done_at is NULL is a repair that
-- was asked for and is under way: a policy's steward sets its stock right while it builds the policy
-- anew.
CREATE TABLE repair (
    asked_at  bigint NOT NULL,
    policy_id bigint NOT NULL,
    done_at   bigint,
    plan      text   NOT NULL,
    outcome   text   NOT NULL,
    PRIMARY KEY (asked_at, policy_id)
);

CREATE INDEX repair_open ON repair (policy_id) WHERE done_at IS NULL;
