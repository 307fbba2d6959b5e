-- Claims of a shared gate that came to nothing for good, and why, until somebody has looked at them.
CREATE TABLE dead_letter (
    policy_id    INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    user_id      TEXT    NOT NULL,
    nth          INTEGER NOT NULL,
    request_id   BLOB    NOT NULL,
    requested_at INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    died_at      INTEGER NOT NULL,
    reason       TEXT    NOT NULL,
    PRIMARY KEY (policy_id, seq)
) STRICT, WITHOUT ROWID;
