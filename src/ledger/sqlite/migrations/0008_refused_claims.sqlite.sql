-- Claims that the database does not take as coupons, because a rule of the shop's own (a trigger, a
-- foreign key, a check) refuses them: each is VOID, and its unit has returned. The table has no rules
-- but its key, so that this much can always be written down.
CREATE TABLE refused_claim (
    policy_id    INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    user_id      TEXT    NOT NULL,
    nth          INTEGER NOT NULL,
    request_id   BLOB    NOT NULL,
    lease_id     INTEGER NOT NULL,
    requested_at INTEGER NOT NULL,
    refused_at   INTEGER NOT NULL,
    reason       TEXT    NOT NULL,
    PRIMARY KEY (policy_id, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX refused_claim_user ON refused_claim (user_id, policy_id);
