/* lost.h: finds the policies that a shared gate has and the ledger lacks, or has an older copy of,
 * and suspends them: what was restored, failed over or deleted there is not given out any more.
 *
 * Whatever the gate is told of a policy, the ledger has had before. So a policy of the gate that
 * the ledger does not have afterwards, or has with a lower version, was lost there.
 *
 * Threads: lost_words() from any, the others from the sync's.
 */
#ifndef CLAIM_LOST_H
#define CLAIM_LOST_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "base/model.h"

struct service;
struct sync;

#define LOST_NAMED 3

/* How many are lost, and some of them. */
struct lost_sight {
    size_t count;
    int64_t ids[LOST_NAMED];
};

struct lost {
    struct service *service;
    struct sync *sync; /* that knows what the ledger has */
    /* The sync's own. */
    int64_t *lacking; /* policies that the ledger does not have, in the order they were found */
    size_t lacking_count;
    size_t lacking_capacity;
    int64_t next_scan_ms;
    struct lost_sight sight; /* of the look under way */
    /* Under the lock. */
    pthread_mutex_t lock;
    struct lost_sight told; /* of the last one */
};

void lost_init(struct lost *lost, struct service *service, struct sync *sync);
void lost_release(struct lost *lost);

/* A look: of each row that the ledger has, of each that it had before and has no more, then the
 * rest. */
void lost_begin(struct lost *lost);
void lost_compare(struct lost *lost, const struct policy *row);
void lost_miss(struct lost *lost, int64_t policy_id);
void lost_end(struct lost *lost);

/* What people have to know of, "" as a rule. */
void lost_words(struct lost *lost, char *words, size_t size);

#endif
