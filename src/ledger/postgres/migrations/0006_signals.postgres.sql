-- What a ranking by score needs beyond what was sold: when, and what else people did. Written only
-- where such a ranking is set.

-- Views and carts. 1 is an order, 2 a cart, 3 a view; dropped when no window reaches back to them.
CREATE TABLE product_signal (
    kind       bigint NOT NULL CHECK (kind IN (2, 3)),
    quantity   bigint NOT NULL CHECK (quantity >= 1),
    at         bigint NOT NULL,
    day        bigint NOT NULL,
    signal_id  text   COLLATE "C" PRIMARY KEY,
    product_id text   COLLATE "C" NOT NULL
);

CREATE INDEX product_signal_day ON product_signal (day);

-- The second in which the entry of sale_feed with that id happened, and how much of its kind; the
-- entry of a signal changes no total.
CREATE TABLE sale_moment (
    id       bigint PRIMARY KEY,
    kind     bigint NOT NULL,
    at_s     bigint NOT NULL,
    quantity bigint NOT NULL
);
