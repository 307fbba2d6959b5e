/* repair.c: from what the gate tells to what the ledger lacks: policies, leases, keys, users. */
#include "ledger/repair/repair.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/log.h"
#include "ledger/rows.h"
#include "ledger/transactions.h"

#define SECRET_LENGTH_MAX 256
#define POLICIES_AT_ONCE  INT64_C(256)

void repair_init(struct repair *repair, const struct ledger_memory *memory, int64_t now_ms)
{
    *repair = (struct repair){.memory = memory, .now_ms = now_ms};
}

void repair_release(struct repair *repair)
{
    free(repair->chunk);
    free(repair->leases);
    free(repair->lease_rows);
    free(repair->gaps);
    free(repair->users);
    free(repair->has_user);
    free(repair->lifted);
    *repair = (struct repair){0};
}

static enum status repair_no_memory(struct error *error)
{
    return error_set(error, STATUS_UNAVAILABLE, "no memory for the repair of the ledger");
}

/* --- policies --- */

static enum status repair_refuse_policy(int64_t id, const char *what, struct error *error)
{
    return error_set(error, STATUS_CONFLICT,
                     "policy %lld: %s; this is not an older copy of this server's ledger, and "
                     "nothing was written",
                     (long long)id, what);
}

static enum status repair_save_policy(struct repair *repair, int64_t unleased, struct error *error)
{
    struct policy policy = repair->policy;

    policy.unleased = unleased;
    if (policy.version < repair->version)
        policy.version = repair->version;
    return transaction_save_policy(repair->sql, &policy, error);
}

/* Whatever is neither issued nor in a lease is unleased. */
static enum status repair_balance(struct repair *repair, struct error *error)
{
    int64_t unleased = repair->policy.total - repair->active_count;

    for (size_t i = 0; i < repair->lease_count; i++)
        unleased -= repair->leases[i].count - repair->lease_rows[i];
    if (unleased < 0)
        return error_set(error, STATUS_CONFLICT,
                         "policy %lld: %lld units are issued or lent and its total is %lld; "
                         "nothing was written",
                         (long long)repair->policy.id, (long long)(repair->policy.total - unleased),
                         (long long)repair->policy.total);
    return repair_save_policy(repair, unleased, error);
}

/* Nothing is lent. The ledger may have coupons that the gate did not tell of, and none is taken
 * from anyone. */
static enum status repair_balance_one(struct repair *repair, struct error *error)
{
    struct policy *policy = &repair->policy;
    struct ledger_balance sums = {0};
    enum status status = balance_sum(repair->sql, policy->id, &sums, error);

    if (status != STATUS_OK)
        return status;
    if (policy->total < sums.active)
        policy->total = sums.active;
    if (policy->next_seq <= sums.highest_seq)
        policy->next_seq = sums.highest_seq + 1;
    return repair_save_policy(repair, policy->total - sums.active, error);
}

static enum status repair_end_policy(struct repair *repair, struct error *error)
{
    if (!repair->has_policy)
        return STATUS_OK;
    enum status status = repair_flush(repair, error);
    if (status == STATUS_OK && repair->mode != REPAIR_ONE &&
        (repair->mode == REPAIR_WRITE || !repair->gap.lacks_policy))
        status = repair_check_rest(repair, error);
    if (status == STATUS_OK && repair->mode == REPAIR_WRITE)
        status = repair_balance(repair, error);
    if (status == STATUS_OK && repair->mode == REPAIR_ONE)
        status = repair_balance_one(repair, error);
    if (status != STATUS_OK)
        return status;
    if (!array_make_room(repair->gaps, repair->gap_count, repair->gap_capacity))
        return repair_no_memory(error);
    repair->gaps[repair->gap_count++] = repair->gap;
    repair->has_policy = false;
    return STATUS_OK;
}

/* Somebody may have changed the older row since. Seqs of both are taken. */
static void repair_keep_newer(struct repair *repair, const struct policy *present)
{
    int64_t next_seq = repair->policy.next_seq;

    if (present->version > repair->policy.version)
        repair->policy = *present;
    if (present->next_seq > next_seq)
        next_seq = present->next_seq;
    repair->policy.next_seq = next_seq;
}

static enum status repair_on_policy(void *context, const struct policy *policy, struct error *error)
{
    struct repair *repair = context;
    struct policy present = {.version = 0};
    enum status status = repair_end_policy(repair, error);

    if (policy->is_damaged)
        return repair_refuse_policy(policy->id, "it was damaged when this server started", error);

    if (status == STATUS_OK)
        status =
            rows_policy_by_id(repair->sql, policy->id,
                              repair->mode != REPAIR_LOOK ? ROWS_LOCK : ROWS_LOOK, &present, error);
    repair->has_policy = true;
    repair->policy = *policy;
    repair->version = present.version;
    if (repair->mode == REPAIR_ONE && status == STATUS_OK)
        repair_keep_newer(repair, &present);
    repair->lease_count = 0;
    repair->lease_at = 0;
    repair->seq = 0;
    repair->active_count = 0;
    repair->counted_seq = 0;
    repair->gap = (struct ledger_gap){
        .policy_id = policy->id,
        .lacks_policy = status == STATUS_NOT_FOUND,
        .has_older_policy = status == STATUS_OK && present.version < policy->version,
    };
    if (status == STATUS_NOT_FOUND)
        status = repair->mode != REPAIR_LOOK ? transaction_insert_policy(repair->sql, policy, error)
                                             : STATUS_OK;
    if (status == STATUS_OK && repair->mode != REPAIR_LOOK)
        status = SQL_WRITE(repair->sql, STATEMENT_lease_close_all, error, sql_i64(policy->id));
    return status;
}

/* --- leases --- */

/* How many units the leases had at their end, that the gate no longer has, nobody knows: they were
 * closed as empty. A lease that the ledger knows becomes what the gate has of it. One that is only
 * told for its id (it is closed) keeps the ids of later leases above its own. */
static enum status repair_put_lease(struct repair *repair, const struct lease *lease,
                                    struct error *error)
{
    struct lease present;
    enum status status = rows_lease_lock(repair->sql, lease->id, &present, error);

    if (status == STATUS_NOT_FOUND)
        return SQL_WRITE(repair->sql, STATEMENT_lease_put, error, sql_i64(lease->id),
                         sql_i64(lease->policy_id), sql_i64(lease->first_seq),
                         sql_i64(lease->count),
                         sql_text(lease->open ? SPAN("OPEN") : SPAN("CLOSED")));
    if (status != STATUS_OK)
        return status;
    if (present.policy_id != lease->policy_id ||
        (lease->open && present.first_seq != lease->first_seq))
        return repair_refuse_policy(lease->policy_id, "one of its leases is someone else's", error);
    if (!lease->open)
        return STATUS_OK;
    return SQL_WRITE(repair->sql, STATEMENT_lease_reopen, error, sql_i64(lease->id),
                     sql_i64(lease->count));
}

/* What was given out of it is counted by the claims that come next: some may be newer. */
static enum status repair_on_lease(void *context, const struct lease *lease, int64_t given_count,
                                   struct error *error)
{
    struct repair *repair = context;
    size_t capacity = repair->lease_capacity;

    if (repair->mode == REPAIR_LOOK)
        return STATUS_OK;
    if (lease->open) {
        if (!array_make_room(repair->leases, repair->lease_count, capacity) ||
            !array_make_room(repair->lease_rows, repair->lease_count, repair->lease_capacity))
            return repair_no_memory(error);
        repair->lease_rows[repair->lease_count] = 0;
        repair->leases[repair->lease_count++] = *lease;
    }
    return repair_put_lease(repair, lease, error);
}

/* --- claims and keys --- */

/* While people use the ledger, a key may be on its way: a look does not judge by keys. */
static enum status repair_on_key(void *context, const struct key_binding *binding,
                                 struct error *error)
{
    struct repair *repair = context;
    struct sql_value policy_id = sql_i64(binding->policy_id);
    struct sql_value key = sql_blob(binding->request_id.bytes, sizeof(binding->request_id.bytes));
    int64_t seq = 0;

    if (repair->mode == REPAIR_LOOK)
        return STATUS_OK;
    enum status status =
        SQL_RUN(repair->sql, STATEMENT_key_by_id, rows_take_i64, &seq, error, policy_id, key);
    if (status != STATUS_OK || seq == binding->seq)
        return status;
    if (seq != 0 && repair->mode == REPAIR_ONE)
        return STATUS_OK; /* The ledger has bound it anew. */
    if (seq != 0)
        return repair_refuse_policy(binding->policy_id, "a key belongs to another claim", error);
    repair->gap.key_count++;
    return SQL_WRITE(repair->sql, STATEMENT_key_insert, error, policy_id, key,
                     sql_i64(binding->seq));
}

/* --- users --- */

static enum status repair_on_blocked(void *context, const struct id *user, struct error *error)
{
    struct repair *repair = context;
    enum status status = repair_end_policy(repair, error);

    if (status != STATUS_OK || repair->mode == REPAIR_LOOK)
        return status;
    if (!array_make_room(repair->users, repair->user_count, repair->user_capacity))
        return repair_no_memory(error);
    repair->users[repair->user_count++] = *user;
    return STATUS_OK;
}

static int repair_order(const void *a, const void *b)
{
    return id_compare(a, b);
}

static enum status repair_read_blocked(void *context, const struct sql_value *columns,
                                       struct error *error)
{
    struct repair *repair = context;
    struct id user = rows_read_user(&columns[0]);
    const struct id *found = repair->user_count == 0
                                 ? NULL
                                 : bsearch(&user, repair->users, repair->user_count,
                                           sizeof(*repair->users), repair_order);

    if (found != NULL) {
        repair->has_user[found - repair->users] = true;
        return STATUS_OK;
    }
    if (!array_make_room(repair->lifted, repair->lifted_count, repair->lifted_capacity))
        return repair_no_memory(error);
    repair->lifted[repair->lifted_count++] = user;
    return STATUS_OK;
}

static enum status repair_users(struct repair *repair, struct error *error)
{
    struct sql *sql = repair->sql;

    free(repair->has_user);
    repair->has_user = calloc(repair->user_count + 1, sizeof(*repair->has_user));
    if (repair->has_user == NULL)
        return repair_no_memory(error);
    if (repair->user_count > 1)
        qsort(repair->users, repair->user_count, sizeof(*repair->users), repair_order);
    enum status status = SQL_RUN(sql, STATEMENT_blocked_scan, repair_read_blocked, repair, error);
    for (size_t i = 0; i < repair->user_count && status == STATUS_OK; i++) {
        if (repair->has_user[i])
            continue;
        status = SQL_WRITE(sql, STATEMENT_blocked_insert, error,
                           sql_text(id_span(&repair->users[i])), sql_i64(repair->now_ms));
        repair->done.blocked_count++;
    }
    for (size_t i = 0; i < repair->lifted_count && status == STATUS_OK; i++)
        status =
            SQL_WRITE(sql, STATEMENT_blocked_delete, error, sql_text(id_span(&repair->lifted[i])));
    repair->done.unblocked_count = (int64_t)repair->lifted_count;
    return status;
}

/* --- the whole --- */

/* Codes are made with it: another one would make all codes that people hold worthless. */
static enum status repair_secret(struct repair *repair, struct error *error)
{
    const struct ledger_memory *memory = repair->memory;
    uint8_t present[SECRET_LENGTH_MAX];
    struct keep_secret keep = {.name = memory->secret_name,
                               .fresh = memory->secret,
                               .bytes = present,
                               .length = memory->secret_length};

    if (memory->secret_name == NULL)
        return STATUS_OK;
    ensure(memory->secret_length <= sizeof(present));
    enum status status = transaction_keep_secret(repair->sql, &keep, error);
    if (status == STATUS_OK && memcmp(present, memory->secret, memory->secret_length) != 0)
        return error_set(error, STATUS_CONFLICT,
                         "the ledger's secret %s is not this server's: this is not an older copy "
                         "of this server's ledger, and nothing was written",
                         memory->secret_name);
    return status;
}

/* Walks the ledger's policies beside those that were told. */
struct repair_policies {
    const struct repair *repair;
    size_t at;
    int64_t last_id;
    int64_t count;
};

static enum status repair_check_policy(void *context, const struct sql_value *columns,
                                       struct error *error)
{
    struct repair_policies *policies = context;
    const struct repair *repair = policies->repair;

    policies->count++;
    policies->last_id = columns[0].number;
    while (policies->at < repair->gap_count &&
           repair->gaps[policies->at].policy_id < policies->last_id)
        policies->at++;
    if (policies->at < repair->gap_count &&
        repair->gaps[policies->at].policy_id == policies->last_id)
        return STATUS_OK;
    return repair_refuse_policy(policies->last_id, "this server does not know it", error);
}

static enum status repair_check_policies(const struct repair *repair, struct error *error)
{
    struct repair_policies policies = {.repair = repair};
    enum status status;

    do {
        policies.count = 0;
        status = SQL_RUN(repair->sql, STATEMENT_policy_list, repair_check_policy, &policies, error,
                         sql_i64(policies.last_id), sql_i64(POLICIES_AT_ONCE));
    } while (status == STATUS_OK && policies.count == POLICIES_AT_ONCE);
    return status;
}

static enum status repair_listen(struct repair *repair, struct sql *sql, enum repair_mode mode,
                                 int64_t policy_id, struct error *error)
{
    const struct ledger_memory *memory = repair->memory;
    struct claim_visitor listener = {
        .policy = repair_on_policy,
        .lease = repair_on_lease,
        .claim = repair_claim,
        .key = repair_on_key,
        .blocked = repair_on_blocked,
        .context = repair,
    };

    repair->sql = sql;
    repair->mode = mode;
    repair->has_policy = false;
    repair->gap_count = 0;
    repair->user_count = 0;
    repair->lifted_count = 0;
    repair->done = (struct ledger_repair){0};
    if (!repair_chunk_begin(repair))
        return repair_no_memory(error);
    enum status status = memory->tell(memory->context, policy_id, &listener, error);
    return status == STATUS_OK ? repair_end_policy(repair, error) : status;
}

static void repair_sum_up(struct repair *repair)
{
    struct ledger_repair *done = &repair->done;

    done->is_done = true;
    done->policy_count = (int64_t)repair->gap_count;
    for (size_t i = 0; i < repair->gap_count; i++) {
        const struct ledger_gap *gap = &repair->gaps[i];
        done->written_count += gap->missing_count + gap->pending_count;
        done->redeemed_count += gap->redeemed_count;
        done->cancelled_count += gap->cancelled_count;
        done->key_count += gap->key_count;
    }
}

enum status repair_write_one(struct sql *sql, void *argument, struct error *error)
{
    struct repair *repair = argument;
    enum status status = repair_listen(repair, sql, REPAIR_ONE, repair->policy_id, error);

    if (status == STATUS_OK)
        repair_sum_up(repair);
    return status;
}

enum status repair_write(struct sql *sql, void *argument, struct error *error)
{
    struct repair *repair = argument;

    repair->sql = sql;
    enum status status = repair_secret(repair, error);
    if (status == STATUS_OK)
        status = repair_listen(repair, sql, REPAIR_WRITE, 0, error);
    if (status == STATUS_OK)
        status = repair_users(repair, error);
    if (status == STATUS_OK)
        status = repair_check_policies(repair, error);
    if (status == STATUS_OK)
        repair_sum_up(repair);
    return status;
}

void repair_log(const struct repair *repair)
{
    const struct ledger_repair *done = &repair->done;

    for (size_t i = 0; i < repair->gap_count; i++) {
        const struct ledger_gap *gap = &repair->gaps[i];
        log_event(LOG_INFO, "policy_repaired", LOG_FIELD("policy", LOG_I64(gap->policy_id)),
                  LOG_FIELD("was_missing", LOG_FLAG(gap->lacks_policy)),
                  LOG_FIELD("was_older", LOG_FLAG(gap->has_older_policy)),
                  LOG_FIELD("written", LOG_I64(gap->missing_count + gap->pending_count)),
                  LOG_FIELD("redeemed", LOG_I64(gap->redeemed_count)),
                  LOG_FIELD("cancelled", LOG_I64(gap->cancelled_count)),
                  LOG_FIELD("keys", LOG_I64(gap->key_count)));
    }
    log_event(LOG_WARN, "ledger_repaired", LOG_FIELD("policies", LOG_I64(done->policy_count)),
              LOG_FIELD("written", LOG_I64(done->written_count)),
              LOG_FIELD("redeemed", LOG_I64(done->redeemed_count)),
              LOG_FIELD("cancelled", LOG_I64(done->cancelled_count)),
              LOG_FIELD("keys", LOG_I64(done->key_count)),
              LOG_FIELD("blocked", LOG_I64(done->blocked_count)),
              LOG_FIELD("unblocked", LOG_I64(done->unblocked_count)));
}

enum status repair_find_gap(struct repair *repair, struct sql *sql, int64_t policy_id,
                            struct ledger_gap *gap, struct error *error)
{
    enum status status = repair_listen(repair, sql, REPAIR_LOOK, policy_id, error);

    if (status == STATUS_OK)
        *gap = repair->gaps[0];
    return status;
}
