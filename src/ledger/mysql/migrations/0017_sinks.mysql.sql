-- Each event sink has its own copy of the outbox, so that none waits for another: 0 is Kafka, 1 the
-- webhook. MySQL cannot say IF NOT EXISTS of a column.
SET @statement = IF(EXISTS(SELECT 1 FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'outbox' AND column_name = 'sink'),
    'DO 0', 'ALTER TABLE outbox ADD COLUMN sink SMALLINT NOT NULL DEFAULT 0, DROP PRIMARY KEY, ADD PRIMARY KEY (sink, policy_id, number)');
PREPARE statement FROM @statement;
EXECUTE statement;
DEALLOCATE PREPARE statement;

-- Since when a sink takes nothing, and why; `asked` rises when somebody wants it tried at once.
CREATE TABLE IF NOT EXISTS sink_state (
    sink          SMALLINT     NOT NULL PRIMARY KEY,
    failing_since BIGINT       NOT NULL,
    asked         BIGINT       NOT NULL,
    words         VARCHAR(500) NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- What operators did, by the names of their tokens.
CREATE TABLE IF NOT EXISTS action (
    id     BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at     BIGINT       NOT NULL,
    who    VARCHAR(100) NOT NULL,
    what   VARCHAR(64)  NOT NULL,
    target VARCHAR(200) NOT NULL,
    was    TEXT         NOT NULL,
    became TEXT         NOT NULL,
    KEY action_target (target, id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
