-- Claims of a shared gate that came to nothing for good, and why, until somebody has looked at them.
CREATE TABLE dead_letter (
    policy_id    bigint  NOT NULL,
    seq          bigint  NOT NULL,
    requested_at bigint  NOT NULL,
    died_at      bigint  NOT NULL,
    nth          integer NOT NULL,
    attempts     integer NOT NULL,
    user_id      text    COLLATE "C" NOT NULL,
    request_id   bytea   NOT NULL,
    reason       text    NOT NULL,
    PRIMARY KEY (policy_id, seq)
);
