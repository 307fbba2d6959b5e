/* redis_setup.c: starts and stops what the tests of the Redis gate stand on. */
#include "redis_setup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

struct redis_server server;
redisContext *redis;
struct redis_keys keys;
struct gate *gate;
struct gate_hand hand;
struct error error;

int start_server(const char *const *settings)
{
    redis_server_start(&server, settings);
    redis = redis_server_connect(&server);
    redis_keys_of(&keys, POLICY);
    return 0;
}

int stop_server(void **state)
{
    (void)state;
    redisFree(redis);
    redis_server_release(&server);
    return 0;
}

int start_gate(const char *const *settings)
{
    start_server(settings);
    gate = open_gate(server.url, (struct gate_options){0});
    gate_hand_open(&hand, gate);
    return 0;
}

int stop_gate(void **state)
{
    gate_hand_close(&hand);
    gate_close(gate);
    return stop_server(state);
}

struct wish claim_in(int64_t policy_id, const char *user)
{
    struct wish wish = wish_for(policy_id, user);
    struct wish *wishes[] = {&wish};
    gate_hand_claim(&hand, policy_id, wishes, 1);
    return wish;
}

struct wish claim(const char *user)
{
    return claim_in(POLICY, user);
}

struct gate_pending *look(void)
{
    static struct gate_pending pending;
    assert_done(gate_pending(gate_shared(gate), POLICY, 0, &pending, &error));
    return &pending;
}

void assert_silent(void)
{
    assert_int_equal(claim("newcomer").verdict, VERDICT_UNAVAILABLE);
    assert_int_equal(claim("a").verdict, VERDICT_UNAVAILABLE);
    assert_false(look()->is_armed);
}

/* --- the library without a gate --- */

int start_library(void **state)
{
    (void)state;
    return start_server(NULL);
}

int set_up_library(void **state)
{
    (void)state;
    order(redis, "FLUSHALL");
    load_library(redis);
    return 0;
}

void arm_policy(void)
{
    must(redis, POLICY, "dibs_set_policy", ROW("1", "0", "0"), NULL);
    must(redis, POLICY, "dibs_lend", "1", "1", "10", "lend-1", "0", NULL);
    must(redis, POLICY, "dibs_arm", "token", "0", "", ARMED_NOW(redis), NULL);
}

void settle_policy(void)
{
    arm_policy();
    must(redis, POLICY, "dibs_claim", "batch", KEY_A, "1", "a", NULL);
    must(redis, POLICY, "dibs_acknowledge", "1", "I", "1", NULL);
}

void close_policy(void)
{
    settle_policy();
    must(redis, POLICY, "dibs_set_policy", ROW("2", "5", "0"), NULL);
}

struct snapshot take_snapshot(void)
{
    struct snapshot snapshot = {.key_count = ask_number(redis, "DBSIZE")};

    for (size_t i = 0; i < REDIS_KEYS; i++) {
        redisReply *dump = ask(redis, "DUMP %s", keys.names[i]);
        if (dump->type == REDIS_REPLY_STRING) {
            snapshot.dumps[i] = malloc(dump->len);
            memcpy(snapshot.dumps[i], dump->str, dump->len);
            snapshot.lengths[i] = dump->len;
        }
        freeReplyObject(dump);
        snapshot.ttls[i] = ask_number(redis, "TTL %s", keys.names[i]);
    }
    return snapshot;
}

void free_snapshot(struct snapshot *snapshot)
{
    for (size_t i = 0; i < REDIS_KEYS; i++)
        free(snapshot->dumps[i]);
}

bool is_same(const struct snapshot *a, const struct snapshot *b)
{
    for (size_t i = 0; i < REDIS_KEYS; i++)
        if (a->lengths[i] != b->lengths[i] || a->ttls[i] != b->ttls[i] ||
            (a->lengths[i] > 0 && memcmp(a->dumps[i], b->dumps[i], a->lengths[i]) != 0))
            return false;
    return a->key_count == b->key_count;
}
