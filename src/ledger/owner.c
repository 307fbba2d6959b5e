/* owner.c: flock on the database file; the kernel lets go when the holder dies and knows who it
 * is. SQLite's own locks are of another kind and do not meet this one. */
#include "ledger/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The process that has the file locked, from the kernel's list; 0 when it does not say (a holder
 * in another container, say). Lines read "1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF". */
static long owner_find_holder(int descriptor)
{
    struct stat file;
    char line[256];
    long holder = 0;
    FILE *locks = fopen("/proc/locks", "re");

    if (locks == NULL)
        return 0;
    if (fstat(descriptor, &file) == 0) {
        while (holder == 0 && fgets(line, sizeof(line), locks) != NULL) {
            long pid = 0;
            unsigned long inode = 0;
            if (sscanf(line, "%*s FLOCK %*s %*s %ld %*x:%*x:%lu", &pid, &inode) == 2 &&
                inode == (unsigned long)file.st_ino && pid > 0)
                holder = pid;
        }
    }
    fclose(locks);
    return holder;
}

/* The holder's command line, its arguments separated by blanks; "" when it cannot be read. */
static void owner_read_command(long pid, char *command, size_t size)
{
    char name[64];
    size_t length = 0;

    snprintf(name, sizeof(name), "/proc/%ld/cmdline", pid);
    FILE *file = fopen(name, "re");
    if (file != NULL) {
        length = fread(command, 1, size - 1, file);
        fclose(file);
    }
    for (size_t i = 0; i + 1 < length; i++) {
        if (command[i] == '\0')
            command[i] = ' ';
    }
    command[length] = '\0';
}

static enum status owner_lock_refused(int descriptor, const char *path, struct error *error)
{
    char command[160] = "";
    char holder[224] = "another process";
    long pid = owner_find_holder(descriptor);

    if (pid != 0) {
        owner_read_command(pid, command, sizeof(command));
        snprintf(holder, sizeof(holder), "process %ld%s%s", pid, command[0] == '\0' ? "" : ", ",
                 command);
    }
    return error_set(error, STATUS_CONFLICT,
                     "%s is in use (%s); only one dibs may run on a file: stop that one, or give "
                     "this one another --ledger",
                     path, holder);
}

enum status owner_lock_take(struct owner_lock *lock, const char *path, struct error *error)
{
    int descriptor = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);

    if (descriptor < 0)
        return error_set(error, STATUS_FAILED, "cannot open %s: %s", path, strerror(errno));
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
        enum status status =
            errno == EWOULDBLOCK
                ? owner_lock_refused(descriptor, path, error)
                : error_set(error, STATUS_FAILED, "cannot lock %s: %s", path, strerror(errno));
        close(descriptor);
        return status;
    }
    *lock = (struct owner_lock){.descriptor = descriptor, .held = true};
    return STATUS_OK;
}

void owner_lock_release(struct owner_lock *lock)
{
    if (lock->held)
        close(lock->descriptor);
    lock->held = false;
}
