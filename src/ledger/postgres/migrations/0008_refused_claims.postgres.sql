-- Claims that the database does not take as coupons, because a rule of the shop's own (a trigger, a
-- foreign key, a check) refuses them: each is VOID, and its unit has returned. The table has no rules
-- but its key, so that this much can always be written down.
CREATE TABLE refused_claim (
    policy_id    bigint  NOT NULL,
    seq          bigint  NOT NULL,
    lease_id     bigint  NOT NULL,
    requested_at bigint  NOT NULL,
    refused_at   bigint  NOT NULL,
    nth          integer NOT NULL,
    request_id   bytea   NOT NULL,
    user_id      text    COLLATE "C" NOT NULL,
    reason       text    COLLATE "C" NOT NULL,
    PRIMARY KEY (policy_id, seq)
);

CREATE INDEX refused_claim_user ON refused_claim (user_id, policy_id);
