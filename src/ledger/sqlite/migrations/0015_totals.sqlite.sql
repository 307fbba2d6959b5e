-- What became of the claims on each policy, counted by all servers together: by the minute in the first
-- hour after its opening, by the hour before and later. `result` is a label of dibs_claims_total.
CREATE TABLE claim_total (
    policy_id INTEGER NOT NULL,
    starts_at INTEGER NOT NULL,
    seconds   INTEGER NOT NULL,
    result    TEXT    NOT NULL,
    count     INTEGER NOT NULL,
    PRIMARY KEY (policy_id, starts_at, seconds, result)
) STRICT, WITHOUT ROWID;

-- The last batch that each process has added to them, so that one whose commit was not answered is
-- added once.
CREATE TABLE claim_total_batch (
    process    INTEGER NOT NULL PRIMARY KEY,
    number     INTEGER NOT NULL,
    written_at INTEGER NOT NULL
) STRICT;
