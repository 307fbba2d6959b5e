-- The currency of a policy's amounts, and when its coupons end. A coupon used to end with the window to
-- claim it where it had no days of its own: those of policies that are here still do.
ALTER TABLE policy ADD COLUMN coupon_expires_at INTEGER;
ALTER TABLE policy ADD COLUMN currency TEXT;
UPDATE policy SET coupon_expires_at = closes_at WHERE coupon_valid_days IS NULL;
