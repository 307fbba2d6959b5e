-- Who looks after a policy does so in terms, which are counted here: whatever a steward writes in an
-- earlier term than the newest is refused. A policy that was never looked after is in term 0.
ALTER TABLE steward ADD COLUMN term bigint NOT NULL DEFAULT 0;

INSERT INTO steward (policy_id, holder, until) SELECT id, '', 0 FROM policy
ON CONFLICT (policy_id) DO NOTHING;

-- The workers that live, by the database's own clock: a steward keeps its policies as long as it is
-- one of them.
CREATE TABLE steward_holder (
    until bigint NOT NULL,
    name  text   COLLATE "C" PRIMARY KEY
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);
