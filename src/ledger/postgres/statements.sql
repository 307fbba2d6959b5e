-- What PostgreSQL is asked in other words than the rest, and what only its driver asks.

-- fragment: rows
-- The elements of a JSON array, each a `value`.
jsonb_array_elements(%::jsonb)

-- fragment: numbered_rows
-- The same, with their `place` from 1 on.
jsonb_array_elements(%::jsonb) WITH ORDINALITY AS entries (value, place)

-- name: session_setup
-- What every connection starts with: limits on each wait, and what the server is. A commit is
-- durable when it is answered; one who waits for replicas on top of that still does.
SELECT pg_backend_pid(), a.backend_start::text,
    pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
    current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on',
    current_schema()::text, current_setting('server_encoding'),
    set_config('statement_timeout', $1, false), set_config('lock_timeout', $2, false),
    set_config('idle_in_transaction_session_timeout', $3, false),
    set_config('tcp_keepalives_idle', $4, false),
    set_config('tcp_keepalives_interval', $4, false),
    set_config('tcp_keepalives_count', '3', false),
    set_config('tcp_user_timeout', $5, false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('default_transaction_read_only', $6, false),
    set_config('synchronous_commit',
        CASE WHEN current_setting('synchronous_commit') IN ('remote_write', 'remote_apply')
            THEN current_setting('synchronous_commit') ELSE 'on' END, false)
FROM pg_stat_activity a WHERE a.pid = pg_backend_pid();

-- name: owner_take
-- The owner of the ledger in this database and schema. Its lock ends with its connection.
SELECT pg_try_advisory_lock($1, hashtext(current_schema()));

-- name: owner_share
-- Those who share the ledger keep an owner out, and an owner keeps them out.
SELECT pg_try_advisory_lock_shared($1, hashtext(current_schema()));

-- name: owner_who
SELECT format('%s, process %s of the database server, from %s, since %s',
    COALESCE(NULLIF(a.application_name, ''), 'someone'), l.pid,
    COALESCE(host(a.client_addr), 'the same machine'),
    COALESCE(to_char(a.backend_start, 'YYYY-MM-DD HH24:MI:SS TZ'), 'some time ago'))
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid::bigint = $1
  AND l.objid::bigint = (hashtext(current_schema())::bigint & 4294967295)
LIMIT 1;

-- name: owner_end
-- A connection that we lost may not be lost for the server, and it still owns the ledger.
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = $1 AND backend_start = $2::timestamptz;

-- name: schema_lock
SELECT pg_advisory_lock($1, hashtext(current_schema()));

-- name: schema_unlock
SELECT pg_advisory_unlock($1, hashtext(current_schema()));

-- name: schema_has
-- Only this schema counts, and not another one in the search path.
SELECT to_regclass(quote_ident(current_schema()) || '.schema_migration') IS NOT NULL;

-- name: schema_version
SELECT COALESCE(MAX(number), 0) FROM schema_migration;

-- name: schema_note
INSERT INTO schema_migration (number, name) VALUES ($1, $2);
