-- Policies that were made while a code had 8 characters of its MAC: theirs stay as they are. Those of
-- all others have 13.
CREATE TABLE IF NOT EXISTS short_code_policy (
    policy_id BIGINT NOT NULL PRIMARY KEY
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
INSERT IGNORE INTO short_code_policy (policy_id) SELECT id FROM policy;
