-- What happened to coupons and has not been published yet, and who does what only one may do.

-- Written in the transaction that changes the coupon; deleted when it has been delivered. Numbers
-- rise by one within a policy and become visible in that order. Rows come and go: the table is
-- swept often, so that its first row is found without passing over those that are gone.
CREATE TABLE outbox (
    policy_id    bigint   NOT NULL,
    number       bigint   NOT NULL,
    seq          bigint   NOT NULL,
    changed_at   bigint   NOT NULL,
    requested_at bigint   NOT NULL,
    issued_at    bigint   NOT NULL,
    expires_at   bigint,
    merged_into  bigint,
    nth          smallint NOT NULL,
    user_id      text     COLLATE "C" NOT NULL,
    request_id   text     COLLATE "C" NOT NULL, -- in hexadecimal digits
    state        text     COLLATE "C" NOT NULL,
    order_id     text     COLLATE "C",
    reason       text     COLLATE "C",
    traceparent  text     COLLATE "C",
    PRIMARY KEY (policy_id, number)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000);

-- The number of a policy's last event. Whoever writes events holds its row until the commit.
-- A nearly empty page takes the many versions of a row until they are pruned.
CREATE TABLE outbox_counter (
    policy_id   bigint PRIMARY KEY,
    last_number bigint NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);

-- `until` is in wall milliseconds of the database's own clock.
CREATE TABLE duty (
    until  bigint NOT NULL,
    name   text   COLLATE "C" PRIMARY KEY,
    holder text   COLLATE "C" NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
