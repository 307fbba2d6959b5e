-- Policies and their stock, the leases lent to gates, the coupons, and who is blocked.
-- Times are wall milliseconds since 1970; NULL means none. Ids and states are compared byte by
-- byte. MySQL commits after each of these statements, so that each can be run again.

-- Which of these files the database has.
CREATE TABLE IF NOT EXISTS schema_migration (
    number     INT          NOT NULL PRIMARY KEY,
    name       VARCHAR(200) NOT NULL,
    applied_at BIGINT       NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS policy (
    id                BIGINT       NOT NULL PRIMARY KEY,
    name              VARCHAR(200) NOT NULL,
    discount_type     VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL
        CHECK (discount_type IN ('percent', 'fixed')),
    discount_value    BIGINT       NOT NULL,
    total             BIGINT       NOT NULL CHECK (total >= 1),
    per_user_limit    INT          NOT NULL CHECK (per_user_limit >= 1),
    opens_at          BIGINT,
    closes_at         BIGINT,
    coupon_valid_days INT,
    reserve           BIGINT       NOT NULL CHECK (reserve >= 0),
    paused            TINYINT      NOT NULL CHECK (paused IN (0, 1)),
    closed_at         BIGINT,
    created_at        BIGINT       NOT NULL,
    version           BIGINT       NOT NULL,
    unleased          BIGINT       NOT NULL CHECK (unleased >= 0),
    next_seq          BIGINT       NOT NULL CHECK (next_seq >= 1)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Most leases are closed; the index leads to the open ones.
CREATE TABLE IF NOT EXISTS lease (
    id        BIGINT      NOT NULL AUTO_INCREMENT PRIMARY KEY,
    policy_id BIGINT      NOT NULL,
    first_seq BIGINT      NOT NULL,
    count     BIGINT      NOT NULL CHECK (count >= 0),
    state     VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
        CHECK (state IN ('OPEN', 'CLOSED')),
    KEY lease_open (state, policy_id, first_seq),
    KEY lease_policy (policy_id),
    CONSTRAINT lease_of_policy FOREIGN KEY (policy_id) REFERENCES policy (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- One row per claim. `slot` is the nth while the coupon is active and NULL once it is freed, so
-- that the user may claim again. EXPIRED is not stored: it is ISSUED past expires_at. The unique
-- key is led by the user so that it also finds a user's coupons.
CREATE TABLE IF NOT EXISTS coupon (
    policy_id    BIGINT       NOT NULL,
    seq          BIGINT       NOT NULL,
    user_id      VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    nth          INT          NOT NULL,
    slot         INT,
    state        VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    request_id   BINARY(16)   NOT NULL,
    lease_id     BIGINT       NOT NULL,
    requested_at BIGINT       NOT NULL,
    issued_at    BIGINT       NOT NULL,
    expires_at   BIGINT,
    redeemed_at  BIGINT,
    cancelled_at BIGINT,
    order_id     VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin,
    merged_into  BIGINT,
    reason       VARCHAR(200),
    PRIMARY KEY (policy_id, seq),
    UNIQUE KEY coupon_user_slot (user_id, policy_id, slot)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Idempotency keys bound to a claim besides the one it was made with.
CREATE TABLE IF NOT EXISTS claim_key (
    policy_id  BIGINT     NOT NULL,
    request_id BINARY(16) NOT NULL,
    seq        BIGINT     NOT NULL,
    PRIMARY KEY (policy_id, request_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS blocked_user (
    user_id    VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    blocked_at BIGINT      NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Secrets that all servers of this ledger share, such as the key of the coupon codes.
CREATE TABLE IF NOT EXISTS secret (
    name  VARCHAR(64)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    value VARBINARY(255) NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
