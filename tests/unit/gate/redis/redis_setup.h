/* redis_setup.h: what most tests of the Redis gate stand on: one server, a connection to it, and
 * policy 42, in a gate or only in the function library.
 *
 * Threads: everything belongs to the test's thread.
 */
#pragma once

#include "gate_hand.h"
#include "redis_fixture.h"

#define POLICY 42

extern struct redis_server server;
extern redisContext *redis;
extern struct redis_keys keys; /* of the policy */
extern struct gate *gate;
extern struct gate_hand hand;
extern struct error error;

#define assert_done(status)             \
    do {                                \
        if ((status) != STATUS_OK)      \
            fail_msg("%s", error.text); \
    } while (0)

/* A server with these words on its command line, and a connection to it. */
int start_server(const char *const *settings);
int stop_server(void **state);

/* The same with a gate on it. */
int start_gate(const char *const *settings);
int stop_gate(void **state);

/* One wish, through the gate. */
struct wish claim_in(int64_t policy_id, const char *user);
struct wish claim(const char *user);

/* How the policy stands, and what is pending; until the next look. */
struct gate_pending *look(void);

/* Nobody is told anything: neither a newcomer nor a holder, and nothing changes. */
void assert_silent(void);

/* --- the library without a gate --- */

/* Request ids are 16 bytes; those of keys begin with the top bit. */
#define ID_A  "id-0000000000-a1"
#define ID_B  "id-0000000000-b1"
#define ID_C  "id-0000000000-c1"
#define KEY_A "\x80key-000000000a1"
#define KEY_B "\x80key-000000000a2"
#define KEY_C "\x80key-000000000c1"

enum { REMAINING, PENDING, ISSUED, LEASE, META, KEYS, BOUND };

/* A row, in the order of ROW in redis.lua: it opens at once. */
#define FULL_ROW(version, total, limit, closes, closed, unleased, next, name)                      \
    "0", "10", total, limit, "0", closes, "0", "0", "0", "0", "0", "0", closed, version, unleased, \
        next, name

/* Of that version and unleased count, with a limit of 2. */
#define ROW(version, closed, unleased) \
    FULL_ROW(version, "10", "2", "0", closed, unleased, "11", "a name")

/* Of a group of tests, and of each of them: an empty server with the library. */
int start_library(void **state);
int set_up_library(void **state);

/* Ten units, lent and armed. */
void arm_policy(void);

/* The same, and a has won one with KEY_A, which is issued. */
void settle_policy(void);

/* The same, and it is closed. */
void close_policy(void);

/* All that is in Redis. */
struct snapshot {
    char *dumps[REDIS_KEYS];
    size_t lengths[REDIS_KEYS];
    int64_t ttls[REDIS_KEYS];
    int64_t key_count;
};
struct snapshot take_snapshot(void);
void free_snapshot(struct snapshot *snapshot);
bool is_same(const struct snapshot *a, const struct snapshot *b);
