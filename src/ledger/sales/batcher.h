/* batcher.h: where the orders of many callers come together, so that they share their statements.
 *
 * Whoever comes while nobody writes takes all that wait and writes them as one batch; the others
 * wait for it, and one of them takes what has gathered meanwhile. On a database that is another
 * process, an order costs a part of eight round trips instead of all of them.
 *
 * Threads: any.
 */
#pragma once

#include <pthread.h>

#include "ledger/sales/sales.h"

/* The orders of one caller, waiting on its stack. */
struct batcher_share {
    struct order *orders;
    size_t count;
    size_t item_count;
    int64_t now_ms;
    enum status status;
    struct error *error;
    bool is_done;
    struct batcher_share *next;
};

struct batcher {
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_busy; /* somebody writes */
    struct batcher_share *waiting;
    struct batcher_share **waiting_end;
};

void batcher_init(struct batcher *batcher);
void batcher_release(struct batcher *batcher);

/* Writes `shares`, linked by `next`, as one batch: none or all of them; sets nothing in them but
 * their orders. */
typedef enum status (*batcher_write_fn)(struct ledger *ledger, struct batcher_share *shares,
                                        struct error *error);

/* Adds a share to what is written next, and waits until it is. A batch that is refused for good is
 * written share by share, so that what is wrong with one does not keep the others out. */
enum status batcher_add(struct batcher *batcher, struct batcher_share *share, struct ledger *ledger,
                        batcher_write_fn write) MUST_CHECK;
