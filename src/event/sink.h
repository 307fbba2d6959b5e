/* sink.h: where the events of coupons are delivered: an interface with one backend for each kind of
 * receiver, all of them listed below.
 *
 * Threads: open and close from the owner, send from the announcer's thread, the others from any.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"
#include "event/event.h"
#include "ledger/ledger.h"

struct kafka;
struct webhook_options;

/* Messages that are sent and reported together; the sender's, usually the head of a larger struct.
 * It belongs to the sink from the time it is taken until it is reported. */
struct event_batch {
    /* Called once for each batch that was taken, on a thread of the sink's: OK when all of it is
     * delivered; else some of it may be. CONFLICT: what was not is refused for its own sake, and
     * others behind it may be delivered. It may free the batch, and may send. */
    void (*done)(struct event_batch *batch, enum status status, const struct error *error);
    /* Called while the batch is being sent, for each index once, rising: the next message, which
     * is copied before the one after is asked for. */
    const struct event_message *(*next)(struct event_batch *batch, size_t index);
    /* One for each message, false; a sink that delivers only some sets theirs before the report: of
     * those with the same key always the first. NULL: nobody asks. */
    bool *delivered;
    bool is_urgent; /* the sender's: somebody wants it tried, whatever happened before */
    int64_t
        pause_ms; /* the sink's, with a report that is not OK: not again before; 0: as you like */
    /* The sink's own. */
    struct event_batch *following;
    _Atomic size_t waiting_count; /* messages that were not reported yet */
    size_t dropped_count;         /* of those, the ones that never will be */
    enum status status;
    struct error error;
};

struct event_sink;

struct event_sink_ops {
    /* What people call it: "kafka". */
    const char *name;
    enum ledger_sink outbox; /* whose events it delivers */
    const char *duty;        /* by this name in the ledger one process at a time delivers them */
    size_t batch_max;        /* messages that it takes at once; 0: any number */
    int64_t patience_ms; /* what fails for longer is tried only now and then; 0: any time is fine */
    /* Takes a batch of `count` messages, at least one, as a whole, and delivers each at least once,
     * those with the same key in their order. OK: it is taken, and batch->done() will be called,
     * maybe before this returns. BUSY: nothing was taken, to be tried again in a moment. INVALID:
     * nothing was taken, and never will be. Does not block. */
    enum status (*send)(struct event_sink *sink, struct event_batch *batch, size_t count,
                        struct error *error);
    /* Writes the metrics that only this sink has, under names that only it uses. Does not block. */
    void (*metrics)(struct event_sink *sink, struct buffer *out);
    /* Reports what is still on its way, as failed where it takes longer than a moment, and frees
     * the sink. No done() is called once this has returned. */
    void (*close)(struct event_sink *sink);
};

/* Every backend's struct starts with this. */
struct event_sink {
    const struct event_sink_ops *ops;
};

struct event_sink_options {
    const char *url;     /* its scheme names the kind of sink */
    struct kafka *kafka; /* of this process, where it has one; outlives the sink */
    const struct webhook_options *webhook; /* copied */
};

/* The kinds of sinks: the scheme of the URL that asks for one, its outbox, and what opens it. */
#define EVENT_SINK_KINDS(KIND)                            \
    KIND("kafka", LEDGER_SINK_KAFKA, kafka_sink_open)     \
    KIND("https", LEDGER_SINK_WEBHOOK, webhook_sink_open) \
    KIND("http", LEDGER_SINK_WEBHOOK, webhook_sink_open)

/* Each does not wait for anybody. INVALID: the URL or a file that it names is wrong. */
enum status kafka_sink_open(struct event_sink **sink, const struct event_sink_options *options,
                            struct error *error) MUST_CHECK;
enum status webhook_sink_open(struct event_sink **sink, const struct event_sink_options *options,
                              struct error *error) MUST_CHECK;

/* Whether there is a sink for such a URL: then events are kept in that outbox until they are
 * delivered. */
bool event_sink_exists(const char *url, enum ledger_sink *outbox);

/* Opens the one for the URL. */
enum status event_sink_open(struct event_sink **sink, const struct event_sink_options *options,
                            struct error *error) MUST_CHECK;
