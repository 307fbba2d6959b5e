-- What processes that share a ledger agree through: who is a policy's steward, and how far each
-- writer has come.

-- `until` is in wall milliseconds of the database's own clock.
CREATE TABLE steward (
    policy_id INTEGER PRIMARY KEY REFERENCES policy (id),
    holder    TEXT    NOT NULL,
    until     INTEGER NOT NULL
) STRICT;

-- The mark moves by one in every transaction of its writer, so that a writer whose connection broke
-- finds out whether its last one was committed, and whether this is still the database it left.
CREATE TABLE writer (
    name   TEXT    PRIMARY KEY,
    mark   INTEGER NOT NULL,
    holder TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
