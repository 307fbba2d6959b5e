-- The orders of a day are found by an index. MySQL cannot say IF NOT EXISTS of one.
SET @statement = IF(EXISTS(SELECT 1 FROM information_schema.statistics
        WHERE table_schema = DATABASE() AND table_name = 'sale_order'
          AND index_name = 'sale_order_day'),
    'DO 0', 'CREATE INDEX sale_order_day ON sale_order (day)');
PREPARE statement FROM @statement;
EXECUTE statement;
DEALLOCATE PREPARE statement;
