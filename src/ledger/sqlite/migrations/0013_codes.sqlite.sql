-- Policies that were made while a code had 8 characters of its MAC: theirs stay as they are. Those of
-- all others have 13.
CREATE TABLE short_code_policy (
    policy_id INTEGER NOT NULL PRIMARY KEY
) STRICT;
INSERT INTO short_code_policy (policy_id) SELECT id FROM policy;
