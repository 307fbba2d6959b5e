-- What was sold: orders, products, totals per day, and the feed that the ranking's boards follow.
-- Days are calendar days since 1970-01-01 in the zone that sale_counter names.

CREATE TABLE product (
    product_id TEXT    PRIMARY KEY,
    name       TEXT    NOT NULL,
    price      INTEGER,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- `digest` is of what was sent, so that another order under the same id is told from a repeat.
CREATE TABLE sale_order (
    order_id    TEXT    PRIMARY KEY,
    digest      TEXT    NOT NULL,
    paid_at     INTEGER NOT NULL,
    received_at INTEGER NOT NULL,
    refunded_at INTEGER,
    day         INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sale_item (
    order_id   TEXT    NOT NULL,
    product_id TEXT    NOT NULL,
    quantity   INTEGER NOT NULL CHECK (quantity >= 1),
    PRIMARY KEY (order_id, product_id)
) STRICT, WITHOUT ROWID;

-- The orders of a day and product that are not refunded, added up.
CREATE TABLE sale_day (
    day        INTEGER NOT NULL,
    product_id TEXT    NOT NULL,
    quantity   INTEGER NOT NULL CHECK (quantity >= 0),
    PRIMARY KEY (day, product_id)
) STRICT, WITHOUT ROWID;

-- Every change of a total, numbered without gaps; old ones are dropped.
CREATE TABLE sale_feed (
    id         INTEGER PRIMARY KEY,
    written_at INTEGER NOT NULL,
    day        INTEGER NOT NULL,
    product_id TEXT    NOT NULL,
    quantity   INTEGER NOT NULL
) STRICT;

-- One row. Whoever writes sales locks it first, and until the commit.
CREATE TABLE sale_counter (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    last_id    INTEGER NOT NULL,
    written_at INTEGER NOT NULL,
    zone       TEXT    NOT NULL
) STRICT;

INSERT INTO sale_counter (id, last_id, written_at, zone) VALUES (1, 0, 0, '');
