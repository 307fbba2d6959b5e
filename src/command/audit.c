/* audit.c: `dibs audit`: holds gate and ledger against each other, shows what is wrong, and has it
 * repaired. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "command/audit_source.h"

#define WATCH_MS 10000

static volatile sig_atomic_t audit_is_interrupted;

static void audit_on_signal(int number)
{
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
    while ((item = yyjson_arr_iter_next(&page_items)) != NULL)
        yyjson_mut_arr_append(items, yyjson_val_mut_copy(building, item));
}

/* Audits that policy, or all (NULL); COMMAND_FINE, whatever came out, or COMMAND_FAILED in words.
 */
static int gather(struct audit_source *source, const char *policy, struct report *report)
{
    char after[EXCHANGE_TEXT_SIZE] = "";
    report->building = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(report->building);
    yyjson_mut_val *items = yyjson_mut_arr(report->building);
    yyjson_mut_doc_set_root(report->building, root);
    do {
        int code = audit_source_fetch(source, policy, after[0] != '\0' ? after : NULL);
        if (code != COMMAND_FINE)
            return code;
        add_page(report, items, source->root);
    } while (exchange_next_page(source->root, after));
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
    while ((item = yyjson_arr_iter_next(&items)) != NULL)
        if (!yyjson_is_true(yyjson_obj_get(item, "ok")))
            return COMMAND_GUARANTEE_BROKEN;
    if (ledger_is(report, "BEHIND") || board_drifts(report))
        return COMMAND_GUARANTEE_BROKEN;
    return ledger_is(report, "OK") ? COMMAND_FINE : COMMAND_FAILED;
}

/* --- showing --- */

/* Every finding in turn, with the item that it is of. */
struct finding_walk {
    yyjson_arr_iter items;
    yyjson_arr_iter findings;
    yyjson_val *item;
};

static struct finding_walk findings_begin(const struct report *report)
{
    struct finding_walk walk = {.item = NULL};
    yyjson_arr_iter_init(yyjson_obj_get(report->root, "items"), &walk.items);
    return walk;
}

static yyjson_val *findings_next(struct finding_walk *walk)
{
    yyjson_val *finding = NULL;
    while ((walk->item == NULL || (finding = yyjson_arr_iter_next(&walk->findings)) == NULL) &&
           (walk->item = yyjson_arr_iter_next(&walk->items)) != NULL)
        yyjson_arr_iter_init(yyjson_obj_get(walk->item, "findings"), &walk->findings);
    return finding;
}

/* A ledger that is late is told from units or coupons that nobody can explain. */
static const char *verdict_of(yyjson_val *item, char *text)
{
    yyjson_val *finding;
    yyjson_arr_iter findings;
    if (yyjson_is_true(yyjson_obj_get(item, "ok")))
        return "ok";
    yyjson_arr_iter_init(yyjson_obj_get(item, "findings"), &findings);
    while ((finding = yyjson_arr_iter_next(&findings)) != NULL) {
        yyjson_val *check = yyjson_obj_get(finding, "check");
        if (!yyjson_equals_str(check, "missing") && !yyjson_equals_str(check, "outdated") &&
            !yyjson_equals_str(check, "policy"))
            return "BROKEN";
    }
    return "BEHIND";
}

static void show_table(const struct report *report)
{
    static const struct table_column columns[] = {
        COLUMN("POLICY", RIGHT, "policy_id"),   COLUMN("GATE", LEFT, "gate"),
        COLUMN("TOTAL", RIGHT, "total"),        COLUMN("UNLEASED", RIGHT, "unleased"),
        COLUMN("LEASED", RIGHT, "leased"),      COLUMN("ACTIVE", RIGHT, "active"),
        COLUMN("PENDING", RIGHT, "pending"),    COLUMN("GAPS", RIGHT, "unaccounted"),
        COLUMN_BY("VERDICT", LEFT, verdict_of),
    };
    yyjson_val *items = yyjson_obj_get(report->root, "items");
    if (yyjson_arr_size(items) > 0)
        exchange_print_rows(items, columns, COUNT_OF(columns));
}

/* What is wrong, line by line. */
static void show_findings(const struct report *report)
{
    static const struct table_column columns[] = {
        COLUMN("POLICY", RIGHT, "policy_id"), COLUMN("CHECK", LEFT, "check"),
        COLUMN("COUNT", RIGHT, "count"), COLUMN("MEANING", LEFT, "meaning")};
    char text[EXCHANGE_TEXT_SIZE];
    struct table table;
    struct finding_walk walk = findings_begin(report);
    table_init(&table, columns, COUNT_OF(columns));
    for (yyjson_val *finding; (finding = findings_next(&walk)) != NULL;) {
        table_add(&table, exchange_text(walk.item, columns[0].member, text));
        for (size_t i = 1; i < COUNT_OF(columns); i++)
            table_add(&table, exchange_text(finding, columns[i].member, text));
    }
    if (table.cell_count > 0)
        fputc('\n', stdout);
    exchange_print_table(&table);
}

static void show(const struct report *report)
{
    static const struct table_column of_ledger[] = {FACT("ledger", "kind"), FACT("state", "state"),
                                                    FACT("detail", "detail")};
    static const struct table_column of_board[] = {FACT("board", "kind"), FACT("state", "state"),
                                                   FACT("counters", "counters"),
                                                   FACT("wrong", "differences")};
    exchange_print_facts(yyjson_obj_get(report->root, "ledger"), of_ledger, COUNT_OF(of_ledger));
    exchange_print_facts(yyjson_obj_get(report->root, "board"), of_board, COUNT_OF(of_board));
    fputc('\n', stdout);
    show_table(report);
    show_findings(report);
}

/* One line, for those who watch. */
static void show_line(const struct report *report)
{
    char text[EXCHANGE_TEXT_SIZE];
    char now[CLOCK_TEXT_SIZE];
    size_t wrong_count = 0;
    struct finding_walk walk = findings_begin(report);
    clock_format_rfc3339(clock_wall_ms(), now);
    printf("%.19sZ", now);
    for (yyjson_val *finding; (finding = findings_next(&walk)) != NULL;) {
        printf("%s policy %s: ", wrong_count++ > 0 ? "," : "",
               exchange_text(walk.item, "policy_id", text));
        printf("%s ", exchange_text(finding, "check", text));
        printf("%s", exchange_text(finding, "count", text));
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
    if (text != NULL)
        puts(text);
    free(text);
}

/* --- repairing --- */

/* On stderr, as it is no answer yet. */
static void show_plan(const struct report *report)
{
    char policy[EXCHANGE_TEXT_SIZE];
    char check[EXCHANGE_TEXT_SIZE];
    char text[EXCHANGE_TEXT_SIZE];
    struct finding_walk walk = findings_begin(report);
    fprintf(stderr, "\nA repair would do this:\n");
    if (ledger_is(report, "BEHIND")) {
        fprintf(stderr, "  write what the ledger lacks from the server's memory, in one "
                        "transaction: policies,\n  leases, coupons, keys and blocked users\n");
    }
    if (board_drifts(report))
        fprintf(stderr, "  board: build it anew from the ledger\n");
    for (yyjson_val *finding; (finding = findings_next(&walk)) != NULL;) {
        fprintf(stderr, "  policy %s, %s: %s\n", exchange_text(walk.item, "policy_id", policy),
                exchange_text(finding, "check", check), exchange_text(finding, "repair", text));
    }
    fprintf(stderr, "It takes no coupon from anyone, and keeps a note of what it did.\n");
}

static bool is_confirmed(const struct command_call *call)
{
    char answer[16];
    if (command_option(call, "yes") != NULL)
        return true;
    if (!isatty(STDIN_FILENO)) {
        fprintf(stderr, "Nothing was written: this is not a terminal; use --yes to go on.\n");
        return false;
    }
    fprintf(stderr, "Go on? [y/N] ");
    bool is_yes =
        fgets(answer, sizeof(answer), stdin) != NULL && (answer[0] == 'y' || answer[0] == 'Y');
    if (!is_yes)
        fprintf(stderr, "Nothing was written.\n");
    return is_yes;
}

static void show_repair(yyjson_val *done)
{
    static const struct table_column facts[] = {
        FACT("repaired", "repaired"),
        FACT("policies", "policies"),
        FACT("coupons written", "coupons_written"),
        FACT("coupons redeemed", "coupons_redeemed"),
        FACT("coupons cancelled", "coupons_cancelled"),
        FACT("keys written", "keys_written"),
        FACT("users blocked", "users_blocked"),
        FACT("users unblocked", "users_unblocked"),
        FACT("policies with stock set", "stock_set"),
        FACT("claims repaired", "claims_repaired"),
        FACT("policies built anew", "policies_built"),
        FACT("dead letters written", "letters_written"),
        FACT("board built anew", "board_built"),
    };
    fputc('\n', stdout);
    exchange_print_facts(done, facts, COUNT_OF(facts));
    fputc('\n', stdout);
}

/* Repairs, and audits once more: that is the verdict. */
static int repair(struct audit_source *source, struct report *report, bool json)
{
    char detail[EXCHANGE_TEXT_SIZE];
    const char *policy = command_option(source->call, "policy");
    bool forgets = command_option(source->call, "forget") != NULL;
    int code = audit_source_repair(source, policy, forgets);
    if (code != COMMAND_FINE)
        return code;
    yyjson_mut_doc *done = yyjson_mut_doc_new(NULL);
    yyjson_mut_doc_set_root(done, yyjson_val_mut_copy(done, source->root));
    if (!json)
        show_repair(source->root);
    if (exchange_text(source->root, "detail", detail)[0] != '\0')
        fprintf(stderr, "%s\n", detail);
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
    if (code != COMMAND_FINE)
        return code;
    if (!json)
        show(report);
    if (repairs && judge(report) == COMMAND_FINE) {
        fprintf(stderr, "There is nothing to repair.\n");
    } else if (repairs) {
        show_plan(report);
        bool goes_on = is_confirmed(source->call);
        code = goes_on ? repair(source, report, json) : COMMAND_FINE;
        if (code == COMMAND_FINE && goes_on && !json)
            show(report);
    }
    if (code == COMMAND_FINE && json)
        show_json(report);
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
        if (audit_is_interrupted)
            break;
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
    static const struct table_column columns[] = {
        COLUMN("ASKED AT", LEFT, "asked_at"), COLUMN("POLICY", RIGHT, "policy_id"),
        COLUMN("FOUND", LEFT, "found"), COLUMN("OUTCOME", LEFT, "outcome")};
    int code = audit_source_history(source);
    if (code != COMMAND_FINE)
        return code;
    yyjson_val *items = yyjson_obj_get(source->root, "items");
    if (json) {
        char *written = yyjson_val_write(source->root, YYJSON_WRITE_NOFLAG, NULL);
        puts(written != NULL ? written : "");
        free(written);
    } else if (yyjson_arr_size(items) == 0) {
        fprintf(stderr, "Nothing has been repaired yet.\n");
    } else {
        exchange_print_rows(items, columns, COUNT_OF(columns));
    }
    return COMMAND_FINE;
}

static int check_options(const struct command_call *call, int64_t *interval_ms)
{
    const char *policy = command_option(call, "policy");
    bool repairs = command_option(call, "repair") != NULL;
    bool watches = command_option(call, "watch") != NULL;
    int code = policy != NULL ? exchange_check_policy(call, policy) : COMMAND_FINE;
    if (code != COMMAND_FINE)
        return code;
    if (command_option(call, "yes") != NULL && !repairs)
        return command_usage(call, "--yes is for --repair");
    if (command_option(call, "forget") != NULL && (!repairs || policy == NULL))
        return command_usage(call, "--forget is for --repair --policy ID");
    if (command_option(call, "interval") != NULL && !watches)
        return command_usage(call, "--interval is for --watch");
    if (repairs + watches + (command_option(call, "history") != NULL) > 1)
        return command_usage(call, "--repair, --watch and --history exclude each other");
    return command_duration(call, "interval", 100, interval_ms);
}

int command_audit(const struct command_call *call)
{
    struct audit_source source;
    struct report report = {0};
    int64_t interval_ms = WATCH_MS;
    bool json = command_option(call, "json") != NULL;
    int code = check_options(call, &interval_ms);
    if (code == COMMAND_FINE)
        code = audit_source_begin(&source, call);
    if (code != COMMAND_FINE)
        return code;
    if (command_option(call, "history") != NULL)
        code = history(&source, json);
    else if (command_option(call, "watch") != NULL)
        code = watch(&source, &report, interval_ms, json);
    else
        code = audit(&source, &report, json);
    report_release(&report);
    audit_source_end(&source);
    return code;
}
