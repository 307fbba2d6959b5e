-- What a ranking by score needs beyond what was sold: when, and what else people did. Written only
-- where such a ranking is set.

-- Views and carts. 1 is an order, 2 a cart, 3 a view; dropped when no window reaches back to them.
CREATE TABLE product_signal (
    signal_id  TEXT    PRIMARY KEY,
    kind       INTEGER NOT NULL CHECK (kind IN (2, 3)),
    product_id TEXT    NOT NULL,
    quantity   INTEGER NOT NULL CHECK (quantity >= 1),
    at         INTEGER NOT NULL,
    day        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX product_signal_day ON product_signal (day);

-- The second in which the entry of sale_feed with that id happened, and how much of its kind; the
-- entry of a signal changes no total.
CREATE TABLE sale_moment (
    id       INTEGER PRIMARY KEY,
    kind     INTEGER NOT NULL,
    at_s     INTEGER NOT NULL,
    quantity INTEGER NOT NULL
) STRICT;
