/* desk.h: gathers all claims of one loop tick and hands each policy's to the gate as one batch.
 *
 * Each claim is answered exactly once, through `answer`: in the tick it came, or later when the
 * ledger has made durable what the verdict rests on, or with VERDICT_UNAVAILABLE after
 * ack_timeout (the claim may exist then; a retry finds it).
 *
 * Threads: a desk belongs to its loop's thread. Only `wake` is called from others.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/metrics.h"
#include "claim/service.h"

struct desk;

struct uv_loop_s;

struct desk_options {
    struct service *service;
    struct uv_loop_s *loop; /* whose thread the desk belongs to */
    /* Called on the loop's thread, from desk_tick(). The wish is borrowed. It must not call
     * desk_submit(): the lists are being walked. */
    void (*answer)(void *context, void *asker, const struct wish *wish);
    /* Called from any thread: make the loop run desk_tick() soon. */
    void (*wake)(void *context);
    void *context;
};

enum status desk_open(struct desk **desk, const struct desk_options *options,
                      struct error *error) MUST_CHECK;
/* Everything must be answered before (desk_waiting() is 0) or its askers are gone; what the gate
 * has not answered yet is forgotten. */
void desk_close(struct desk *desk);

/* Puts a claim on the desk; the wish's asked part is copied. `asker` comes back with the answer. */
void desk_submit(struct desk *desk, const struct wish *wish, void *asker);

/* Decides what was submitted, answers what can be answered. Once per loop tick. */
void desk_tick(struct desk *desk, int64_t wall_ms);

/* Claims not answered yet. */
size_t desk_waiting(const struct desk *desk);

/* Claims per gate call. */
const struct histogram *desk_batch_sizes(const struct desk *desk);
