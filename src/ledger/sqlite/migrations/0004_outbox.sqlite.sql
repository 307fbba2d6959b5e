-- What happened to coupons and has not been published yet, and who does what only one may do.

-- Written in the transaction that changes the coupon; deleted when it has been delivered. Numbers
-- rise by one within a policy and become visible in that order.
CREATE TABLE outbox (
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
    PRIMARY KEY (policy_id, number)
) STRICT, WITHOUT ROWID;

-- The number of a policy's last event. Whoever writes events holds its row until the commit.
CREATE TABLE outbox_counter (
    policy_id   INTEGER PRIMARY KEY,
    last_number INTEGER NOT NULL
) STRICT;

-- `until` is in wall milliseconds of the database's own clock.
CREATE TABLE duty (
    name   TEXT    PRIMARY KEY,
    holder TEXT    NOT NULL,
    until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
