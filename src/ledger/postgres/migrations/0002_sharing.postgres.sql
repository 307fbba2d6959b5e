-- What processes that share a ledger agree through: who is a policy's steward, and how far each
-- writer has come.

-- `until` is in wall milliseconds of the database's own clock.
CREATE TABLE steward (
    policy_id bigint PRIMARY KEY REFERENCES policy (id),
    until     bigint NOT NULL,
    holder    text   COLLATE "C" NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- The mark moves by one in every transaction of its writer, so that a writer whose connection broke
-- finds out whether its last one was committed, and whether this is still the database it left.
-- A nearly empty page takes the many versions of a row until they are pruned.
CREATE TABLE writer (
    mark   bigint NOT NULL,
    name   text   COLLATE "C" PRIMARY KEY,
    holder text   COLLATE "C" NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);
