-- What was sold: orders, products, totals per day, and the feed that the ranking's boards follow.
-- Days are calendar days since 1970-01-01 in the zone that sale_counter names.

CREATE TABLE product (
    price      bigint,
    updated_at bigint NOT NULL,
    product_id text   COLLATE "C" PRIMARY KEY,
    name       text   COLLATE "C" NOT NULL
);

-- `digest` is of what was sent, so that another order under the same id is told from a repeat.
CREATE TABLE sale_order (
    paid_at     bigint NOT NULL,
    received_at bigint NOT NULL,
    refunded_at bigint,
    day         bigint NOT NULL,
    order_id    text   COLLATE "C" PRIMARY KEY,
    digest      text   COLLATE "C" NOT NULL
);

CREATE TABLE sale_item (
    quantity   bigint NOT NULL CHECK (quantity >= 1),
    order_id   text   COLLATE "C" NOT NULL,
    product_id text   COLLATE "C" NOT NULL,
    PRIMARY KEY (order_id, product_id)
);

-- The orders of a day and product that are not refunded, added up. Best sellers change often: room
-- on their pages lets a change stay on its page.
CREATE TABLE sale_day (
    day        bigint NOT NULL,
    quantity   bigint NOT NULL CHECK (quantity >= 0),
    product_id text   COLLATE "C" NOT NULL,
    PRIMARY KEY (day, product_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- Every change of a total, numbered without gaps; old ones are dropped.
CREATE TABLE sale_feed (
    id         bigint PRIMARY KEY,
    written_at bigint NOT NULL,
    day        bigint NOT NULL,
    quantity   bigint NOT NULL,
    product_id text   COLLATE "C" NOT NULL
);

-- One row. Whoever writes sales locks it first, and until the commit. A sequence would not do: its
-- numbers become visible out of order. A nearly empty page takes the many versions of the row until
-- they are pruned.
CREATE TABLE sale_counter (
    id         bigint PRIMARY KEY CHECK (id = 1),
    last_id    bigint NOT NULL,
    written_at bigint NOT NULL,
    zone       text   COLLATE "C" NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);

INSERT INTO sale_counter (id, last_id, written_at, zone) VALUES (1, 0, 0, '');
