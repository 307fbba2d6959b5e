-- What MySQL and MariaDB are asked in other words than the rest, and what only their driver asks.
--
-- A locking read locks the rows of the tables it names, not those of its subqueries. What it also shows
-- of the policy comes from a subquery, so that nobody who changes the policy waits for it.
-- FORCE INDEX: with few statistics, the database would rather walk a whole policy in the order asked
-- for than sort the few coupons of a user.

-- rule: ::\w+ =>
-- rule: \bFOR (NO KEY )?UPDATE( OF \w+)? => FOR UPDATE
-- rule: \bFOR SHARE( OF \w+)? => LOCK IN SHARE MODE
-- rule: \bON CONFLICT \((\w+)[^)]*\) DO NOTHING => ON DUPLICATE KEY UPDATE \1 = \1
-- rule: \bON CONFLICT \([^)]*\)\s+DO UPDATE\s+SET => ON DUPLICATE KEY UPDATE
-- rule: \bexcluded\.(\w+) => VALUES(\1)
-- rule: (?<= )/(?= ) => DIV
-- rule: \$(\d) => ?\1

-- fragment: now
TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000

-- fragment: among
IN (SELECT asked.id FROM JSON_TABLE(%, '$[*]' COLUMNS (id {id} PATH '$')) AS asked)

-- fragment: id
-- Compared byte for byte: utf8mb4_bin would pad with blanks, and no id ends with one.
VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin

-- name: lease_insert
INSERT INTO lease (policy_id, first_seq, count, state) VALUES (?1, ?2, ?3, 'OPEN');

-- name: lease_for_issue
SELECT l.policy_id, l.first_seq, l.count, l.state = 'OPEN',
    (SELECT p.coupon_valid_days FROM policy p WHERE p.id = l.policy_id),
    (SELECT p.coupon_expires_at FROM policy p WHERE p.id = l.policy_id)
FROM lease l WHERE l.id = ?1 LOCK IN SHARE MODE;

-- name: lease_lock_open
SELECT id FROM lease FORCE INDEX (lease_open) WHERE state = 'OPEN' AND policy_id = ?1 ORDER BY first_seq FOR UPDATE;

-- name: lease_close_these
UPDATE JSON_TABLE(?1, '$[*]' COLUMNS (id BIGINT PATH '$')) AS given
    STRAIGHT_JOIN lease ON lease.id = given.id
SET lease.state = 'CLOSED';

-- name: lease_put
INSERT INTO lease (id, policy_id, first_seq, count, state) VALUES (?1, ?2, ?3, ?4, ?5);

-- name: lease_balance
-- The driver asks lease_rows for each and adds up what is left of them.
SELECT id, policy_id, first_seq, count, state = 'OPEN' FROM lease
WHERE policy_id = ?1 AND state = 'OPEN';

-- name: coupon_insert
-- The driver repeats the group behind VALUES, once per row.
INSERT INTO coupon (policy_id, seq, user_id, nth, slot, state, request_id, lease_id, requested_at,
    issued_at, expires_at, merged_into, reason)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13);

-- name: coupon_for_update
SELECT c.policy_id, c.seq, c.user_id, c.nth, c.state, c.request_id, c.lease_id, c.requested_at,
    c.issued_at,
    COALESCE(c.expires_at,
        (SELECT p.coupon_expires_at FROM policy p WHERE p.id = c.policy_id)),
    c.redeemed_at, c.cancelled_at, c.order_id, c.merged_into, c.reason
FROM coupon c WHERE c.policy_id = ?1 AND c.seq = ?2 FOR UPDATE NOWAIT;

-- name: coupon_list_of_user
SELECT {coupon_columns}
FROM coupon c FORCE INDEX (coupon_user_slot) STRAIGHT_JOIN policy p ON p.id = c.policy_id
WHERE c.user_id = ?1 AND c.policy_id >= ?2 AND (c.policy_id > ?2 OR c.seq > ?3)
UNION ALL
SELECT r.policy_id, r.seq, r.user_id, r.nth, 'VOID', r.request_id, r.lease_id, r.requested_at,
    r.refused_at, NULL, NULL, NULL, NULL, NULL, r.reason
FROM refused_claim r FORCE INDEX (refused_claim_user)
WHERE r.user_id = ?1 AND r.policy_id >= ?2 AND (r.policy_id > ?2 OR r.seq > ?3)
ORDER BY 1, 2 LIMIT ?4;

-- name: coupon_list_of_claimant
SELECT {coupon_columns}
FROM coupon c FORCE INDEX (coupon_user_slot) STRAIGHT_JOIN policy p ON p.id = c.policy_id
WHERE c.user_id = ?2 AND c.policy_id = ?1
UNION ALL
SELECT r.policy_id, r.seq, r.user_id, r.nth, 'VOID', r.request_id, r.lease_id, r.requested_at,
    r.refused_at, NULL, NULL, NULL, NULL, NULL, r.reason
FROM refused_claim r FORCE INDEX (refused_claim_user)
WHERE r.user_id = ?2 AND r.policy_id = ?1
ORDER BY 2 DESC LIMIT ?3;

-- name: coupon_list_of_policy
SELECT {coupon_columns}
FROM coupon c FORCE INDEX (PRIMARY) STRAIGHT_JOIN policy p ON p.id = c.policy_id
WHERE c.policy_id = ?1 AND c.seq > ?2
ORDER BY c.seq LIMIT ?3;

-- name: coupon_scan
SELECT policy_id, seq, user_id, nth, state, request_id, requested_at
FROM coupon FORCE INDEX (PRIMARY) WHERE policy_id >= ?1 AND policy_id <= ?2 ORDER BY policy_id, seq;

-- name: reserve_among
SELECT c.user_id, c.request_id, c.seq, k.seq
FROM JSON_TABLE(?2, '$[*]' COLUMNS (
        user_id {id} PATH '$')) AS asked
    STRAIGHT_JOIN reserve_coupon r ON r.policy_id = ?1 AND r.user_id = asked.user_id
    STRAIGHT_JOIN coupon c ON c.policy_id = r.policy_id AND c.seq = r.seq
    LEFT JOIN claim_key k ON k.policy_id = c.policy_id AND k.request_id = c.request_id
WHERE c.state NOT IN ('VOID', 'MERGED')
UNION ALL
SELECT c.user_id, k.request_id, c.seq, NULL
FROM JSON_TABLE(?2, '$[*]' COLUMNS (
        user_id {id} PATH '$')) AS asked
    STRAIGHT_JOIN reserve_coupon r ON r.policy_id = ?1 AND r.user_id = asked.user_id
    STRAIGHT_JOIN coupon c ON c.policy_id = r.policy_id AND c.seq = r.seq
    STRAIGHT_JOIN claim_key k ON k.policy_id = r.policy_id AND k.seq = r.seq
WHERE c.state NOT IN ('VOID', 'MERGED');

-- name: blocked_among
SELECT b.user_id
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        user_id {id} PATH '$')) AS asked
    STRAIGHT_JOIN blocked_user b ON b.user_id = asked.user_id;

-- name: dead_letter_list
SELECT policy_id, seq, user_id, nth, request_id, requested_at, attempts, died_at, reason
FROM dead_letter WHERE policy_id > ?1 OR (policy_id = ?1 AND seq > ?2)
ORDER BY policy_id, seq LIMIT ?3;

-- name: coupon_scan_of_policy
SELECT policy_id, seq, user_id, nth, state, request_id, requested_at
FROM coupon FORCE INDEX (PRIMARY) WHERE policy_id = ?1 ORDER BY seq;

-- name: key_scan_of_policy
SELECT k.policy_id, k.request_id, k.seq, c.user_id, c.nth
FROM claim_key k STRAIGHT_JOIN coupon c ON c.policy_id = k.policy_id AND c.seq = k.seq
WHERE k.policy_id = ?1 AND c.state NOT IN ('VOID', 'MERGED');

-- name: event_insert
INSERT INTO outbox (policy_id, number, seq, user_id, nth, request_id, state, changed_at,
    requested_at, issued_at, expires_at, order_id, merged_into, reason, traceparent, sink)
SELECT e.policy_id, e.number, e.seq, e.user_id, e.nth, e.request_id, e.state, e.changed_at,
    e.requested_at, e.issued_at, NULLIF(e.expires_at, 0), NULLIF(e.order_id, ''), NULLIF(e.merged_into, 0),
    NULLIF(e.reason, ''), NULLIF(e.traceparent, ''), e.sink
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        policy_id    BIGINT PATH '$[0]',
        number       BIGINT PATH '$[1]',
        seq          BIGINT PATH '$[2]',
        user_id      {id} PATH '$[3]',
        nth          INT PATH '$[4]',
        request_id   CHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$[5]',
        state        VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin PATH '$[6]',
        changed_at   BIGINT PATH '$[7]',
        requested_at BIGINT PATH '$[8]',
        issued_at    BIGINT PATH '$[9]',
        expires_at   BIGINT PATH '$[10]',
        order_id     {id} PATH '$[11]',
        merged_into  BIGINT PATH '$[12]',
        reason       VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[13]',
        traceparent  {id} PATH '$[14]',
        sink         SMALLINT PATH '$[15]')) AS e;

-- name: event_list
SELECT policy_id, number, seq, user_id, nth, request_id, state, changed_at, requested_at,
    issued_at, expires_at, order_id, merged_into, reason, traceparent
FROM outbox WHERE sink = ?4 AND policy_id >= ?1 AND (policy_id > ?1 OR number > ?2)
ORDER BY policy_id, number LIMIT ?3;

-- name: order_among
SELECT o.order_id, o.digest, o.paid_at, o.received_at, o.refunded_at, o.day
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        order_id {id} PATH '$')) AS asked
    STRAIGHT_JOIN sale_order o ON o.order_id = asked.order_id;

-- name: order_insert
INSERT INTO sale_order (order_id, digest, paid_at, day, received_at)
SELECT given.order_id, given.digest, given.paid_at, given.day, ?2
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        order_id {id} PATH '$[0]',
        digest   VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
        paid_at  BIGINT PATH '$[2]',
        day      BIGINT PATH '$[3]')) AS given;

-- name: item_insert
INSERT INTO sale_item (order_id, product_id, quantity)
SELECT given.order_id, given.product_id, given.quantity
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        order_id   {id} PATH '$[0]',
        product_id {id} PATH '$[1]',
        quantity   BIGINT PATH '$[2]')) AS given;

-- name: day_add
INSERT INTO sale_day (day, product_id, quantity)
SELECT given.day, given.product_id, given.quantity
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        day        BIGINT PATH '$[0]',
        product_id {id} PATH '$[1]',
        quantity   BIGINT PATH '$[2]')) AS given
ON DUPLICATE KEY UPDATE sale_day.quantity = sale_day.quantity + given.quantity;

-- name: day_subtract
UPDATE JSON_TABLE(?1, '$[*]' COLUMNS (
        day        BIGINT PATH '$[0]',
        product_id {id} PATH '$[1]',
        quantity   BIGINT PATH '$[2]')) AS taken
    STRAIGHT_JOIN sale_day ON sale_day.day = taken.day AND sale_day.product_id = taken.product_id
SET sale_day.quantity = sale_day.quantity - taken.quantity;

-- name: feed_insert
INSERT INTO sale_feed (id, written_at, day, product_id, quantity)
SELECT ?2 + given.place, ?3, given.day, given.product_id, given.quantity
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        place      FOR ORDINALITY,
        day        BIGINT PATH '$[0]',
        product_id {id} PATH '$[1]',
        quantity   BIGINT PATH '$[2]')) AS given;

-- name: moment_insert
INSERT INTO sale_moment (id, kind, at_s, quantity)
SELECT ?2 + given.place, given.kind, given.at_s, given.quantity
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        place    FOR ORDINALITY,
        kind     BIGINT PATH '$[0]',
        at_s     BIGINT PATH '$[1]',
        quantity BIGINT PATH '$[2]')) AS given;

-- name: signal_among
SELECT s.signal_id, s.kind, s.product_id, s.quantity, s.at
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        signal_id {id} PATH '$')) AS asked
    STRAIGHT_JOIN product_signal s ON s.signal_id = asked.signal_id;

-- name: signal_insert
INSERT INTO product_signal (signal_id, kind, product_id, quantity, at, day)
SELECT given.signal_id, given.kind, given.product_id, given.quantity, given.at, given.day
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        signal_id  {id} PATH '$[0]',
        kind       BIGINT PATH '$[1]',
        product_id {id} PATH '$[2]',
        quantity   BIGINT PATH '$[3]',
        at         BIGINT PATH '$[4]',
        day        BIGINT PATH '$[5]')) AS given;

-- name: product_put
INSERT INTO product (product_id, name, price, updated_at)
SELECT given.product_id, given.name, given.price, ?2
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        product_id {id} PATH '$[0]',
        name       VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]',
        price      BIGINT PATH '$[2]')) AS given
ON DUPLICATE KEY UPDATE product.name = given.name, product.price = given.price,
    product.updated_at = ?2;

-- name: product_among
SELECT p.product_id, p.name, p.price, p.updated_at
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        product_id {id} PATH '$')) AS asked
    STRAIGHT_JOIN product p ON p.product_id = asked.product_id;


-- Of the drivers themselves.

-- name: schema_version
SELECT COALESCE(MAX(number), 0) FROM schema_migration;

-- name: schema_note
INSERT INTO schema_migration (number, name, applied_at)
VALUES (?1, ?2, {now})
ON DUPLICATE KEY UPDATE schema_migration.name = schema_migration.name;

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

-- name: coupon_conflicting
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
        user_id   {id} PATH '$[2]',
        slot      INT PATH '$[3]')) AS asked
    STRAIGHT_JOIN coupon c ON c.user_id = asked.user_id AND c.policy_id = asked.policy_id
        AND c.slot = asked.slot;

-- name: schema_stranger
-- A table with a name of ours in a database that no migration has touched: somebody else's.
SELECT t.TABLE_NAME FROM information_schema.TABLES t
WHERE t.TABLE_SCHEMA = DATABASE()
  AND CAST(t.TABLE_NAME AS BINARY) IN ('policy', 'lease', 'coupon', 'claim_key', 'blocked_user',
      'secret', 'steward', 'steward_holder', 'writer', 'dead_letter', 'outbox', 'outbox_counter',
      'duty', 'product', 'sale_order', 'sale_item', 'sale_day', 'sale_feed', 'sale_counter',
      'product_signal', 'sale_moment', 'repair', 'refused_claim', 'sink_state',
      'action', 'short_code_policy', 'reserve_coupon', 'entering_coupon', 'claim_total',
      'claim_total_batch')
  AND NOT EXISTS (SELECT 1 FROM information_schema.TABLES m
                  WHERE m.TABLE_SCHEMA = DATABASE() AND m.TABLE_NAME = 'schema_migration')
LIMIT 1;

-- name: total_add
INSERT INTO claim_total (policy_id, starts_at, seconds, result, count)
SELECT given.policy_id, given.starts_at, given.seconds, given.result, given.count
FROM JSON_TABLE(?1, '$[*]' COLUMNS (
        policy_id BIGINT PATH '$[0]',
        starts_at BIGINT PATH '$[1]',
        seconds   BIGINT PATH '$[2]',
        result    VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$[3]',
        count     BIGINT PATH '$[4]')) AS given
ON DUPLICATE KEY UPDATE claim_total.count = claim_total.count + given.count;
