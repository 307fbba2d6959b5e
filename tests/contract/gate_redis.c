/* gate_redis.c: the gate suite on Redis: the server or cluster that DIBS_TEST_REDIS_URL names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "gate/redis/link.h"
#include "gate/shared.h"
#include "gate_suite.h"

#define TIMEOUT_MS 20000 /* sanitizers and a busy machine are slow */

static const char *redis_url(void)
{
    const char *url = getenv("DIBS_TEST_REDIS_URL");

    if (url == NULL)
        fail_msg("run it as tests/servers.py run redis -- PROGRAM");
    return url;
}

/* Runs a command on every primary; what the last one answered. */
static redisReply *redis_everywhere(const char *command)
{
    static struct redis_map map;
    struct redis_address addresses[REDIS_NODES_MAX];
    struct redis_target target;
    struct error error;
    redisReply *reply = NULL;

    ensure(redis_target_init(&target, redis_url(), NULL, TIMEOUT_MS, &error) == STATUS_OK);
    redis_map_init(&map, &target);
    if (redis_map_refresh(&map, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    size_t count = redis_map_list(&map, addresses, REDIS_NODES_MAX);
    for (size_t i = 0; i < count; i++) {
        redisContext *link = NULL;
        freeReplyObject(reply);
        if (redis_link_open(&link, &target, &addresses[i], &error) != STATUS_OK)
            fail_msg("%s", error.text);
        reply = redisCommand(link, command);
        ensure(reply != NULL && reply->type != REDIS_REPLY_ERROR);
        redisFree(link);
    }
    redis_map_release(&map);
    redis_target_release(&target);
    return reply;
}

static void stock_changed(void *context)
{
    (void)context;
}

struct gate *gate_suite_open(void)
{
    struct gate *gate = NULL;
    struct error error;
    struct gate_options options = {.url = redis_url(),
                                   .timeout_ms = TIMEOUT_MS,
                                   .pending_max = INT64_MAX,
                                   .stock_changed = stock_changed};

    freeReplyObject(redis_everywhere("FLUSHALL"));
    if (gate_open(&gate, &options, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return gate;
}

void gate_suite_close(struct gate *gate)
{
    gate_close(gate);
}

int64_t gate_suite_now_ms(void)
{
    redisReply *reply = redis_everywhere("TIME");
    int64_t now_ms = atoll(reply->element[0]->str) * 1000 + atoll(reply->element[1]->str) / 1000;

    freeReplyObject(reply);
    return now_ms;
}

size_t gate_suite_pending(struct gate *gate, int64_t policy_id, struct claim *claims,
                          size_t claims_max, struct key_binding *bindings, size_t *binding_count)
{
    struct gate_pending *pending = malloc(sizeof(*pending));
    size_t count = 0;
    int64_t after_seq = 0;
    struct error error;

    do {
        if (gate_pending(gate_shared(gate), policy_id, after_seq, pending, &error) != STATUS_OK)
            fail_msg("%s", error.text);
        ensure(count + pending->claim_count <= claims_max);
        memcpy(claims + count, pending->claims, pending->claim_count * sizeof(*claims));
        count += pending->claim_count;
        after_seq = count > 0 ? claims[count - 1].seq : 0;
    } while (pending->claim_count > 0);
    ensure(pending->binding_count <= BINDINGS_MAX);
    memcpy(bindings, pending->bindings, pending->binding_count * sizeof(*bindings));
    *binding_count = pending->binding_count;
    free(pending);
    return count;
}

void gate_suite_acknowledge(struct gate *gate, const struct claim *claims,
                            const enum coupon_state *states, size_t count,
                            const struct key_binding *bindings, size_t binding_count)
{
    struct error error;

    gate_acknowledge(gate, claims, states, count);
    if (gate_acknowledge_keys(gate_shared(gate), bindings, binding_count, &error) != STATUS_OK)
        fail_msg("%s", error.text);
}

int main(void)
{
    return gate_suite_run();
}
