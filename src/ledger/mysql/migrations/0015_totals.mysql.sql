-- What became of the claims on each policy, counted by all servers together: by the minute in the first
-- hour after its opening, by the hour before and later. `result` is a label of dibs_claims_total.
CREATE TABLE IF NOT EXISTS claim_total (
    policy_id BIGINT      NOT NULL,
    starts_at BIGINT      NOT NULL,
    seconds   BIGINT      NOT NULL,
    result    VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    count     BIGINT      NOT NULL,
    PRIMARY KEY (policy_id, starts_at, seconds, result)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The last batch that each process has added to them, so that one whose commit was not answered is
-- added once.
CREATE TABLE IF NOT EXISTS claim_total_batch (
    process    BIGINT NOT NULL PRIMARY KEY,
    number     BIGINT NOT NULL,
    written_at BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
