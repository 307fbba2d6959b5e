-- Ids are up to 128 bytes of UTF-8, compared byte for byte: utf8mb4_bin would pad with blanks, and no
-- id ends with one. What a database says of one that it refuses has the id in it.
ALTER TABLE coupon
    MODIFY user_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    MODIFY order_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
ALTER TABLE blocked_user
    MODIFY user_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL;
ALTER TABLE dead_letter
    MODIFY user_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL;
ALTER TABLE outbox
    MODIFY user_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    MODIFY order_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
ALTER TABLE refused_claim
    MODIFY user_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    MODIFY reason VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL;
ALTER TABLE reserve_coupon
    MODIFY user_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL;
ALTER TABLE product
    MODIFY product_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL;
ALTER TABLE sale_order
    MODIFY order_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL;
ALTER TABLE sale_item
    MODIFY order_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    MODIFY product_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL;
ALTER TABLE sale_day
    MODIFY product_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL;
ALTER TABLE sale_feed
    MODIFY product_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL;
ALTER TABLE product_signal
    MODIFY signal_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    MODIFY product_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL;

-- The currency of a policy's amounts, and when its coupons end. A coupon used to end with the window to
-- claim it where it had no days of its own: those of policies that are here still do. MySQL cannot say
-- IF NOT EXISTS of a column.
SET @statement = IF(EXISTS(SELECT 1 FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'policy' AND column_name = 'currency'),
    'DO 0',
    'ALTER TABLE policy ADD COLUMN coupon_expires_at BIGINT,
         ADD COLUMN currency VARCHAR(3) CHARACTER SET ascii COLLATE ascii_bin');
PREPARE statement FROM @statement;
EXECUTE statement;
DEALLOCATE PREPARE statement;
UPDATE policy SET coupon_expires_at = closes_at WHERE coupon_valid_days IS NULL;
