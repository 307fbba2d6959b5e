-- What was sold: orders, products, totals per day, and the feed that the ranking's boards follow.
-- Days are calendar days since 1970-01-01 in the zone that sale_counter names.

CREATE TABLE IF NOT EXISTS product (
    product_id VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    name       VARCHAR(200) NOT NULL,
    price      BIGINT,
    updated_at BIGINT       NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- `digest` is of what was sent, so that another order under the same id is told from a repeat.
CREATE TABLE IF NOT EXISTS sale_order (
    order_id    VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    digest      VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    paid_at     BIGINT      NOT NULL,
    received_at BIGINT      NOT NULL,
    refunded_at BIGINT,
    day         BIGINT      NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS sale_item (
    order_id   VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    product_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    quantity   BIGINT      NOT NULL CHECK (quantity >= 1),
    PRIMARY KEY (order_id, product_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The orders of a day and product that are not refunded, added up.
CREATE TABLE IF NOT EXISTS sale_day (
    day        BIGINT      NOT NULL,
    product_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    quantity   BIGINT      NOT NULL CHECK (quantity >= 0),
    PRIMARY KEY (day, product_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Every change of a total, numbered without gaps; old ones are dropped.
CREATE TABLE IF NOT EXISTS sale_feed (
    id         BIGINT      NOT NULL PRIMARY KEY,
    written_at BIGINT      NOT NULL,
    day        BIGINT      NOT NULL,
    product_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    quantity   BIGINT      NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- One row. Whoever writes sales locks it first, and until the commit: AUTO_INCREMENT would not do,
-- its numbers become visible out of order.
CREATE TABLE IF NOT EXISTS sale_counter (
    id         BIGINT      NOT NULL PRIMARY KEY CHECK (id = 1),
    last_id    BIGINT      NOT NULL,
    written_at BIGINT      NOT NULL,
    zone       VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

INSERT INTO sale_counter (id, last_id, written_at, zone) VALUES (1, 0, 0, '')
ON DUPLICATE KEY UPDATE sale_counter.id = sale_counter.id;
