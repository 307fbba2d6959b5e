/* audit.c: `dibs audit`: holds the ledger against the running server, and has it repaired. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command/exchange.h"

#define PAGE_LIMIT "100"
#define PATH_SIZE  (EXCHANGE_TEXT_SIZE + 64)
/* Reading every coupon of a large policy takes its time, and so does writing them. */
#define PATIENCE_MS (10 * 60 * 1000)

/* All pages as one: {"ledger":…,"items":[…],"next":null}. */
struct report {
    yyjson_mut_doc *building;
    yyjson_doc *document;
    yyjson_val *root;
};

static void report_release(struct report *report)
{
    yyjson_mut_doc_free(report->building);
    yyjson_doc_free(report->document);
    *report = (struct report){0};
}

/* --- asking --- */

/* The path of the next page; `after` is the page before's `next`, or NULL. */
static void write_path(const struct command_call *call, const char *after, char path[PATH_SIZE])
{
    const char *policy = command_option(call, "policy");
    if (policy != NULL) {
        snprintf(path, PATH_SIZE, "/v1/audit?policy=%s", policy);
    } else if (after != NULL) {
        snprintf(path, PATH_SIZE, "/v1/audit?limit=" PAGE_LIMIT "&after=%s", after);
    } else {
        snprintf(path, PATH_SIZE, "/v1/audit?limit=" PAGE_LIMIT);
    }
}

static int ask(struct exchange *exchange, const char *method, const char *path)
{
    const struct client_request request = {
        .method = method, .path = path, .extra_timeout_ms = PATIENCE_MS};
    if (!exchange_ask(exchange, &request)) {
        return COMMAND_FAILED;
    }
    return exchange->answer.status == 200 ? COMMAND_FINE : exchange_refused(exchange);
}

/* The state of the ledger is the last page's: it is the newest. */
static void add_page(struct report *report, yyjson_mut_val *items, yyjson_val *page)
{
    yyjson_mut_doc *building = report->building;
    yyjson_mut_val *root = yyjson_mut_doc_get_root(building);
    yyjson_val *item;
    yyjson_arr_iter page_items;
    yyjson_mut_obj_remove_key(root, "ledger");
    yyjson_mut_obj_add_val(building, root, "ledger",
                           yyjson_val_mut_copy(building, yyjson_obj_get(page, "ledger")));
    yyjson_arr_iter_init(yyjson_obj_get(page, "items"), &page_items);
    while ((item = yyjson_arr_iter_next(&page_items)) != NULL) {
        yyjson_mut_arr_append(items, yyjson_val_mut_copy(building, item));
    }
}

/* Audits all policies; COMMAND_FINE, whatever came out, or COMMAND_FAILED in words. */
static int gather(struct exchange *exchange, struct report *report)
{
    char after[EXCHANGE_TEXT_SIZE] = "";
    char path[PATH_SIZE];
    bool more;
    report->building = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(report->building);
    yyjson_mut_val *items = yyjson_mut_arr(report->building);
    yyjson_mut_doc_set_root(report->building, root);
    do {
        write_path(exchange->call, after[0] != '\0' ? after : NULL, path);
        int code = ask(exchange, "GET", path);
        if (code != COMMAND_FINE) {
            return code;
        }
        add_page(report, items, exchange->root);
        char next[EXCHANGE_TEXT_SIZE];
        exchange_text(exchange->root, "next", next);
        more = yyjson_is_str(yyjson_obj_get(exchange->root, "next")) && strcmp(next, after) != 0;
        snprintf(after, sizeof(after), "%s", next);
    } while (more);
    yyjson_mut_obj_add_val(report->building, root, "items", items);
    yyjson_mut_obj_add_null(report->building, root, "next");
    report->document = yyjson_mut_doc_imut_copy(report->building, NULL);
    report->root = yyjson_doc_get_root(report->document);
    return report->root != NULL ? COMMAND_FINE : command_fail(exchange->call, "out of memory");
}

/* --- judging --- */

static bool ledger_is(const struct report *report, const char *state)
{
    yyjson_val *ledger = yyjson_obj_get(report->root, "ledger");
    return yyjson_equals_str(yyjson_obj_get(ledger, "state"), state);
}

static int judge(const struct report *report)
{
    yyjson_val *item;
    yyjson_arr_iter items;
    yyjson_arr_iter_init(yyjson_obj_get(report->root, "items"), &items);
    while ((item = yyjson_arr_iter_next(&items)) != NULL) {
        if (!yyjson_is_true(yyjson_obj_get(item, "ok"))) {
            return COMMAND_GUARANTEE_BROKEN;
        }
    }
    if (ledger_is(report, "BEHIND")) {
        return COMMAND_GUARANTEE_BROKEN;
    }
    return ledger_is(report, "OK") ? COMMAND_FINE : COMMAND_FAILED;
}

static int64_t sum_of(const struct report *report, const char *member)
{
    int64_t sum = 0;
    yyjson_val *item;
    yyjson_arr_iter items;
    yyjson_arr_iter_init(yyjson_obj_get(report->root, "items"), &items);
    while ((item = yyjson_arr_iter_next(&items)) != NULL) {
        sum += yyjson_get_sint(yyjson_obj_get(item, member));
    }
    return sum;
}

/* --- showing --- */

/* Units or coupons that nobody can explain are worse than a ledger that is late. */
static const char *verdict_of(yyjson_val *item)
{
    if (yyjson_is_true(yyjson_obj_get(item, "ok"))) {
        return "ok";
    }
    bool is_broken = yyjson_get_sint(yyjson_obj_get(item, "imbalance")) != 0 ||
                     yyjson_get_sint(yyjson_obj_get(item, "unknown")) != 0;
    return is_broken ? "BROKEN" : "BEHIND";
}

static void show_table(const struct report *report)
{
    static const char *const members[] = {"policy_id", "total",    "unleased", "leased",
                                          "active",    "pending",  "missing",  "outdated",
                                          "unknown",   "imbalance"};
    static const struct table_column columns[] = {
        {"POLICY", TABLE_RIGHT},    {"TOTAL", TABLE_RIGHT},    {"UNLEASED", TABLE_RIGHT},
        {"LEASED", TABLE_RIGHT},    {"ACTIVE", TABLE_RIGHT},   {"PENDING", TABLE_RIGHT},
        {"MISSING", TABLE_RIGHT},   {"OUTDATED", TABLE_RIGHT}, {"UNKNOWN", TABLE_RIGHT},
        {"IMBALANCE", TABLE_RIGHT}, {"VERDICT", TABLE_LEFT},
    };
    char text[EXCHANGE_TEXT_SIZE];
    struct table table;
    yyjson_val *item;
    yyjson_arr_iter items;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    yyjson_arr_iter_init(yyjson_obj_get(report->root, "items"), &items);
    while ((item = yyjson_arr_iter_next(&items)) != NULL) {
        for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
            table_add(&table, exchange_text(item, members[i], text));
        }
        table_add(&table, verdict_of(item));
    }
    if (table.cell_count > 0) {
        exchange_print_table(&table);
    } else {
        table_release(&table);
    }
}

static void show(const struct report *report)
{
    static const struct exchange_member members[] = {
        {"kind", "ledger"}, {"state", "state"}, {"detail", "detail"}, {NULL, NULL}};
    struct table facts;
    table_init(&facts, exchange_fact_columns, 2);
    exchange_add_members(&facts, yyjson_obj_get(report->root, "ledger"), members);
    exchange_print_table(&facts);
    fputc('\n', stdout);
    show_table(report);
}

static void show_json(const struct report *report)
{
    char *text = yyjson_write(report->document, YYJSON_WRITE_NOFLAG, NULL);
    if (text != NULL) {
        puts(text);
    }
    free(text);
}

/* --- repairing --- */

/* On stderr, as it is no answer yet. */
static void show_plan(const struct report *report)
{
    fprintf(
        stderr,
        "\nA repair writes what the ledger lacks from the server's memory, in one transaction:\n"
        "  %" PRId64 " coupons that are missing, %" PRId64 " that are on their way\n"
        "  %" PRId64 " coupons that were redeemed or cancelled since\n"
        "  policies, leases, keys and blocked users as the server knows them\n"
        "It takes no coupon from anyone, and stops if this is not an older copy.\n",
        sum_of(report, "missing"), sum_of(report, "pending"), sum_of(report, "outdated"));
}

static bool is_confirmed(const struct command_call *call)
{
    char answer[16];
    if (command_option(call, "yes") != NULL) {
        return true;
    }
    if (!isatty(STDIN_FILENO)) {
        fprintf(stderr, "Nothing was written: this is not a terminal; use --yes to go on.\n");
        return false;
    }
    fprintf(stderr, "Write this into the ledger? [y/N] ");
    bool is_yes =
        fgets(answer, sizeof(answer), stdin) != NULL && (answer[0] == 'y' || answer[0] == 'Y');
    if (!is_yes) {
        fprintf(stderr, "Nothing was written.\n");
    }
    return is_yes;
}

static void show_repair(yyjson_val *done)
{
    static const struct exchange_member members[] = {
        {"repaired", "repaired"},
        {"policies", "policies"},
        {"coupons_written", "coupons written"},
        {"coupons_redeemed", "coupons redeemed"},
        {"coupons_cancelled", "coupons cancelled"},
        {"keys_written", "keys written"},
        {"users_blocked", "users blocked"},
        {"users_unblocked", "users unblocked"},
        {NULL, NULL},
    };
    struct table facts;
    table_init(&facts, exchange_fact_columns, 2);
    exchange_add_members(&facts, done, members);
    fputc('\n', stdout);
    exchange_print_table(&facts);
    fputc('\n', stdout);
}

/* Repairs, and audits once more: that is the verdict. */
static int repair(struct exchange *exchange, struct report *report)
{
    int code = ask(exchange, "POST", "/v1/audit/repair");
    if (code != COMMAND_FINE) {
        return code;
    }
    yyjson_doc *done = exchange->document;
    exchange->document = NULL;
    if (!exchange->json) {
        show_repair(yyjson_doc_get_root(done));
    }
    report_release(report);
    code = gather(exchange, report);
    if (code == COMMAND_FINE && exchange->json) {
        yyjson_mut_val *root = yyjson_mut_doc_get_root(report->building);
        yyjson_mut_obj_add_val(report->building, root, "repair",
                               yyjson_val_mut_copy(report->building, yyjson_doc_get_root(done)));
        yyjson_doc_free(report->document);
        report->document = yyjson_mut_doc_imut_copy(report->building, NULL);
        report->root = yyjson_doc_get_root(report->document);
    }
    yyjson_doc_free(done);
    return code;
}

static int audit(struct exchange *exchange, struct report *report)
{
    bool repairs = command_option(exchange->call, "repair") != NULL;
    int code = gather(exchange, report);
    if (code != COMMAND_FINE) {
        return code;
    }
    if (!exchange->json) {
        show(report);
    }
    if (repairs && judge(report) == COMMAND_FINE) {
        fprintf(stderr, "There is nothing to repair.\n");
    } else if (repairs) {
        show_plan(report);
        bool goes_on = is_confirmed(exchange->call);
        code = goes_on ? repair(exchange, report) : COMMAND_FINE;
        if (code == COMMAND_FINE && goes_on && !exchange->json) {
            show(report);
        }
    }
    if (code == COMMAND_FINE && exchange->json) {
        show_json(report);
    }
    return code == COMMAND_FINE ? judge(report) : code;
}

int command_audit(const struct command_call *call)
{
    const char *policy = command_option(call, "policy");
    int code = policy != NULL ? exchange_check_policy(call, policy) : COMMAND_FINE;
    if (code == COMMAND_FINE && command_option(call, "yes") != NULL &&
        command_option(call, "repair") == NULL) {
        code = command_usage(call, "--yes is for --repair");
    }
    struct exchange exchange;
    if (code == COMMAND_FINE) {
        code = exchange_begin(&exchange, call, EXCHANGE_ADMIN);
    }
    if (code != COMMAND_FINE) {
        return code;
    }
    struct report report = {0};
    code = audit(&exchange, &report);
    report_release(&report);
    exchange_end(&exchange);
    return code;
}
