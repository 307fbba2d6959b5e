-- Every statement that the ledger runs, written as PostgreSQL takes it. Each database has a file like
-- this in its folder, with the rules that make its own texts of these, texts that take the place of
-- these, and those that only its driver runs. scripts/statements puts them together, and
-- "scripts/statements --print mysql" shows what comes of it.

-- fragment: policy_columns
-- In the order of base/policy.h, which is that of the values in policy_insert and policy_update, too.
id, name, discount_type, discount_value, total, per_user_limit, opens_at, closes_at,
    coupon_valid_days, coupon_expires_at, currency, reserve, paused, created_at, closed_at, version,
    unleased, next_seq

-- fragment: coupon_columns
c.policy_id, c.seq, c.user_id, c.nth, c.state, c.request_id, c.lease_id, c.requested_at,
    c.issued_at, COALESCE(c.expires_at, p.coupon_expires_at), c.redeemed_at, c.cancelled_at, c.order_id,
    c.merged_into, c.reason

-- fragment: now
-- In milliseconds. clock_timestamp(), not now(): a transaction may be old.
(date_part('epoch', clock_timestamp()) * 1000)::bigint

-- fragment: among
-- One of a JSON array of texts.
= ANY (ARRAY(SELECT json_array_elements_text(%::json)))

-- name: policy_insert
INSERT INTO policy ({policy_columns})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
    $17, $18);

-- name: policy_next_id
SELECT CASE WHEN COALESCE(MAX(id), 0) < 9007199254740991 THEN COALESCE(MAX(id), 0) + 1
    ELSE (SELECT MIN(candidate)
          FROM (SELECT 1 AS candidate UNION ALL SELECT id + 1 FROM policy) AS candidates
          WHERE candidate NOT IN (SELECT id FROM policy)) END
FROM policy;

-- name: policy_by_id
SELECT {policy_columns}
FROM policy WHERE id = $1;

-- name: policy_for_update
-- NO KEY: inserting a lease of the policy does not have to wait.
SELECT {policy_columns}
FROM policy WHERE id = $1 FOR NO KEY UPDATE;

-- name: policy_list
SELECT {policy_columns}
FROM policy WHERE id > $1 ORDER BY id LIMIT $2;

-- name: policy_list_below
SELECT {policy_columns}
FROM policy WHERE id < $1 ORDER BY id DESC LIMIT $2;

-- name: policy_update
UPDATE policy SET name = $2, discount_type = $3, discount_value = $4, total = $5,
    per_user_limit = $6, opens_at = $7, closes_at = $8, coupon_valid_days = $9,
    coupon_expires_at = $10, currency = $11, reserve = $12, paused = $13, created_at = $14,
    closed_at = $15, version = $16, unleased = $17, next_seq = $18
WHERE id = $1;

-- name: policy_return_unit
UPDATE policy SET unleased = unleased + 1, version = version + 1 WHERE id = $1;

-- name: policy_take_unit
UPDATE policy SET unleased = unleased - 1, version = version + 1 WHERE id = $1 AND unleased > 0;

-- name: lease_insert
INSERT INTO lease (policy_id, first_seq, count, state) VALUES ($1, $2, $3, 'OPEN') RETURNING id;

-- name: lease_for_update
SELECT id, policy_id, first_seq, count, state = 'OPEN' FROM lease WHERE id = $1 FOR UPDATE;

-- name: lease_for_issue
-- Whoever issues shares the lease with others who issue, and closing it waits for all of them.
SELECT l.policy_id, l.first_seq, l.count, l.state = 'OPEN', p.coupon_valid_days,
    p.coupon_expires_at
FROM lease l JOIN policy p ON p.id = l.policy_id WHERE l.id = $1 FOR SHARE OF l;

-- name: lease_lock_open
-- Waits for all who issue claims of the policy's open leases, and keeps them off.
SELECT id FROM lease WHERE state = 'OPEN' AND policy_id = $1 ORDER BY first_seq FOR UPDATE;

-- name: lease_shrink
UPDATE lease SET count = $2 WHERE id = $1;

-- name: lease_close
UPDATE lease SET state = 'CLOSED' WHERE id = $1;

-- name: lease_close_all
UPDATE lease SET state = 'CLOSED', count = 0 WHERE policy_id = $1 AND state = 'OPEN';

-- name: lease_close_these
-- [id, …]
UPDATE lease SET state = 'CLOSED'
WHERE id = ANY (ARRAY(SELECT json_array_elements_text($1::json)::bigint));

-- name: lease_put
-- An id that is given does not move the sequence that gives ids.
INSERT INTO lease (id, policy_id, first_seq, count, state) VALUES ($1, $2, $3, $4, $5)
RETURNING setval(pg_get_serial_sequence('lease', 'id'),
    GREATEST($1, nextval(pg_get_serial_sequence('lease', 'id'))));

-- name: lease_reopen
UPDATE lease SET state = 'OPEN', count = $2 WHERE id = $1;

-- name: lease_balance
SELECT COALESCE(SUM(l.count -
    (SELECT COUNT(*) FROM coupon c
     WHERE c.policy_id = l.policy_id AND c.seq >= l.first_seq AND c.seq < l.first_seq + l.count) -
    (SELECT COUNT(*) FROM refused_claim r
     WHERE r.policy_id = l.policy_id AND r.seq >= l.first_seq AND r.seq < l.first_seq + l.count)
    ), 0)::bigint
FROM lease l WHERE l.policy_id = $1 AND l.state = 'OPEN';

-- name: lease_rows
-- What a lease has given out, whatever became of it.
SELECT
    (SELECT COUNT(*) FROM coupon WHERE policy_id = $1 AND seq >= $2 AND seq < $3) +
    (SELECT COUNT(*) FROM refused_claim WHERE policy_id = $1 AND seq >= $2 AND seq < $3);

-- name: lease_list_open
SELECT id, policy_id, first_seq, count, state = 'OPEN' FROM lease
WHERE state = 'OPEN' AND policy_id >= $1 AND policy_id <= $2 ORDER BY policy_id, first_seq;

-- name: coupon_insert
-- The arrays' rows arrive in their order, and those that were inserted are returned in it.
INSERT INTO coupon (policy_id, seq, user_id, nth, slot, state, request_id, lease_id, requested_at,
    issued_at, expires_at, merged_into, reason)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[],
    $6::text[], $7::bytea[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[],
    $12::bigint[], $13::text[])
ON CONFLICT (policy_id, seq) DO NOTHING
RETURNING policy_id, seq;

-- name: coupon_by_seq
SELECT {coupon_columns}
FROM coupon c JOIN policy p ON p.id = c.policy_id WHERE c.policy_id = $1 AND c.seq = $2;

-- name: coupon_for_update
-- One that somebody else has is BUSY at once: claims of others wait in the same transaction.
SELECT {coupon_columns}
FROM coupon c JOIN policy p ON p.id = c.policy_id WHERE c.policy_id = $1 AND c.seq = $2
FOR UPDATE OF c NOWAIT;

-- name: coupon_by_slot
SELECT seq FROM coupon WHERE user_id = $2 AND policy_id = $1 AND slot = $3;

-- name: coupon_list_of_user
-- MATERIALIZED: the planner must not rather walk a whole policy in the order asked for than sort
-- the few coupons of a user.
WITH c AS MATERIALIZED (
    SELECT policy_id, seq, user_id, nth, state, request_id, lease_id, requested_at, issued_at,
        expires_at, redeemed_at, cancelled_at, order_id, merged_into, reason
    FROM coupon WHERE user_id = $1
    UNION ALL
    SELECT policy_id, seq, user_id, nth, 'VOID', request_id, lease_id, requested_at, refused_at,
        NULL, NULL, NULL, NULL, NULL, reason
    FROM refused_claim WHERE user_id = $1)
SELECT {coupon_columns}
FROM c JOIN policy p ON p.id = c.policy_id
WHERE (c.policy_id, c.seq) > ($2, $3)
ORDER BY c.policy_id, c.seq LIMIT $4;

-- name: coupon_list_of_claimant
WITH c AS MATERIALIZED (
    SELECT policy_id, seq, user_id, nth, state, request_id, lease_id, requested_at, issued_at,
        expires_at, redeemed_at, cancelled_at, order_id, merged_into, reason
    FROM coupon WHERE user_id = $2 AND policy_id = $1
    UNION ALL
    SELECT policy_id, seq, user_id, nth, 'VOID', request_id, lease_id, requested_at, refused_at,
        NULL, NULL, NULL, NULL, NULL, reason
    FROM refused_claim WHERE user_id = $2 AND policy_id = $1)
SELECT {coupon_columns}
FROM c JOIN policy p ON p.id = c.policy_id
ORDER BY c.seq DESC LIMIT $3;

-- name: coupon_list_of_policy
SELECT {coupon_columns}
FROM coupon c JOIN policy p ON p.id = c.policy_id
WHERE c.policy_id = $1 AND c.seq > $2
ORDER BY c.seq LIMIT $3;

-- name: coupon_redeem
UPDATE coupon SET state = 'REDEEMED', redeemed_at = $3, order_id = $4
WHERE policy_id = $1 AND seq = $2;

-- name: coupon_cancel
UPDATE coupon SET state = 'CANCELLED', slot = NULL, cancelled_at = $3
WHERE policy_id = $1 AND seq = $2;

-- name: coupon_scan
SELECT policy_id, seq, user_id, nth, state, request_id, requested_at
FROM coupon WHERE policy_id >= $1 AND policy_id <= $2 ORDER BY policy_id, seq;

-- name: coupon_range
(SELECT seq, user_id, nth, state, request_id FROM coupon
 WHERE policy_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4)
UNION ALL
(SELECT seq, user_id, nth, 'VOID'::text, request_id FROM refused_claim
 WHERE policy_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4)
ORDER BY seq LIMIT $4;

-- name: coupon_sums
-- How many there are (with those that were refused), how many count, the highest seq, and those whose
-- slot does not fit their state.
SELECT COUNT(*) + (SELECT COUNT(*) FROM refused_claim r WHERE r.policy_id = $1),
    COUNT(CASE WHEN state IN ('ISSUED', 'REDEEMED') THEN 1 END),
    GREATEST(COALESCE(MAX(seq), 0),
        (SELECT COALESCE(MAX(r.seq), 0) FROM refused_claim r WHERE r.policy_id = $1)),
    COUNT(CASE WHEN COALESCE(slot, -1) <>
        CASE WHEN state IN ('ISSUED', 'REDEEMED') THEN nth ELSE -1 END THEN 1 END)
FROM coupon WHERE policy_id = $1;

-- name: coupon_stray
-- Coupons of a lease that the policy never had.
SELECT COUNT(*) FROM coupon c
WHERE c.policy_id = $1 AND c.lease_id <> 0 AND NOT EXISTS
    (SELECT 1 FROM lease l WHERE l.id = c.lease_id AND l.policy_id = c.policy_id);

-- name: coupon_adopt
-- Coupons of a lease that the policy never had become coupons without one.
UPDATE coupon SET lease_id = 0
WHERE policy_id = $1 AND lease_id <> 0 AND NOT EXISTS
    (SELECT 1 FROM lease l WHERE l.id = coupon.lease_id AND l.policy_id = coupon.policy_id);

-- name: user_over_limit
-- A coupon that a repair has kept above the limit has a reason.
SELECT COUNT(*) FROM
    (SELECT user_id FROM coupon
     WHERE policy_id = $1 AND state IN ('ISSUED', 'REDEEMED') AND reason IS NULL
     GROUP BY user_id HAVING COUNT(*) > $2) AS holders;

-- name: coupon_crowded
-- The active coupons of users with one whose slot is not its number, or with more than the limit.
SELECT c.user_id, c.seq, c.nth, COALESCE(c.slot, 0), CASE WHEN c.reason IS NULL THEN 0 ELSE 1 END
FROM coupon c INNER JOIN
    (SELECT user_id FROM coupon WHERE policy_id = $1 AND state IN ('ISSUED', 'REDEEMED')
     GROUP BY user_id HAVING COUNT(CASE WHEN reason IS NULL THEN 1 END) > $2
         OR COUNT(CASE WHEN COALESCE(slot, 0) <> nth THEN 1 END) > 0) AS crowd
    ON crowd.user_id = c.user_id
WHERE c.policy_id = $1 AND c.state IN ('ISSUED', 'REDEEMED')
ORDER BY c.user_id, c.seq;

-- name: coupon_free_slots
UPDATE coupon SET slot = NULL
WHERE policy_id = $1 AND slot IS NOT NULL AND state NOT IN ('ISSUED', 'REDEEMED');

-- name: coupon_unplace
UPDATE coupon SET slot = NULL WHERE policy_id = $1 AND seq = $2;

-- name: coupon_place
UPDATE coupon SET nth = $3, slot = $3 WHERE policy_id = $1 AND seq = $2;

-- name: coupon_keep
UPDATE coupon SET reason = $3 WHERE policy_id = $1 AND seq = $2;

-- name: refused_insert
INSERT INTO refused_claim (policy_id, seq, user_id, nth, request_id, lease_id, requested_at,
    refused_at, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: refused_by_seq
-- As coupon_by_seq.
SELECT policy_id, seq, user_id, nth, 'VOID'::text, request_id, lease_id, requested_at, refused_at,
    NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, reason
FROM refused_claim WHERE policy_id = $1 AND seq = $2;

-- name: refused_among
SELECT seq FROM refused_claim WHERE policy_id = $1 AND seq >= $2 AND seq <= $3;

-- name: refused_scan
-- As coupon_scan.
SELECT policy_id, seq, user_id, nth, 'VOID'::text, request_id, requested_at
FROM refused_claim WHERE policy_id >= $1 AND policy_id <= $2 ORDER BY policy_id, seq;

-- name: refused_scan_of_policy
SELECT policy_id, seq, user_id, nth, 'VOID'::text, request_id, requested_at
FROM refused_claim WHERE policy_id = $1 ORDER BY seq;

-- name: key_insert
INSERT INTO claim_key (policy_id, request_id, seq) VALUES ($1, $2, $3)
ON CONFLICT (policy_id, request_id) DO NOTHING;

-- name: key_move
-- The keys of a claim that was merged are those of the coupon it was merged into.
UPDATE claim_key SET seq = $3 WHERE policy_id = $1 AND seq = $2;

-- name: key_by_id
SELECT seq FROM claim_key WHERE policy_id = $1 AND request_id = $2;

-- name: key_count
SELECT COUNT(*) FROM claim_key WHERE policy_id = $1 AND seq = $2;

-- name: key_scan
SELECT policy_id, request_id, seq FROM claim_key WHERE policy_id >= $1 AND policy_id <= $2;

-- name: short_code_policies
SELECT policy_id FROM short_code_policy WHERE policy_id > $1 ORDER BY policy_id LIMIT $2;

-- name: entering_insert
INSERT INTO entering_coupon (policy_id, seq, changes) VALUES ($1, $2, $3)
ON CONFLICT (policy_id, seq) DO UPDATE SET changes = excluded.changes;

-- name: entering_policies
SELECT DISTINCT policy_id FROM entering_coupon WHERE policy_id > $1 ORDER BY policy_id LIMIT $2;

-- name: entering_list
SELECT {coupon_columns}, e.changes
FROM entering_coupon e JOIN coupon c ON c.policy_id = e.policy_id AND c.seq = e.seq
    JOIN policy p ON p.id = c.policy_id
WHERE e.policy_id = $1 ORDER BY e.seq LIMIT $2;

-- name: entering_keys
-- The keys of those coupons up to a seq.
SELECT k.policy_id, k.request_id, k.seq, c.user_id, c.nth
FROM entering_coupon e JOIN claim_key k ON k.policy_id = e.policy_id AND k.seq = e.seq
    JOIN coupon c ON c.policy_id = e.policy_id AND c.seq = e.seq
WHERE e.policy_id = $1 AND e.seq <= $2;

-- name: entering_delete
-- Unless there is more to tell by now, or the coupon has become something else.
DELETE FROM entering_coupon WHERE policy_id = $1 AND seq = $2 AND changes = $3
  AND EXISTS (SELECT 1 FROM coupon c WHERE c.policy_id = $1 AND c.seq = $2 AND c.state = $4);

-- name: entering_left
-- Of a coupon whose mark was not taken away: has it become something else, and is it marked?
SELECT (c.state <> $3)::integer,
    (EXISTS (SELECT 1 FROM entering_coupon e WHERE e.policy_id = $1 AND e.seq = $2))::integer
FROM coupon c WHERE c.policy_id = $1 AND c.seq = $2;

-- name: entering_forget
DELETE FROM entering_coupon WHERE policy_id = $1;

-- name: reserve_insert
INSERT INTO reserve_coupon (policy_id, seq, user_id) VALUES ($1, $2, $3);

-- name: reserve_among
-- The coupons that those users have from the reserve, by each request that they answer, and the
-- claim to which the gate has bound the first one.
SELECT c.user_id, c.request_id, c.seq, k.seq
FROM reserve_coupon r JOIN coupon c ON c.policy_id = r.policy_id AND c.seq = r.seq
    LEFT JOIN claim_key k ON k.policy_id = c.policy_id AND k.request_id = c.request_id
WHERE r.policy_id = $1 AND r.user_id {among $2}
  AND c.state NOT IN ('VOID', 'MERGED')
UNION ALL
SELECT c.user_id, k.request_id, c.seq, NULL
FROM reserve_coupon r JOIN coupon c ON c.policy_id = r.policy_id AND c.seq = r.seq
    JOIN claim_key k ON k.policy_id = r.policy_id AND k.seq = r.seq
WHERE r.policy_id = $1 AND r.user_id {among $2}
  AND c.state NOT IN ('VOID', 'MERGED');

-- name: exceptions_any
-- Whether anyone is blocked, whether any claim was refused, and whether the reserve gave anything.
SELECT (EXISTS (SELECT 1 FROM blocked_user))::integer, (EXISTS (SELECT 1 FROM refused_claim))::integer,
    (EXISTS (SELECT 1 FROM reserve_coupon))::integer;

-- name: blocked_has
SELECT 1 FROM blocked_user WHERE user_id = $1;

-- name: blocked_among
SELECT user_id FROM blocked_user
WHERE user_id {among $1};

-- name: blocked_insert
INSERT INTO blocked_user (user_id, blocked_at) VALUES ($1, $2) ON CONFLICT (user_id) DO NOTHING;

-- name: blocked_delete
DELETE FROM blocked_user WHERE user_id = $1;

-- name: blocked_scan
SELECT user_id FROM blocked_user;

-- name: erase_open
-- Where the user could claim again if what they hold had another name.
SELECT DISTINCT c.policy_id FROM coupon c JOIN policy p ON p.id = c.policy_id
WHERE c.user_id = $1 AND c.state IN ('ISSUED', 'REDEEMED') AND p.closed_at IS NULL
  AND (p.closes_at IS NULL OR p.closes_at > $2)
ORDER BY c.policy_id LIMIT $3;

-- name: erase_keys
SELECT k.policy_id, k.request_id, k.seq, c.user_id, c.nth
FROM coupon c JOIN claim_key k ON k.policy_id = c.policy_id AND k.seq = c.seq
WHERE c.user_id = $1 AND c.policy_id = $2;

-- name: erase_coupons
-- What a database says of a row that it refuses may name the user.
UPDATE coupon SET user_id = $2,
    reason = CASE WHEN REPLACE(reason, $1, '') <> reason THEN $3 ELSE reason END
WHERE user_id = $1;

-- name: erase_refused
UPDATE refused_claim SET user_id = $2,
    reason = CASE WHEN REPLACE(reason, $1, '') <> reason THEN $3 ELSE reason END
WHERE user_id = $1;

-- name: erase_letters
UPDATE dead_letter SET user_id = $2,
    reason = CASE WHEN REPLACE(reason, $1, '') <> reason THEN $3 ELSE reason END
WHERE user_id = $1;

-- name: erase_events
UPDATE outbox SET user_id = $2,
    reason = CASE WHEN REPLACE(reason, $1, '') <> reason THEN $3 ELSE reason END
WHERE user_id = $1;

-- name: erase_reserve
UPDATE reserve_coupon SET user_id = $2 WHERE user_id = $1;

-- name: erase_actions
UPDATE action SET target = $2 WHERE target = $1;

-- name: erase_repairs
UPDATE repair SET outcome = REPLACE(REPLACE(outcome, $1, $2), $3, $4) WHERE done_at IS NOT NULL;

-- name: secret_insert
INSERT INTO secret (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING;

-- name: secret_by_name
SELECT value FROM secret WHERE name = $1;

-- name: steward_insert
INSERT INTO steward (policy_id, holder, until) VALUES ($1, '', 0)
ON CONFLICT (policy_id) DO NOTHING;

-- name: steward_create
INSERT INTO steward (policy_id, holder, until, term)
VALUES ($1, $2, {now} + $3, 1);

-- name: steward_for_update
-- A transaction of a steward that answers late has it locked: nobody waits for that.
-- clock_timestamp(), not now(): the transaction may be old.
SELECT s.term,
    (s.until > {now}
     OR (s.holder <> $2 AND EXISTS (
         SELECT 1 FROM steward_holder h WHERE h.name = s.holder
           AND h.until > {now})))::int
FROM steward s WHERE s.policy_id = $1 FOR UPDATE OF s SKIP LOCKED;

-- name: steward_take
UPDATE steward SET holder = $2, until = 0, term = $3 WHERE policy_id = $1;

-- name: steward_share
SELECT term FROM steward WHERE policy_id = $1 FOR SHARE;

-- name: steward_resolve
SELECT term FROM steward WHERE policy_id = $1;

-- name: steward_list
-- Of a policy that is closed, and that nobody looks after any more, nothing is to be told.
SELECT s.policy_id, s.term, (s.holder = $1)::int,
    (s.until > {now}
     OR COALESCE(h.until, 0) > {now})::int
FROM steward s JOIN policy p ON p.id = s.policy_id LEFT JOIN steward_holder h ON h.name = s.holder
WHERE p.closed_at IS NULL OR s.holder <> '' ORDER BY s.policy_id;

-- name: steward_release
UPDATE steward SET holder = '', until = 0 WHERE policy_id = $1 AND holder = $2;

-- name: steward_leave
UPDATE steward SET holder = '', until = 0 WHERE holder = $1;

-- name: holder_beat
INSERT INTO steward_holder (name, until)
VALUES ($1, {now} + $2)
ON CONFLICT (name) DO UPDATE SET until = excluded.until;

-- name: holder_count
-- Those that live, or did so many milliseconds ago.
SELECT COUNT(*) FROM steward_holder
WHERE until > {now} - $1;

-- name: holder_leave
-- And those who could not say so, long ago.
DELETE FROM steward_holder
WHERE name = $1 OR until < {now} - 3600000;

-- name: writer_enter
-- By two: whoever finds the mark one further than it left it knows that its own commit did that.
INSERT INTO writer (name, mark, holder) VALUES ($1, 1, $2)
ON CONFLICT (name) DO UPDATE SET mark = writer.mark + 2, holder = excluded.holder;

-- name: writer_read
-- Waits for a transaction that has moved the mark and is still under way.
SELECT mark, holder FROM writer WHERE name = $1 FOR UPDATE;

-- name: writer_peek
SELECT mark, holder FROM writer WHERE name = $1;

-- name: writer_move
UPDATE writer SET mark = $3 WHERE name = $1 AND mark = $2;

-- name: writer_leave
DELETE FROM writer WHERE name = $1;

-- name: dead_letter_insert
INSERT INTO dead_letter (policy_id, seq, user_id, nth, request_id, requested_at, attempts, died_at,
    reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (policy_id, seq) DO NOTHING;

-- name: dead_letter_by_seq
SELECT policy_id, seq, user_id, nth, request_id, requested_at, attempts, died_at, reason
FROM dead_letter WHERE policy_id = $1 AND seq = $2;

-- name: dead_letter_list
SELECT policy_id, seq, user_id, nth, request_id, requested_at, attempts, died_at, reason
FROM dead_letter WHERE (policy_id, seq) > ($1, $2) ORDER BY policy_id, seq LIMIT $3;

-- name: dead_letter_delete
DELETE FROM dead_letter WHERE policy_id = $1 AND seq = $2;

-- name: dead_letter_count
SELECT count(*) FROM dead_letter;

-- name: lease_open_of_policy
SELECT id, policy_id, first_seq, count, state = 'OPEN' FROM lease
WHERE policy_id = $1 AND state = 'OPEN' ORDER BY first_seq, id;

-- name: lease_all_of_policy
SELECT id, policy_id, first_seq, count, state = 'OPEN' FROM lease
WHERE policy_id = $1 ORDER BY first_seq, id;

-- name: repair_insert
INSERT INTO repair (asked_at, policy_id, plan, outcome) VALUES ($1, $2, $3, '');

-- name: repair_finish
UPDATE repair SET done_at = $3, outcome = $4
WHERE asked_at = $1 AND policy_id = $2 AND done_at IS NULL;

-- name: repair_waiting
SELECT COUNT(*) FROM repair WHERE policy_id = $1 AND done_at IS NULL;

-- name: repair_list
SELECT asked_at, policy_id, done_at, plan, outcome FROM repair
ORDER BY asked_at DESC, policy_id DESC LIMIT $1;

-- name: coupon_scan_of_policy
SELECT policy_id, seq, user_id, nth, state, request_id, requested_at
FROM coupon WHERE policy_id = $1 ORDER BY seq;

-- name: key_scan_of_policy
-- A claim that came to nothing binds no key: another coupon may have that key for its own.
SELECT k.policy_id, k.request_id, k.seq, c.user_id, c.nth
FROM claim_key k JOIN coupon c ON c.policy_id = k.policy_id AND c.seq = k.seq
WHERE k.policy_id = $1 AND c.state NOT IN ('VOID', 'MERGED');

-- name: event_take
INSERT INTO outbox_counter (policy_id, last_number) VALUES ($1, $2)
ON CONFLICT (policy_id) DO UPDATE
    SET last_number = outbox_counter.last_number + excluded.last_number;

-- name: event_last
SELECT last_number FROM outbox_counter WHERE policy_id = $1;

-- name: event_insert
-- [[policy_id, number, …, sink], …], with 0 and "" where there is none.
INSERT INTO outbox (policy_id, number, seq, user_id, nth, request_id, state, changed_at,
    requested_at, issued_at, expires_at, order_id, merged_into, reason, traceparent, sink)
SELECT (value ->> 0)::bigint, (value ->> 1)::bigint, (value ->> 2)::bigint, value ->> 3, (value ->> 4)::smallint,
    value ->> 5, value ->> 6, (value ->> 7)::bigint, (value ->> 8)::bigint, (value ->> 9)::bigint,
    NULLIF((value ->> 10)::bigint, 0), NULLIF(value ->> 11, ''), NULLIF((value ->> 12)::bigint, 0),
    NULLIF(value ->> 13, ''), NULLIF(value ->> 14, ''), (value ->> 15)::smallint
FROM {rows $1};

-- name: event_list
SELECT policy_id, number, seq, user_id, nth, request_id, state, changed_at, requested_at,
    issued_at, expires_at, order_id, merged_into, reason, traceparent
FROM outbox WHERE sink = $4 AND (policy_id, number) > ($1, $2)
ORDER BY policy_id, number LIMIT $3;

-- name: event_delete
DELETE FROM outbox WHERE sink = $3 AND policy_id = $1 AND number <= $2;

-- name: event_backlog
SELECT COUNT(*), COALESCE(MIN(changed_at), 0) FROM outbox WHERE sink = $1;

-- name: sink_state_get
SELECT failing_since, asked, words FROM sink_state WHERE sink = $1;

-- name: sink_state_put
INSERT INTO sink_state (sink, failing_since, asked, words) VALUES ($1, $2, 0, $3)
ON CONFLICT (sink) DO UPDATE
    SET failing_since = excluded.failing_since, words = excluded.words;

-- name: sink_state_ask
INSERT INTO sink_state (sink, failing_since, asked, words) VALUES ($1, 0, 1, '')
ON CONFLICT (sink) DO UPDATE SET asked = sink_state.asked + excluded.asked;

-- name: action_insert
INSERT INTO action (at, who, what, target, was, became) VALUES ($1, $2, $3, $4, $5, $6);

-- name: action_list
SELECT id, at, who, what, target, was, became FROM action WHERE id < $1 ORDER BY id DESC LIMIT $2;

-- name: action_list_of
SELECT id, at, who, what, target, was, became FROM action
WHERE target = $3 AND id < $1 ORDER BY id DESC LIMIT $2;

-- name: duty_insert
INSERT INTO duty (name, holder, until) VALUES ($1, '', 0) ON CONFLICT (name) DO NOTHING;

-- name: duty_hold
-- clock_timestamp(), not now(): the transaction may have waited for this row.
UPDATE duty SET holder = $2,
    until = {now} + $3
WHERE name = $1
  AND (holder = $2 OR until < {now});

-- name: duty_release
UPDATE duty SET until = 0 WHERE name = $1 AND holder = $2;

-- name: sale_lock
SELECT last_id, written_at, zone FROM sale_counter WHERE id = 1 FOR UPDATE;

-- name: sale_peek
SELECT last_id, written_at, zone FROM sale_counter WHERE id = 1;

-- name: sale_move
UPDATE sale_counter SET last_id = $1, written_at = $2 WHERE id = 1;

-- name: sale_zone
UPDATE sale_counter SET zone = $1 WHERE id = 1;

-- name: sale_trim
DELETE FROM sale_feed WHERE id <= $1;

-- name: order_any
-- The days of orders that are not kept any more stay counted.
SELECT 1 FROM sale_day LIMIT 1;

-- name: order_old
SELECT order_id FROM sale_order WHERE day < $1 ORDER BY day LIMIT $2;

-- name: order_delete
DELETE FROM sale_order WHERE order_id {among $1};

-- name: item_delete
DELETE FROM sale_item WHERE order_id {among $1};

-- name: order_among
-- Those of ["…", …] that are there.
SELECT order_id, digest, paid_at, received_at, refunded_at, day FROM sale_order
WHERE order_id {among $1};

-- name: order_insert
-- [["order_id", "digest", paid_at, day], …]
INSERT INTO sale_order (order_id, digest, paid_at, day, received_at)
SELECT value ->> 0, value ->> 1, (value ->> 2)::bigint, (value ->> 3)::bigint, $2::bigint
FROM {rows $1};

-- name: order_refund
UPDATE sale_order SET refunded_at = $2 WHERE order_id = $1;

-- name: order_by_id
SELECT order_id, digest, paid_at, received_at, refunded_at, day FROM sale_order
WHERE order_id = $1;

-- name: item_insert
-- [["order_id", "product_id", quantity], …]
INSERT INTO sale_item (order_id, product_id, quantity)
SELECT value ->> 0, value ->> 1, (value ->> 2)::bigint FROM {rows $1};

-- name: item_list
SELECT product_id, quantity FROM sale_item WHERE order_id = $1 ORDER BY product_id;

-- name: day_add
-- [[day, "product_id", quantity], …]
INSERT INTO sale_day (day, product_id, quantity)
SELECT (value ->> 0)::bigint, value ->> 1, (value ->> 2)::bigint
FROM {rows $1}
WHERE true ON CONFLICT (day, product_id) DO UPDATE SET quantity = sale_day.quantity + excluded.quantity;

-- name: day_subtract
-- The same; all of them are there.
UPDATE sale_day SET quantity = sale_day.quantity - taken.quantity
FROM (SELECT (value ->> 0)::bigint AS day, value ->> 1 AS product_id,
          (value ->> 2)::bigint AS quantity
      FROM {rows $1}) AS taken
WHERE sale_day.day = taken.day AND sale_day.product_id = taken.product_id;

-- name: feed_insert
-- [[day, "product_id", quantity], …] become the entries after an id.
INSERT INTO sale_feed (id, written_at, day, product_id, quantity)
SELECT $2::bigint + place, $3::bigint, (value ->> 0)::bigint, value ->> 1, (value ->> 2)::bigint
FROM {numbered_rows $1};

-- name: feed_after
SELECT f.id, f.written_at, f.day, f.product_id, f.quantity, m.kind, m.at_s, m.quantity
FROM sale_feed f LEFT JOIN sale_moment m ON m.id = f.id
WHERE f.id >= $1 ORDER BY f.id LIMIT $2;

-- name: moment_insert
-- [[kind, at_s, quantity], …] belong to the entries after an id.
INSERT INTO sale_moment (id, kind, at_s, quantity)
SELECT $2::bigint + place, (value ->> 0)::bigint, (value ->> 1)::bigint, (value ->> 2)::bigint
FROM {numbered_rows $1};

-- name: moment_trim
DELETE FROM sale_moment WHERE id <= $1;

-- name: moment_scan
-- Everything that counts on some days: orders that are not refunded, and signals.
SELECT o.day, 1, i.product_id, o.paid_at / 1000, i.quantity
FROM sale_order o JOIN sale_item i ON i.order_id = o.order_id
WHERE o.day >= $1 AND o.day <= $2 AND o.refunded_at IS NULL
UNION ALL
SELECT s.day, s.kind, s.product_id, s.at / 1000, s.quantity
FROM product_signal s WHERE s.day >= $1 AND s.day <= $2;

-- name: signal_among
-- Those of ["…", …] that are there.
SELECT signal_id, kind, product_id, quantity, at FROM product_signal
WHERE signal_id {among $1};

-- name: signal_insert
-- [["signal_id", kind, "product_id", quantity, at, day], …]
INSERT INTO product_signal (signal_id, kind, product_id, quantity, at, day)
SELECT value ->> 0, (value ->> 1)::bigint, value ->> 2, (value ->> 3)::bigint,
    (value ->> 4)::bigint, (value ->> 5)::bigint
FROM {rows $1};

-- name: signal_trim
DELETE FROM product_signal WHERE day < $1;

-- name: day_scan
SELECT day, product_id, quantity FROM sale_day WHERE day >= $1 AND day <= $2
ORDER BY day, product_id;

-- name: sales_top
SELECT ROW_NUMBER() OVER (ORDER BY sold DESC, sold_last DESC, product_id), product_id, sold,
    sold_last
FROM (SELECT product_id, SUM(quantity)::bigint AS sold,
          SUM(CASE WHEN day = $2 THEN quantity ELSE 0 END)::bigint AS sold_last
      FROM sale_day WHERE day >= $1 AND day <= $2 GROUP BY product_id) AS totals
WHERE sold > 0 ORDER BY sold DESC, sold_last DESC, product_id LIMIT $3;

-- name: sales_of
SELECT place, product_id, sold, sold_last
FROM (SELECT product_id, sold, sold_last,
          ROW_NUMBER() OVER (ORDER BY sold DESC, sold_last DESC, product_id) AS place
      FROM (SELECT product_id, SUM(quantity)::bigint AS sold,
                SUM(CASE WHEN day = $2 THEN quantity ELSE 0 END)::bigint AS sold_last
            FROM sale_day WHERE day >= $1 AND day <= $2 GROUP BY product_id) AS totals
      WHERE sold > 0) AS ranked
WHERE product_id {among $3} ORDER BY place;

-- name: sales_around
WITH ranked AS (
    SELECT product_id, sold, sold_last,
        ROW_NUMBER() OVER (ORDER BY sold DESC, sold_last DESC, product_id) AS place
    FROM (SELECT product_id, SUM(quantity)::bigint AS sold,
              SUM(CASE WHEN day = $2 THEN quantity ELSE 0 END)::bigint AS sold_last
          FROM sale_day WHERE day >= $1 AND day <= $2 GROUP BY product_id) AS totals
    WHERE sold > 0)
SELECT r.place, r.product_id, r.sold, r.sold_last
FROM ranked r JOIN ranked m ON r.place >= m.place - $4 AND r.place <= m.place + $4
WHERE m.product_id = $3 ORDER BY r.place;

-- name: product_put
-- [["product_id", "name", price or null], …], each id once.
INSERT INTO product (product_id, name, price, updated_at)
SELECT value ->> 0, value ->> 1, (value ->> 2)::bigint, $2::bigint
FROM {rows $1}
WHERE true ON CONFLICT (product_id) DO UPDATE SET name = excluded.name, price = excluded.price,
    updated_at = excluded.updated_at;

-- name: product_by_id
SELECT product_id, name, price, updated_at FROM product WHERE product_id = $1;

-- name: product_among
SELECT product_id, name, price, updated_at FROM product
WHERE product_id {among $1};

-- name: total_opening
SELECT COALESCE(opens_at, created_at) FROM policy WHERE id = $1;

-- name: total_add
-- [[policy_id, starts_at, seconds, "result", count], …], each place once.
INSERT INTO claim_total (policy_id, starts_at, seconds, result, count)
SELECT (value ->> 0)::bigint, (value ->> 1)::bigint, (value ->> 2)::bigint, value ->> 3,
    (value ->> 4)::bigint
FROM {rows $1}
WHERE true ON CONFLICT (policy_id, starts_at, seconds, result) DO UPDATE
    SET count = claim_total.count + excluded.count;

-- name: total_list
SELECT starts_at, seconds, result, count FROM claim_total WHERE policy_id = $1
ORDER BY policy_id, starts_at, seconds, result;

-- name: total_batch_read
SELECT number FROM claim_total_batch WHERE process = $1;

-- name: total_batch_put
INSERT INTO claim_total_batch (process, number, written_at) VALUES ($1, $2, $3)
ON CONFLICT (process) DO UPDATE SET number = excluded.number, written_at = excluded.written_at;

-- name: total_batch_drop
DELETE FROM claim_total_batch WHERE process = $1;

-- name: total_batch_trim
DELETE FROM claim_total_batch WHERE written_at < $1;
