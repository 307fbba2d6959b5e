/* redis_fixture.h: private Redis servers for the tests of the Redis gate, and calls of its function
 * library beside the gate.
 *
 * Each server runs on a free loopback port in a temporary folder, and dies with the test.
 *
 * Threads: everything belongs to the test's thread, unless it says otherwise.
 */
#pragma once

#include <hiredis/hiredis.h>
#include <sys/types.h>

#include "gate/redis/pool.h"
#include "gate/shared.h"

#define SETTINGS_MAX 24

struct redis_server {
    pid_t pid; /* 0: not running */
    int port;
    int bus_port; /* of a cluster */
    char folder[64];
    char url[64];
    char socket[96];
    const char *settings[SETTINGS_MAX + 1]; /* as on its command line; the texts live on */
    size_t setting_count;
};

/* Starts a server with these words on its command line besides the fixture's own: "--appendonly",
 * "yes", …, NULL. What is said twice counts as said last. */
void redis_server_start(struct redis_server *server, const char *const *settings);

/* The same in two steps, with a file in its folder in between. A file redis.conf is its settings.
 */
void redis_server_prepare(struct redis_server *server, const char *const *settings);
void redis_server_write(const struct redis_server *server, const char *name, const char *format,
                        ...) PRINTF_LIKE(3, 4);
void redis_server_begin(struct redis_server *server);

/* Ends it at once; redis_server_run() starts it again, on the same port with the same files. */
void redis_server_kill(struct redis_server *server);
void redis_server_run(struct redis_server *server);

/* SIGSTOP and SIGCONT. */
void redis_server_pause(struct redis_server *server);
void redis_server_resume(struct redis_server *server);

/* Removes its files; only while it does not run. */
void redis_server_wipe(struct redis_server *server);

/* Ends it and removes its folder. */
void redis_server_release(struct redis_server *server);

redisContext *redis_server_connect(const struct redis_server *server);

/* A loopback port that nobody listens on. */
int free_port(void);

/* --- asking --- */

/* Runs a command; the reply is the caller's. Fails the test when the connection breaks. */
redisReply *ask(redisContext *link, const char *format, ...) PRINTF_LIKE(2, 3);

/* The same, for those that answer with a number, or for nobody. */
int64_t ask_number(redisContext *link, const char *format, ...) PRINTF_LIKE(2, 3);
void order(redisContext *link, const char *format, ...) PRINTF_LIKE(2, 3);

/* Loads our library. */
void load_library(redisContext *link);

/* Calls a function of it for a policy. The words end with NULL. */
redisReply *call(redisContext *link, int64_t policy_id, const char *function, ...)
    __attribute__((sentinel));
redisReply *call_with(redisContext *link, int64_t policy_id, const char *function,
                      const char *const *words, size_t count);

/* The same, and it must be done. */
/* What dibs_arm needs besides: term 0, and for long from long ago. */
#define ARMED_NOW(link) "0", library_process(link), "1", "9999999999999"
const char *library_process(redisContext *link);

void must(redisContext *link, int64_t policy_id, const char *function, ...)
    __attribute__((sentinel));

/* Fails the test unless it is an error that begins with the word. */
void assert_refused(redisReply *reply, const char *word);

/* --- time --- */

#define AWAIT_MS 30000

/* Evaluates the condition until it is true. */
#define await(condition)                                                                  \
    do {                                                                                  \
        int64_t until_ms_ = clock_monotonic_ms() + AWAIT_MS;                              \
        bool is_so_ = (condition);                                                        \
        while (!is_so_ && clock_monotonic_ms() < until_ms_) {                             \
            pause_ms(2);                                                                  \
            is_so_ = (condition);                                                         \
        }                                                                                 \
        if (!is_so_)                                                                      \
            fail_msg("%s:%d: it never came to pass: %s", __FILE__, __LINE__, #condition); \
    } while (0)
void pause_ms(int64_t milliseconds);

/* --- a gate on it --- */

/* Opens a gate with these options; the URL, the timeout, the cap and what is called may be left
 * out. */
struct gate *open_gate(const char *url, struct gate_options options);
enum status try_open_gate(const char *url, struct gate_options options, struct gate **gate,
                          struct error *error);

/* A policy of so many units, all of them in the gate, and armed. */
void make_policy(struct gate *gate, int64_t policy_id, int64_t total, int32_t per_user_limit);

/* A wish with a request id of its own. */
struct wish wish_for(int64_t policy_id, const char *user);
