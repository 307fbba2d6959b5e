/* till.h: where the orders of many callers come together, so that they share their statements.
 *
 * Whoever comes while nobody writes takes all that wait and writes them as one batch; the others
 * wait for it, and one of them takes what has gathered meanwhile. On a database that is another
 * process, an order costs a part of eight round trips instead of all of them.
 *
 * Threads: any.
 */
#ifndef LEDGER_TILL_H
#define LEDGER_TILL_H

#include <pthread.h>

#include "ledger/sales.h"

/* The orders of one caller, waiting on its stack. */
struct till_share {
    struct order *orders;
    size_t count;
    size_t item_count;
    int64_t now_ms;
    enum status status;
    struct error *error;
    bool is_done;
    struct till_share *next;
};

struct till {
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_busy; /* somebody writes */
    struct till_share *waiting;
    struct till_share **waiting_end;
};

void till_init(struct till *till);
void till_release(struct till *till);

/* Writes `shares`, linked by `next`, as one batch: none or all of them; sets nothing in them but
 * their orders. */
typedef enum status (*till_write_fn)(struct ledger *ledger, struct till_share *shares,
                                     struct error *error);

/* Adds a share to what is written next, and waits until it is. A batch that is refused for good is
 * written share by share, so that what is wrong with one does not keep the others out. */
enum status till_add(struct till *till, struct till_share *share, struct ledger *ledger,
                     till_write_fn write) MUST_CHECK;

#endif
