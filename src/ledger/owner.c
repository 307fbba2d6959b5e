/* owner.c: flock on a small file beside the database; the kernel lets go when the holder dies. */
#include "ledger/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"

/* Writes who we are, for the next one to read. */
static void owner_lock_sign(int descriptor)
{
    char since[CLOCK_TEXT_SIZE];
    char words[128];

    clock_format_rfc3339(clock_wall_ms(), since);
    int length = snprintf(words, sizeof(words), "process %ld since %s", (long)getpid(), since);
    if (ftruncate(descriptor, 0) != 0 || pwrite(descriptor, words, (size_t)length, 0) != length)
        return; /* The lock holds all the same; only the words are missing. */
}

static enum status owner_lock_refused(int descriptor, const char *path, struct error *error)
{
    char holder[128];
    ssize_t length = pread(descriptor, holder, sizeof(holder) - 1, 0);

    holder[length > 0 ? length : 0] = '\0';
    return error_set(error, STATUS_CONFLICT,
                     "%s is in use by another dibs (%s); only one may run on a file: stop it, or "
                     "give this one another --ledger",
                     path, length > 0 ? holder : "unknown process");
}

enum status owner_lock_take(struct owner_lock *lock, const char *path, struct error *error)
{
    char name[PATH_MAX];

    if (snprintf(name, sizeof(name), "%s-owner", path) >= (int)sizeof(name))
        return error_set(error, STATUS_INVALID, "the path of the ledger is too long");
    int descriptor = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor < 0)
        return error_set(error, STATUS_FAILED, "cannot open %s: %s", name, strerror(errno));
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
        enum status status = errno == EWOULDBLOCK
                                 ? owner_lock_refused(descriptor, path, error)
                                 : error_set(error, STATUS_FAILED, "cannot lock %s: %s", name,
                                             strerror(errno));
        close(descriptor);
        return status;
    }
    owner_lock_sign(descriptor);
    *lock = (struct owner_lock){.descriptor = descriptor, .held = 1};
    return STATUS_OK;
}

void owner_lock_release(struct owner_lock *lock)
{
    if (lock->held)
        close(lock->descriptor);
    lock->held = 0;
}
