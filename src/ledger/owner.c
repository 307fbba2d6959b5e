/* owner.c: flock on the database file; the kernel lets go when the holder dies and knows who it
 * is. SQLite's own locks are of another kind and do not meet this one. */
#include "ledger/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The process on a line of the kernel's list of locks, when it is about this file; else 0. Lines
 * read "1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF". */
static long owner_read_lock(const char *line, const struct stat *file)
{
    const char *flock_word = strstr(line, "FLOCK");
    const char *write_word = flock_word == NULL ? NULL : strstr(flock_word, "WRITE");
    const char *inode_text = strrchr(line, ':');
    char *end = NULL;

    if (write_word == NULL || inode_text == NULL || inode_text < write_word)
        return 0;
    if (strtoull(inode_text + 1, NULL, 10) != file->st_ino)
        return 0;
    long pid = strtol(write_word + strlen("WRITE"), &end, 10);
    return *end == ' ' ? pid : 0;
}

/* The process that has the file locked; 0 when the kernel does not say (a holder in another
 * container, say). */
static long owner_find_holder(int descriptor)
{
    struct stat file;
    char line[256];
    long holder = 0;
    FILE *locks = fopen("/proc/locks", "re");

    if (locks == NULL)
        return 0;
    if (fstat(descriptor, &file) == 0) {
        while (holder <= 0 && fgets(line, sizeof(line), locks) != NULL)
            holder = owner_read_lock(line, &file);
    }
    fclose(locks);
    return holder > 0 ? holder : 0;
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
                     "%s is in use (%s); only one dibs may run on a file: stop that one, give this "
                     "one another --ledger, or share one of postgres:// or mysql://",
                     path, holder);
}

/* Locks the file; the words are about `path`. */
static enum status owner_lock_file(struct owner_lock *lock, const char *file, const char *path,
                                   struct error *error)
{
    int descriptor = open(file, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);

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

enum status owner_lock_take(struct owner_lock *lock, const char *path, struct error *error)
{
    return owner_lock_file(lock, path, path, error);
}

enum status owner_lock_take_name(struct owner_lock *lock, const char *path, struct error *error)
{
    char *file = NULL;

    if (asprintf(&file, "%s-lock", path) < 0)
        return error_set(error, STATUS_UNAVAILABLE, "no memory to lock %s", path);
    enum status status = owner_lock_file(lock, file, path, error);
    free(file);
    return status;
}

void owner_lock_release(struct owner_lock *lock)
{
    if (lock->held)
        close(lock->descriptor);
    lock->held = false;
}
