/* outbox.h: what happened to coupons in a transaction, written with it, to be published later.
 *
 * Whoever writes or changes a coupon's row notes it here. The notes are written as the last thing
 * before the commit: the counter of each policy is locked then, by rising policies, until the
 * commit. So the numbers of a policy's events become visible in their order, whoever writes them,
 * and nobody waits for a counter while others wait for what it holds.
 *
 * Threads: one session, one thread.
 */
#pragma once

#include "ledger/driver.h"

/* One change; what it points to stays as it is until the transaction's end. */
struct outbox_note {
    const struct claim *claim;
    int32_t nth;             /* of the row: the claim's own may have been taken */
    enum coupon_state state; /* that it is in now */
    int64_t changed_at_ms;
    int64_t issued_at_ms;
    int64_t expires_at_ms;
    int64_t merged_into_seq;
    const struct id *order_id; /* NULL: none */
    const char *reason;        /* NULL: none */
    const char *traceparent;   /* NULL: none */
    bool is_repeat;            /* for one sink, which has had it before */
    enum ledger_sink sink;     /* of a repeat */
};

struct outbox {
    struct outbox_note *notes;
    size_t count;
    size_t capacity;
    struct buffer text; /* of a statement's argument */
    bool has_written;   /* in this transaction */
    bool tells[LEDGER_SINKS];
    ledger_trace_fn find_trace;
    void *context;
};

void outbox_init(struct outbox *outbox, const struct ledger_options *options);
void outbox_release(struct outbox *outbox);

/* What follows does nothing where there is no outbox (NULL), as nobody is told. */

/* Before a transaction is done, and before it is done again. */
static inline void outbox_begin(struct outbox *outbox)
{
    if (outbox != NULL) {
        outbox->count = 0;
        outbox->has_written = false;
    }
}

/* How much has been noted, and back to that: for a write that is undone alone. */
static inline size_t outbox_place(const struct outbox *outbox)
{
    return outbox != NULL ? outbox->count : 0;
}

static inline void outbox_return(struct outbox *outbox, size_t place)
{
    if (outbox != NULL)
        outbox->count = place;
}

/* Notes a change. */
void outbox_note(struct outbox *outbox, const struct outbox_note *note);

/* A row that was written. */
void outbox_note_row(struct outbox *outbox, const struct coupon_row *row);

/* A coupon that was redeemed or cancelled at that moment. */
void outbox_note_coupon(struct outbox *outbox, const struct coupon *coupon, int64_t changed_at_ms,
                        const char *traceparent);

/* Writes what was noted and forgets it. */
enum status outbox_write(struct sql *sql, struct error *error) MUST_CHECK;
