-- Claims of a shared gate that came to nothing for good, and why, until somebody has looked at them.
CREATE TABLE IF NOT EXISTS dead_letter (
    policy_id    BIGINT       NOT NULL,
    seq          BIGINT       NOT NULL,
    user_id      VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    nth          INT          NOT NULL,
    request_id   BINARY(16)   NOT NULL,
    requested_at BIGINT       NOT NULL,
    attempts     INT          NOT NULL,
    died_at      BIGINT       NOT NULL,
    reason       VARCHAR(400) NOT NULL,
    PRIMARY KEY (policy_id, seq)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
