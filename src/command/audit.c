/* audit.c: `dibs audit`: holds gate and ledger against each other, shows what is wrong, and has it
 * repaired. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "command/audit_source.h"
#include "config/value.h"

#define WATCH_MS 10000

static volatile sig_atomic_t audit_is_interrupted;

static void audit_on_signal(int number)
{
    (void)number;
    audit_is_interrupted = 1;
}

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

/* --- gathering --- */

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
    if (yyjson_mut_obj_get(root, "board") == NULL) {
        yyjson_mut_obj_add_val(building, root, "board",
                               yyjson_val_mut_copy(building, yyjson_obj_get(page, "board")));
    }
    yyjson_arr_iter_init(yyjson_obj_get(page, "items"), &page_items);
    while ((item = yyjson_arr_iter_next(&page_items)) != NULL) {
        yyjson_mut_arr_append(items, yyjson_val_mut_copy(building, item));
    }
}

/* Audits that policy, or all (NULL); COMMAND_FINE, whatever came out, or COMMAND_FAILED in words.
 */
static int gather(struct audit_source *source, const char *policy, struct report *report)
{
    char after[EXCHANGE_TEXT_SIZE] = "";
    bool more;
    report->building = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(report->building);
    yyjson_mut_val *items = yyjson_mut_arr(report->building);
    yyjson_mut_doc_set_root(report->building, root);
    do {
        int code = audit_source_look(source, policy, after[0] != '\0' ? after : NULL);
        if (code != COMMAND_FINE) {
            return code;
        }
        add_page(report, items, source->root);
        char next[EXCHANGE_TEXT_SIZE];
        exchange_text(source->root, "next", next);
        more = yyjson_is_str(yyjson_obj_get(source->root, "next")) && strcmp(next, after) != 0;
        snprintf(after, sizeof(after), "%s", next);
    } while (more);
    yyjson_mut_obj_add_val(report->building, root, "items", items);
    yyjson_mut_obj_add_null(report->building, root, "next");
    report->document = yyjson_mut_doc_imut_copy(report->building, NULL);
    report->root = yyjson_doc_get_root(report->document);
    return report->root != NULL ? COMMAND_FINE : command_fail(source->call, "out of memory");
}

/* --- judging --- */

static bool ledger_is(const struct report *report, const char *state)
{
    yyjson_val *ledger = yyjson_obj_get(report->root, "ledger");
    return yyjson_equals_str(yyjson_obj_get(ledger, "state"), state);
}

static bool board_drifts(const struct report *report)
{
    yyjson_val *board = yyjson_obj_get(report->root, "board");
    return yyjson_equals_str(yyjson_obj_get(board, "state"), "DRIFT");
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
    if (ledger_is(report, "BEHIND") || board_drifts(report)) {
        return COMMAND_GUARANTEE_BROKEN;
    }
    return ledger_is(report, "OK") ? COMMAND_FINE : COMMAND_FAILED;
}

/* --- showing --- */

/* A ledger that is late is told from units or coupons that nobody can explain. */
static const char *verdict_of(yyjson_val *item)
{
    yyjson_val *finding;
    yyjson_arr_iter findings;
    if (yyjson_is_true(yyjson_obj_get(item, "ok"))) {
        return "ok";
    }
    yyjson_arr_iter_init(yyjson_obj_get(item, "findings"), &findings);
    while ((finding = yyjson_arr_iter_next(&findings)) != NULL) {
        yyjson_val *check = yyjson_obj_get(finding, "check");
        if (!yyjson_equals_str(check, "missing") && !yyjson_equals_str(check, "outdated") &&
            !yyjson_equals_str(check, "policy")) {
            return "BROKEN";
        }
    }
    return "BEHIND";
}

static void show_table(const struct report *report)
{
    static const char *const members[] = {"policy_id", "gate",   "total",   "unleased",
                                          "leased",    "active", "pending", "unaccounted"};
    static const struct table_column columns[] = {
        {"POLICY", TABLE_RIGHT},   {"GATE", TABLE_LEFT},    {"TOTAL", TABLE_RIGHT},
        {"UNLEASED", TABLE_RIGHT}, {"LEASED", TABLE_RIGHT}, {"ACTIVE", TABLE_RIGHT},
        {"PENDING", TABLE_RIGHT},  {"GAPS", TABLE_RIGHT},   {"VERDICT", TABLE_LEFT},
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

/* What is wrong, line by line. */
static void show_findings(const struct report *report)
{
    static const char *const members[] = {"check", "count", "meaning"};
    static const struct table_column columns[] = {{"POLICY", TABLE_RIGHT},
                                                  {"CHECK", TABLE_LEFT},
                                                  {"COUNT", TABLE_RIGHT},
                                                  {"MEANING", TABLE_LEFT}};
    char text[EXCHANGE_TEXT_SIZE];
    struct table table;
    yyjson_val *item;
    yyjson_val *finding;
    yyjson_arr_iter items;
    yyjson_arr_iter findings;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    yyjson_arr_iter_init(yyjson_obj_get(report->root, "items"), &items);
    while ((item = yyjson_arr_iter_next(&items)) != NULL) {
        yyjson_arr_iter_init(yyjson_obj_get(item, "findings"), &findings);
        while ((finding = yyjson_arr_iter_next(&findings)) != NULL) {
            table_add(&table, exchange_text(item, "policy_id", text));
            for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
                table_add(&table, exchange_text(finding, members[i], text));
            }
        }
    }
    if (table.cell_count > 0) {
        fputc('\n', stdout);
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
    if (yyjson_is_obj(yyjson_obj_get(report->root, "board"))) {
        static const struct exchange_member of_board[] = {{"kind", "board"},
                                                          {"state", "state"},
                                                          {"counters", "counters"},
                                                          {"differences", "wrong"},
                                                          {NULL, NULL}};
        table_init(&facts, exchange_fact_columns, 2);
        exchange_add_members(&facts, yyjson_obj_get(report->root, "board"), of_board);
        exchange_print_table(&facts);
    }
    fputc('\n', stdout);
    show_table(report);
    show_findings(report);
}

/* One line, for those who watch. */
static void show_line(const struct report *report)
{
    char text[EXCHANGE_TEXT_SIZE];
    char now[32];
    yyjson_val *item;
    yyjson_val *finding;
    yyjson_arr_iter items;
    yyjson_arr_iter findings;
    size_t wrong_count = 0;
    time_t seconds = (time_t)(clock_wall_ms() / 1000);
    struct tm parts;
    strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &parts));
    printf("%s", now);
    yyjson_arr_iter_init(yyjson_obj_get(report->root, "items"), &items);
    while ((item = yyjson_arr_iter_next(&items)) != NULL) {
        yyjson_arr_iter_init(yyjson_obj_get(item, "findings"), &findings);
        while ((finding = yyjson_arr_iter_next(&findings)) != NULL) {
            printf("%s policy %s: ", wrong_count++ > 0 ? "," : "",
                   exchange_text(item, "policy_id", text));
            printf("%s ", exchange_text(finding, "check", text));
            printf("%s", exchange_text(finding, "count", text));
        }
    }
    if (board_drifts(report)) {
        printf("%s board: %s", wrong_count++ > 0 ? "," : "",
               exchange_text(yyjson_obj_get(report->root, "board"), "differences", text));
    }
    if (wrong_count == 0) {
        printf(" ok, %zu policies, ledger %s",
               yyjson_arr_size(yyjson_obj_get(report->root, "items")),
               exchange_text(yyjson_obj_get(report->root, "ledger"), "state", text));
    }
    printf("\n");
    fflush(stdout);
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
    char policy[EXCHANGE_TEXT_SIZE];
    char check[EXCHANGE_TEXT_SIZE];
    char text[EXCHANGE_TEXT_SIZE];
    yyjson_val *item;
    yyjson_val *finding;
    yyjson_arr_iter items;
    yyjson_arr_iter findings;
    fprintf(stderr, "\nA repair would do this:\n");
    if (ledger_is(report, "BEHIND")) {
        fprintf(stderr, "  write what the ledger lacks from the server's memory, in one "
                        "transaction: policies,\n  leases, coupons, keys and blocked users\n");
    }
    if (board_drifts(report)) {
        fprintf(stderr, "  board: build it anew from the ledger\n");
    }
    yyjson_arr_iter_init(yyjson_obj_get(report->root, "items"), &items);
    while ((item = yyjson_arr_iter_next(&items)) != NULL) {
        yyjson_arr_iter_init(yyjson_obj_get(item, "findings"), &findings);
        while ((finding = yyjson_arr_iter_next(&findings)) != NULL) {
            fprintf(stderr, "  policy %s, %s: %s\n", exchange_text(item, "policy_id", policy),
                    exchange_text(finding, "check", check), exchange_text(finding, "repair", text));
        }
    }
    fprintf(stderr, "It takes no coupon from anyone, and keeps a note of what it did.\n");
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
    fprintf(stderr, "Go on? [y/N] ");
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
        {"stock_set", "policies with stock set"},
        {"claims_mended", "claims mended"},
        {"policies_built", "policies built anew"},
        {"letters_written", "dead letters written"},
        {"board_built", "board built anew"},
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
static int repair(struct audit_source *source, struct report *report, bool json)
{
    char detail[EXCHANGE_TEXT_SIZE];
    const char *policy = command_option(source->call, "policy");
    bool forgets = command_option(source->call, "forget") != NULL;
    int code = audit_source_repair(source, policy, forgets);
    if (code != COMMAND_FINE) {
        return code;
    }
    yyjson_mut_doc *done = yyjson_mut_doc_new(NULL);
    yyjson_mut_doc_set_root(done, yyjson_val_mut_copy(done, source->root));
    if (!json) {
        show_repair(source->root);
    }
    if (exchange_text(source->root, "detail", detail)[0] != '\0') {
        fprintf(stderr, "%s\n", detail);
    }
    report_release(report);
    code = gather(source, forgets ? NULL : policy, report);
    if (code == COMMAND_FINE && json) {
        yyjson_mut_val *root = yyjson_mut_doc_get_root(report->building);
        yyjson_mut_obj_add_val(
            report->building, root, "repair",
            yyjson_mut_val_mut_copy(report->building, yyjson_mut_doc_get_root(done)));
        yyjson_doc_free(report->document);
        report->document = yyjson_mut_doc_imut_copy(report->building, NULL);
        report->root = yyjson_doc_get_root(report->document);
    }
    yyjson_mut_doc_free(done);
    return code;
}

/* --- the ways it is called --- */

static int audit(struct audit_source *source, struct report *report, bool json)
{
    bool repairs = command_option(source->call, "repair") != NULL;
    int code = gather(source, command_option(source->call, "policy"), report);
    if (code != COMMAND_FINE) {
        return code;
    }
    if (!json) {
        show(report);
    }
    if (repairs && judge(report) == COMMAND_FINE) {
        fprintf(stderr, "There is nothing to repair.\n");
    } else if (repairs) {
        show_plan(report);
        bool goes_on = is_confirmed(source->call);
        code = goes_on ? repair(source, report, json) : COMMAND_FINE;
        if (code == COMMAND_FINE && goes_on && !json) {
            show(report);
        }
    }
    if (code == COMMAND_FINE && json) {
        show_json(report);
    }
    return code == COMMAND_FINE ? judge(report) : code;
}

/* Until it is interrupted; the worst that was seen is the verdict. */
static int watch(struct audit_source *source, struct report *report, int64_t interval_ms, bool json)
{
    struct sigaction action = {.sa_handler = audit_on_signal};
    const struct timespec pause = {.tv_sec = interval_ms / 1000,
                                   .tv_nsec = interval_ms % 1000 * 1000000};
    int worst = COMMAND_FINE;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    while (!audit_is_interrupted) {
        report_release(report);
        int code = gather(source, command_option(source->call, "policy"), report);
        if (audit_is_interrupted) {
            break;
        }
        if (code == COMMAND_FINE) {
            code = judge(report);
            if (json) {
                show_json(report);
                fflush(stdout);
            } else {
                show_line(report);
            }
        }
        worst = code > worst ? code : worst;
        nanosleep(&pause, NULL);
    }
    return worst;
}

static int history(struct audit_source *source, bool json)
{
    static const char *const members[] = {"asked_at", "policy_id", "found", "outcome"};
    static const struct table_column columns[] = {{"ASKED AT", TABLE_LEFT},
                                                  {"POLICY", TABLE_RIGHT},
                                                  {"FOUND", TABLE_LEFT},
                                                  {"OUTCOME", TABLE_LEFT}};
    char text[EXCHANGE_TEXT_SIZE];
    struct table table;
    yyjson_val *item;
    yyjson_arr_iter items;
    int code = audit_source_history(source);
    if (code != COMMAND_FINE) {
        return code;
    }
    if (json) {
        char *written = yyjson_val_write(source->root, YYJSON_WRITE_NOFLAG, NULL);
        puts(written != NULL ? written : "");
        free(written);
        return COMMAND_FINE;
    }
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    yyjson_arr_iter_init(yyjson_obj_get(source->root, "items"), &items);
    while ((item = yyjson_arr_iter_next(&items)) != NULL) {
        for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
            table_add(&table, exchange_text(item, members[i], text));
        }
    }
    if (table.cell_count == 0) {
        fprintf(stderr, "Nothing has been repaired yet.\n");
        table_release(&table);
        return COMMAND_FINE;
    }
    exchange_print_table(&table);
    return COMMAND_FINE;
}

static int check_options(const struct command_call *call, int64_t *interval_ms)
{
    const char *policy = command_option(call, "policy");
    const char *interval = command_option(call, "interval");
    bool repairs = command_option(call, "repair") != NULL;
    bool watches = command_option(call, "watch") != NULL;
    int code = policy != NULL ? exchange_check_policy(call, policy) : COMMAND_FINE;
    if (code != COMMAND_FINE) {
        return code;
    }
    if (command_option(call, "yes") != NULL && !repairs) {
        return command_usage(call, "--yes is for --repair");
    }
    if (command_option(call, "forget") != NULL && (!repairs || policy == NULL)) {
        return command_usage(call, "--forget is for --repair --policy ID");
    }
    if (interval != NULL && !watches) {
        return command_usage(call, "--interval is for --watch");
    }
    if (repairs + watches + (command_option(call, "history") != NULL) > 1) {
        return command_usage(call, "--repair, --watch and --history exclude each other");
    }
    if (interval != NULL && (!config_parse_duration(interval, interval_ms) || *interval_ms < 100)) {
        return command_usage(call, "--interval: \"%s\" is not a duration of 100ms or more",
                             interval);
    }
    return COMMAND_FINE;
}

int command_audit(const struct command_call *call)
{
    struct audit_source source;
    struct report report = {0};
    int64_t interval_ms = WATCH_MS;
    bool json = command_option(call, "json") != NULL;
    int code = check_options(call, &interval_ms);
    if (code == COMMAND_FINE) {
        code = audit_source_begin(&source, call);
    }
    if (code != COMMAND_FINE) {
        return code;
    }
    if (command_option(call, "history") != NULL) {
        code = history(&source, json);
    } else if (command_option(call, "watch") != NULL) {
        code = watch(&source, &report, interval_ms, json);
    } else {
        code = audit(&source, &report, json);
    }
    report_release(&report);
    audit_source_end(&source);
    return code;
}
