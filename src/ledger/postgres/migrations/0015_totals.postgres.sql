-- What became of the claims on each policy, counted by all servers together: by the minute in the first
-- hour after its opening, by the hour before and later. `result` is a label of dibs_claims_total.
CREATE TABLE claim_total (
    policy_id bigint NOT NULL,
    starts_at bigint NOT NULL,
    seconds   bigint NOT NULL,
    result    text   COLLATE "C" NOT NULL,
    count     bigint NOT NULL,
    PRIMARY KEY (policy_id, starts_at, seconds, result)
);

-- The last batch that each process has added to them, so that one whose commit was not answered is
-- added once.
CREATE TABLE claim_total_batch (
    process    bigint NOT NULL PRIMARY KEY,
    number     bigint NOT NULL,
    written_at bigint NOT NULL
);
