-- Policies that were made while a code had 8 characters of its MAC: theirs stay as they are. Those of
-- all others have 13.
CREATE TABLE short_code_policy (
    policy_id bigint NOT NULL PRIMARY KEY
);
INSERT INTO short_code_policy (policy_id) SELECT id FROM policy;
