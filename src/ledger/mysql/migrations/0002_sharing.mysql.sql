-- What processes that share a ledger agree through: who is a policy's steward, and how far each
-- writer has come.

-- `until` is in wall milliseconds of the database's own clock.
CREATE TABLE IF NOT EXISTS steward (
    policy_id BIGINT       NOT NULL PRIMARY KEY,
    holder    VARCHAR(255) NOT NULL,
    until     BIGINT       NOT NULL,
    CONSTRAINT steward_of_policy FOREIGN KEY (policy_id) REFERENCES policy (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The mark moves by one in every transaction of its writer, so that a writer whose connection broke
-- finds out whether its last one was committed, and whether this is still the database it left.
CREATE TABLE IF NOT EXISTS writer (
    name   VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    mark   BIGINT       NOT NULL,
    holder VARCHAR(255) NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
