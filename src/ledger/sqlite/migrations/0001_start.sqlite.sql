-- Policies and their stock, the leases lent to gates, the coupons, and who is blocked.
-- Times are wall milliseconds since 1970; NULL means none.

CREATE TABLE policy (
    id                INTEGER PRIMARY KEY,
    name              TEXT    NOT NULL,
    discount_type     TEXT    NOT NULL CHECK (discount_type IN ('percent', 'fixed')),
    discount_value    INTEGER NOT NULL,
    total             INTEGER NOT NULL CHECK (total >= 1),
    per_user_limit    INTEGER NOT NULL CHECK (per_user_limit >= 1),
    opens_at          INTEGER,
    closes_at         INTEGER,
    coupon_valid_days INTEGER,
    reserve           INTEGER NOT NULL CHECK (reserve >= 0),
    paused            INTEGER NOT NULL CHECK (paused IN (0, 1)),
    closed_at         INTEGER,
    created_at        INTEGER NOT NULL,
    version           INTEGER NOT NULL,
    unleased          INTEGER NOT NULL CHECK (unleased >= 0),
    next_seq          INTEGER NOT NULL CHECK (next_seq >= 1)
) STRICT;

CREATE TABLE lease (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    policy_id INTEGER NOT NULL REFERENCES policy (id),
    first_seq INTEGER NOT NULL,
    count     INTEGER NOT NULL CHECK (count >= 0),
    state     TEXT    NOT NULL CHECK (state IN ('OPEN', 'CLOSED'))
) STRICT;

CREATE INDEX lease_open ON lease (policy_id, first_seq) WHERE state = 'OPEN';

-- One row per claim. `slot` is the nth while the coupon is active and NULL once it is freed, so
-- that the user may claim again. EXPIRED is not stored: it is ISSUED past expires_at.
CREATE TABLE coupon (
    policy_id    INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    user_id      TEXT    NOT NULL,
    nth          INTEGER NOT NULL,
    slot         INTEGER,
    state        TEXT    NOT NULL,
    request_id   BLOB    NOT NULL,
    lease_id     INTEGER NOT NULL,
    requested_at INTEGER NOT NULL,
    issued_at    INTEGER NOT NULL,
    expires_at   INTEGER,
    redeemed_at  INTEGER,
    cancelled_at INTEGER,
    order_id     TEXT,
    merged_into  INTEGER,
    reason       TEXT,
    PRIMARY KEY (policy_id, seq)
) STRICT, WITHOUT ROWID;

-- Uniqueness of (policy, user, slot), led by the user so that it also finds a user's coupons.
CREATE UNIQUE INDEX coupon_user_slot ON coupon (user_id, policy_id, slot);

-- Idempotency keys bound to a claim besides the one it was made with.
CREATE TABLE claim_key (
    policy_id  INTEGER NOT NULL,
    request_id BLOB    NOT NULL,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (policy_id, request_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE blocked_user (
    user_id    TEXT    PRIMARY KEY,
    blocked_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Secrets that all servers of this ledger share, such as the key of the coupon codes.
CREATE TABLE secret (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
