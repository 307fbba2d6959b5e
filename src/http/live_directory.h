/* live_directory.h: the policies that the board shows, as the ledger last told of them.
 *
 * Names are in the ledger only, so they are read on a clerk, when a policy was changed here and
 * now and then for what others change; the numbers beside them come from the gate.
 *
 * Threads: every function may be called from any thread; live_directory_read() blocks.
 */
#ifndef HTTP_LIVE_DIRECTORY_H
#define HTTP_LIVE_DIRECTORY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "claim/service.h"

#define LIVE_DIRECTORY_MAX 200

struct live_entry {
    int64_t created_at_ms;
    bool is_over; /* makes room for one that is not, however old that is */
    char name[POLICY_NAME_SIZE];
    struct gate_numbers numbers; /* for a policy that the gate has let go of */
};

struct live_directory {
    struct service *service;
    pthread_mutex_t lock;       /* guards the entries */
    struct live_entry *entries; /* newest first */
    size_t count;
    atomic_bool is_stale;
    atomic_bool is_being_read;
    _Atomic int64_t due_ms; /* monotonic: when it is read anew in any case */
    struct clerk_task task;
};

void live_directory_init(struct live_directory *directory, struct service *service);
void live_directory_release(struct live_directory *directory);

/* Something was created or changed. */
void live_directory_spoil(struct live_directory *directory);

/* Has a clerk read it when that is due. Never blocks. */
void live_directory_keep(struct live_directory *directory, int64_t now_ms);

/* Reads it now if it is due. On a clerk. */
void live_directory_read(struct live_directory *directory);

#endif
