/* run.c: starts a design's processes, lets the crowd in, breaks what is to be broken, and counts.
 */
#include "lab/run.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "lab/broker.h"
#include "lab/session.h"

#define SETTLE_MS       90000
#define QUIET_LATE_MS   12000 /* Kafka and dibs may take a while to begin, or to begin again */
#define QUIET_BROKER_MS 30000 /* consumers come back to a broker in their own time */
#define QUIET_MS        4000 /* without a new row for so long, and two of its pauses, a worker is done */
#define FRONTS_MAX      2
#define BROKER_AWAY_MS  5000 /* longer than a message is kept for it */
#define START_MS        20000
#define ARGUMENTS_MAX   48
#define FAKETIME        "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"

const char *const lab_fault_names[LAB_FAULTS] = {
    [LAB_NO_FAULT] = "none",      [LAB_WORKER_KILLED] = "worker", [LAB_SERVER_KILLED] = "server",
    [LAB_REDIS_KILLED] = "redis", [LAB_BROKER_AWAY] = "broker",   [LAB_POISON] = "poison",
};

struct run {
    struct lab_servers *servers;
    const struct lab_contestant *contestant;
    const struct lab_setting *setting;
    struct storm_shape shape;
    struct lab_knobs knobs;
    int front_count;
    pid_t fronts[FRONTS_MAX];
    int ports[FRONTS_MAX];
    pid_t worker;
    struct lab_broker broker;
    char tallies[96];
    double dead_cpu; /* of processes that were killed */
    bool is_broken;  /* the fault has been */
    enum status status;
    struct error *error;
};

bool lab_has_kafka(const struct lab_contestant *contestant)
{
    return contestant->strategy != NULL ? contestant->strategy->topic != NULL
                                        : contestant->has_kafka;
}

bool lab_has_worker(const struct lab_contestant *contestant)
{
    return contestant->strategy != NULL ? contestant->strategy->work != NULL
                                        : strcmp(contestant->gate, "redis") == 0;
}

bool lab_has_redis(const struct lab_contestant *contestant)
{
    return contestant->strategy != NULL ? contestant->strategy->needs_redis
                                        : strcmp(contestant->gate, "redis") == 0;
}

/* --- processes --- */

static pid_t run_spawn_ours(struct run *run, const char *role, int index, int kill_at)
{
    const struct lab_knobs *knobs = &run->knobs;
    static char texts[ARGUMENTS_MAX][24];
    char name[24];
    int count = 0, used = 0;
    const char *arguments[ARGUMENTS_MAX];
    const struct {
        const char *flag;
        int64_t value;
    } numbers[] = {
        {"--port", strcmp(role, "front") == 0 ? run->ports[index] : 0},
        {"--total", knobs->total},
        {"--policies", knobs->policies},
        {"--seed", (int64_t)knobs->seed},
        {"--pause", knobs->pause_ms},
        {"--ttl", knobs->ttl_s},
        {"--retries", knobs->retries},
        {"--lock-wait", knobs->lock_wait_ms},
        {"--lock-lease", knobs->lock_lease_ms},
        {"--worker-pause", knobs->worker_pause_ms},
        {"--worker-batch", knobs->worker_batch},
        {"--sync", knobs->sync_ms},
        {"--clock-off", index == 1 ? run->setting->clock_apart_ms : 0},
        {"--kill-at", kill_at},
    };

    arguments[count++] = run->servers->program;
    arguments[count++] = role;
    arguments[count++] = run->contestant->strategy->name;
    arguments[count++] = run->servers->redis_address;
    arguments[count++] = run->servers->claims;
    arguments[count++] = run->broker.address;
    arguments[count++] = run->tallies;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        snprintf(texts[used], sizeof(texts[used]), "%lld", (long long)numbers[i].value);
        arguments[count++] = numbers[i].flag;
        arguments[count++] = texts[used++];
    }
    arguments[count] = NULL;
    snprintf(name, sizeof(name), "%s-%d", role, index);
    return lab_spawn(run->servers->folder, name, arguments, NULL);
}

/* The clock of dibs's second server is set by a library that stands before the C library's. */
static const char *run_environment(const struct run *run, int index, char text[128])
{
    int apart_ms = run->setting->clock_apart_ms;
    if (index != 1 || apart_ms == 0 || access(FAKETIME, R_OK) != 0)
        return NULL;
    snprintf(text, 128, "LD_PRELOAD=" FAKETIME " FAKETIME=%+.3f FAKETIME_DONT_FAKE_MONOTONIC=1",
             apart_ms / 1000.0);
    return text;
}

static pid_t run_spawn_dibs(struct run *run, const char *role, int index)
{
    char gate[96], ledger[400], relay[64], listen[32], name[24], environment[128];
    const struct lab_postgres *postgres = &run->servers->postgres;
    bool is_local = strcmp(run->contestant->gate, "local") == 0;
    bool is_server = strcmp(role, "serve") == 0;
    bool is_near = run->servers->claims_port == postgres->port;

    snprintf(gate, sizeof(gate), is_local ? "local" : "redis://%s", run->servers->redis_address);
    snprintf(ledger, sizeof(ledger), "postgres://%s%s%s@%s:%d/%s", postgres->user,
             postgres->password[0] != '\0' ? ":" : "", postgres->password,
             is_near ? postgres->host : "127.0.0.1", run->servers->claims_port, run->servers->name);
    snprintf(relay, sizeof(relay), run->contestant->has_kafka ? "kafka://%s" : "direct",
             run->broker.address);
    snprintf(listen, sizeof(listen), "127.0.0.1:%d", run->ports[index]);
    const char *const server[] = {run->setting->dibs,
                                  role,
                                  "--gate",
                                  gate,
                                  "--ledger",
                                  ledger,
                                  "--ack",
                                  run->contestant->ack,
                                  "--relay",
                                  relay,
                                  is_server ? "--listen" : NULL,
                                  listen,
                                  NULL};
    snprintf(name, sizeof(name), "%s-%d", role, index);
    return lab_spawn(run->servers->folder, name, server,
                     is_server ? run_environment(run, index, environment) : NULL);
}

static void run_spawn_front(struct run *run, int index, int kill_at)
{
    run->fronts[index] = run->contestant->strategy == NULL
                             ? run_spawn_dibs(run, "serve", index)
                             : run_spawn_ours(run, "front", index, kill_at);
}

static void run_spawn_worker(struct run *run, int kill_at)
{
    if (!lab_has_worker(run->contestant))
        return;
    run->worker = run->contestant->strategy != NULL ? run_spawn_ours(run, "worker", 0, kill_at)
                                                    : run_spawn_dibs(run, "worker", 0);
}

static bool run_is_dead(struct run *run, pid_t pid)
{
    struct rusage usage;
    if (pid <= 0 || wait4(pid, NULL, WNOHANG, &usage) != pid)
        return false;
    run->dead_cpu += (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                     (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    return true;
}

/* Whoever has died is started again, and does not die a second time. */
static void run_revive(struct run *run)
{
    for (int i = 0; i < run->front_count; i++)
        if (run_is_dead(run, run->fronts[i]))
            run_spawn_front(run, i, 0);
    if (run_is_dead(run, run->worker))
        run_spawn_worker(run, 0);
}

/* What cannot be done at a step of our own code is done in the middle of the storm. */
static void run_break(struct run *run)
{
    bool is_dibs = run->contestant->strategy == NULL;
    run->is_broken = true;
    if (run->setting->syncs_amid && !is_dibs && run->worker > 0)
        kill(run->worker, SIGUSR1);
    if (run->setting->fault == LAB_REDIS_KILLED && run->status == STATUS_OK)
        run->status = lab_redis_crash(run->servers, run->setting->syncs_always, run->error);
    else if (run->setting->fault == LAB_BROKER_AWAY && run->broker.pid > 0)
        lab_broker_kill(&run->broker);
    else if (run->setting->fault == LAB_SERVER_KILLED && is_dibs)
        kill(run->fronts[0], SIGKILL);
    else if (run->setting->fault == LAB_WORKER_KILLED && is_dibs && run->worker > 0)
        kill(run->worker, SIGKILL);
}

static void run_progress(void *context, size_t answered)
{
    struct run *run = context;
    size_t count = (size_t)run->shape.users * (size_t)run->shape.policies;
    count += count * run->shape.duplicates / 100;
    if (!run->is_broken && answered > count / 3)
        run_break(run);
    run_revive(run);
    run->setting->on_progress(run->setting->context, answered, count);
}

static enum status run_await_fronts(struct run *run)
{
    int64_t deadline_ms = clock_monotonic_ms() + START_MS;
    for (int i = 0; i < run->front_count; i++)
        while (!lab_is_open(run->ports[i])) {
            if (clock_monotonic_ms() > deadline_ms)
                return error_set(run->error, STATUS_UNAVAILABLE, "%s does not start; see %s",
                                 run->contestant->name, run->servers->folder);
            usleep(10000);
        }
    return STATUS_OK;
}

static enum status run_create_policy(struct run *run, int policy)
{
    char url[64], id[16], total[24];
    int status = 1;
    snprintf(url, sizeof(url), "http://127.0.0.1:%d", run->ports[0]);
    snprintf(id, sizeof(id), "%d", policy);
    snprintf(total, sizeof(total), "%lld", (long long)run->knobs.total);
    const char *const arguments[] = {
        run->setting->dibs, "policy", "create",  "--id", id,      "--name", "lab",
        "--discount",       "10%",    "--total", total,  "--url", url,      NULL};
    pid_t pid = lab_spawn(run->servers->folder, "create", arguments, NULL);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        return error_set(run->error, STATUS_FAILED, "the policy cannot be made; see %s/create.log",
                         run->servers->folder);
    return STATUS_OK;
}

/* What dibs needs besides: the policies, and the shop's rule. */
static enum status run_open_dibs(struct run *run)
{
    enum status status = STATUS_OK;
    for (int policy = 1; status == STATUS_OK && policy <= run->knobs.policies; policy++)
        status = run_create_policy(run, policy);
    if (status == STATUS_OK && run->shape.has_poison)
        status = lab_database_run(run->servers,
                                  "ALTER TABLE coupon ADD CONSTRAINT no_poison"
                                  " CHECK (user_id <> '" STORM_POISON "')",
                                  run->error);
    return status;
}

/* --- what it costs --- */

struct run_costs {
    double front, redis, database, broker; /* CPU seconds; the worker is with the front */
    double commands, bytes;
};

static void run_ask(const struct run *run, struct run_costs *costs)
{
    const struct lab_servers *servers = run->servers;
    *costs = (struct run_costs){
        .redis = lab_redis_info(servers, "used_cpu_sys") + lab_redis_info(servers, "used_cpu_user"),
        .database = lab_cpu_seconds(servers->postgres_pid),
        .broker = lab_cpu_seconds(run->broker.pid),
        .commands = lab_redis_info(servers, "total_commands_processed"),
        .bytes = lab_redis_info(servers, "total_net_input_bytes") +
                 lab_redis_info(servers, "total_net_output_bytes"),
    };
    costs->front = run->dead_cpu + lab_cpu_seconds(run->worker);
    for (int i = 0; i < run->front_count; i++)
        costs->front += lab_cpu_seconds(run->fronts[i]);
}

/* Redis counts from 0 again when it was killed. */
static double run_grown(double before, double after)
{
    return after >= before ? after - before : after;
}

static void run_put_costs(const struct run *run, const struct run_costs *before,
                          struct lab_figures *figures)
{
    struct run_costs after;
    double presses = (double)figures->presses, million = presses / 1e6;
    run_ask(run, &after);
    figures->front_cpu = run_grown(before->front, after.front) / million;
    figures->redis_cpu = run_grown(before->redis, after.redis) / million;
    figures->database_cpu = run_grown(before->database, after.database) / million;
    figures->broker_cpu = run_grown(before->broker, after.broker) / million;
    figures->commands = run_grown(before->commands, after.commands) / presses;
    figures->bytes = run_grown(before->bytes, after.bytes) / presses;
    figures->retries = (double)lab_tally_read(LAB_TALLY_RETRIES);
    figures->lock_timeouts = (double)lab_tally_read(LAB_TALLY_LOCK_TIMEOUT);
}

static struct lab_records run_records(const struct run *run)
{
    bool is_dibs = run->contestant->strategy == NULL;
    return (struct lab_records){
        .database = run->servers->database,
        .rows = is_dibs
                    ? "SELECT policy_id, user_id, issued_at FROM coupon"
                      " WHERE state IN ('ISSUED', 'REDEEMED')"
                    : "SELECT policy_id, user_id, (extract(epoch FROM created_at) * 1000)::bigint"
                      " FROM coupon",
        .taken_back = is_dibs ? "SELECT policy_id, user_id FROM dead_letter" : NULL,
    };
}

static enum status run_count(const struct run *run, const struct lab_storm *storm,
                             struct lab_figures *figures)
{
    const struct lab_records records = run_records(run);
    *figures = (struct lab_figures){0};
    return lab_count(figures, storm, &run->shape, run->knobs.total, lab_tally_read(LAB_TALLY_BURNT),
                     &records, run->error);
}

/* Without a new row for so long nothing comes any more. */
static int64_t run_quiet_ms(const struct run *run)
{
    const struct lab_strategy *strategy = run->contestant->strategy;
    if (run->setting->fault == LAB_BROKER_AWAY && lab_has_kafka(run->contestant))
        return QUIET_BROKER_MS;
    if (strategy == NULL || strategy->topic != NULL)
        return QUIET_LATE_MS;
    int pause_ms = run->knobs.worker_pause_ms > 0 ? run->knobs.worker_pause_ms : strategy->pause_ms;
    return QUIET_MS + 2 * pause_ms;
}

/* Counts when everybody who was told yes has a row and everything is sold, or no row has come for a
 * while. */
static enum status run_settle(struct run *run, const struct lab_storm *storm,
                              struct lab_figures *figures)
{
    int64_t quiet_ms = run_quiet_ms(run), start_ms = clock_monotonic_ms(), changed_ms = start_ms;
    int64_t last = -1;
    for (;;) {
        enum status status = run_count(run, storm, figures);
        int64_t now_ms = clock_monotonic_ms(), records = figures->rows + figures->taken_back;
        bool may_more_come = figures->yes_without_row > 0 || figures->unsold > 0;
        if (records != last)
            changed_ms = now_ms;
        last = records;
        if (status != STATUS_OK || run->worker == 0 || !may_more_come ||
            now_ms - start_ms > SETTLE_MS || now_ms - changed_ms > quiet_ms)
            return status;
        run_revive(run);
        usleep(50000);
    }
}

/* --- the whole of it --- */

static enum status run_prepare(struct run *run)
{
    const struct lab_strategy *strategy = run->contestant->strategy;
    if (strategy == NULL)
        return STATUS_OK;
    struct lab_session session = {.knobs = &run->knobs,
                                  .redis_address = run->servers->redis_address,
                                  .database = run->servers->database};
    lab_session_begin(&session);
    for (session.policy = 1; !session.failed && session.policy <= run->knobs.policies;
         session.policy++)
        strategy->prepare(&session);
    bool failed = session.failed;
    lab_session_close(&session);
    return failed ? error_set(run->error, STATUS_UNAVAILABLE, "%s cannot be prepared",
                              run->contestant->name)
                  : STATUS_OK;
}

/* The step at which a process dies: one that it comes to, whatever becomes of the others. */
static int run_kill_at(const struct run *run)
{
    int64_t steps = run->knobs.total * run->knobs.policies / (2 * run->front_count);
    return 1 + (int)((run->knobs.seed * 7919) % (uint64_t)(steps > 0 ? steps : 1));
}

/* dibs makes its topics itself; who has none of his own before the storm would make it amid the
 * fault. */
static enum status run_start_broker(struct run *run)
{
    const struct lab_strategy *strategy = run->contestant->strategy;
    enum status status = lab_broker_start(&run->broker, run->servers, run->error);
    return status == STATUS_OK && strategy != NULL
               ? lab_broker_make_topic(&run->broker, strategy->topic, run->error)
               : status;
}

static enum status run_start(struct run *run)
{
    enum lab_fault fault = run->setting->fault;
    int kill_at = run_kill_at(run);
    enum status status = run_prepare(run);
    if (status == STATUS_OK && lab_has_kafka(run->contestant))
        status = run_start_broker(run);
    if (status != STATUS_OK)
        return status;
    for (int i = 0; i < run->front_count; i++) {
        run->ports[i] = lab_free_port();
        run_spawn_front(run, i, fault == LAB_SERVER_KILLED && i == 0 ? kill_at : 0);
    }
    status = run_await_fronts(run);
    if (status == STATUS_OK)
        run_spawn_worker(run, fault == LAB_WORKER_KILLED ? kill_at : 0);
    if (status == STATUS_OK && run->contestant->strategy == NULL)
        status = run_open_dibs(run);
    if (status == STATUS_OK && fault == LAB_REDIS_KILLED && !run->setting->syncs_always)
        status = lab_redis_await_sync(run->servers, run->error);
    return status;
}

static enum status run_storm(struct run *run, struct lab_figures *figures)
{
    char addresses[FRONTS_MAX][32];
    const char *list[FRONTS_MAX];
    struct lab_storm storm;
    struct run_costs before;

    for (int i = 0; i < run->front_count; i++) {
        snprintf(addresses[i], sizeof(addresses[i]), "127.0.0.1:%d", run->ports[i]);
        list[i] = addresses[i];
    }
    run_ask(run, &before);
    enum status status =
        lab_storm_run(&storm, &run->shape,
                      &(struct storm_fronts){.addresses = list, .count = (size_t)run->front_count},
                      run_progress, run, run->error);
    if (status == STATUS_OK)
        status = run->status;
    if (status == STATUS_OK && run->setting->fault == LAB_BROKER_AWAY &&
        lab_has_kafka(run->contestant)) {
        usleep(BROKER_AWAY_MS * 1000);
        status = lab_broker_launch(&run->broker, run->servers, run->error);
    }
    if (status == STATUS_OK) {
        status = run_settle(run, &storm, figures);
        run_put_costs(run, &before, figures);
    }
    lab_storm_release(&storm);
    return status;
}

/* What the contestant makes of the setting. */
static void run_init(struct run *run)
{
    const struct lab_contestant *contestant = run->contestant;
    run->knobs = run->setting->knobs;
    run->shape = run->setting->shape;
    run->shape.policies = run->knobs.policies;
    run->knobs.seed = run->shape.seed;
    if (run->knobs.retries < 0)
        run->knobs.retries = contestant->retries;
    if (run->knobs.sync_ms < 0)
        run->knobs.sync_ms = contestant->sync_ms;
    else if (contestant->sync_ms == 0)
        run->knobs.sync_ms = 0;
    /* A local gate is one server's. */
    bool is_alone = contestant->strategy == NULL && !lab_has_redis(contestant);
    run->front_count = is_alone ? 1 : run->setting->fronts;
    snprintf(run->tallies, sizeof(run->tallies), "%s/tallies-%d", run->servers->folder,
             run->servers->run_count);
}

enum status lab_run(struct lab_figures *figures, struct lab_servers *servers,
                    const struct lab_contestant *contestant, const struct lab_setting *setting,
                    struct error *error)
{
    struct run run = {
        .servers = servers, .contestant = contestant, .setting = setting, .error = error};
    const struct lab_climate climate = {
        .has_tables = contestant->strategy != NULL,
        .syncs_always = setting->syncs_always,
        .is_going_to_crash = setting->fault == LAB_REDIS_KILLED,
        .latency_ms = setting->latency_ms,
    };

    *figures = (struct lab_figures){0};
    enum status status = lab_servers_renew(servers, &climate, error);
    run_init(&run);
    if (status == STATUS_OK && !lab_tallies_open(run.tallies))
        status = error_set(error, STATUS_FAILED, "cannot write %s", run.tallies);
    if (status == STATUS_OK)
        status = run_start(&run);
    if (status == STATUS_OK)
        status = run_storm(&run, figures);
    lab_end(&run.worker);
    for (int i = 0; i < run.front_count; i++)
        lab_end(&run.fronts[i]);
    lab_broker_stop(&run.broker);
    return status;
}
