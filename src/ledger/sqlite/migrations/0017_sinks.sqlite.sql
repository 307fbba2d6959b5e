-- Each event sink has its own copy of the outbox, so that none waits for another: 0 is Kafka, 1 the
-- webhook.
CREATE TABLE outbox_of_sink (
    sink         INTEGER NOT NULL DEFAULT 0,
    policy_id    INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    user_id      TEXT    NOT NULL,
    nth          INTEGER NOT NULL,
    request_id   TEXT    NOT NULL, -- in hexadecimal digits
    state        TEXT    NOT NULL,
    changed_at   INTEGER NOT NULL,
    requested_at INTEGER NOT NULL,
    issued_at    INTEGER NOT NULL,
    expires_at   INTEGER,
    order_id     TEXT,
    merged_into  INTEGER,
    reason       TEXT,
    traceparent  TEXT,
    PRIMARY KEY (sink, policy_id, number)
) STRICT, WITHOUT ROWID;
INSERT INTO outbox_of_sink (policy_id, number, seq, user_id, nth, request_id, state, changed_at,
    requested_at, issued_at, expires_at, order_id, merged_into, reason, traceparent)
SELECT policy_id, number, seq, user_id, nth, request_id, state, changed_at,
    requested_at, issued_at, expires_at, order_id, merged_into, reason, traceparent FROM outbox;
DROP TABLE outbox;
ALTER TABLE outbox_of_sink RENAME TO outbox;

-- Since when a sink takes nothing, and why; `asked` rises when somebody wants it tried at once.
CREATE TABLE sink_state (
    sink          INTEGER PRIMARY KEY,
    failing_since INTEGER NOT NULL,
    asked         INTEGER NOT NULL,
    words         TEXT    NOT NULL
) STRICT;

-- What operators did, by the names of their tokens.
CREATE TABLE action (
    id      INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    who     TEXT    NOT NULL,
    what    TEXT    NOT NULL,
    target  TEXT    NOT NULL,
    was     TEXT    NOT NULL,
    became  TEXT    NOT NULL
) STRICT;
CREATE INDEX action_target ON action (target, id);
