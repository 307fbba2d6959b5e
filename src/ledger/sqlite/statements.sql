-- What SQLite is asked in other words than the rest: a cast says nothing to it, it has one writer and
-- no row locks.
--
-- INDEXED BY: with few statistics it would rather walk a whole policy in the order asked for than sort
-- the few coupons of a user.

-- rule: ::\w+ =>
-- rule: \s+FOR (NO KEY )?(UPDATE|SHARE)( OF \w+)?( NOWAIT| SKIP LOCKED)? =>
-- rule: \bGREATEST\( => MAX(
-- rule: \$(\d) => ?\1

-- fragment: now
CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)

-- fragment: among
IN (SELECT value FROM json_each(%))

-- fragment: rows
json_each(%)

-- fragment: numbered_rows
(SELECT key + 1 AS place, value FROM json_each(%)) AS entries

-- name: lease_close_these
UPDATE lease SET state = 'CLOSED' WHERE id {among ?1};

-- name: lease_put
INSERT INTO lease (id, policy_id, first_seq, count, state) VALUES (?1, ?2, ?3, ?4, ?5);

-- name: coupon_insert
INSERT OR FAIL INTO coupon (policy_id, seq, user_id, nth, slot, state, request_id, lease_id,
    requested_at, issued_at, expires_at, merged_into, reason)
SELECT policy_id, seq, user_id, nth, slot, state, request_id, lease_id,
    requested_at, issued_at, expires_at, merged_into, reason
FROM incoming_coupon;

-- name: coupon_list_of_user
SELECT {coupon_columns}
FROM coupon c INDEXED BY coupon_user_slot JOIN policy p ON p.id = c.policy_id
WHERE c.user_id = ?1 AND (c.policy_id, c.seq) > (?2, ?3)
UNION ALL
SELECT r.policy_id, r.seq, r.user_id, r.nth, 'VOID', r.request_id, r.lease_id, r.requested_at,
    r.refused_at, NULL, NULL, NULL, NULL, NULL, r.reason
FROM refused_claim r INDEXED BY refused_claim_user
WHERE r.user_id = ?1 AND (r.policy_id, r.seq) > (?2, ?3)
ORDER BY 1, 2 LIMIT ?4;

-- name: coupon_list_of_claimant
SELECT {coupon_columns}
FROM coupon c INDEXED BY coupon_user_slot JOIN policy p ON p.id = c.policy_id
WHERE c.user_id = ?2 AND c.policy_id = ?1
UNION ALL
SELECT r.policy_id, r.seq, r.user_id, r.nth, 'VOID', r.request_id, r.lease_id, r.requested_at,
    r.refused_at, NULL, NULL, NULL, NULL, NULL, r.reason
FROM refused_claim r INDEXED BY refused_claim_user
WHERE r.user_id = ?2 AND r.policy_id = ?1
ORDER BY 2 DESC LIMIT ?3;

-- name: coupon_range
SELECT seq, user_id, nth, state, request_id FROM coupon
WHERE policy_id = ?1 AND seq > ?2 AND seq <= ?3
UNION ALL
SELECT seq, user_id, nth, 'VOID', request_id FROM refused_claim
WHERE policy_id = ?1 AND seq > ?2 AND seq <= ?3
ORDER BY 1 LIMIT ?4;
