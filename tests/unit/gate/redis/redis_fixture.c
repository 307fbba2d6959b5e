/* redis_fixture.c: starts, kills and asks private Redis servers. */
#include "redis_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
/* cmocka.h needs the ones above it. */
#include <cmocka.h>

#include "base/clock.h"
#include "base/random.h"
#include "embedded_functions.h"
#include "gate_hand.h"

#define WORDS_MAX       4096
#define CALL_HEAD       (3 + REDIS_KEYS)
#define STARTS_MAX      5
#define GATE_TIMEOUT_MS 10000

void pause_ms(int64_t milliseconds)
{
    struct timespec pause = {.tv_sec = milliseconds / 1000,
                             .tv_nsec = milliseconds % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* --- servers --- */

/* Below the ports that the kernel gives to connections. */
int free_port(void)
{
    for (;;) {
        int port = 10000 + (int)random_below(20000);
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)port),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool is_free = bind(probe, (struct sockaddr *)&address, sizeof(address)) == 0;
        close(probe);
        if (is_free)
            return port;
    }
}

static void redis_server_exec(const struct redis_server *server)
{
    const char *words[SETTINGS_MAX + 32];
    char port[16];
    char bus_port[16];
    size_t count = 0;
    int log = open("log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    snprintf(port, sizeof(port), "%d", server->port);
    snprintf(bus_port, sizeof(bus_port), "%d", server->bus_port);
    const char *const own[][2] = {
        {"--port", port},
        {"--bind", "127.0.0.1"},
        {"--dir", "."},
        {"--save", ""},
        {"--logfile", ""},
        {"--daemonize", "no"},
        {"--cluster-port", bus_port},
        {"--unixsocket", server->socket},
        {"--repl-diskless-sync-delay", "0"},
    };
    words[count++] = "redis-server";
    if (access("redis.conf", F_OK) == 0)
        words[count++] = "redis.conf";
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        words[count++] = own[i][0];
        words[count++] = own[i][1];
    }
    for (size_t i = 0; i < server->setting_count; i++)
        words[count++] = server->settings[i];
    words[count] = NULL;
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execvp(words[0], (char *const *)(uintptr_t)words);
    _exit(127);
}

static bool redis_server_answers(const struct redis_server *server)
{
    struct timeval timeout = {.tv_sec = 5};
    redisContext *link = redisConnectUnixWithTimeout(server->socket, timeout);
    bool answers = false;

    if (link != NULL && link->err == 0) {
        redisReply *reply = redisCommand(link, "PING");
        /* One that wants a password or a certificate is there, too. */
        answers = reply != NULL &&
                  (reply->type != REDIS_REPLY_ERROR || strncmp(reply->str, "LOADING", 7) != 0);
        freeReplyObject(reply);
    }
    if (link != NULL)
        redisFree(link);
    return answers;
}

/* False: it ended again, most likely because somebody took the port. */
static bool redis_server_try(struct redis_server *server)
{
    int64_t until_ms = clock_monotonic_ms() + AWAIT_MS;
    pid_t parent = getpid();

    unlink(server->socket);
    server->pid = fork();
    assert_int_not_equal(server->pid, -1);
    if (server->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || chdir(server->folder) != 0)
            _exit(127);
        redis_server_exec(server);
    }
    while (!redis_server_answers(server)) {
        if (waitpid(server->pid, NULL, WNOHANG) == server->pid) {
            server->pid = 0;
            return false;
        }
        if (clock_monotonic_ms() > until_ms)
            fail_msg("redis-server does not answer; see %s/log", server->folder);
        pause_ms(5);
    }
    return true;
}

void redis_server_prepare(struct redis_server *server, const char *const *settings)
{
    *server = (struct redis_server){.folder = "/tmp/dibs-redis-XXXXXX"};
    assert_non_null(mkdtemp(server->folder));
    snprintf(server->socket, sizeof(server->socket), "%s/socket", server->folder);
    for (size_t i = 0; settings != NULL && settings[i] != NULL; i++) {
        assert_true(server->setting_count < SETTINGS_MAX);
        server->settings[server->setting_count++] = settings[i];
    }
}

void redis_server_write(const struct redis_server *server, const char *name, const char *format,
                        ...)
{
    char path[128];
    va_list arguments;

    snprintf(path, sizeof(path), "%s/%s", server->folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    fclose(file);
}

void redis_server_begin(struct redis_server *server)
{
    for (int i = 0; i < STARTS_MAX; i++) {
        server->port = free_port();
        server->bus_port = free_port();
        if (redis_server_try(server))
            break;
    }
    if (server->pid == 0)
        fail_msg("redis-server does not start; see %s/log", server->folder);
    snprintf(server->url, sizeof(server->url), "redis://127.0.0.1:%d", server->port);
}

void redis_server_start(struct redis_server *server, const char *const *settings)
{
    redis_server_prepare(server, settings);
    redis_server_begin(server);
}

void redis_server_run(struct redis_server *server)
{
    assert_int_equal(server->pid, 0);
    if (!redis_server_try(server))
        fail_msg("redis-server does not start again; see %s/log", server->folder);
}

void redis_server_kill(struct redis_server *server)
{
    if (server->pid == 0)
        return;
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    server->pid = 0;
}

void redis_server_pause(struct redis_server *server)
{
    kill(server->pid, SIGSTOP);
    /* It stands when the kernel says so. */
    waitpid(server->pid, NULL, WUNTRACED);
}

void redis_server_resume(struct redis_server *server)
{
    kill(server->pid, SIGCONT);
}

static int redis_server_unlink(const char *path, const struct stat *stat, int kind, struct FTW *at)
{
    (void)stat;
    (void)kind;
    return at->level == 0 ? 0 : remove(path);
}

void redis_server_wipe(struct redis_server *server)
{
    assert_int_equal(server->pid, 0);
    nftw(server->folder, redis_server_unlink, 16, FTW_DEPTH | FTW_PHYS);
}

void redis_server_release(struct redis_server *server)
{
    if (server->folder[0] == '\0')
        return;
    redis_server_kill(server);
    redis_server_wipe(server);
    rmdir(server->folder);
    server->folder[0] = '\0';
}

redisContext *redis_server_connect(const struct redis_server *server)
{
    struct timeval timeout = {.tv_sec = 20};
    redisContext *link = redisConnectUnixWithTimeout(server->socket, timeout);

    assert_non_null(link);
    if (link->err != 0)
        fail_msg("%s", link->errstr);
    redisSetTimeout(link, timeout);
    return link;
}

/* --- asking --- */

static redisReply *ask_as(redisContext *link, const char *format, va_list arguments)
{
    redisReply *reply = redisvCommand(link, format, arguments);
    if (reply == NULL)
        fail_msg("%s: %s", format, link->errstr);
    return reply;
}

redisReply *ask(redisContext *link, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = ask_as(link, format, arguments);
    va_end(arguments);
    return reply;
}

int64_t ask_number(redisContext *link, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = ask_as(link, format, arguments);
    va_end(arguments);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s", format, reply->str);
    int64_t number = reply->type == REDIS_REPLY_INTEGER ? reply->integer
                     : reply->str != NULL               ? atoll(reply->str)
                                                        : 0;
    freeReplyObject(reply);
    return number;
}

void order(redisContext *link, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = ask_as(link, format, arguments);
    va_end(arguments);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s", format, reply->str);
    freeReplyObject(reply);
}

void load_library(redisContext *link)
{
    const char *words[] = {"FUNCTION", "LOAD", "REPLACE",
                           (const char *)embedded_functions[0].bytes};
    const size_t lengths[] = {8, 4, 7, embedded_functions[0].length};
    redisReply *reply = redisCommandArgv(link, 4, words, lengths);

    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s", reply->str);
    freeReplyObject(reply);
}

redisReply *call_with(redisContext *link, int64_t policy_id, const char *function,
                      const char *const *words, size_t count)
{
    const char *argv[CALL_HEAD + WORDS_MAX];
    struct redis_keys keys;

    assert_true(count <= WORDS_MAX);
    redis_keys_of(&keys, policy_id);
    argv[0] = "FCALL";
    argv[1] = function;
    argv[2] = "7";
    for (size_t i = 0; i < REDIS_KEYS; i++)
        argv[3 + i] = keys.names[i];
    for (size_t i = 0; i < count; i++)
        argv[CALL_HEAD + i] = words[i];
    redisReply *reply = redisCommandArgv(link, (int)(CALL_HEAD + count), argv, NULL);
    if (reply == NULL)
        fail_msg("%s: %s", function, link->errstr);
    return reply;
}

static size_t words_of(va_list arguments, const char **words, size_t max)
{
    size_t count = 0;
    const char *word;
    while ((word = va_arg(arguments, const char *)) != NULL) {
        assert_true(count < max);
        words[count++] = word;
    }
    return count;
}

redisReply *call(redisContext *link, int64_t policy_id, const char *function, ...)
{
    const char *words[64];
    va_list arguments;
    va_start(arguments, function);
    size_t count = words_of(arguments, words, 64);
    va_end(arguments);
    return call_with(link, policy_id, function, words, count);
}

void must(redisContext *link, int64_t policy_id, const char *function, ...)
{
    const char *words[64];
    va_list arguments;
    va_start(arguments, function);
    size_t count = words_of(arguments, words, 64);
    va_end(arguments);
    redisReply *reply = call_with(link, policy_id, function, words, count);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s", function, reply->str);
    freeReplyObject(reply);
}

void assert_refused(redisReply *reply, const char *word)
{
    if (reply->type != REDIS_REPLY_ERROR)
        fail_msg("no error, but %s", reply->str == NULL ? "something" : reply->str);
    if (strncmp(reply->str, word, strlen(word)) != 0)
        fail_msg("not %s: %s", word, reply->str);
    freeReplyObject(reply);
}

/* --- a gate on it --- */

static void stock_changed(void *context)
{
    (void)context;
}

enum status try_open_gate(const char *url, struct gate_options options, struct gate **gate,
                          struct error *error)
{
    *gate = NULL;
    options.url = url;
    if (options.timeout_ms == 0)
        options.timeout_ms = GATE_TIMEOUT_MS;
    if (options.pending_max == 0)
        options.pending_max = INT64_MAX;
    if (options.stock_changed == NULL)
        options.stock_changed = stock_changed;
    return gate_open(gate, &options, error);
}

struct gate *open_gate(const char *url, struct gate_options options)
{
    struct gate *gate;
    struct error error;

    if (try_open_gate(url, options, &gate, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return gate;
}

const char *library_process(redisContext *link)
{
    static char process[GATE_PROCESS_SIZE];
    redisReply *reply = ask(link, "FCALL_RO dibs_moment 0 test 0");

    snprintf(process, sizeof(process), "%s", reply->element[0]->str);
    freeReplyObject(reply);
    return process;
}

void make_policy(struct gate *gate, int64_t policy_id, int64_t total, int32_t per_user_limit)
{
    struct error error;
    struct policy policy = {.id = policy_id,
                            .name = "made",
                            .total = total,
                            .per_user_limit = per_user_limit,
                            .next_seq = total + 1,
                            .version = 1};
    struct lease lease = {
        .id = 1, .policy_id = policy_id, .first_seq = 1, .count = total, .open = true};

    if (gate_policy_set(gate, &policy, &error) != STATUS_OK ||
        gate_lend(gate, &lease, 0, 0, &error) != STATUS_OK ||
        arm_for_long(gate, policy_id, 0, &error) != STATUS_OK)
        fail_msg("%s", error.text);
}

struct wish wish_for(int64_t policy_id, const char *user)
{
    static _Atomic uint64_t last_id;
    struct wish wish = {.policy_id = policy_id, .user = id_of(span_of(user))};
    uint64_t id = ++last_id;

    memcpy(wish.request_id.bytes + 8, &id, sizeof(id));
    return wish;
}
