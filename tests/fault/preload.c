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
 * A test writes the word while the process runs (a new file, renamed into place).
 *
 * Threads: safe from any; nothing is kept between calls.
 */
/* Both names of each call are defined below, so one must not be turned into the other. */
#undef _FILE_OFFSET_BITS

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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
};

static const char *const disk_words[] = {
    [DISK_OK] = "ok",         [DISK_FULL] = "enospc",      [DISK_FULL_SOON] = "short",
    [DISK_BROKEN] = "eio",    [DISK_SYNC_FAILS] = "fsync", [DISK_SYNC_STALLS] = "stall",
    [DISK_STALLS] = "freeze",
};

/* What libc would have called. */
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* True when the descriptor is one of those the test has chosen. */
static bool is_chosen(int descriptor)
{
    const char *match = getenv("DIBS_TEST_PRELOAD_MATCH");
    char link[64];
    char path[PATH_MAX + 1];

    if (match == NULL)
        return false;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX);
    if (length < 0)
        return false;
    path[length] = '\0';
    return strstr(path, match) != NULL;
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
    enum disk disk = is_chosen(descriptor) ? disk_said() : DISK_OK;

    errno = kept_errno;
    return disk;
}

/* What the disk does once it does something. */
static enum disk disk_after_stall(int descriptor, enum disk stalls, enum disk stalls_too)
{
    enum disk disk = disk_now(descriptor);

    while (disk == stalls || disk == stalls_too) {
        nanosleep(&(struct timespec){.tv_nsec = STALL_STEP_NS}, NULL);
        disk = disk_now(descriptor);
    }
    return disk;
}

/* 0 when a write of *size bytes may go on (with fewer bytes on a disk that is almost full), else
 * the error. */
static int write_error(int descriptor, size_t *size)
{
    switch (disk_after_stall(descriptor, DISK_STALLS, DISK_STALLS)) {
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
    enum disk disk = disk_after_stall(descriptor, DISK_SYNC_STALLS, DISK_STALLS);

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

/* Whether the file at this path lies on the disk that is said to be full. */
static bool path_is_full(const char *path)
{
    const char *match = getenv("DIBS_TEST_PRELOAD_MATCH");

    return match != NULL && strstr(path, match) != NULL && disk_said() == DISK_FULL;
}

int statvfs(const char *path, struct statvfs *disk)
{
    int result = REAL(statvfs)(path, disk);
    if (result == 0 && path_is_full(path))
        disk->f_bavail = 0;
    return result;
}

int statvfs64(const char *path, struct statvfs64 *disk)
{
    int result = REAL(statvfs64)(path, disk);
    if (result == 0 && path_is_full(path))
        disk->f_bavail = 0;
    return result;
}
