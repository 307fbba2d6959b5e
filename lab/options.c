/* options.c: one table of flags. */
#include "lab/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/plan.h"

static const char USAGE[] =
    "Examples:\n"
    "  dibs-lab --quick\n"
    "  dibs-lab --report lab.html\n"
    "  dibs-lab --scenario worker,server --rounds 20 --only set-list,lua,dibs-redis\n"
    "  dibs-lab --only zset-rank --fronts 2 --clocks-apart -5000\n"
    "\n"
    "Hands out coupons in every way that teams write, with the same crowd and the same faults,\n"
    "and counts what went wrong and what it cost. Starts its own Redis, PostgreSQL and Kafka.\n"
    "\n"
    "  --scenario NAMES     these of the plan, with commas between them; --list shows all\n"
    "  --only NAMES         these designs\n"
    "  --rounds N           so many rounds, each with another seed [1]\n"
    "  --quick              one small rush of each design: a minute\n"
    "  --promised           lua and dibs alone: every round is the next of the scenarios whose "
    "fault\n"
    "                       they promise to survive; 50 rounds unless told; when something goes\n"
    "                       wrong the exit code is 3\n"
    "  --json               one line of JSON for each run\n"
    "  --report FILE        one page with pictures, which loads nothing\n"
    "  --picture FILE       its main picture alone, as SVG\n"
    "  --from FILE          runs nothing: shows what --json has printed, of several sessions too\n"
    "  --dibs PATH          the program to compare with [beside this one]\n"
    "  --redis HOST:PORT    an empty Redis to use instead; it is emptied after each run\n"
    "  --postgres URL       a PostgreSQL to use instead; each run makes and drops a database\n"
    "\n"
    "A setting of your own, for one storm or over a scenario:\n"
    "  --shape KIND         bursts: 1,000 for 2,000 in bursts of 200; polled: 500 for 1,000, as "
    "soon\n"
    "                       as there is an answer; four: 4 policies of 200 for 1,000 each\n"
    "  --total N            coupons [1000]         --users N        people [2000]\n"
    "  --policies N         so many at once [1]    --connections N  that people share [200]\n"
    "  --duplicates N       percent of the people who press twice [10]\n"
    "  --again MS           so long after the others the second presses come; 0: among them [0]\n"
    "  --burst N            so many press at once; 0: as soon as there is an answer [200]\n"
    "  --every MS           between bursts [100]\n"
    "  --people-retry N     how often somebody tries again after an error or a 503 [3]\n"
    "  --fault KIND         none, worker, server, redis, broker or poison [none]\n"
    "  --appendfsync WHEN   of Redis: everysec or always [everysec]\n"
    "  --db-latency MS      that the database is away [0]\n"
    "  --pause MS           a server is held up between two commands, for up to so long [0]\n"
    "  --fronts N           1 or 2 servers [1]     --clocks-apart MS  of the two [0]\n"
    "  --retries N          of the optimistic designs [each its own]\n"
    "  --lock-wait MS       [3000]                 --lock-lease MS    [1000]\n"
    "  --sync MS            how often the sync job of decr-zset+sync runs [10000]\n"
    "  --ttl SECONDS        of keys that expire [180]\n"
    "  --worker-pause MS    --worker-batch N       instead of each design's own\n"
    "  --seed N             of the first round [1]\n";

enum number_kind { NUMBER_I64, NUMBER_INT, NUMBER_U32, NUMBER_SIZE, NUMBER_U64, NUMBER_BOOL };

/* A flag with a number, and where it goes. */
struct number_flag {
    const char *name;
    int64_t minimum, maximum;
    enum number_kind kind;
    size_t offset; /* in struct lab_setting, or in struct lab_options */
    bool is_ours;  /* the latter */
};

#define DAY_MS      86400000
#define SETTING(of) offsetof(struct lab_setting, of)
#define OURS(of)    offsetof(struct lab_options, of), true

static const struct number_flag number_flags[] = {
    {"total", 1, 1000000, NUMBER_I64, SETTING(knobs.total), false},
    {"policies", 1, 100, NUMBER_INT, SETTING(knobs.policies), false},
    {"users", 10, 1000000, NUMBER_U32, SETTING(shape.users), false},
    {"duplicates", 0, 100, NUMBER_U32, SETTING(shape.duplicates), false},
    {"again", 0, 600000, NUMBER_INT, SETTING(shape.again_ms), false},
    {"connections", 1, 10000, NUMBER_SIZE, SETTING(shape.connections), false},
    {"burst", 0, 1000000, NUMBER_U32, SETTING(shape.burst), false},
    {"every", 1, 60000, NUMBER_INT, SETTING(shape.every_ms), false},
    {"people-retry", 0, 1000, NUMBER_INT, SETTING(shape.retries), false},
    {"seed", 1, 1000000000, NUMBER_U64, SETTING(shape.seed), false},
    {"db-latency", 0, 10000, NUMBER_INT, SETTING(latency_ms), false},
    {"pause", 0, 10000, NUMBER_INT, SETTING(knobs.pause_ms), false},
    {"fronts", 1, 2, NUMBER_INT, SETTING(fronts), false},
    {"clocks-apart", -DAY_MS, DAY_MS, NUMBER_INT, SETTING(clock_apart_ms), false},
    {"retries", 0, 1000, NUMBER_INT, SETTING(knobs.retries), false},
    {"lock-wait", 0, 60000, NUMBER_INT, SETTING(knobs.lock_wait_ms), false},
    {"lock-lease", 1, 60000, NUMBER_INT, SETTING(knobs.lock_lease_ms), false},
    {"sync", 0, 600000, NUMBER_INT, SETTING(knobs.sync_ms), false},
    {"ttl", 1, 86400, NUMBER_INT, SETTING(knobs.ttl_s), false},
    {"worker-pause", 0, 60000, NUMBER_INT, SETTING(knobs.worker_pause_ms), false},
    {"worker-batch", 0, 500, NUMBER_INT, SETTING(knobs.worker_batch), false},
    {"rounds", 1, 1000, NUMBER_INT, OURS(rounds)},
    /* Of the processes that a run starts. */
    {"clock-off", -DAY_MS, DAY_MS, NUMBER_I64, SETTING(knobs.clock_off_ms), false},
    {"port", 0, 65535, NUMBER_INT, OURS(port)},
    {"kill-at", 0, 1000000, NUMBER_INT, OURS(kill_at)},
};

/* Those that a word stands for. */
static const struct number_flag fault_flag = {"fault",        0,    LAB_FAULTS - 1, NUMBER_INT,
                                              SETTING(fault), false};
static const struct number_flag poison_flag = {
    "poison", 0, 1, NUMBER_BOOL, SETTING(shape.has_poison), false};
static const struct number_flag always_flag = {"appendfsync",         0,    1, NUMBER_BOOL,
                                               SETTING(syncs_always), false};

static const struct {
    const char *name;
    const char *flags[5][2];
} shapes[] = {
    {"bursts", {{"total", "1000"}, {"users", "2000"}, {"burst", "200"}, {"every", "100"}}},
    {"polled", {{"total", "500"}, {"users", "1000"}, {"burst", "0"}}},
    {"four", {{"policies", "4"}, {"total", "200"}, {"users", "1000"}, {"burst", "200"}}},
};

static void put_number(void *base, const struct number_flag *flag, int64_t value)
{
    void *target = (char *)base + flag->offset;
    switch (flag->kind) {
    case NUMBER_I64:
        *(int64_t *)target = value;
        break;
    case NUMBER_INT:
        *(int *)target = (int)value;
        break;
    case NUMBER_U32:
        *(uint32_t *)target = (uint32_t)value;
        break;
    case NUMBER_SIZE:
        *(size_t *)target = (size_t)value;
        break;
    case NUMBER_U64:
        *(uint64_t *)target = (uint64_t)value;
        break;
    case NUMBER_BOOL:
        *(bool *)target = value != 0;
        break;
    }
}

static bool give(struct lab_options *options, const struct number_flag *flag, int64_t value)
{
    if (flag->is_ours) {
        put_number(options, flag, value);
        return true;
    }
    put_number(&options->setting, flag, value);
    if (options->given_count == LAB_GIVEN_MAX)
        return false;
    options->given[options->given_count].flag = flag;
    options->given[options->given_count++].value = value;
    return true;
}

static bool take_number(struct lab_options *options, const char *name, const char *text)
{
    for (size_t i = 0; i < sizeof(number_flags) / sizeof(*number_flags); i++) {
        const struct number_flag *flag = &number_flags[i];
        char *end;
        if (strcmp(flag->name, name) != 0)
            continue;
        long long value = strtoll(text, &end, 10);
        return *text != '\0' && *end == '\0' && value >= flag->minimum && value <= flag->maximum &&
               give(options, flag, value);
    }
    return false;
}

static bool take_fault(struct lab_options *options, const char *name)
{
    for (int i = 0; i < LAB_FAULTS; i++)
        if (strcmp(lab_fault_names[i], name) == 0)
            return give(options, &fault_flag, i) && give(options, &poison_flag, i == LAB_POISON);
    return false;
}

static bool take_shape(struct lab_options *options, const char *name)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        if (strcmp(shapes[i].name, name) != 0)
            continue;
        for (size_t j = 0; j < 5 && shapes[i].flags[j][0] != NULL; j++)
            if (!take_number(options, shapes[i].flags[j][0], shapes[i].flags[j][1]))
                return false;
        return true;
    }
    return false;
}

static bool take_appendfsync(struct lab_options *options, const char *name)
{
    bool is_always = strcmp(name, "always") == 0;
    return (is_always || strcmp(name, "everysec") == 0) && give(options, &always_flag, is_always);
}

/* A name that nothing has would be a session without a run. */
static bool take_designs(struct lab_options *options, const char *names)
{
    for (const char *at = names; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t length = strcspn(at, ",");
        bool is_known = false;
        for (size_t i = 0; lab_contestants[i].name != NULL; i++)
            is_known |= strlen(lab_contestants[i].name) == length &&
                        strncmp(lab_contestants[i].name, at, length) == 0;
        if (!is_known)
            return false;
    }
    options->only = names;
    return true;
}

static bool take_scenarios(struct lab_options *options, const char *names)
{
    for (const char *at = names; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t length = strcspn(at, ",");
        bool is_known = false;
        for (size_t i = 0; lab_scenarios[i].name != NULL; i++)
            is_known |= strlen(lab_scenarios[i].name) == length &&
                        strncmp(lab_scenarios[i].name, at, length) == 0;
        if (!is_known)
            return false;
    }
    options->scenarios = names;
    return true;
}

bool lab_is_listed(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    return list == NULL;
}

void lab_options_apply(const struct lab_options *options, struct lab_setting *setting)
{
    for (size_t i = 0; i < options->given_count; i++)
        put_number(setting, options->given[i].flag, options->given[i].value);
}

static void list_all(void)
{
    puts("designs:");
    for (size_t i = 0; lab_contestants[i].name != NULL; i++) {
        const struct lab_contestant *contestant = &lab_contestants[i];
        if (contestant->strategy != NULL)
            printf("  %-18s %s\n", contestant->name, contestant->strategy->commands);
        else
            printf("  %-18s dibs: gate=%s, ack=%s%s, ledger in PostgreSQL\n", contestant->name,
                   contestant->gate, contestant->ack, contestant->has_kafka ? ", relay=kafka" : "");
    }
    puts("scenarios:");
    for (size_t i = 0; lab_scenarios[i].name != NULL; i++)
        printf("  %-18s %s\n", lab_scenarios[i].name, lab_scenarios[i].words);
}

static bool take(struct lab_options *options, const char *name, const char *value)
{
    static const struct {
        const char *name;
        bool (*take)(struct lab_options *, const char *);
    } words[] = {
        {"--fault", take_fault},        {"--shape", take_shape},
        {"--only", take_designs},       {"--appendfsync", take_appendfsync},
        {"--scenario", take_scenarios},
    };
    const struct {
        const char *name;
        const char **target;
    } texts[] = {
        {"--report", &options->report},     {"--picture", &options->picture},
        {"--dibs", &options->dibs},         {"--redis", &options->redis},
        {"--postgres", &options->postgres}, {"--from", &options->from},
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (strcmp(words[i].name, name) == 0)
            return words[i].take(options, value);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (strcmp(texts[i].name, name) == 0) {
            *texts[i].target = value;
            return *value != '\0';
        }
    return strncmp(name, "--", 2) == 0 && take_number(options, name + 2, value);
}

bool lab_options_read(struct lab_options *options, int argc, char **argv, int at, int *code)
{
    *code = 0;
    for (; at < argc; at++) {
        const char *name = argv[at];
        if (strcmp(name, "--help") == 0) {
            fputs(USAGE, stdout);
            return false;
        }
        if (strcmp(name, "--list") == 0) {
            list_all();
            return false;
        }
        if (strcmp(name, "--json") == 0) {
            options->is_json = true;
        } else if (strcmp(name, "--quick") == 0) {
            options->is_quick = true;
        } else if (strcmp(name, "--promised") == 0) {
            options->is_promised = true;
        } else {
            const char *value = at + 1 < argc ? argv[at + 1] : "";
            if (!take(options, name, value)) {
                fprintf(stderr, "dibs-lab: not a flag, or not a value that it takes: %s %s\n\n%s",
                        name, value, USAGE);
                *code = 2;
                return false;
            }
            at++;
        }
    }
    return true;
}
