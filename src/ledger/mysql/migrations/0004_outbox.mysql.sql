-- What happened to coupons and has not been published yet, and who does what only one may do.

-- Written in the transaction that changes the coupon; deleted when it has been delivered. Numbers
-- rise by one within a policy and become visible in that order.
CREATE TABLE IF NOT EXISTS outbox (
    policy_id    BIGINT       NOT NULL,
    number       BIGINT       NOT NULL,
    seq          BIGINT       NOT NULL,
    user_id      VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    nth          INT          NOT NULL,
    request_id   CHAR(32)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- in hexadecimal digits
    state        VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    changed_at   BIGINT       NOT NULL,
    requested_at BIGINT       NOT NULL,
    issued_at    BIGINT       NOT NULL,
    expires_at   BIGINT,
    order_id     VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin,
    merged_into  BIGINT,
    reason       VARCHAR(200),
    traceparent  VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin,
    PRIMARY KEY (policy_id, number)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The number of a policy's last event. Whoever writes events holds its row until the commit.
CREATE TABLE IF NOT EXISTS outbox_counter (
    policy_id   BIGINT NOT NULL PRIMARY KEY,
    last_number BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- `until` is in wall milliseconds of the database's own clock.
CREATE TABLE IF NOT EXISTS duty (
    name   VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    holder VARCHAR(255) NOT NULL,
    until  BIGINT       NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
