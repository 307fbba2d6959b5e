-- Who looks after a policy does so in terms, which are counted here: whatever a steward writes in an
-- earlier term than the newest is refused. A policy that was never looked after is in term 0. What
-- the table had before was of the moment.
DROP TABLE IF EXISTS steward;

CREATE TABLE steward (
    policy_id BIGINT       NOT NULL PRIMARY KEY,
    holder    VARCHAR(255) NOT NULL,
    until     BIGINT       NOT NULL,
    term      BIGINT       NOT NULL DEFAULT 0,
    CONSTRAINT steward_of_policy FOREIGN KEY (policy_id) REFERENCES policy (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

INSERT INTO steward (policy_id, holder, until) SELECT id, '', 0 FROM policy;

-- The workers that live, by the database's own clock: a steward keeps its policies as long as it is
-- one of them.
CREATE TABLE IF NOT EXISTS steward_holder (
    name  VARCHAR(255) NOT NULL PRIMARY KEY,
    until BIGINT       NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
