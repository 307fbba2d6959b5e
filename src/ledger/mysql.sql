-- Every statement the ledger runs on MySQL and MariaDB. "-- name:" lines give the name in
-- statements.h; those at the end are the driver's own. ?1 is the first value, wherever it stands.
-- A locking read locks the rows of the tables it names, not those of its subqueries: what it also
-- shows of the policy comes from a subquery, so that nobody who changes the policy waits for it.
-- FORCE INDEX: with few statistics, the server would rather walk a whole policy in the order asked
-- for than sort the few coupons of a user.

-- name: policy_insert
INSERT INTO policy (id, name, discount_type, discount_value, total, per_user_limit, opens_at,
    closes_at, coupon_valid_days, reserve, paused, created_at, version, unleased, next_seq)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0, ?11, 1, ?5, 1);

-- name: policy_next_id
SELECT CASE WHEN COALESCE(MAX(id), 0) < 9007199254740991 THEN COALESCE(MAX(id), 0) + 1
    ELSE (SELECT MIN(candidate)
          FROM (SELECT 1 AS candidate UNION ALL SELECT id + 1 FROM policy) AS candidates
          WHERE candidate NOT IN (SELECT id FROM policy)) END
FROM policy;

-- name: policy_by_id
SELECT id, name, discount_type, discount_value, total, per_user_limit, opens_at, closes_at,
    coupon_valid_days, reserve, paused, closed_at, created_at, version, unleased, next_seq
FROM policy WHERE id = ?1;

-- name: policy_for_update
SELECT id, name, discount_type, discount_value, total, per_user_limit, opens_at, closes_at,
    coupon_valid_days, reserve, paused, closed_at, created_at, version, unleased, next_seq
FROM policy WHERE id = ?1 FOR UPDATE;

-- name: policy_list
SELECT id, name, discount_type, discount_value, total, per_user_limit, opens_at, closes_at,
    coupon_valid_days, reserve, paused, closed_at, created_at, version, unleased, next_seq
FROM policy WHERE id > ?1 ORDER BY id LIMIT ?2;

-- name: policy_update
UPDATE policy SET total = ?2, opens_at = ?3, closes_at = ?4, reserve = ?5, paused = ?6,
    closed_at = ?7, version = version + 1, unleased = ?8, next_seq = ?9
WHERE id = ?1;

-- name: policy_overwrite
UPDATE policy SET name = ?2, discount_type = ?3, discount_value = ?4, total = ?5,
    per_user_limit = ?6, opens_at = ?7, closes_at = ?8, coupon_valid_days = ?9,
    reserve = ?10, paused = ?11, closed_at = ?12, created_at = ?13, version = ?14,
    unleased = ?15, next_seq = ?16
WHERE id = ?1;

-- name: policy_return_unit
UPDATE policy SET unleased = unleased + 1, version = version + 1 WHERE id = ?1;

-- name: policy_take_unit
UPDATE policy SET unleased = unleased - 1, version = version + 1 WHERE id = ?1 AND unleased > 0;

-- name: lease_insert
INSERT INTO lease (policy_id, first_seq, count, state) VALUES (?1, ?2, ?3, 'OPEN');

-- name: lease_for_update
SELECT id, policy_id, first_seq, count, state = 'OPEN' FROM lease WHERE id = ?1 FOR UPDATE;

-- name: lease_for_issue
SELECT l.policy_id, l.first_seq, l.count, l.state = 'OPEN',
    (SELECT p.coupon_valid_days FROM policy p WHERE p.id = l.policy_id),
    (SELECT p.closes_at FROM policy p WHERE p.id = l.policy_id)
FROM lease l WHERE l.id = ?1 LOCK IN SHARE MODE;

-- name: lease_lock_open
-- Waits for all who issue claims of the policy's open leases, and keeps them off.
SELECT id FROM lease FORCE INDEX (lease_open) WHERE state = 'OPEN' AND policy_id = ?1 ORDER BY first_seq FOR UPDATE;

-- name: lease_shrink
UPDATE lease SET count = ?2 WHERE id = ?1;

-- name: lease_close
UPDATE lease SET state = 'CLOSED' WHERE id = ?1;

-- name: lease_close_all
UPDATE lease SET state = 'CLOSED', count = 0 WHERE policy_id = ?1 AND state = 'OPEN';

-- name: lease_close_these
-- [id, …]
UPDATE JSON_TABLE(?1, '$[*]' COLUMNS (id BIGINT PATH '$')) AS given
    STRAIGHT_JOIN lease ON lease.id = given.id
SET lease.state = 'CLOSED';

-- name: lease_put
INSERT INTO lease (id, policy_id, first_seq, count, state) VALUES (?1, ?2, ?3, ?4, ?5);

-- name: lease_reopen
UPDATE lease SET state = 'OPEN', count = ?2 WHERE id = ?1;

-- name: lease_balance
-- The driver asks lease_rows for each and adds up what is left of them.
SELECT id, policy_id, first_seq, count FROM lease WHERE policy_id = ?1 AND state = 'OPEN';

-- name: lease_rows
-- What a lease has given out, whatever became of it.
SELECT
    (SELECT COUNT(*) FROM coupon WHERE policy_id = ?1 AND seq >= ?2 AND seq < ?3) +
    (SELECT COUNT(*) FROM refused_claim WHERE policy_id = ?1 AND seq >= ?2 AND seq < ?3),
    GREATEST(
        (SELECT COALESCE(MAX(seq), 0) FROM coupon
         WHERE policy_id = ?1 AND seq >= ?2 AND seq < ?3),
        (SELECT COALESCE(MAX(seq), 0) FROM refused_claim
         WHERE policy_id = ?1 AND seq >= ?2 AND seq < ?3));

-- name: lease_list_open
-- The driver asks lease_rows for each.
SELECT id, policy_id, first_seq, count FROM lease WHERE state = 'OPEN' ORDER BY id;

-- name: lease_open_of_policy
SELECT id, policy_id, first_seq, count FROM lease
WHERE policy_id = ?1 AND state = 'OPEN' ORDER BY first_seq, id;

-- name: lease_all_of_policy
SELECT id, policy_id, first_seq, count, state = 'OPEN' FROM lease
WHERE policy_id = ?1 ORDER BY first_seq, id;

-- name: repair_insert
INSERT INTO repair (asked_at, policy_id, plan, outcome) VALUES (?1, ?2, ?3, '');

-- name: repair_finish
UPDATE repair SET done_at = ?3, outcome = ?4
WHERE asked_at = ?1 AND policy_id = ?2 AND done_at IS NULL;

-- name: repair_waiting
SELECT COUNT(*) FROM repair WHERE policy_id = ?1 AND done_at IS NULL;

-- name: repair_list
SELECT asked_at, policy_id, done_at, plan, outcome FROM repair
ORDER BY asked_at DESC, policy_id DESC LIMIT ?1;

-- name: coupon_insert
-- The driver repeats the group behind VALUES, once per row.
INSERT INTO coupon (policy_id, seq, user_id, nth, slot, state, request_id, lease_id, requested_at,
    issued_at, expires_at, merged_into, reason)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13);

-- name: coupon_by_seq
SELECT c.policy_id, c.seq, c.user_id, c.nth, c.state, c.request_id, c.lease_id, c.requested_at,
    c.issued_at, COALESCE(c.expires_at, p.closes_at), c.redeemed_at, c.cancelled_at, c.order_id,
    c.merged_into, c.reason
FROM coupon c JOIN policy p ON p.id = c.policy_id WHERE c.policy_id = ?1 AND c.seq = ?2;

-- name: coupon_for_update
-- One that somebody else has is BUSY at once: claims of others wait in the same transaction.
SELECT c.policy_id, c.seq, c.user_id, c.nth, c.state, c.request_id, c.lease_id, c.requested_at,
    c.issued_at,
    COALESCE(c.expires_at, (SELECT p.closes_at FROM policy p WHERE p.id = c.policy_id)),
    c.redeemed_at, c.cancelled_at, c.order_id, c.merged_into, c.reason
FROM coupon c WHERE c.policy_id = ?1 AND c.seq = ?2 FOR UPDATE NOWAIT;

-- name: coupon_by_slot
SELECT seq FROM coupon WHERE user_id = ?2 AND policy_id = ?1 AND slot = ?3;

-- name: coupon_list_of_user
SELECT c.policy_id, c.seq, c.user_id, c.nth, c.state, c.request_id, c.lease_id, c.requested_at,
    c.issued_at, COALESCE(c.expires_at, p.closes_at), c.redeemed_at, c.cancelled_at, c.order_id,
    c.merged_into, c.reason
FROM coupon c FORCE INDEX (coupon_user_slot) STRAIGHT_JOIN policy p ON p.id = c.policy_id
WHERE c.user_id = ?1 AND c.policy_id >= ?2 AND (c.policy_id > ?2 OR c.seq > ?3)
UNION ALL
SELECT r.policy_id, r.seq, r.user_id, r.nth, 'VOID', r.request_id, r.lease_id, r.requested_at,
    r.refused_at, NULL, NULL, NULL, NULL, NULL, r.reason
FROM refused_claim r FORCE INDEX (refused_claim_user)
WHERE r.user_id = ?1 AND r.policy_id >= ?2 AND (r.policy_id > ?2 OR r.seq > ?3)
ORDER BY 1, 2 LIMIT ?4;

-- name: coupon_list_of_claimant
SELECT c.policy_id, c.seq, c.user_id, c.nth, c.state, c.request_id, c.lease_id, c.requested_at,
    c.issued_at, COALESCE(c.expires_at, p.closes_at), c.redeemed_at, c.cancelled_at, c.order_id,
    c.merged_into, c.reason
FROM coupon c FORCE INDEX (coupon_user_slot) STRAIGHT_JOIN policy p ON p.id = c.policy_id
WHERE c.user_id = ?2 AND c.policy_id = ?1
UNION ALL
SELECT r.policy_id, r.seq, r.user_id, r.nth, 'VOID', r.request_id, r.lease_id, r.requested_at,
    r.refused_at, NULL, NULL, NULL, NULL, NULL, r.reason
FROM refused_claim r FORCE INDEX (refused_claim_user)
WHERE r.user_id = ?2 AND r.policy_id = ?1
ORDER BY 2 DESC LIMIT ?3;

-- name: coupon_list_of_policy
SELECT c.policy_id, c.seq, c.user_id, c.nth, c.state, c.request_id, c.lease_id, c.requested_at,
    c.issued_at, COALESCE(c.expires_at, p.closes_at), c.redeemed_at, c.cancelled_at, c.order_id,
    c.merged_into, c.reason
FROM coupon c FORCE INDEX (PRIMARY) STRAIGHT_JOIN policy p ON p.id = c.policy_id
WHERE c.policy_id = ?1 AND c.seq > ?2
ORDER BY c.seq LIMIT ?3;

-- name: coupon_redeem
UPDATE coupon SET state = 'REDEEMED', redeemed_at = ?3, order_id = ?4
WHERE policy_id = ?1 AND seq = ?2;

-- name: coupon_cancel
UPDATE coupon SET state = 'CANCELLED', slot = NULL, cancelled_at = ?3
WHERE policy_id = ?1 AND seq = ?2;

-- name: coupon_scan
SELECT policy_id, seq, user_id, nth, state, request_id, requested_at
FROM coupon FORCE INDEX (PRIMARY) ORDER BY policy_id, seq;

-- name: coupon_scan_of_policy
SELECT policy_id, seq, user_id, nth, state, request_id, requested_at
FROM coupon FORCE INDEX (PRIMARY) WHERE policy_id = ?1 ORDER BY seq;

-- name: coupon_range
(SELECT seq, user_id, nth, state, request_id FROM coupon
 WHERE policy_id = ?1 AND seq > ?2 AND seq <= ?3 ORDER BY seq LIMIT ?4)
UNION ALL
(SELECT seq, user_id, nth, 'VOID', request_id FROM refused_claim
 WHERE policy_id = ?1 AND seq > ?2 AND seq <= ?3 ORDER BY seq LIMIT ?4)
ORDER BY seq LIMIT ?4;

-- name: coupon_sums
-- How many there are (with those that were refused), how many count, the highest seq, and those whose
-- slot does not fit their state.
SELECT COUNT(*) + (SELECT COUNT(*) FROM refused_claim r WHERE r.policy_id = ?1),
    COUNT(CASE WHEN state IN ('ISSUED', 'REDEEMED') THEN 1 END),
    GREATEST(COALESCE(MAX(seq), 0),
        (SELECT COALESCE(MAX(r.seq), 0) FROM refused_claim r WHERE r.policy_id = ?1)),
    COUNT(CASE WHEN COALESCE(slot, -1) <>
        CASE WHEN state IN ('ISSUED', 'REDEEMED') THEN nth ELSE -1 END THEN 1 END)
FROM coupon WHERE policy_id = ?1;

-- name: coupon_stray
-- Coupons of a lease that the policy never had.
SELECT COUNT(*) FROM coupon c
WHERE c.policy_id = ?1 AND c.lease_id <> 0 AND NOT EXISTS
    (SELECT 1 FROM lease l WHERE l.id = c.lease_id AND l.policy_id = c.policy_id);

-- name: coupon_adopt
-- Coupons of a lease that the policy never had become coupons without one.
UPDATE coupon SET lease_id = 0
WHERE policy_id = ?1 AND lease_id <> 0 AND NOT EXISTS
    (SELECT 1 FROM lease l WHERE l.id = coupon.lease_id AND l.policy_id = coupon.policy_id);

-- name: user_over_limit
-- A coupon that a repair has kept above the limit has a reason.
SELECT COUNT(*) FROM
    (SELECT user_id FROM coupon
     WHERE policy_id = ?1 AND state IN ('ISSUED', 'REDEEMED') AND reason IS NULL
     GROUP BY user_id HAVING COUNT(*) > ?2) AS holders;

-- name: coupon_crowded
-- The active coupons of users with one whose slot is not its number, or with more than the limit.
SELECT c.user_id, c.seq, c.nth, COALESCE(c.slot, 0), CASE WHEN c.reason IS NULL THEN 0 ELSE 1 END
FROM coupon c INNER JOIN
    (SELECT user_id FROM coupon WHERE policy_id = ?1 AND state IN ('ISSUED', 'REDEEMED')
     GROUP BY user_id HAVING COUNT(CASE WHEN reason IS NULL THEN 1 END) > ?2
         OR COUNT(CASE WHEN COALESCE(slot, 0) <> nth THEN 1 END) > 0) AS crowd
    ON crowd.user_id = c.user_id
WHERE c.policy_id = ?1 AND c.state IN ('ISSUED', 'REDEEMED')
ORDER BY c.user_id, c.seq;

-- name: coupon_free_slots
UPDATE coupon SET slot = NULL
WHERE policy_id = ?1 AND slot IS NOT NULL AND state NOT IN ('ISSUED', 'REDEEMED');

-- name: coupon_unplace
UPDATE coupon SET slot = NULL WHERE policy_id = ?1 AND seq = ?2;

-- name: coupon_place
UPDATE coupon SET nth = ?3, slot = ?3 WHERE policy_id = ?1 AND seq = ?2;

-- name: coupon_keep
UPDATE coupon SET reason = ?3 WHERE policy_id = ?1 AND seq = ?2;

-- name: refused_insert
INSERT INTO refused_claim (policy_id, seq, user_id, nth, request_id, lease_id, requested_at,
    refused_at, reason)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9);

-- name: refused_by_seq
-- As coupon_by_seq.
SELECT policy_id, seq, user_id, nth, 'VOID', request_id, lease_id, requested_at, refused_at,
    NULL, NULL, NULL, NULL, NULL, reason
FROM refused_claim WHERE policy_id = ?1 AND seq = ?2;

-- name: refused_among
SELECT seq FROM refused_claim WHERE policy_id = ?1 AND seq >= ?2 AND seq <= ?3;

-- name: refused_scan
-- As coupon_scan.
SELECT policy_id, seq, user_id, nth, 'VOID', request_id, requested_at
FROM refused_claim ORDER BY policy_id, seq;

-- name: refused_scan_of_policy
SELECT policy_id, seq, user_id, nth, 'VOID', request_id, requested_at
FROM refused_claim WHERE policy_id = ?1 ORDER BY seq;

-- name: key_insert
INSERT INTO claim_key (policy_id, request_id, seq) VALUES (?1, ?2, ?3)
ON DUPLICATE KEY UPDATE claim_key.seq = claim_key.seq;

-- name: key_by_id
SELECT seq FROM claim_key WHERE policy_id = ?1 AND request_id = ?2;

-- name: key_count
SELECT COUNT(*) FROM claim_key WHERE policy_id = ?1 AND seq = ?2;

-- name: key_scan
SELECT policy_id, request_id, seq FROM claim_key;

-- name: key_scan_of_policy
SELECT k.policy_id, k.request_id, k.seq, c.user_id, c.nth
FROM claim_key k STRAIGHT_JOIN coupon c ON c.policy_id = k.policy_id AND c.seq = k.seq
WHERE k.policy_id = ?1;

-- name: short_code_policies
SELECT policy_id FROM short_code_policy WHERE policy_id > ?1 ORDER BY policy_id LIMIT ?2;

-- name: entering_insert
INSERT INTO entering_coupon (policy_id, seq, changes) VALUES (?1, ?2, 1)
ON DUPLICATE KEY UPDATE entering_coupon.changes = entering_coupon.changes + 1;

-- name: entering_policies
SELECT DISTINCT policy_id FROM entering_coupon WHERE policy_id > ?1 ORDER BY policy_id LIMIT ?2;

-- name: entering_list
SELECT c.policy_id, c.seq, c.user_id, c.nth, c.state, c.request_id, c.lease_id, c.requested_at,
    c.issued_at, COALESCE(c.expires_at, p.closes_at), c.redeemed_at, c.cancelled_at, c.order_id,
    c.merged_into, c.reason, e.changes
FROM entering_coupon e JOIN coupon c ON c.policy_id = e.policy_id AND c.seq = e.seq
    JOIN policy p ON p.id = c.policy_id
WHERE e.policy_id = ?1 ORDER BY e.seq LIMIT ?2;

-- name: entering_keys
-- The keys of those coupons up to a seq.
SELECT k.policy_id, k.request_id, k.seq, c.user_id, c.nth
FROM entering_coupon e JOIN claim_key k ON k.policy_id = e.policy_id AND k.seq = e.seq
    JOIN coupon c ON c.policy_id = e.policy_id AND c.seq = e.seq
WHERE e.policy_id = ?1 AND e.seq <= ?2;

-- name: entering_delete
-- Unless there is more to tell by now, or the coupon has become something else.
DELETE FROM entering_coupon WHERE policy_id = ?1 AND seq = ?2 AND changes = ?3
  AND EXISTS (SELECT 1 FROM coupon c WHERE c.policy_id = ?1 AND c.seq = ?2 AND c.state = ?4);

-- name: entering_forget
DELETE FROM entering_coupon WHERE policy_id = ?1;

-- name: reserve_insert
INSERT INTO reserve_coupon (policy_id, seq, user_id) VALUES (?1, ?2, ?3);

-- name: reserve_among
-- The coupons that those users have from the reserve.
SELECT c.user_id, c.request_id, c.seq
FROM JSON_TABLE(?2, '$[*]' COLUMNS (
        user_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS asked
    STRAIGHT_JOIN reserve_coupon r ON r.policy_id = ?1 AND r.user_id = asked.user_id
    STRAIGHT_JOIN coupon c ON c.policy_id = r.policy_id AND c.seq = r.seq
WHERE c.state NOT IN ('VOID', 'MERGED');

-- name: exceptions_any
-- Whether anyone is blocked, whether any claim was refused, and whether the reserve gave anything.
SELECT EXISTS (SELECT 1 FROM blocked_user), EXISTS (SELECT 1 FROM refused_claim),
    EXISTS (SELECT 1 FROM reserve_coupon);

-- name: blocked_has
SELECT 1 FROM blocked_user WHERE user_id = ?1;

-- name: blocked_among
SELECT b.user_id
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        user_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS asked
    STRAIGHT_JOIN blocked_user b ON b.user_id = asked.user_id;

-- name: blocked_insert
INSERT INTO blocked_user (user_id, blocked_at) VALUES (?1, ?2)
ON DUPLICATE KEY UPDATE blocked_user.blocked_at = blocked_user.blocked_at;

-- name: blocked_delete
DELETE FROM blocked_user WHERE user_id = ?1;

-- name: blocked_scan
SELECT user_id FROM blocked_user;

-- name: letter_insert
INSERT INTO dead_letter (policy_id, seq, user_id, nth, request_id, requested_at, attempts, died_at,
    reason)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON DUPLICATE KEY UPDATE dead_letter.seq = dead_letter.seq;

-- name: letter_by_seq
SELECT policy_id, seq, user_id, nth, request_id, requested_at, attempts, died_at, reason
FROM dead_letter WHERE policy_id = ?1 AND seq = ?2;

-- name: letter_list
SELECT policy_id, seq, user_id, nth, request_id, requested_at, attempts, died_at, reason
FROM dead_letter WHERE policy_id > ?1 OR (policy_id = ?1 AND seq > ?2)
ORDER BY policy_id, seq LIMIT ?3;

-- name: letter_delete
DELETE FROM dead_letter WHERE policy_id = ?1 AND seq = ?2;

-- name: letter_count
SELECT count(*) FROM dead_letter;

-- name: sale_lock
SELECT last_id, written_at, zone FROM sale_counter WHERE id = 1 FOR UPDATE;

-- name: sale_peek
SELECT last_id, written_at, zone FROM sale_counter WHERE id = 1;

-- name: sale_move
UPDATE sale_counter SET last_id = ?1, written_at = ?2 WHERE id = 1;

-- name: sale_zone
UPDATE sale_counter SET zone = ?1 WHERE id = 1;

-- name: sale_trim
DELETE FROM sale_feed WHERE id <= ?1;

-- name: order_any
SELECT 1 FROM sale_order LIMIT 1;

-- name: order_among
-- Those of ["…", …] that are there.
SELECT o.order_id, o.digest, o.paid_at, o.received_at, o.refunded_at, o.day
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        order_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS asked
    STRAIGHT_JOIN sale_order o ON o.order_id = asked.order_id;

-- name: order_insert
-- [["order_id", "digest", paid_at, day], …]
INSERT INTO sale_order (order_id, digest, paid_at, day, received_at)
SELECT given.order_id, given.digest, given.paid_at, given.day, ?2
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        order_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]',
        digest   VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
        paid_at  BIGINT PATH '$[2]',
        day      BIGINT PATH '$[3]')) AS given;

-- name: order_refund
UPDATE sale_order SET refunded_at = ?2 WHERE order_id = ?1;

-- name: order_by_id
SELECT order_id, digest, paid_at, received_at, refunded_at, day FROM sale_order
WHERE order_id = ?1;

-- name: item_insert
-- [["order_id", "product_id", quantity], …]
INSERT INTO sale_item (order_id, product_id, quantity)
SELECT given.order_id, given.product_id, given.quantity
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        order_id   VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]',
        product_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
        quantity   BIGINT PATH '$[2]')) AS given;

-- name: item_list
SELECT product_id, quantity FROM sale_item WHERE order_id = ?1 ORDER BY product_id;

-- name: day_add
-- [[day, "product_id", quantity], …]
INSERT INTO sale_day (day, product_id, quantity)
SELECT given.day, given.product_id, given.quantity
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        day        BIGINT PATH '$[0]',
        product_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
        quantity   BIGINT PATH '$[2]')) AS given
ON DUPLICATE KEY UPDATE sale_day.quantity = sale_day.quantity + given.quantity;

-- name: day_subtract
-- The same; all of them are there.
UPDATE JSON_TABLE(?1, '$[*]' COLUMNS (
        day        BIGINT PATH '$[0]',
        product_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
        quantity   BIGINT PATH '$[2]')) AS taken
    STRAIGHT_JOIN sale_day ON sale_day.day = taken.day AND sale_day.product_id = taken.product_id
SET sale_day.quantity = sale_day.quantity - taken.quantity;

-- name: feed_insert
-- [[day, "product_id", quantity], …] become the entries after an id.
INSERT INTO sale_feed (id, written_at, day, product_id, quantity)
SELECT ?2 + given.place, ?3, given.day, given.product_id, given.quantity
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        place      FOR ORDINALITY,
        day        BIGINT PATH '$[0]',
        product_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
        quantity   BIGINT PATH '$[2]')) AS given;

-- name: feed_after
SELECT f.id, f.written_at, f.day, f.product_id, f.quantity, m.kind, m.at_s, m.quantity
FROM sale_feed f LEFT JOIN sale_moment m ON m.id = f.id
WHERE f.id >= ?1 ORDER BY f.id LIMIT ?2;

-- name: moment_insert
-- [[kind, at_s, quantity], …] belong to the entries after an id.
INSERT INTO sale_moment (id, kind, at_s, quantity)
SELECT ?2 + given.place, given.kind, given.at_s, given.quantity
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        place    FOR ORDINALITY,
        kind     BIGINT PATH '$[0]',
        at_s     BIGINT PATH '$[1]',
        quantity BIGINT PATH '$[2]')) AS given;

-- name: moment_trim
DELETE FROM sale_moment WHERE id <= ?1;

-- name: moment_scan
-- Everything that counts on some days: orders that are not refunded, and signals.
SELECT o.day, 1, i.product_id, o.paid_at DIV 1000, i.quantity
FROM sale_order o JOIN sale_item i ON i.order_id = o.order_id
WHERE o.day >= ?1 AND o.day <= ?2 AND o.refunded_at IS NULL
UNION ALL
SELECT s.day, s.kind, s.product_id, s.at DIV 1000, s.quantity
FROM product_signal s WHERE s.day >= ?1 AND s.day <= ?2;

-- name: signal_among
-- Those of ["…", …] that are there.
SELECT s.signal_id, s.kind, s.product_id, s.quantity, s.at
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        signal_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS asked
    STRAIGHT_JOIN product_signal s ON s.signal_id = asked.signal_id;

-- name: signal_insert
-- [["signal_id", kind, "product_id", quantity, at, day], …]
INSERT INTO product_signal (signal_id, kind, product_id, quantity, at, day)
SELECT given.signal_id, given.kind, given.product_id, given.quantity, given.at, given.day
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        signal_id  VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]',
        kind       BIGINT PATH '$[1]',
        product_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$[2]',
        quantity   BIGINT PATH '$[3]',
        at         BIGINT PATH '$[4]',
        day        BIGINT PATH '$[5]')) AS given;

-- name: signal_trim
DELETE FROM product_signal WHERE day < ?1;

-- name: day_scan
SELECT day, product_id, quantity FROM sale_day WHERE day >= ?1 AND day <= ?2
ORDER BY day, product_id;

-- name: sales_top
SELECT ROW_NUMBER() OVER (ORDER BY sold DESC, sold_last DESC, product_id), product_id, sold,
    sold_last
FROM (SELECT product_id, SUM(quantity) AS sold,
          SUM(CASE WHEN day = ?2 THEN quantity ELSE 0 END) AS sold_last
      FROM sale_day WHERE day >= ?1 AND day <= ?2 GROUP BY product_id) AS totals
WHERE sold > 0 ORDER BY sold DESC, sold_last DESC, product_id LIMIT ?3;

-- name: sales_of
SELECT place, product_id, sold, sold_last
FROM (SELECT product_id, sold, sold_last,
          ROW_NUMBER() OVER (ORDER BY sold DESC, sold_last DESC, product_id) AS place
      FROM (SELECT product_id, SUM(quantity) AS sold,
                SUM(CASE WHEN day = ?2 THEN quantity ELSE 0 END) AS sold_last
            FROM sale_day WHERE day >= ?1 AND day <= ?2 GROUP BY product_id) AS totals
      WHERE sold > 0) AS ranked
WHERE product_id IN (
    SELECT asked.product_id FROM JSON_TABLE(?3, '$[*]' COLUMNS (
        product_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS asked)
ORDER BY place;

-- name: sales_around
WITH ranked AS (
    SELECT product_id, sold, sold_last,
        ROW_NUMBER() OVER (ORDER BY sold DESC, sold_last DESC, product_id) AS place
    FROM (SELECT product_id, SUM(quantity) AS sold,
              SUM(CASE WHEN day = ?2 THEN quantity ELSE 0 END) AS sold_last
          FROM sale_day WHERE day >= ?1 AND day <= ?2 GROUP BY product_id) AS totals
    WHERE sold > 0)
SELECT r.place, r.product_id, r.sold, r.sold_last
FROM ranked r JOIN ranked m ON r.place >= m.place - ?4 AND r.place <= m.place + ?4
WHERE m.product_id = ?3 ORDER BY r.place;

-- name: product_put
-- [["product_id", "name", price or null], …], each id once.
INSERT INTO product (product_id, name, price, updated_at)
SELECT given.product_id, given.name, given.price, ?2
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        product_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]',
        name       VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]',
        price      BIGINT PATH '$[2]')) AS given
ON DUPLICATE KEY UPDATE product.name = given.name, product.price = given.price,
    product.updated_at = ?2;

-- name: product_by_id
SELECT product_id, name, price, updated_at FROM product WHERE product_id = ?1;

-- name: product_among
SELECT p.product_id, p.name, p.price, p.updated_at
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        product_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS asked
    STRAIGHT_JOIN product p ON p.product_id = asked.product_id;

-- name: secret_insert
INSERT INTO secret (name, value) VALUES (?1, ?2)
ON DUPLICATE KEY UPDATE secret.value = secret.value;

-- name: secret_by_name
SELECT value FROM secret WHERE name = ?1;

-- name: steward_insert
INSERT INTO steward (policy_id, holder, until) VALUES (?1, '', 0)
ON DUPLICATE KEY UPDATE steward.until = steward.until;

-- name: steward_create
INSERT INTO steward (policy_id, holder, until, term)
VALUES (?1, ?2, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 + ?3, 1);

-- name: steward_for_update
-- A transaction of a steward that answers late has it locked: nobody waits for that.
SELECT s.term,
    s.until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000
    OR (s.holder <> ?2 AND EXISTS (
        SELECT 1 FROM steward_holder h WHERE h.name = s.holder
          AND h.until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000))
FROM steward s WHERE s.policy_id = ?1 FOR UPDATE SKIP LOCKED;

-- name: steward_take
UPDATE steward SET holder = ?2, until = 0, term = ?3 WHERE policy_id = ?1;

-- name: steward_share
SELECT term FROM steward WHERE policy_id = ?1 LOCK IN SHARE MODE;

-- name: steward_look
SELECT term FROM steward WHERE policy_id = ?1;

-- name: steward_list
-- Of a policy that is closed, and that nobody looks after any more, nothing is to be told.
SELECT s.policy_id, s.term, s.holder = ?1,
    s.until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000
    OR COALESCE(h.until, 0) > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000
FROM steward s JOIN policy p ON p.id = s.policy_id LEFT JOIN steward_holder h ON h.name = s.holder
WHERE p.closed_at IS NULL OR s.holder <> '' ORDER BY s.policy_id;

-- name: steward_release
UPDATE steward SET holder = '', until = 0 WHERE policy_id = ?1 AND holder = ?2;

-- name: steward_leave
UPDATE steward SET holder = '', until = 0 WHERE holder = ?1;

-- name: holder_beat
INSERT INTO steward_holder (name, until)
VALUES (?1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 + ?2)
ON DUPLICATE KEY UPDATE until = VALUES(until);

-- name: holder_count
-- Those that live, or did so many milliseconds ago.
SELECT COUNT(*) FROM steward_holder
WHERE until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 - ?1;

-- name: holder_leave
-- And those who could not say so, long ago.
DELETE FROM steward_holder
WHERE name = ?1 OR until < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 - 3600000;

-- name: writer_enter
-- By two: whoever finds the mark one further than it left it knows that its own commit did that.
INSERT INTO writer (name, mark, holder) VALUES (?1, 1, ?2)
ON DUPLICATE KEY UPDATE mark = writer.mark + 2, holder = ?2;

-- name: writer_read
SELECT mark, holder FROM writer WHERE name = ?1 FOR UPDATE;

-- name: writer_peek
SELECT mark, holder FROM writer WHERE name = ?1;

-- name: writer_move
UPDATE writer SET mark = ?3 WHERE name = ?1 AND mark = ?2;

-- name: writer_leave
DELETE FROM writer WHERE name = ?1;

-- name: event_take
INSERT INTO outbox_counter (policy_id, last_number) VALUES (?1, ?2)
ON DUPLICATE KEY UPDATE last_number = outbox_counter.last_number + ?2;

-- name: event_last
SELECT last_number FROM outbox_counter WHERE policy_id = ?1;

-- name: event_insert
-- [[policy_id, number, …], …], with 0 and "" where there is none.
INSERT INTO outbox (policy_id, number, seq, user_id, nth, request_id, state, changed_at,
    requested_at, issued_at, expires_at, order_id, merged_into, reason, traceparent)
SELECT e.policy_id, e.number, e.seq, e.user_id, e.nth, e.request_id, e.state, e.changed_at,
    e.requested_at, e.issued_at, NULLIF(e.expires_at, 0), NULLIF(e.order_id, ''), NULLIF(e.merged_into, 0),
    NULLIF(e.reason, ''), NULLIF(e.traceparent, '')
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        policy_id    BIGINT PATH '$[0]',
        number       BIGINT PATH '$[1]',
        seq          BIGINT PATH '$[2]',
        user_id      VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$[3]',
        nth          INT PATH '$[4]',
        request_id   CHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$[5]',
        state        VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin PATH '$[6]',
        changed_at   BIGINT PATH '$[7]',
        requested_at BIGINT PATH '$[8]',
        issued_at    BIGINT PATH '$[9]',
        expires_at   BIGINT PATH '$[10]',
        order_id     VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$[11]',
        merged_into  BIGINT PATH '$[12]',
        reason       VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[13]',
        traceparent  VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$[14]')) AS e;

-- name: event_list
SELECT policy_id, number, seq, user_id, nth, request_id, state, changed_at, requested_at,
    issued_at, expires_at, order_id, merged_into, reason, traceparent
FROM outbox WHERE policy_id >= ?1 AND (policy_id > ?1 OR number > ?2)
ORDER BY policy_id, number LIMIT ?3;

-- name: event_delete
DELETE FROM outbox WHERE policy_id = ?1 AND number <= ?2;

-- name: event_backlog
SELECT COUNT(*), COALESCE(MIN(changed_at), 0) FROM outbox;

-- name: duty_insert
INSERT INTO duty (name, holder, until) VALUES (?1, '', 0)
ON DUPLICATE KEY UPDATE duty.until = duty.until;

-- name: duty_hold
UPDATE duty SET holder = ?2,
    until = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 + ?3
WHERE name = ?1
  AND (holder = ?2
       OR until < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000);

-- name: duty_release
UPDATE duty SET until = 0 WHERE name = ?1 AND holder = ?2;

-- name: session_set
-- What every connection starts with: strict values, all rows of an answer and all checks of a key,
-- connections that outlive a commit, and limits on each wait, whatever the server's defaults are.
SET SESSION
    sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO,'
        'NO_ZERO_DATE,NO_ZERO_IN_DATE',
    SESSION character_set_client = 'utf8mb4',
    SESSION character_set_connection = 'utf8mb4',
    SESSION character_set_results = 'utf8mb4',
    SESSION sql_select_limit = 18446744073709551615,
    SESSION sql_big_selects = 1,
    SESSION sql_safe_updates = 0,
    SESSION unique_checks = 1,
    SESSION foreign_key_checks = 1,
    SESSION completion_type = 0,
    SESSION autocommit = 1,
    SESSION time_zone = '+00:00',
    SESSION innodb_lock_wait_timeout = ?1,
    SESSION lock_wait_timeout = ?1,
    SESSION net_write_timeout = ?2,
    SESSION wait_timeout = ?3;

-- name: session_writes
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;

-- name: session_reads
SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;

-- name: session_limit_mariadb
SET SESSION max_statement_time = ?1 / 1000;

-- name: session_limit_mysql
-- Of selects only.
SET SESSION max_execution_time = ?1;

-- name: server_settings
SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'innodb_flush_log_at_trx_commit',
    'log_bin', 'sync_binlog', 'binlog_format', 'max_allowed_packet');

-- name: lock_take
SELECT GET_LOCK(?1, ?2);

-- name: lock_holder
SELECT IS_USED_LOCK(?1), p.USER, p.HOST
FROM (SELECT 1) AS always LEFT JOIN information_schema.PROCESSLIST p ON p.ID = IS_USED_LOCK(?1);

-- name: connection_end
KILL CONNECTION ?1;

-- name: coupon_in_the_way
-- Which of [[policy_id, seq, user_id, slot], …] stand in the table already, or have the slot of
-- their user taken. One without a slot takes none.
SELECT asked.place
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        place     FOR ORDINALITY,
        policy_id BIGINT PATH '$[0]',
        seq       BIGINT PATH '$[1]')) AS asked
    STRAIGHT_JOIN coupon c ON c.policy_id = asked.policy_id AND c.seq = asked.seq
UNION ALL
SELECT asked.place
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        place     FOR ORDINALITY,
        policy_id BIGINT PATH '$[0]',
        user_id   VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$[2]',
        slot      INT PATH '$[3]')) AS asked
    STRAIGHT_JOIN coupon c ON c.user_id = asked.user_id AND c.policy_id = asked.policy_id
        AND c.slot = asked.slot;

-- name: schema_version
SELECT COALESCE(MAX(number), 0) FROM schema_migration;

-- name: schema_stranger
-- A table with a name of ours in a database that no migration has touched: somebody else's.
SELECT t.TABLE_NAME FROM information_schema.TABLES t
WHERE t.TABLE_SCHEMA = DATABASE()
  AND CAST(t.TABLE_NAME AS BINARY) IN ('policy', 'lease', 'coupon', 'claim_key', 'blocked_user',
      'secret', 'steward', 'steward_holder', 'writer', 'dead_letter', 'outbox', 'outbox_counter',
      'duty', 'product', 'sale_order', 'sale_item', 'sale_day', 'sale_feed', 'sale_counter',
      'product_signal', 'sale_moment', 'repair', 'refused_claim')
  AND NOT EXISTS (SELECT 1 FROM information_schema.TABLES m
                  WHERE m.TABLE_SCHEMA = DATABASE() AND m.TABLE_NAME = 'schema_migration')
LIMIT 1;

-- name: schema_note
INSERT INTO schema_migration (number, name, applied_at)
VALUES (?1, ?2, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
ON DUPLICATE KEY UPDATE schema_migration.name = schema_migration.name;
