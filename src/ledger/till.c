/* till.c: gathers, writes, tells. */
#include "ledger/till.h"

void till_init(struct till *till)
{
    *till = (struct till){.is_busy = false};
    till->waiting_end = &till->waiting;
    pthread_mutex_init(&till->lock, NULL);
    pthread_cond_init(&till->done, NULL);
}

void till_release(struct till *till)
{
    pthread_cond_destroy(&till->done);
    pthread_mutex_destroy(&till->lock);
}

/* Takes the oldest shares, as many as a batch may have. Under the lock. */
static struct till_share *till_take(struct till *till)
{
    struct till_share *taken = till->waiting;
    struct till_share **end = &till->waiting;
    size_t count = 0;
    size_t item_count = 0;

    for (; *end != NULL; end = &(*end)->next) {
        count += (*end)->count;
        item_count += (*end)->item_count;
        if (count > ORDER_BATCH_MAX || item_count > ORDER_BATCH_ITEMS_MAX)
            break;
    }
    till->waiting = *end;
    *end = NULL;
    if (till->waiting == NULL)
        till->waiting_end = &till->waiting;
    return taken;
}

static bool till_is_final(enum status status)
{
    return status == STATUS_FAILED || status == STATUS_INVALID || status == STATUS_CONFLICT;
}

static void till_write_each(struct till_share *shares, struct ledger *ledger, till_write_fn write)
{
    for (struct till_share *share = shares, *next; share != NULL; share = next) {
        next = share->next;
        share->next = NULL;
        share->status = write(ledger, share, share->error);
        share->next = next;
    }
}

static void till_write_all(struct till_share *shares, struct ledger *ledger, till_write_fn write)
{
    struct error error = {""};
    enum status status = write(ledger, shares, &error);

    if (till_is_final(status) && shares->next != NULL) {
        till_write_each(shares, ledger, write);
        return;
    }
    for (struct till_share *share = shares; share != NULL; share = share->next) {
        share->status = status;
        if (status != STATUS_OK && share->error != NULL)
            *share->error = error;
    }
}

enum status till_add(struct till *till, struct till_share *share, struct ledger *ledger,
                     till_write_fn write)
{
    pthread_mutex_lock(&till->lock);
    share->next = NULL;
    share->is_done = false;
    *till->waiting_end = share;
    till->waiting_end = &share->next;
    while (!share->is_done) {
        if (till->is_busy) {
            pthread_cond_wait(&till->done, &till->lock);
            continue;
        }
        struct till_share *taken = till_take(till);
        till->is_busy = true;
        pthread_mutex_unlock(&till->lock);
        till_write_all(taken, ledger, write);
        pthread_mutex_lock(&till->lock);
        till->is_busy = false;
        for (struct till_share *next; taken != NULL; taken = next) {
            next = taken->next;
            taken->is_done = true;
        }
        pthread_cond_broadcast(&till->done);
    }
    pthread_mutex_unlock(&till->lock);
    return share->status;
}
