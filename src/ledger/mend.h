/* mend.h: makes a policy's stock add up again, and keeps what audits found and repairs did.
 *
 * Coupons are never touched: what is left of the total after them and the leases is unleased.
 *
 * Threads: one session, one thread.
 */
#ifndef LEDGER_MEND_H
#define LEDGER_MEND_H

#include "ledger/driver.h"

#define MEND_LEASES_MAX 256

struct mend_stock {
    struct ledger_mend *mend;
    int64_t lease_ids[MEND_LEASES_MAX]; /* open, in rising order, as they were a moment ago */
    size_t lease_count;
    int64_t next_seq_min; /* behind all leases that there ever were */
};

/* The body of a transaction. BUSY is no status of this; CONFLICT: leases came meanwhile, or more is
 * lent and issued than there is, and the words say which. */
enum status mend_stock(struct sql *sql, void *argument, struct error *error);

/* Bodies of transactions, for a `const struct ledger_repair_note`. */
enum status mend_note(struct sql *sql, void *argument, struct error *error);
enum status mend_note_done(struct sql *sql, void *argument, struct error *error);

/* Up to `max` notes, the newest first. */
enum status mend_notes(struct sql *sql, struct ledger_repair_note *notes, size_t max, size_t *count,
                       struct error *error) MUST_CHECK;

#endif
