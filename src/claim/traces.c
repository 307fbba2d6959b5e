/* traces.c: a table with one place for each remainder of a request's id. */
#include "claim/traces.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "relay/event.h"

#define PLACES 16384 /* a power of two, above what a busy server has waiting for the ledger */

struct trace {
    struct request_id request_id;
    char traceparent[LEDGER_TRACEPARENT_SIZE]; /* "": none */
};

struct traces {
    pthread_mutex_t lock;
    struct trace places[PLACES];
};

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
static struct trace *traces_place(struct traces *traces, const struct request_id *request_id)
{
    uint64_t halves[2];

    memcpy(halves, request_id->bytes, sizeof(halves));
    /* The counter's fast digits may be at either end: fold before and after each multiplication. */
    uint64_t mixed = halves[0] ^ halves[1];
    mixed = (mixed ^ mixed >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 32) * UINT64_C(0xbf58476d1ce4e5b9);
    return &traces->places[mixed >> 32 & (PLACES - 1)];
}

void traces_put(struct traces *traces, const struct request_id *request_id, struct span traceparent)
{
    struct trace *place = traces_place(traces, request_id);

    if (!event_traceparent_valid(traceparent))
        return;
    pthread_mutex_lock(&traces->lock);
    place->request_id = *request_id;
    memcpy(place->traceparent, traceparent.bytes, LEDGER_TRACEPARENT_SIZE - 1);
    pthread_mutex_unlock(&traces->lock);
}

bool traces_find(struct traces *traces, const struct request_id *request_id,
                 char traceparent[LEDGER_TRACEPARENT_SIZE])
{
    const struct trace *place = traces_place(traces, request_id);

    pthread_mutex_lock(&traces->lock);
    bool is_found = place->traceparent[0] != '\0' &&
                    memcmp(&place->request_id, request_id, sizeof(*request_id)) == 0;
    if (is_found)
        memcpy(traceparent, place->traceparent, LEDGER_TRACEPARENT_SIZE);
    pthread_mutex_unlock(&traces->lock);
    return is_found;
}
