-- What a ranking by score needs beyond what was sold: when, and what else people did. Written only
-- where such a ranking is set.

-- Views and carts. 1 is an order, 2 a cart, 3 a view; dropped when no window reaches back to them.
CREATE TABLE IF NOT EXISTS product_signal (
    signal_id  VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    kind       BIGINT      NOT NULL CHECK (kind IN (2, 3)),
    product_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    quantity   BIGINT      NOT NULL CHECK (quantity >= 1),
    at         BIGINT      NOT NULL,
    day        BIGINT      NOT NULL,
    INDEX product_signal_day (day)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The second in which the entry of sale_feed with that id happened, and how much of its kind; the
-- entry of a signal changes no total.
CREATE TABLE IF NOT EXISTS sale_moment (
    id       BIGINT NOT NULL PRIMARY KEY,
    kind     BIGINT NOT NULL,
    at_s     BIGINT NOT NULL,
    quantity BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
