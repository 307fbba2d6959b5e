/* main.c: the lab: the known ways of handing out coupons, side by side.
 *
 * usage: dibs-lab [--quick] [--only NAME,…] [--rounds N] [--fault KIND] [--json] …
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/front.h"
#include "lab/report.h"
#include "lab/run.h"

#define CONTESTANTS_MAX 32

static const char USAGE[] =
    "Examples:\n"
    "  dibs-lab --quick\n"
    "  dibs-lab --only decr-zset,lua,dibs --duplicates 20 --fault worker --rounds 5\n"
    "  dibs-lab --only zset-rank --fronts 2 --clocks-apart 300\n"
    "\n"
    "Hands out coupons in every way that teams write, with the same crowd and the same faults,\n"
    "and counts what went wrong and what it cost. Starts its own Redis and PostgreSQL.\n"
    "\n"
    "  --only NAMES         these designs, with commas between them; --list shows all\n"
    "  --rounds N           so many rounds, each with another seed [3]\n"
    "  --seed N             of the first round [1]\n"
    "  --total N            coupons [1000]\n"
    "  --users N            people [2000]\n"
    "  --duplicates N       percent of them who press twice [10]\n"
    "  --connections N      that they share [200]\n"
    "  --burst N            so many press at once; 0: as soon as there is an answer [200]\n"
    "  --every MS           between bursts [100]\n"
    "  --people-retry N     how often somebody tries again after an error or a 503 [30]\n"
    "  --fault KIND         none, worker, server, redis, broker or poison [none]\n"
    "  --fronts N           1 or 2 servers [1]\n"
    "  --clocks-apart MS    of the two [0]\n"
    "  --retries N          of the optimistic designs [3]\n"
    "  --lock-wait MS       [3000]   --lock-lease MS  [1000]\n"
    "  --sync MS            how often the sync job of decr-zset runs; 0: never [0]\n"
    "  --worker-pause MS    --worker-batch N: instead of each design's own\n"
    "  --dibs PATH          the program to compare with [beside this one]\n"
    "  --quick              one small round of each: a minute\n"
    "  --json               one line of JSON for each run\n"
    "  --report FILE        one page with pictures, which loads nothing\n";

struct options {
    struct lab_setting setting;
    const char *only;
    const char *report; /* a file */
    int rounds;
    bool is_json;
};

/* Flags with a number: what the name says, and where it goes. */
struct number_flag {
    const char *name;
    int64_t minimum, maximum;
    enum { FLAG_I64, FLAG_INT, FLAG_U32, FLAG_SIZE, FLAG_U64 } kind;
    void *target;
};

static struct options options = {
    .setting = {.knobs = {.total = 1000, .retries = 3, .lock_wait_ms = 3000, .lock_lease_ms = 1000},
                .shape = {.users = 2000,
                          .duplicates = 10,
                          .connections = 200,
                          .burst = 200,
                          .every_ms = 100,
                          .retries = 30,
                          .seed = 1,
                          .policy_id = 1},
                .fronts = 1},
    .rounds = 3,
};

static struct lab_process process; /* of a front or a worker */
static int port;

#define KNOBS  options.setting.knobs
#define SHAPE  options.setting.shape
#define DAY_MS 86400000

static const struct number_flag number_flags[] = {
    {"rounds", 1, 1000, FLAG_INT, &options.rounds},
    {"people-retry", 0, 1000, FLAG_INT, &SHAPE.retries},
    {"seed", 1, 1000000000, FLAG_U64, &SHAPE.seed},
    {"total", 1, 1000000, FLAG_I64, &KNOBS.total},
    {"users", 10, 1000000, FLAG_U32, &SHAPE.users},
    {"duplicates", 0, 100, FLAG_U32, &SHAPE.duplicates},
    {"connections", 1, 10000, FLAG_SIZE, &SHAPE.connections},
    {"burst", 0, 1000000, FLAG_U32, &SHAPE.burst},
    {"every", 1, 60000, FLAG_INT, &SHAPE.every_ms},
    {"fronts", 1, 2, FLAG_INT, &options.setting.fronts},
    {"clocks-apart", -DAY_MS, DAY_MS, FLAG_INT, &options.setting.clock_apart_ms},
    {"retries", 0, 1000, FLAG_INT, &KNOBS.retries},
    {"lock-wait", 0, 60000, FLAG_INT, &KNOBS.lock_wait_ms},
    {"lock-lease", 1, 60000, FLAG_INT, &KNOBS.lock_lease_ms},
    {"sync", 0, 60000, FLAG_INT, &KNOBS.sync_ms},
    {"worker-pause", 0, 60000, FLAG_INT, &KNOBS.worker_pause_ms},
    {"worker-batch", 0, 500, FLAG_INT, &KNOBS.worker_batch},
    /* Of the processes that a run starts. */
    {"port", 0, 65535, FLAG_INT, &port},
    {"clock-off", -DAY_MS, DAY_MS, FLAG_I64, &KNOBS.clock_off_ms},
    {"kill-at", 0, 1000000, FLAG_INT, &process.kill_at},
};

static int usage(const char *words, const char *what)
{
    fprintf(stderr, "dibs-lab: %s%s\n\n%s", words, what, USAGE);
    return 2;
}

static bool take_number(const char *name, const char *text)
{
    for (size_t i = 0; i < sizeof(number_flags) / sizeof(*number_flags); i++) {
        const struct number_flag *flag = &number_flags[i];
        char *end;
        if (strcmp(flag->name, name) != 0)
            continue;
        long long value = strtoll(text, &end, 10);
        if (*text == '\0' || *end != '\0' || value < flag->minimum || value > flag->maximum)
            return false;
        switch (flag->kind) {
        case FLAG_I64:
            *(int64_t *)flag->target = value;
            break;
        case FLAG_INT:
            *(int *)flag->target = (int)value;
            break;
        case FLAG_U32:
            *(uint32_t *)flag->target = (uint32_t)value;
            break;
        case FLAG_SIZE:
            *(size_t *)flag->target = (size_t)value;
            break;
        case FLAG_U64:
            *(uint64_t *)flag->target = (uint64_t)value;
            break;
        }
        return true;
    }
    return false;
}

static bool take_fault(const char *name)
{
    for (int i = 0; i < LAB_FAULTS; i++)
        if (strcmp(lab_fault_names[i], name) == 0) {
            options.setting.fault = (enum lab_fault)i;
            SHAPE.has_poison = i == LAB_POISON;
            return true;
        }
    return false;
}

static int list_all(void)
{
    for (size_t i = 0; lab_strategies[i] != NULL; i++)
        printf("%-18s %s\n", lab_strategies[i]->name, lab_strategies[i]->commands);
    for (size_t i = 0; lab_dibs[i].name != NULL; i++)
        printf("%-18s gate=%s, ack=%s, ledger in PostgreSQL\n", lab_dibs[i].name, lab_dibs[i].gate,
               lab_dibs[i].ack);
    return 0;
}

/* 0: go on; else the exit code and one more. */
static int read_flags(int argc, char **argv, int at)
{
    for (; at < argc; at++) {
        const char *name = argv[at];
        if (strcmp(name, "--help") == 0) {
            fputs(USAGE, stdout);
            return 1;
        }
        if (strcmp(name, "--list") == 0)
            return 1 + list_all();
        if (strcmp(name, "--json") == 0) {
            options.is_json = true;
            continue;
        }
        if (strcmp(name, "--quick") == 0) {
            options.rounds = 1;
            KNOBS.total = 200;
            SHAPE.users = 400;
            continue;
        }
        const char *value = at + 1 < argc ? argv[++at] : "";
        if (strcmp(name, "--only") == 0)
            options.only = value;
        else if (strcmp(name, "--report") == 0)
            options.report = value;
        else if (strcmp(name, "--dibs") == 0)
            options.setting.dibs = value;
        else if (strcmp(name, "--fault") == 0
                     ? !take_fault(value)
                     : strncmp(name, "--", 2) != 0 || !take_number(name + 2, value))
            return 1 + usage("not a flag, or not a value that it takes: ", name);
    }
    return 0;
}

/* --- as a process of a run --- */

static int run_role(int argc, char **argv)
{
    struct error error;
    process.strategy = argc > 5 ? lab_strategy_find(argv[2]) : NULL;
    if (process.strategy == NULL || read_flags(argc, argv, 6) != 0)
        return 2;
    process.redis_address = argv[3];
    process.database = argv[4];
    process.kafka_address = argv[5];
    process.knobs = KNOBS;
    if (strcmp(argv[1], "worker") == 0)
        lab_worker_run(&process);
    else if (lab_front_run(&process, port, &error) != STATUS_OK) {
        fprintf(stderr, "dibs-lab front: %s\n", error.text);
        return 1;
    }
    return 0;
}

/* --- the table --- */

static bool is_wanted(const char *name)
{
    size_t length = strlen(name);
    for (const char *at = options.only; at != NULL;
         at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    return options.only == NULL;
}

static void print_json(const char *name, const struct lab_figures *figures)
{
    printf("{\"design\":\"%s\",\"seed\":%llu,\"fault\":\"%s\"", name,
           (unsigned long long)SHAPE.seed, lab_fault_names[options.setting.fault]);
#define PRINT(field, json, heading, words) printf(",\"%s\":%lld", json, (long long)figures->field);
    LAB_ANOMALIES(PRINT)
#undef PRINT
    printf(",\"presses\":%lld,\"yes\":%lld,\"rows\":%lld,\"lost\":%lld,\"seconds\":%.3f,"
           "\"p50_ms\":%.2f,\"p99_ms\":%.2f,\"max_ms\":%.2f,\"row_p50_ms\":%.0f,"
           "\"row_p99_ms\":%.0f,\"row_last_ms\":%.0f,\"front_cpu\":%.1f,\"redis_cpu\":%.1f,"
           "\"database_cpu\":%.1f,\"commands\":%.2f,\"bytes\":%.0f}\n",
           (long long)figures->presses, (long long)figures->yes, (long long)figures->rows,
           (long long)figures->lost, figures->seconds, figures->p50_ms, figures->p99_ms,
           figures->max_ms, figures->row_p50_ms, figures->row_p99_ms, figures->row_last_ms,
           figures->front_cpu, figures->redis_cpu, figures->database_cpu, figures->commands,
           figures->bytes);
    fflush(stdout);
}

static void print_heading(void)
{
    printf("%-18s %5s %5s", "design", "yes", "rows");
#define PRINT(field, json, heading, words) printf(" %9s", heading);
    LAB_ANOMALIES(PRINT)
#undef PRINT
    printf(" %8s %8s %9s %9s\n", "p50 ms", "p99 ms", "row p99", "cpu s/M");
}

static void print_row(const char *name, const struct lab_figures *figures)
{
    printf("%-18s %5lld %5lld", name, (long long)figures->yes, (long long)figures->rows);
#define PRINT(field, json, heading, words) printf(" %9lld", (long long)figures->field);
    LAB_ANOMALIES(PRINT)
#undef PRINT
    printf(" %8.1f %8.1f %9.0f %9.0f%s\n", figures->p50_ms, figures->p99_ms, figures->row_p99_ms,
           figures->front_cpu + figures->redis_cpu + figures->database_cpu,
           lab_figures_wrong(figures) == 0 ? "  right" : "");
    fflush(stdout);
}

static void show_progress(void *context, size_t answered)
{
    if (isatty(2))
        fprintf(stderr, "\r%-18s %zu answered ", (const char *)context, answered);
}

static int write_report(const struct lab_result *results, size_t count)
{
    struct buffer page;
    buffer_init(&page, 4 << 20);
    lab_report(&page, results, count, &options.setting);
    FILE *file = fopen(options.report, "we");
    bool is_written =
        file != NULL && !page.overflowed && fwrite(page.bytes, 1, page.length, file) == page.length;
    if (file != NULL && fclose(file) != 0)
        is_written = false;
    buffer_release(&page);
    if (!is_written)
        fprintf(stderr, "dibs-lab: %s cannot be written\n", options.report);
    return is_written ? 0 : 1;
}

static enum status run_one(struct lab_servers *servers, struct lab_result *result,
                           struct error *error)
{
    struct lab_figures figures;
    const char *name = result->contestant->name;

    options.setting.on_progress = show_progress;
    options.setting.context = (void *)(uintptr_t)name;
    enum status status = lab_run(&figures, servers, result->contestant, &options.setting, error);
    if (isatty(2))
        fprintf(stderr, "\r\033[K");
    if (status != STATUS_OK)
        return status;
    lab_result_add(result, &figures);
    if (options.is_json)
        print_json(name, &figures);
    else
        print_row(name, &figures);
    return STATUS_OK;
}

static int run_all(struct lab_servers *servers)
{
    static struct lab_contestant ours[CONTESTANTS_MAX];
    static struct lab_result results[CONTESTANTS_MAX];
    size_t count = 0;
    struct error error;

    for (size_t i = 0; lab_strategies[i] != NULL; i++) {
        ours[i] =
            (struct lab_contestant){.name = lab_strategies[i]->name, .strategy = lab_strategies[i]};
        if (is_wanted(ours[i].name))
            results[count++].contestant = &ours[i];
    }
    for (size_t i = 0; lab_dibs[i].name != NULL; i++)
        if (is_wanted(lab_dibs[i].name))
            results[count++].contestant = &lab_dibs[i];
    if (!options.is_json)
        print_heading();
    for (int round = 0; round < options.rounds; round++, SHAPE.seed++)
        for (size_t i = 0; i < count; i++)
            if (run_one(servers, &results[i], &error) != STATUS_OK) {
                fprintf(stderr, "dibs-lab: %s: %s\n", results[i].contestant->name, error.text);
                return 1;
            }
    return options.report != NULL ? write_report(results, count) : 0;
}

int main(int argc, char **argv)
{
    static char program[4096], dibs[4200];
    static struct lab_servers servers;
    struct error error;

    if (argc > 1 && (strcmp(argv[1], "front") == 0 || strcmp(argv[1], "worker") == 0))
        return run_role(argc, argv);
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    ensure(length > 0);
    snprintf(dibs, sizeof(dibs), "%.*s/../dibs", (int)(strrchr(program, '/') - program), program);
    options.setting.program = program;
    options.setting.dibs = dibs;
    int code = read_flags(argc, argv, 1);
    if (code != 0)
        return code - 1;
    code = 1;
    if (lab_servers_start(&servers, &error) != STATUS_OK)
        fprintf(stderr, "dibs-lab: %s\n", error.text);
    else
        code = run_all(&servers);
    lab_servers_stop(&servers);
    return code;
}
