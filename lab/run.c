/* run.c: starts a design's processes, lets the crowd in, breaks what is to be broken, and counts.
 */
#include "lab/run.h"

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "lab/broker.h"
#include "lab/session.h"

#define POLICY_ID      "1"
#define SETTLE_MS      30000
#define QUIET_FAULT_MS 12000 /* after a fault things may take a while to begin again */
#define QUIET_MS       2500  /* without a new row for so long nothing comes any more */
#define FRONTS_MAX     2
#define KILL_AT        300  /* the step of a process, of those that a seed spreads them over */
#define BROKER_AWAY_MS 5000 /* longer than a message is kept for it */
#define START_MS       10000
#define ARGUMENTS_MAX  40

const char *const lab_fault_names[LAB_FAULTS] = {
    [LAB_NO_FAULT] = "none",      [LAB_WORKER_KILLED] = "worker", [LAB_SERVER_KILLED] = "server",
    [LAB_REDIS_KILLED] = "redis", [LAB_BROKER_AWAY] = "broker",   [LAB_POISON] = "poison",
};

const struct lab_contestant lab_dibs[] = {
    {.name = "dibs", .gate = "local", .ack = "gate"},
    {.name = "dibs-redis", .gate = "redis", .ack = "gate"},
    {.name = "dibs-redis-ledger", .gate = "redis", .ack = "ledger"},
    {.name = "dibs-kafka", .gate = "redis", .ack = "gate", .has_kafka = true},
    {.name = NULL},
};

struct run {
    struct lab_servers *servers;
    const struct lab_contestant *contestant;
    const struct lab_setting *setting;
    pid_t fronts[FRONTS_MAX];
    int ports[FRONTS_MAX];
    pid_t worker;
    struct lab_broker broker;
    double dead_cpu; /* of processes that were killed */
    bool is_broken;  /* the fault has been */
    enum status status;
    struct error *error;
};

/* --- processes --- */

static pid_t run_spawn_ours(struct run *run, const char *role, int index, int kill_at)
{
    const struct lab_knobs *knobs = &run->setting->knobs;
    static char texts[ARGUMENTS_MAX][16];
    char name[24];
    int count = 0, used = 0;
    const char *arguments[ARGUMENTS_MAX];
    const struct {
        const char *flag;
        int64_t value;
    } numbers[] = {
        {"--port", strcmp(role, "front") == 0 ? run->ports[index] : 0},
        {"--total", knobs->total},
        {"--retries", knobs->retries},
        {"--lock-wait", knobs->lock_wait_ms},
        {"--lock-lease", knobs->lock_lease_ms},
        {"--worker-pause", knobs->worker_pause_ms},
        {"--worker-batch", knobs->worker_batch},
        {"--sync", knobs->sync_ms},
        {"--clock-off", index == 1 ? run->setting->clock_apart_ms : 0},
        {"--kill-at", kill_at},
    };

    arguments[count++] = run->setting->program;
    arguments[count++] = role;
    arguments[count++] = run->contestant->strategy->name;
    arguments[count++] = run->servers->redis_address;
    arguments[count++] = run->servers->database;
    arguments[count++] = run->broker.address;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        snprintf(texts[used], sizeof(texts[used]), "%lld", (long long)numbers[i].value);
        arguments[count++] = numbers[i].flag;
        arguments[count++] = texts[used++];
    }
    arguments[count] = NULL;
    snprintf(name, sizeof(name), "%s-%d", role, index);
    return lab_spawn(run->servers->folder, name, arguments, NULL);
}

static pid_t run_spawn_dibs(struct run *run, const char *role, int index)
{
    char gate[64], ledger[128], relay[64], listen[32], name[24];
    const char *port = strstr(run->servers->database, "port=") + 5;
    bool is_local = strcmp(run->contestant->gate, "local") == 0;
    bool is_server = strcmp(role, "serve") == 0;

    snprintf(gate, sizeof(gate), is_local ? "local" : "redis://%s", run->servers->redis_address);
    snprintf(ledger, sizeof(ledger), "postgres://lab@127.0.0.1:%d/run_%d", atoi(port),
             run->servers->run_count);
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
    return lab_spawn(run->servers->folder, name, server, NULL);
}

static void run_spawn_front(struct run *run, int index, int kill_at)
{
    run->fronts[index] = run->contestant->strategy == NULL
                             ? run_spawn_dibs(run, "serve", index)
                             : run_spawn_ours(run, "front", index, kill_at);
}

static void run_spawn_worker(struct run *run, int kill_at)
{
    const struct lab_strategy *strategy = run->contestant->strategy;
    if (strategy != NULL && strategy->work != NULL)
        run->worker = run_spawn_ours(run, "worker", 0, kill_at);
    else if (strategy == NULL && strcmp(run->contestant->gate, "redis") == 0)
        run->worker = run_spawn_dibs(run, "worker", 0);
}

/* Whoever has died is started again, and does not die a second time. */
static void run_revive(struct run *run)
{
    for (int i = 0; i < run->setting->fronts; i++)
        if (run->fronts[i] > 0 && waitpid(run->fronts[i], NULL, WNOHANG) == run->fronts[i])
            run_spawn_front(run, i, 0);
    if (run->worker > 0 && waitpid(run->worker, NULL, WNOHANG) == run->worker)
        run_spawn_worker(run, 0);
}

static void run_kill(struct run *run, pid_t *pid)
{
    if (*pid <= 0)
        return;
    run->dead_cpu += lab_cpu_seconds(*pid);
    kill(*pid, SIGKILL);
}

/* What cannot be done at a step of our own code is done in the middle of the storm. */
static void run_break(struct run *run)
{
    bool is_dibs = run->contestant->strategy == NULL;
    run->is_broken = true;
    if (run->setting->fault == LAB_REDIS_KILLED && run->status == STATUS_OK)
        run->status = lab_redis_crash(run->servers, run->error);
    else if (run->setting->fault == LAB_BROKER_AWAY && run->broker.pid > 0)
        kill(run->broker.pid, SIGSTOP);
    else if (run->setting->fault == LAB_SERVER_KILLED && is_dibs)
        run_kill(run, &run->fronts[0]);
    else if (run->setting->fault == LAB_WORKER_KILLED && is_dibs)
        run_kill(run, &run->worker);
}

static void run_progress(void *context, size_t answered)
{
    struct run *run = context;
    if (!run->is_broken && answered > run->setting->shape.users / 3)
        run_break(run);
    run_revive(run);
    run->setting->on_progress(run->setting->context, answered);
}

static bool run_is_open(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_open = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    close(fd);
    return is_open;
}

static enum status run_await_fronts(struct run *run)
{
    int64_t deadline_ms = clock_monotonic_ms() + START_MS;
    for (int i = 0; i < run->setting->fronts; i++)
        while (!run_is_open(run->ports[i])) {
            if (clock_monotonic_ms() > deadline_ms)
                return error_set(run->error, STATUS_UNAVAILABLE, "%s does not start; see %s",
                                 run->contestant->name, run->servers->folder);
            usleep(10000);
        }
    return STATUS_OK;
}

static enum status run_create_policy(struct run *run)
{
    char url[64], total[24];
    int status = 1;
    snprintf(url, sizeof(url), "http://127.0.0.1:%d", run->ports[0]);
    snprintf(total, sizeof(total), "%lld", (long long)run->setting->knobs.total);
    const char *const arguments[] = {
        run->setting->dibs, "policy", "create",  "--id", POLICY_ID, "--name", "lab",
        "--discount",       "10%",    "--total", total,  "--url",   url,      NULL};
    pid_t pid = lab_spawn(run->servers->folder, "create", arguments, NULL);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        return error_set(run->error, STATUS_FAILED, "the policy cannot be made; see %s/create.log",
                         run->servers->folder);
    return STATUS_OK;
}

/* --- what it costs --- */

static void run_ask_redis(struct run *run, double *commands, double *bytes)
{
    redisContext *redis = redisConnect("127.0.0.1", run->servers->redis_port);
    redisReply *reply = redis != NULL && redis->err == 0 ? redisCommand(redis, "INFO stats") : NULL;
    *commands = *bytes = 0;
    if (reply != NULL && reply->type == REDIS_REPLY_STRING) {
        static const char *const names[] = {
            "total_commands_processed:", "total_net_input_bytes:", "total_net_output_bytes:"};
        double values[3] = {0};
        for (int i = 0; i < 3; i++) {
            const char *found = strstr(reply->str, names[i]);
            values[i] = found != NULL ? atof(found + strlen(names[i])) : 0;
        }
        *commands = values[0];
        *bytes = values[1] + values[2];
    }
    freeReplyObject(reply);
    if (redis != NULL)
        redisFree(redis);
}

static const char *run_rows_statement(const struct run *run)
{
    return run->contestant->strategy == NULL
               ? "SELECT user_id, issued_at FROM coupon WHERE state IN ('ISSUED', 'REDEEMED')"
               : "SELECT user_id, (extract(epoch FROM created_at) * 1000)::bigint FROM coupon";
}

static int64_t run_row_count(struct run *run)
{
    PGconn *db = PQconnectdb(run->servers->database);
    PGresult *result = PQexec(db, run_rows_statement(run));
    int64_t count = PQresultStatus(result) == PGRES_TUPLES_OK ? PQntuples(result) : -1;
    PQclear(result);
    PQfinish(db);
    return count;
}

/* How many people were told yes. */
static int64_t run_yes_count(const struct run *run, const struct lab_storm *storm)
{
    bool *was_told = calloc(run->setting->shape.users, sizeof(*was_told));
    int64_t count = 0;
    ensure(was_told != NULL);
    for (size_t i = 0; i < storm->press_count; i++) {
        const struct storm_press *press = &storm->presses[i];
        bool is_yes = press->outcome == STORM_WON || press->outcome == STORM_HELD;
        count += is_yes && !was_told[press->user];
        was_told[press->user] |= is_yes;
    }
    free(was_told);
    return count;
}

/* Until everybody who was told yes has a row, or no row has come for a while. */
static void run_settle(struct run *run, const struct lab_storm *storm)
{
    int64_t yes = run_yes_count(run, storm);
    int64_t quiet_ms = run->setting->fault == LAB_NO_FAULT ? QUIET_MS : QUIET_FAULT_MS;
    int64_t start_ms = clock_monotonic_ms(), changed_ms = start_ms, last = -1;
    while (clock_monotonic_ms() - start_ms < SETTLE_MS &&
           clock_monotonic_ms() - changed_ms < quiet_ms) {
        run_revive(run);
        int64_t count = run_row_count(run);
        if (count != last)
            changed_ms = clock_monotonic_ms();
        last = count;
        if (run->worker == 0 || count >= yes)
            break;
        usleep(100000);
    }
}

/* --- the whole of it --- */

static enum status run_prepare(struct run *run)
{
    const struct lab_strategy *strategy = run->contestant->strategy;
    if (strategy == NULL)
        return STATUS_OK;
    struct lab_session session = {.knobs = &run->setting->knobs,
                                  .redis_address = run->servers->redis_address,
                                  .database = run->servers->database};
    lab_session_begin(&session);
    if (!session.failed)
        strategy->prepare(&session);
    bool failed = session.failed;
    lab_session_close(&session);
    return failed ? error_set(run->error, STATUS_UNAVAILABLE, "%s cannot be prepared",
                              run->contestant->name)
                  : STATUS_OK;
}

static enum status run_start(struct run *run)
{
    enum lab_fault fault = run->setting->fault;
    int kill_at = 1 + (int)(run->setting->shape.seed * 7919 % KILL_AT);
    bool has_kafka = run->contestant->strategy != NULL ? run->contestant->strategy->has_kafka
                                                       : run->contestant->has_kafka;
    enum status status = run_prepare(run);
    if (status == STATUS_OK && has_kafka)
        status = lab_broker_start(&run->broker, run->servers, run->error);
    if (status != STATUS_OK)
        return status;
    for (int i = 0; i < run->setting->fronts; i++) {
        run->ports[i] = lab_free_port();
        run_spawn_front(run, i, fault == LAB_SERVER_KILLED && i == 0 ? kill_at : 0);
    }
    status = run_await_fronts(run);
    if (status == STATUS_OK)
        run_spawn_worker(run, fault == LAB_WORKER_KILLED ? kill_at : 0);
    if (status == STATUS_OK && run->contestant->strategy == NULL)
        status = run_create_policy(run);
    return status;
}

static enum status run_storm(struct run *run, struct lab_figures *figures)
{
    char addresses[FRONTS_MAX][32];
    const char *list[FRONTS_MAX];
    struct lab_storm storm;
    double commands, bytes, later_commands, later_bytes;
    double redis_cpu = lab_cpu_seconds(run->servers->redis_pid);
    double database_cpu = lab_cpu_seconds(run->servers->postgres_pid);

    for (int i = 0; i < run->setting->fronts; i++) {
        snprintf(addresses[i], sizeof(addresses[i]), "127.0.0.1:%d", run->ports[i]);
        list[i] = addresses[i];
    }
    run_ask_redis(run, &commands, &bytes);
    enum status status = lab_storm_run(
        &storm, &run->setting->shape,
        &(struct storm_fronts){.addresses = list, .count = (size_t)run->setting->fronts},
        run_progress, run, run->error);
    if (status == STATUS_OK)
        status = run->status;
    if (run->setting->fault == LAB_BROKER_AWAY && run->broker.pid > 0) {
        usleep(BROKER_AWAY_MS * 1000);
        kill(run->broker.pid, SIGCONT);
    }
    if (status == STATUS_OK) {
        run_settle(run, &storm);
        run_ask_redis(run, &later_commands, &later_bytes);
        status = lab_count(figures, &storm, &run->setting->shape, run->setting->knobs.total,
                           run->servers->database, run_rows_statement(run), run->error);
        double million = (double)storm.press_count / 1e6, front_cpu = run->dead_cpu;
        for (int i = 0; i < run->setting->fronts; i++)
            front_cpu += lab_cpu_seconds(run->fronts[i]);
        figures->front_cpu = (front_cpu + lab_cpu_seconds(run->worker)) / million;
        figures->redis_cpu = (lab_cpu_seconds(run->servers->redis_pid) - redis_cpu) / million;
        figures->database_cpu =
            (lab_cpu_seconds(run->servers->postgres_pid) - database_cpu) / million;
        figures->commands = (later_commands - commands) / (double)storm.press_count;
        figures->bytes = (later_bytes - bytes) / (double)storm.press_count;
    }
    lab_storm_release(&storm);
    return status;
}

enum status lab_run(struct lab_figures *figures, struct lab_servers *servers,
                    const struct lab_contestant *contestant, const struct lab_setting *setting,
                    struct error *error)
{
    struct run run = {
        .servers = servers, .contestant = contestant, .setting = setting, .error = error};

    *figures = (struct lab_figures){0};
    enum status status = lab_servers_renew(servers, contestant->strategy != NULL, error);
    if (status == STATUS_OK)
        status = run_start(&run);
    if (status == STATUS_OK)
        status = run_storm(&run, figures);
    lab_end(&run.worker);
    for (int i = 0; i < setting->fronts; i++)
        lab_end(&run.fronts[i]);
    lab_broker_stop(&run.broker);
    return status;
}
