/* fragile.c: between SQLite and the system: pwrite and ftruncate by SQLite's own table of system
 * calls, fdatasync by its name. */
#include "fragile.h"

#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"

#define SECTOR      512
#define FILE_MAX    (12 << 20)
#define SECTORS_MAX (FILE_MAX / SECTOR)

/* One file: what a power cut leaves for sure, and which sectors were written since. */
struct fragile_file {
    int descriptor; /* never closed while SQLite has the file open: that would drop its locks */
    ino_t inode;
    unsigned char *durable;
    size_t durable_size;
    uint64_t *written; /* per sector: the write since the last sync; 0: none */
    size_t low, high;  /* the sectors that were written since lie from here to before there */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t writer;
    struct fragile_file main, log;
    struct fragile_counts counts;
    uint64_t write_count;
    bool is_watching, is_held, is_stuck;
    void (*look)(void);
    uint64_t random;
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static uint64_t fragile_random(void)
{
    disk.random = disk.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return disk.random >> 33;
}

static struct fragile_file *fragile_file_of(int descriptor)
{
    struct stat file;

    if (!disk.is_watching || fstat(descriptor, &file) != 0)
        return NULL;
    return file.st_ino == disk.main.inode  ? &disk.main
           : file.st_ino == disk.log.inode ? &disk.log
                                           : NULL;
}

static void fragile_step(void)
{
    if (!pthread_equal(pthread_self(), disk.writer) || disk.look == NULL)
        return;
    void (*look)(void) = disk.look;
    disk.look = NULL; /* looking is not a step */
    look();
    disk.look = look;
}

static void fragile_note(int descriptor, size_t length, off_t offset)
{
    pthread_mutex_lock(&disk.lock);
    struct fragile_file *file = fragile_file_of(descriptor);
    if (file != NULL) {
        disk.write_count++;
        ensure(offset + (off_t)length <= FILE_MAX);
        size_t end = ((size_t)offset + length + SECTOR - 1) / SECTOR;
        for (size_t i = (size_t)offset / SECTOR; i < end; i++)
            file->written[i] = disk.write_count;
        file->low = file->high == 0 || (size_t)offset / SECTOR < file->low ? (size_t)offset / SECTOR
                                                                           : file->low;
        file->high = end > file->high ? end : file->high;
        disk.counts.main_writes += file == &disk.main;
    }
    pthread_mutex_unlock(&disk.lock);
}

static ssize_t fragile_pwrite(int descriptor, const void *bytes, size_t length, off_t offset)
{
    fragile_note(descriptor, length, offset);
    ssize_t written = pwrite(descriptor, bytes, length, offset);
    fragile_step();
    return written;
}

static size_t fragile_read(const struct fragile_file *file, unsigned char *bytes)
{
    size_t size = 0;
    ssize_t length;

    while ((length = pread(file->descriptor, bytes + size, FILE_MAX - size, (off_t)size)) > 0)
        size += (size_t)length;
    return size;
}

/* Makes durable what was written before now, at the end of a sync that may be held up. */
static void fragile_sync(struct fragile_file *file)
{
    bool is_writer = pthread_equal(pthread_self(), disk.writer);
    uint64_t until = disk.write_count;
    size_t low = file->low;
    size_t length = (file->high - low) * SECTOR;
    size_t size = (size_t)lseek(file->descriptor, 0, SEEK_END);
    unsigned char *bytes = calloc(1, length + 1);

    ensure(bytes != NULL);
    (void)!pread(file->descriptor, bytes, length, (off_t)(low * SECTOR));
    file->low = file->high = 0;
    if (file == &disk.main && !is_writer && disk.is_held) {
        disk.is_stuck = true;
        while (disk.is_held)
            pthread_cond_wait(&disk.changed, &disk.lock);
        disk.is_stuck = false;
    }
    memcpy(file->durable + low * SECTOR, bytes, length);
    file->durable_size = size;
    for (size_t i = low; i < low + length / SECTOR; i++)
        if (file->written[i] <= until)
            file->written[i] = 0;
    disk.counts.main_syncs += file == &disk.main;
    disk.counts.syncs_by_writer += file == &disk.main && is_writer;
    disk.counts.log_syncs += file == &disk.log;
    free(bytes);
}

/* The syncer's, and SQLite's own: a program's functions come before those of libraries. */
int fdatasync(int descriptor)
{
    pthread_mutex_lock(&disk.lock);
    struct fragile_file *file = fragile_file_of(descriptor);
    if (file != NULL)
        fragile_sync(file);
    pthread_mutex_unlock(&disk.lock);
    fragile_step();
    return 0;
}

static void fragile_open(struct fragile_file *file, const char *path, const char *suffix)
{
    char name[160];
    struct stat found;

    snprintf(name, sizeof(name), "%s%s", path, suffix);
    file->descriptor = open(name, O_RDONLY | O_CLOEXEC);
    ensure(file->descriptor >= 0 && fstat(file->descriptor, &found) == 0);
    file->inode = found.st_ino;
    file->durable = calloc(1, FILE_MAX);
    file->written = calloc(SECTORS_MAX, sizeof(uint64_t));
    ensure(file->durable != NULL && file->written != NULL);
    file->durable_size = fragile_read(file, file->durable);
}

static void fragile_close(struct fragile_file *file)
{
    close(file->descriptor);
    free(file->durable);
    free(file->written);
    *file = (struct fragile_file){0};
}

void fragile_watch(const char *path)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);

    fragile_open(&disk.main, path, "");
    fragile_open(&disk.log, path, "-wal");
    disk.writer = pthread_self();
    disk.random = 1;
    disk.counts = (struct fragile_counts){0};
    disk.is_held = false;
    disk.is_watching = true;
    ensure(vfs->xSetSystemCall(vfs, "pwrite64", (sqlite3_syscall_ptr)fragile_pwrite) == SQLITE_OK);
    ensure(vfs->xSetSystemCall(vfs, "pwrite", (sqlite3_syscall_ptr)fragile_pwrite) == SQLITE_OK);
}

void fragile_forget(void)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);

    vfs->xSetSystemCall(vfs, NULL, NULL);
    disk.is_watching = false;
    disk.look = NULL;
    fragile_close(&disk.main);
    fragile_close(&disk.log);
}

void fragile_after_step(void (*look)(void))
{
    disk.look = look;
}

void fragile_hold(bool is_held)
{
    pthread_mutex_lock(&disk.lock);
    disk.is_held = is_held;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.lock);
}

bool fragile_is_stuck(void)
{
    pthread_mutex_lock(&disk.lock);
    bool is_stuck = disk.is_stuck;
    pthread_mutex_unlock(&disk.lock);
    return is_stuck;
}

/* All of them lost, all kept, or each as it falls. */
static void fragile_leave(const struct fragile_file *file, const char *path, uint64_t way)
{
    unsigned char *bytes = calloc(1, FILE_MAX);

    ensure(bytes != NULL);
    size_t size = fragile_read(file, bytes);
    for (size_t i = 0; i < SECTORS_MAX; i++)
        if (file->written[i] != 0 && (way == 0 || (way >= 2 && fragile_random() % 2 == 0)))
            memcpy(bytes + i * SECTOR, file->durable + i * SECTOR, SECTOR);
    if (way == 0 && file->durable_size < size)
        size = file->durable_size;
    FILE *out = fopen(path, "wb");
    ensure(out != NULL && fwrite(bytes, 1, size, out) == size && fclose(out) == 0);
    free(bytes);
}

void fragile_crash_into(const char *copy)
{
    char log[160];

    pthread_mutex_lock(&disk.lock);
    snprintf(log, sizeof(log), "%s-wal", copy);
    fragile_leave(&disk.main, copy, fragile_random() % 5);
    fragile_leave(&disk.log, log, fragile_random() % 5);
    pthread_mutex_unlock(&disk.lock);
}

struct fragile_counts fragile_counts(void)
{
    pthread_mutex_lock(&disk.lock);
    struct fragile_counts counts = disk.counts;
    pthread_mutex_unlock(&disk.lock);
    return counts;
}
