/* traces.h: which trace a request came with, from the request until its claim is in the ledger.
 *
 * A fixed number of places, found by the request's id: a new one may push an old one out, which
 * then goes on without its trace. Nothing else depends on it.
 *
 * Threads: every function may be called from any thread.
 */
#ifndef CLAIM_TRACES_H
#define CLAIM_TRACES_H

#include <stdbool.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/model.h"
#include "ledger/ledger.h"

struct traces;

/* NULL: no memory. */
struct traces *traces_new(void);
void traces_free(struct traces *traces);

/* Keeps a traceparent that is valid. */
void traces_put(struct traces *traces, const struct request_id *request_id,
                struct span traceparent);

/* False: there is none. */
bool traces_find(struct traces *traces, const struct request_id *request_id,
                 char traceparent[LEDGER_TRACEPARENT_SIZE]);

#endif
