/* preload.c: a disk that fails on demand, put between a process and libc by LD_PRELOAD.
 *
 * Calls that write or sync a file whose path contains DIBS_TEST_PRELOAD_MATCH do what the first
 * word of the file DIBS_TEST_PRELOAD_CONTROL says at that moment:
 *   ok       what they always do
 *   enospc   the disk is full: writes and growing fail with ENOSPC, and statvfs() says so
 *   short    the disk becomes full in the middle of a write: half of it, then ENOSPC
 *   eio      writes fail with EIO
 *   fsync    fsync and fdatasync fail with EIO, and nothing is synced
 *   stall    fsync and fdatasync wait until the word changes
 *   freeze   so do they, and writes as well
 *   hold     those of a file whose path ends with the match wait, and of no other: of the database
 *            itself, while its log goes on
 *   slow     all that was written goes to a device of 3,000 operations and 125 MB a second when it
 *            is synced; those who sync at once take turns
 * A test writes the word while the process runs (a new file, renamed into place).
 * DIBS_TEST_PRELOAD_ROOM is how many bytes statvfs() says are left, if it is set.
 *
 * Threads: safe from any; nothing is kept between calls but what a slow device has to write.
 */
/* Both names of each call are defined below, so one must not be turned into the other. */
#undef _FILE_OFFSET_BITS

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WORD_SIZE     16
#define STALL_STEP_NS 1000000

enum disk {
    DISK_OK,
    DISK_FULL,
    DISK_FULL_SOON,
    DISK_BROKEN,
    DISK_SYNC_FAILS,
    DISK_SYNC_STALLS,
    DISK_STALLS,
    DISK_MAIN_SYNC_STALLS,
    DISK_SLOW,
};

static const char *const disk_words[] = {
    [DISK_OK] = "ok",         [DISK_FULL] = "enospc",           [DISK_FULL_SOON] = "short",
    [DISK_BROKEN] = "eio",    [DISK_SYNC_FAILS] = "fsync",      [DISK_SYNC_STALLS] = "stall",
    [DISK_STALLS] = "freeze", [DISK_MAIN_SYNC_STALLS] = "hold", [DISK_SLOW] = "slow",
};

/* What libc would have called. */
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

enum choice { CHOSEN_NOT, CHOSEN_BESIDE, CHOSEN_ITSELF };

/* Whether the descriptor is one of those the test has chosen. */
static enum choice choice_of(int descriptor)
{
    const char *match = getenv("DIBS_TEST_PRELOAD_MATCH");
    char link[64];
    char path[PATH_MAX + 1];

    if (match == NULL)
        return CHOSEN_NOT;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX);
    if (length < 0)
        return CHOSEN_NOT;
    path[length] = '\0';
    const char *found = strstr(path, match);
    return found == NULL                    ? CHOSEN_NOT
           : strlen(found) == strlen(match) ? CHOSEN_ITSELF
                                            : CHOSEN_BESIDE;
}

/* Reads the word with bare system calls: the functions of libc are ours in part. */
static enum disk disk_said(void)
{
    const char *control = getenv("DIBS_TEST_PRELOAD_CONTROL");
    char word[WORD_SIZE] = "";
    enum disk disk = DISK_OK;

    if (control == NULL)
        return DISK_OK;
    int file = (int)syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        if (syscall(SYS_read, file, word, sizeof(word) - 1) < 0)
            word[0] = '\0';
        syscall(SYS_close, file);
    }
    word[strcspn(word, " \n")] = '\0';
    for (size_t i = 0; i < sizeof(disk_words) / sizeof(disk_words[0]); i++)
        if (strcmp(word, disk_words[i]) == 0)
            disk = (enum disk)i;
    return disk;
}

static enum disk disk_now(int descriptor)
{
    int kept_errno = errno;
    enum choice choice = choice_of(descriptor);
    enum disk disk = choice == CHOSEN_NOT ? DISK_OK : disk_said();

    if (disk == DISK_MAIN_SYNC_STALLS && choice != CHOSEN_ITSELF)
        disk = DISK_OK;
    errno = kept_errno;
    return disk;
}

/* What the disk does once it does something. */
static enum disk disk_after_stall(int descriptor, bool is_sync)
{
    enum disk disk = disk_now(descriptor);

    while (disk == DISK_STALLS ||
           (is_sync && (disk == DISK_SYNC_STALLS || disk == DISK_MAIN_SYNC_STALLS))) {
        nanosleep(&(struct timespec){.tv_nsec = STALL_STEP_NS}, NULL);
        disk = disk_now(descriptor);
    }
    return disk;
}

/* --- a slow device: what was written waits in memory until somebody syncs it --- */

#define DEVICE_OPERATION_NS   333333 /* 3,000 a second */
#define DEVICE_BYTES_PER_TURN (256 << 10)
#define DEVICE_TURN_NS        2097152 /* for as many bytes, at 125 MB a second */
#define DEVICE_QUEUE          32      /* operations that the device takes at once */

static atomic_ulong device_operations[2]; /* waiting, of the file itself and of those beside it */
static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;

/* Small writes, which lie anywhere, are an operation each; large ones have one per 256 KiB. */
static void device_note(int descriptor, size_t size)
{
    size_t count = (size + DEVICE_BYTES_PER_TURN - 1) / DEVICE_BYTES_PER_TURN;
    atomic_fetch_add(&device_operations[choice_of(descriptor) == CHOSEN_ITSELF], count);
}

static void device_write(int descriptor)
{
    bool is_itself = choice_of(descriptor) == CHOSEN_ITSELF;
    unsigned long left = atomic_exchange(&device_operations[is_itself], 0) + 1;

    for (unsigned long done = 0; left > 0; left -= done) {
        long each_ns = is_itself ? DEVICE_OPERATION_NS : DEVICE_TURN_NS;
        done = left < DEVICE_QUEUE ? left : DEVICE_QUEUE;
        pthread_mutex_lock(&device_lock);
        nanosleep(&(struct timespec){.tv_nsec = (long)done * each_ns}, NULL);
        pthread_mutex_unlock(&device_lock);
        sched_yield();
    }
}

/* 0 when a write of *size bytes may go on (with fewer bytes on a disk that is almost full), else
 * the error. */
static int write_error(int descriptor, size_t *size)
{
    switch (disk_after_stall(descriptor, false)) {
    case DISK_SLOW:
        device_note(descriptor, *size);
        return 0;
    case DISK_FULL:
        return ENOSPC;
    case DISK_FULL_SOON:
        *size /= 2;
        return *size == 0 ? ENOSPC : 0;
    case DISK_BROKEN:
        return EIO;
    default:
        return 0;
    }
}

static int sync_error(int descriptor)
{
    enum disk disk = disk_after_stall(descriptor, true);

    if (disk == DISK_SLOW)
        device_write(descriptor);
    return disk == DISK_SYNC_FAILS ? EIO : 0;
}

/* Growing a file needs room, shrinking does not. */
static int grow_error(int descriptor, off_t size)
{
    size_t one = 1;
    off_t end = lseek(descriptor, 0, SEEK_END);

    return end >= 0 && size <= end ? 0 : write_error(descriptor, &one);
}

static int failed(int error)
{
    errno = error;
    return -1;
}

ssize_t write(int descriptor, const void *bytes, size_t size)
{
    int error = write_error(descriptor, &size);
    return error != 0 ? failed(error) : REAL(write)(descriptor, bytes, size);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t offset)
{
    int error = write_error(descriptor, &size);
    return error != 0 ? failed(error) : REAL(pwrite)(descriptor, bytes, size, offset);
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t size, off64_t offset)
{
    int error = write_error(descriptor, &size);
    return error != 0 ? failed(error) : REAL(pwrite64)(descriptor, bytes, size, offset);
}

int fsync(int descriptor)
{
    int error = sync_error(descriptor);
    return error != 0 ? failed(error) : REAL(fsync)(descriptor);
}

int fdatasync(int descriptor)
{
    int error = sync_error(descriptor);
    return error != 0 ? failed(error) : REAL(fdatasync)(descriptor);
}

int ftruncate(int descriptor, off_t size)
{
    int error = grow_error(descriptor, size);
    return error != 0 ? failed(error) : REAL(ftruncate)(descriptor, size);
}

int ftruncate64(int descriptor, off64_t size)
{
    int error = grow_error(descriptor, size);
    return error != 0 ? failed(error) : REAL(ftruncate64)(descriptor, size);
}

int posix_fallocate(int descriptor, off_t offset, off_t size)
{
    int error = grow_error(descriptor, offset + size);
    return error != 0 ? error : REAL(posix_fallocate)(descriptor, offset, size);
}

int posix_fallocate64(int descriptor, off64_t offset, off64_t size)
{
    int error = grow_error(descriptor, offset + size);
    return error != 0 ? error : REAL(posix_fallocate64)(descriptor, offset, size);
}

int fallocate(int descriptor, int mode, off_t offset, off_t size)
{
    int error = grow_error(descriptor, offset + size);
    return error != 0 ? failed(error) : REAL(fallocate)(descriptor, mode, offset, size);
}

int fallocate64(int descriptor, int mode, off64_t offset, off64_t size)
{
    int error = grow_error(descriptor, offset + size);
    return error != 0 ? failed(error) : REAL(fallocate64)(descriptor, mode, offset, size);
}

/* How many blocks are left at this path, where the test says so; else as many as there are. */
static fsblkcnt64_t room_said(const char *path, fsblkcnt64_t real, unsigned long block)
{
    const char *match = getenv("DIBS_TEST_PRELOAD_MATCH");
    const char *room = getenv("DIBS_TEST_PRELOAD_ROOM");

    if (match == NULL || strstr(path, match) == NULL)
        return real;
    if (disk_said() == DISK_FULL)
        return 0;
    return room != NULL ? strtoull(room, NULL, 10) / block : real;
}

int statvfs(const char *path, struct statvfs *disk)
{
    int result = REAL(statvfs)(path, disk);
    if (result == 0)
        disk->f_bavail = room_said(path, disk->f_bavail, disk->f_frsize);
    return result;
}

int statvfs64(const char *path, struct statvfs64 *disk)
{
    int result = REAL(statvfs64)(path, disk);
    if (result == 0)
        disk->f_bavail = room_said(path, disk->f_bavail, disk->f_frsize);
    return result;
}
