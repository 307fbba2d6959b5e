/* batcher.c: gathers, writes, tells. */
#include "ledger/sales/batcher.h"

void batcher_init(struct batcher *batcher)
{
    *batcher = (struct batcher){.is_busy = false};
    batcher->waiting_end = &batcher->waiting;
    pthread_mutex_init(&batcher->lock, NULL);
    pthread_cond_init(&batcher->done, NULL);
}

void batcher_release(struct batcher *batcher)
{
    pthread_cond_destroy(&batcher->done);
    pthread_mutex_destroy(&batcher->lock);
}

/* Takes the oldest shares, as many as a batch may have. Under the lock. */
static struct batcher_share *batcher_take(struct batcher *batcher)
{
    struct batcher_share *taken = batcher->waiting;
    struct batcher_share **end = &batcher->waiting;
    size_t count = 0;
    size_t item_count = 0;

    for (; *end != NULL; end = &(*end)->next) {
        count += (*end)->count;
        item_count += (*end)->item_count;
        if (count > ORDER_BATCH_MAX || item_count > ORDER_BATCH_ITEMS_MAX)
            break;
    }
    batcher->waiting = *end;
    *end = NULL;
    if (batcher->waiting == NULL)
        batcher->waiting_end = &batcher->waiting;
    return taken;
}

static bool batcher_is_final(enum status status)
{
    return status == STATUS_FAILED || status == STATUS_INVALID || status == STATUS_CONFLICT;
}

static void batcher_write_each(struct batcher_share *shares, struct ledger *ledger,
                               batcher_write_fn write)
{
    for (struct batcher_share *share = shares, *next; share != NULL; share = next) {
        next = share->next;
        share->next = NULL;
        share->status = write(ledger, share, share->error);
        share->next = next;
    }
}

static void batcher_write_all(struct batcher_share *shares, struct ledger *ledger,
                              batcher_write_fn write)
{
    struct error error = {""};
    enum status status = write(ledger, shares, &error);

    if (batcher_is_final(status) && shares->next != NULL) {
        batcher_write_each(shares, ledger, write);
        return;
    }
    for (struct batcher_share *share = shares; share != NULL; share = share->next) {
        share->status = status;
        if (status != STATUS_OK && share->error != NULL)
            *share->error = error;
    }
}

enum status batcher_add(struct batcher *batcher, struct batcher_share *share, struct ledger *ledger,
                        batcher_write_fn write)
{
    pthread_mutex_lock(&batcher->lock);
    share->next = NULL;
    share->is_done = false;
    *batcher->waiting_end = share;
    batcher->waiting_end = &share->next;
    while (!share->is_done) {
        if (batcher->is_busy) {
            pthread_cond_wait(&batcher->done, &batcher->lock);
            continue;
        }
        struct batcher_share *taken = batcher_take(batcher);
        batcher->is_busy = true;
        pthread_mutex_unlock(&batcher->lock);
        batcher_write_all(taken, ledger, write);
        pthread_mutex_lock(&batcher->lock);
        batcher->is_busy = false;
        for (struct batcher_share *next; taken != NULL; taken = next) {
            next = taken->next;
            taken->is_done = true;
        }
        pthread_cond_broadcast(&batcher->done);
    }
    pthread_mutex_unlock(&batcher->lock);
    return share->status;
}
