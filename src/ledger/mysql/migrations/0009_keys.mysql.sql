-- The keys of one claim, to count them and to tell the gate of them. MySQL cannot say IF NOT EXISTS
-- of an index.
SET @statement = IF(EXISTS(SELECT 1 FROM information_schema.statistics
        WHERE table_schema = DATABASE() AND table_name = 'claim_key'
          AND index_name = 'claim_key_seq'),
    'DO 0', 'CREATE INDEX claim_key_seq ON claim_key (policy_id, seq)');
PREPARE statement FROM @statement;
EXECUTE statement;
DEALLOCATE PREPARE statement;
