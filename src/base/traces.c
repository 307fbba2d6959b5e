/* traces.c: a table with a shelf of a few places for each remainder of a request's id. */
#include "base/traces.h"

#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/digits.h"
#include "base/hash.h"

#define SHELVES 4096 /* a power of two */
#define PLACES  8    /* of a shelf: enough for several times what a busy process has under way */

struct trace {
    struct request_id request_id;
    char traceparent[TRACEPARENT_SIZE]; /* "": none */
};

/* The oldest one goes when a new one comes. */
struct trace_shelf {
    struct trace places[PLACES];
    unsigned oldest;
};

struct traces {
    _Atomic bool is_used; /* most never are: they need not be looked through */
    struct hash_key key;
    pthread_mutex_t lock;
    struct trace_shelf shelves[SHELVES];
};

bool traceparent_valid(struct span text)
{
    /* 00-<32 hex digits>-<16 hex digits>-<2 hex digits> */
    if (text.length != TRACEPARENT_LENGTH || memcmp(text.bytes, "00-", 3) != 0 ||
        text.bytes[35] != '-' || text.bytes[52] != '-')
        return false;
    uint8_t trace[16];
    uint8_t parent[8];
    uint8_t flags;
    return hex_read((struct span){text.bytes + 3, 32}, trace, sizeof(trace)) &&
           hex_read((struct span){text.bytes + 36, 16}, parent, sizeof(parent)) &&
           hex_read((struct span){text.bytes + 53, 2}, &flags, 1) &&
           !sodium_is_zero(trace, sizeof(trace)) && !sodium_is_zero(parent, sizeof(parent));
}

struct traces *traces_new(void)
{
    struct traces *traces = calloc(1, sizeof(*traces));

    if (traces == NULL)
        return NULL;
    traces->key = hash_key_random();
    pthread_mutex_init(&traces->lock, NULL);
    return traces;
}

void traces_free(struct traces *traces)
{
    if (traces == NULL)
        return;
    pthread_mutex_destroy(&traces->lock);
    free(traces);
}

static struct trace_shelf *traces_shelf(struct traces *traces, const struct request_id *request_id)
{
    uint64_t hash = hash_table(traces->key, request_id->bytes, sizeof(request_id->bytes));
    return &traces->shelves[hash & (SHELVES - 1)];
}

static struct trace *trace_shelf_find(struct trace_shelf *shelf,
                                      const struct request_id *request_id)
{
    for (size_t i = 0; i < PLACES; i++) {
        struct trace *trace = &shelf->places[i];
        if (trace->traceparent[0] != '\0' &&
            memcmp(&trace->request_id, request_id, sizeof(*request_id)) == 0)
            return trace;
    }
    return NULL;
}

void traces_put(struct traces *traces, const struct request_id *request_id, struct span traceparent)
{
    if (traces == NULL || !traceparent_valid(traceparent))
        return;
    struct trace_shelf *shelf = traces_shelf(traces, request_id);
    atomic_store_explicit(&traces->is_used, true, memory_order_relaxed);
    pthread_mutex_lock(&traces->lock);
    struct trace *trace = trace_shelf_find(shelf, request_id);
    if (trace == NULL)
        trace = &shelf->places[shelf->oldest++ % PLACES];
    trace->request_id = *request_id;
    memcpy(trace->traceparent, traceparent.bytes, TRACEPARENT_LENGTH);
    pthread_mutex_unlock(&traces->lock);
}

bool traces_find(struct traces *traces, const struct request_id *request_id,
                 char traceparent[TRACEPARENT_SIZE])
{
    if (traces == NULL || !atomic_load_explicit(&traces->is_used, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&traces->lock);
    const struct trace *trace = trace_shelf_find(traces_shelf(traces, request_id), request_id);
    if (trace != NULL)
        memcpy(traceparent, trace->traceparent, TRACEPARENT_SIZE);
    pthread_mutex_unlock(&traces->lock);
    return trace != NULL;
}
