-- Each event sink has its own copy of the outbox, so that none waits for another: 0 is Kafka, 1 the
-- webhook.
ALTER TABLE outbox ADD COLUMN sink smallint NOT NULL DEFAULT 0;
ALTER TABLE outbox DROP CONSTRAINT outbox_pkey;
ALTER TABLE outbox ADD PRIMARY KEY (sink, policy_id, number);

-- Since when a sink takes nothing, and why; `asked` rises when somebody wants it tried at once.
CREATE TABLE sink_state (
    sink          smallint PRIMARY KEY,
    failing_since bigint   NOT NULL,
    asked         bigint   NOT NULL,
    words         text     NOT NULL
);

-- What operators did, by the names of their tokens.
CREATE TABLE action (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     bigint NOT NULL,
    who    text   COLLATE "C" NOT NULL,
    what   text   COLLATE "C" NOT NULL,
    target text   COLLATE "C" NOT NULL,
    was    text   NOT NULL,
    became text   NOT NULL
);
CREATE INDEX action_target ON action (target, id);
