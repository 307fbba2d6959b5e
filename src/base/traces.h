/* traces.h: which trace a request came with, by W3C Trace Context, from the request until its claim
 * is in the ledger; a process that takes a claim over takes its trace along.
 *
 * A fixed number of places, found by the request's id: a new one may push an old one out, which
 * then goes on without its trace. Nothing else depends on it.
 *
 * Threads: every function may be called from any thread.
 */
#pragma once

#include <stdbool.h>

#include "base/buffer.h"
#include "base/model.h"

#define TRACEPARENT_SIZE   56 /* of version 00, with its NUL */
#define TRACEPARENT_LENGTH (TRACEPARENT_SIZE - 1)

/* True for "00-" and so on, as W3C Trace Context has it, with ids that are not all zero. */
bool traceparent_valid(struct span text);

struct traces;

/* NULL: no memory. */
struct traces *traces_new(void);
void traces_free(struct traces *traces);

/* Keeps a traceparent that is valid; nothing where the traces are NULL. */
void traces_put(struct traces *traces, const struct request_id *request_id,
                struct span traceparent);

/* False: there is none, or no traces. */
bool traces_find(struct traces *traces, const struct request_id *request_id,
                 char traceparent[TRACEPARENT_SIZE]);
