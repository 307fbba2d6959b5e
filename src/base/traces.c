/* traces.c: a table with a shelf of a few places for each remainder of a request's id. */
#include "base/traces.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

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
    pthread_mutex_t lock;
    struct trace_shelf shelves[SHELVES];
};

static bool trace_is_hex(struct span text)
{
    for (size_t i = 0; i < text.length; i++) {
        char byte = text.bytes[i];
        if (!((byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f'))) {
            return false;
        }
    }
    return true;
}

static bool trace_is_zero(struct span text)
{
    for (size_t i = 0; i < text.length; i++) {
        if (text.bytes[i] != '0') {
            return false;
        }
    }
    return true;
}

bool traceparent_valid(struct span text)
{
    /* 00-<32 hex digits>-<16 hex digits>-<2 hex digits> */
    if (text.length != TRACEPARENT_LENGTH || memcmp(text.bytes, "00-", 3) != 0 ||
        text.bytes[35] != '-' || text.bytes[52] != '-') {
        return false;
    }
    struct span trace = {.bytes = text.bytes + 3, .length = 32};
    struct span parent = {.bytes = text.bytes + 36, .length = 16};
    struct span flags = {.bytes = text.bytes + 53, .length = 2};
    return trace_is_hex(trace) && trace_is_hex(parent) && trace_is_hex(flags) &&
           !trace_is_zero(trace) && !trace_is_zero(parent);
}

struct traces *traces_new(void)
{
    struct traces *traces = calloc(1, sizeof(*traces));

    if (traces != NULL)
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

/* Request ids are hashes, or a loop's own bytes and a counter: both halves count. */
static struct trace_shelf *traces_shelf(struct traces *traces, const struct request_id *request_id)
{
    uint64_t halves[2];

    memcpy(halves, request_id->bytes, sizeof(halves));
    /* The counter's fast digits may be at either end: fold before and after each multiplication. */
    uint64_t mixed = halves[0] ^ halves[1];
    mixed = (mixed ^ mixed >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 32) * UINT64_C(0xbf58476d1ce4e5b9);
    return &traces->shelves[mixed >> 32 & (SHELVES - 1)];
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
