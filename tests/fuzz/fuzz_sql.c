/* fuzz_sql.c: any values in the rows of a database, to everyone who reads them: never a crash, and
 * texts and ids that fit their places.
 *
 * The first byte chooses the reader. The rest are the rows, one for each statement, until there are
 * no more: a byte for the kind of each column, then eight bytes of a number, or a length and the
 * bytes of a text. A driver that takes the place of MySQL's hands them out; PostgreSQL's reader
 * gets them as a result of libpq.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "ledger/driver.h"
#include "ledger/migrate.h"
#include "ledger/postgres/values.h"
#include "ledger/sales/sales.h"

#define POLICY   7
#define ITEMS    4
#define TEXT_MAX 256

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* --- a database that has said all it will say --- */

static struct span input;
static struct ledger *ledger;

static uint8_t take_byte(void)
{
    if (input.length == 0)
        return 0;
    input.length--;
    return (uint8_t)*input.bytes++;
}

/* Bytes of their own, so that a look beyond them is seen; to be freed. */
static char *take_bytes(size_t *length)
{
    *length = take_byte() < 8 ? 0 : take_byte();
    if (*length > input.length)
        *length = input.length;
    char *bytes = malloc(*length + 1);
    ensure(bytes != NULL);
    memcpy(bytes, input.bytes, *length);
    input.bytes += *length;
    input.length -= *length;
    char *exact = realloc(bytes, *length > 0 ? *length : 1);
    return exact != NULL ? exact : bytes;
}

static struct sql_value take_value(char **owned)
{
    size_t length = 0;

    *owned = NULL;
    switch (take_byte() % 5) {
    case 0:
        return sql_null();
    case 1:
    case 2: {
        int64_t number = 0;
        for (int i = 0; i < 8; i++)
            number = (int64_t)((uint64_t)number << 8 | take_byte());
        return sql_i64(number);
    }
    case 3:
        *owned = take_bytes(&length);
        return sql_text((struct span){*owned, length});
    default:
        *owned = take_bytes(&length);
        return sql_blob(*owned, length);
    }
}

static enum status said_run(struct ledger_session *session, const struct sql_call *call,
                            struct error *error)
{
    struct sql_value columns[SQL_COLUMNS_MAX];
    char *owned[SQL_COLUMNS_MAX];

    if (call->changed != NULL)
        *call->changed = take_byte() % 2;
    if (call->row == NULL || input.length == 0)
        return STATUS_OK;
    for (size_t i = 0; i < SQL_COLUMNS_MAX; i++)
        columns[i] = take_value(&owned[i]);
    enum status status = call->row(call->context, columns, error);
    for (size_t i = 0; i < SQL_COLUMNS_MAX; i++)
        free(owned[i]);
    return status;
}

static enum status said_store_open(struct ledger_store **store, const struct store_options *options,
                                   struct error *error)
{
    (void)options, (void)error;
    *store = (struct ledger_store *)&input;
    return STATUS_OK;
}

static enum status said_session_open(struct ledger_store *store, enum session_kind kind,
                                     struct ledger_session **session, struct error *error)
{
    (void)kind, (void)error;
    *session = (struct ledger_session *)store;
    return STATUS_OK;
}

static void said_store_close(struct ledger_store *store)
{
    (void)store;
}

static void said_nothing(struct ledger_session *session)
{
    (void)session;
}

static enum status said_ok(struct ledger_session *session, struct error *error)
{
    (void)session, (void)error;
    return STATUS_OK;
}

static enum status said_savepoint_end(struct ledger_session *session, bool keep,
                                      struct error *error)
{
    (void)keep;
    return said_ok(session, error);
}

static enum status said_insert(struct ledger_session *session, struct coupon_row *rows,
                               size_t count, struct error *error)
{
    (void)rows, (void)count;
    return said_ok(session, error);
}

static enum status said_version(struct ledger_session *session, int *version, struct error *error)
{
    *version = migrate_newest("mysql");
    return said_ok(session, error);
}

static enum status said_apply(struct ledger_session *session, int number, const char *name,
                              const char *text, struct error *error)
{
    (void)number, (void)name, (void)text;
    return said_ok(session, error);
}

const struct ledger_driver ledger_mysql_driver = {
    .name = "mysql",
    .store_open = said_store_open,
    .store_close = said_store_close,
    .session_open = said_session_open,
    .session_close = said_nothing,
    .begin = said_ok,
    .commit = said_ok,
    .rollback = said_nothing,
    .savepoint = said_ok,
    .savepoint_end = said_savepoint_end,
    .run = said_run,
    .insert_coupons = said_insert,
    .schema_lock = said_ok,
    .schema_unlock = said_nothing,
    .schema_version = said_version,
    .schema_apply = said_apply,
};

static void on_issued(void *context, const struct claim *claims, const enum coupon_state *states,
                      size_t count)
{
    (void)context, (void)claims, (void)states, (void)count;
}

static void on_durable(void *context)
{
    (void)context;
}

/* --- what may come out --- */

static void check_text(const char *text, size_t size)
{
    ensure(memchr(text, '\0', size) != NULL);
}

static void check_user(const struct id *user)
{
    ensure(user->length <= ID_LENGTH_MAX);
}

static void check_policy(const struct policy *policy)
{
    check_text(policy->name, sizeof(policy->name));
}

static void check_coupon(const struct coupon *coupon)
{
    check_user(&coupon->claim.user);
    check_user(&coupon->order_id);
    check_text(coupon->reason, sizeof(coupon->reason));
    ensure(coupon_state_name(coupon->state) != NULL);
}

/* --- the readers --- */

static struct error error;

static void read_policies(void)
{
    struct policy policies[ITEMS];
    size_t count = 0;

    if (ledger_policy_get(ledger, POLICY, &policies[0], &error) == STATUS_OK)
        check_policy(&policies[0]);
    if (ledger_policy_list(ledger, 0, policies, ITEMS, &count, &error) == STATUS_OK && count > 0 &&
        !policies[0].is_damaged)
        check_policy(&policies[0]);
}

static void read_leases(void)
{
    struct lease *leases = NULL;
    size_t count = 0;
    struct ledger_balance balance;

    (void)!ledger_lease_list(ledger, POLICY, &leases, &count, &error);
    free(leases);
    leases = NULL;
    (void)!ledger_lease_history(ledger, POLICY, &leases, &count, &error);
    free(leases);
    (void)!ledger_balance(ledger, POLICY, &balance, &error);
}

static void read_coupons(void)
{
    struct coupon coupons[ITEMS];
    const struct id user = id_of(SPAN("ann"));
    size_t count = 0;
    bool is_blocked;

    if (ledger_coupon_get(ledger, POLICY, 1, &coupons[0], &error) == STATUS_OK)
        check_coupon(&coupons[0]);
    if (ledger_coupons_of_user(ledger, &user, 0, 0, coupons, ITEMS, &count, &error) == STATUS_OK &&
        count > 0)
        check_coupon(&coupons[0]);
    if (ledger_coupons_of_policy(ledger, POLICY, 0, coupons, ITEMS, &count, &error) == STATUS_OK &&
        count > 0)
        check_coupon(&coupons[0]);
    (void)!ledger_coupons_of_claimant(ledger, POLICY, &user, coupons, ITEMS, &count, &error);
    (void)!ledger_user_blocked(ledger, &user, &is_blocked, &error);
}

static void read_dead_letters(void)
{
    struct dead_letter letters[ITEMS];
    static struct ledger_repair_note notes[ITEMS];
    size_t count = 0;
    int64_t number;

    if (ledger_dead_letters(ledger, 0, 0, letters, ITEMS, &count, &error) == STATUS_OK &&
        count > 0) {
        check_user(&letters[0].claim.user);
        check_text(letters[0].reason, sizeof(letters[0].reason));
    }
    (void)!ledger_dead_letter_get(ledger, POLICY, 1, &letters[0], &error);
    (void)!ledger_dead_letter_count(ledger, &number, &error);
    if (ledger_repairs(ledger, notes, ITEMS, &count, &error) == STATUS_OK && count > 0)
        check_text(notes[0].plan, sizeof(notes[0].plan));
}

static void read_events(void)
{
    static struct ledger_event events[ITEMS];
    const struct ledger_event_place after = {0};
    struct ledger_backlog backlog;
    size_t count = 0;

    if (ledger_events(ledger, LEDGER_SINK_KAFKA, &after, events, ITEMS, &count, &error) ==
            STATUS_OK &&
        count > 0) {
        check_coupon(&events[0].coupon);
        check_text(events[0].traceparent, sizeof(events[0].traceparent));
    }
    (void)!ledger_event_backlog(ledger, LEDGER_SINK_KAFKA, &backlog, &error);
}

static enum status visit_policy(void *context, const struct policy *policy, struct error *words)
{
    (void)context, (void)words;
    check_policy(policy);
    return STATUS_OK;
}

static enum status visit_claim(void *context, const struct claim *claim, enum coupon_state state,
                               struct error *words)
{
    (void)context, (void)words;
    check_user(&claim->user);
    ensure(coupon_state_name(state) != NULL);
    return STATUS_OK;
}

static enum status visit_key(void *context, const struct key_binding *binding, struct error *words)
{
    (void)context, (void)words;
    check_user(&binding->user);
    return STATUS_OK;
}

static enum status visit_lease(void *context, const struct lease *lease, struct error *words)
{
    (void)context, (void)lease, (void)words;
    return STATUS_OK;
}

static enum status visit_blocked(void *context, const struct id *user, struct error *words)
{
    (void)context, (void)words;
    check_user(user);
    return STATUS_OK;
}

static void read_visit(void)
{
    const struct ledger_visitor visitor = {.policy = visit_policy,
                                           .claim = visit_claim,
                                           .key = visit_key,
                                           .lease = visit_lease,
                                           .blocked = visit_blocked};

    int64_t below_id = LEDGER_ABOVE_ALL;

    (void)!ledger_visit_below(ledger, &below_id, &visitor, &error);
    (void)!ledger_visit_policy(ledger, POLICY, &visitor, &error);
    (void)!ledger_visit_blocked(ledger, &visitor, &error);
}

static void read_entering(void)
{
    static struct entering_coupon coupons[ITEMS];
    int64_t ids[ITEMS];
    size_t count = 0;

    (void)!ledger_entering_policies(ledger, 0, ids, ITEMS, &count, &error);
    (void)!ledger_short_code_policies(ledger, 0, ids, ITEMS, &count, &error);
    if (ledger_entering(ledger, POLICY, coupons, ITEMS, &count, visit_key, NULL, &error) ==
            STATUS_OK &&
        count > 0)
        check_coupon(&coupons[0].coupon);
}

static void read_orders(void)
{
    static struct order_item items[ORDER_ITEMS_MAX];
    const struct id id = id_of(SPAN("apple"));
    struct order order = {.order_id = id};
    struct product products[ITEMS] = {{.id = id}};

    if (ledger_order_get(ledger, &id, &order, items, &error) == STATUS_OK)
        ensure(order.item_count <= ORDER_ITEMS_MAX);
    if (ledger_product_get(ledger, &id, &products[0], &error) == STATUS_OK)
        check_text(products[0].name, sizeof(products[0].name));
    products[0].id = id;
    (void)!ledger_products_fill(ledger, products, 1, &error);
}

static enum status sales_place(void *context, const struct feed_place *place, struct error *words)
{
    (void)context, (void)place, (void)words;
    return STATUS_OK;
}

static enum status sales_total(void *context, int64_t day, const struct id *product_id,
                               int64_t sold, struct error *words)
{
    (void)context, (void)day, (void)sold, (void)words;
    check_user(product_id);
    return STATUS_OK;
}

static enum status sales_moment(void *context, int64_t day, const struct id *product_id,
                                const struct sales_moment *moment, struct error *words)
{
    (void)context, (void)day, (void)words;
    check_user(product_id);
    ensure(moment->kind < SALES_KIND_COUNT);
    return STATUS_OK;
}

static void read_sales(void)
{
    const struct sales_visitor visitor = {
        .place = sales_place, .total = sales_total, .moment = sales_moment};
    const struct feed_place after = {0};
    const struct id id = id_of(SPAN("apple"));
    struct feed_entry entries[ITEMS];
    struct sales_line lines[ITEMS];
    size_t count = 0;

    if (ledger_sales_after(ledger, &after, entries, ITEMS, &count, &error) == STATUS_OK &&
        count > 0)
        check_user(&entries[0].product_id);
    (void)!ledger_sales_days(ledger, 1, 2, &visitor, &error);
    (void)!ledger_sales_top(ledger, 1, 2, ITEMS, lines, &count, &error);
    (void)!ledger_sales_of(ledger, 1, 2, &id, 1, lines, &count, &error);
    (void)!ledger_sales_around(ledger, 1, 2, &id, 1, lines, &count, &error);
}

static bool tell_term(void *context, const struct ledger_term *term)
{
    (void)context, (void)term;
    return true;
}

static void read_terms(void)
{
    int64_t count;

    (void)!ledger_steward_beat(ledger, "", 1000, tell_term, NULL, &error);
    (void)!ledger_steward_confirm(ledger, POLICY, 1, &error);
    (void)!ledger_worker_count(ledger, 1000, &count, &error);
}

/* Columns of types and lengths that a server may send. */
static void read_postgres(void)
{
    static const Oid types[] = {16, 17, 20, 21, 23, 25, 1043, 1700};
    struct sql_value columns[SQL_COLUMNS_MAX];
    PGresAttDesc descriptions[ITEMS];
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    char name[] = "column";

    ensure(result != NULL);
    for (int i = 0; i < ITEMS; i++)
        descriptions[i] =
            (PGresAttDesc){.name = name, .format = 1, .typid = types[take_byte() % 8]};
    ensure(PQsetResultAttrs(result, ITEMS, descriptions));
    for (int i = 0; i < ITEMS; i++) {
        size_t length;
        char *bytes = take_bytes(&length);
        bool is_null = take_byte() % 4 == 0;
        ensure(PQsetvalue(result, 0, i, is_null ? NULL : bytes, is_null ? -1 : (int)length));
        free(bytes);
    }
    if (postgres_values_read(result, 0, columns, &error) == STATUS_OK)
        for (int i = 0; i < ITEMS; i++)
            ensure(columns[i].kind <= SQL_BLOB && columns[i].bytes.length <= TEXT_MAX);
    PQclear(result);
}

static void (*const readers[])(void) = {
    read_policies, read_leases, read_coupons, read_dead_letters, read_events, read_visit,
    read_entering, read_orders, read_sales,   read_postgres,     read_terms,
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (ledger == NULL) {
        const struct ledger_options options = {.url = "mysql://nobody/here",
                                               .use = LEDGER_SHARE,
                                               .readers = 1,
                                               .keeps_moments = true,
                                               .on_issued = on_issued,
                                               .on_durable = on_durable};
        ensure(ledger_open(&ledger, &options, &error) == STATUS_OK);
    }
    if (size == 0)
        return 0;
    input = (struct span){(const char *)bytes + 1, size - 1};
    readers[(size_t)(uint8_t)(bytes[0] - 'a') % (sizeof(readers) / sizeof(readers[0]))]();
    input.length = 0;
    return 0;
}
