/* vfs.c: gathers WAL writes, and hands out the syncs of main files; all else is SQLite's own. */
#include "ledger/sqlite/vfs.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define VFS_NAME   "dibs"
#define GATHER_MAX (1 << 20) /* bytes before they are written without waiting for the sync */
#define WRITE_MAX  (1 << 16) /* SQLite's own VFS keeps only 17 bits of a write's length */

/* A WAL file of the writer: ours in front, SQLite's own file behind it. */
struct wal_file {
    sqlite3_file file;
    char *gathered; /* GATHER_MAX bytes, contiguous from `offset` on */
    int length;
    sqlite3_int64 offset;
    sqlite3_file real[];
};

/* Behind SQLite's own file of a database: its methods but one. */
struct main_tail {
    sqlite3_io_methods methods;
    int (*real_sync)(sqlite3_file *file, int flags);
    sqlite_vfs_sync_fn sync; /* NULL: the real one */
    void *context;
};

static sqlite3_vfs *vfs_real(sqlite3_vfs *vfs)
{
    return vfs->pAppData;
}

static struct wal_file *wal_file_of(sqlite3_file *file)
{
    return (struct wal_file *)file;
}

static int wal_flush(struct wal_file *wal)
{
    int code = SQLITE_OK;

    for (int done = 0; done < wal->length && code == SQLITE_OK; done += WRITE_MAX) {
        int length = wal->length - done < WRITE_MAX ? wal->length - done : WRITE_MAX;
        code = wal->real->pMethods->xWrite(wal->real, wal->gathered + done, length,
                                           wal->offset + done);
    }
    /* On an error the transaction fails and SQLite writes these frames anew; they are not kept. */
    wal->length = 0;
    return code;
}

static int wal_close(sqlite3_file *file)
{
    struct wal_file *wal = wal_file_of(file);
    int flushed = wal_flush(wal);
    int closed = wal->real->pMethods->xClose(wal->real);
    free(wal->gathered);
    return flushed != SQLITE_OK ? flushed : closed;
}

static int wal_write(sqlite3_file *file, const void *bytes, int length, sqlite3_int64 offset)
{
    struct wal_file *wal = wal_file_of(file);

    if (wal->length > 0 &&
        (offset != wal->offset + wal->length || wal->length + length > GATHER_MAX)) {
        int code = wal_flush(wal);
        if (code != SQLITE_OK)
            return code;
    }
    if (length > GATHER_MAX)
        return wal->real->pMethods->xWrite(wal->real, bytes, length, offset);
    if (wal->length == 0)
        wal->offset = offset;
    memcpy(wal->gathered + wal->length, bytes, (size_t)length);
    wal->length += length;
    return SQLITE_OK;
}

static int wal_read(sqlite3_file *file, void *bytes, int length, sqlite3_int64 offset)
{
    struct wal_file *wal = wal_file_of(file);
    int code = wal_flush(wal);
    return code != SQLITE_OK ? code : wal->real->pMethods->xRead(wal->real, bytes, length, offset);
}

static int wal_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct wal_file *wal = wal_file_of(file);
    int code = wal_flush(wal);
    return code != SQLITE_OK ? code : wal->real->pMethods->xTruncate(wal->real, size);
}

static int wal_sync(sqlite3_file *file, int flags)
{
    struct wal_file *wal = wal_file_of(file);
    int code = wal_flush(wal);
    return code != SQLITE_OK ? code : wal->real->pMethods->xSync(wal->real, flags);
}

static int wal_file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    struct wal_file *wal = wal_file_of(file);
    int code = wal_flush(wal);
    return code != SQLITE_OK ? code : wal->real->pMethods->xFileSize(wal->real, size);
}

static int wal_lock(sqlite3_file *file, int level)
{
    struct wal_file *wal = wal_file_of(file);
    return wal->real->pMethods->xLock(wal->real, level);
}

static int wal_unlock(sqlite3_file *file, int level)
{
    struct wal_file *wal = wal_file_of(file);
    return wal->real->pMethods->xUnlock(wal->real, level);
}

static int wal_check_reserved_lock(sqlite3_file *file, int *result)
{
    struct wal_file *wal = wal_file_of(file);
    return wal->real->pMethods->xCheckReservedLock(wal->real, result);
}

static int wal_file_control(sqlite3_file *file, int operation, void *argument)
{
    struct wal_file *wal = wal_file_of(file);
    return wal->real->pMethods->xFileControl(wal->real, operation, argument);
}

static int wal_sector_size(sqlite3_file *file)
{
    struct wal_file *wal = wal_file_of(file);
    return wal->real->pMethods->xSectorSize(wal->real);
}

static int wal_device_characteristics(sqlite3_file *file)
{
    struct wal_file *wal = wal_file_of(file);
    return wal->real->pMethods->xDeviceCharacteristics(wal->real);
}

/* Version 1: a WAL file is never mapped and has no shared memory of its own. */
static const sqlite3_io_methods wal_methods = {
    .iVersion = 1,
    .xClose = wal_close,
    .xRead = wal_read,
    .xWrite = wal_write,
    .xTruncate = wal_truncate,
    .xSync = wal_sync,
    .xFileSize = wal_file_size,
    .xLock = wal_lock,
    .xUnlock = wal_unlock,
    .xCheckReservedLock = wal_check_reserved_lock,
    .xFileControl = wal_file_control,
    .xSectorSize = wal_sector_size,
    .xDeviceCharacteristics = wal_device_characteristics,
};

static sqlite3_vfs vfs_layer;

static struct main_tail *main_tail_of(sqlite3_file *file)
{
    return (struct main_tail *)((char *)file + vfs_real(&vfs_layer)->szOsFile);
}

static int main_sync(sqlite3_file *file, int flags)
{
    const struct main_tail *tail = main_tail_of(file);
    return tail->sync != NULL ? tail->sync(tail->context) : tail->real_sync(file, flags);
}

static void main_file_init(sqlite3_file *file)
{
    struct main_tail *tail = main_tail_of(file);

    *tail = (struct main_tail){.methods = *file->pMethods, .real_sync = file->pMethods->xSync};
    tail->methods.xSync = main_sync;
    file->pMethods = &tail->methods;
}

void sqlite_vfs_sync_main(sqlite3 *database, sqlite_vfs_sync_fn sync, void *context)
{
    sqlite3_file *file = NULL;

    ensure(sqlite3_file_control(database, "main", SQLITE_FCNTL_FILE_POINTER, &file) == SQLITE_OK);
    ensure(file->pMethods != NULL && file->pMethods->xSync == main_sync);
    main_tail_of(file)->sync = sync;
    main_tail_of(file)->context = context;
}

/* A WAL opened for writing is ours; any other file is opened in place by SQLite's own VFS, which
 * then also owns its methods, but for the sync of a main file. */
static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                    int *flags_out)
{
    sqlite3_vfs *real = vfs_real(vfs);
    struct wal_file *wal = wal_file_of(file);

    if ((flags & SQLITE_OPEN_WAL) == 0 || (flags & SQLITE_OPEN_READWRITE) == 0) {
        int opened = real->xOpen(real, name, file, flags, flags_out);
        if (opened == SQLITE_OK && (flags & SQLITE_OPEN_MAIN_DB) != 0)
            main_file_init(file);
        return opened;
    }

    memset(wal, 0, sizeof(*wal));
    wal->gathered = malloc(GATHER_MAX);
    if (wal->gathered == NULL)
        return SQLITE_NOMEM;
    int code = real->xOpen(real, name, wal->real, flags, flags_out);
    if (code != SQLITE_OK) {
        free(wal->gathered);
        return code;
    }
    wal->file.pMethods = &wal_methods;
    return SQLITE_OK;
}

static void vfs_register_once(void)
{
    sqlite3_vfs *real = sqlite3_vfs_find(NULL);

    ensure(real != NULL);
    vfs_layer = *real;
    vfs_layer.zName = VFS_NAME;
    vfs_layer.pNext = NULL;
    vfs_layer.pAppData = real;
    vfs_layer.szOsFile = real->szOsFile + (int)(sizeof(struct wal_file) > sizeof(struct main_tail)
                                                    ? sizeof(struct wal_file)
                                                    : sizeof(struct main_tail));
    ensure(real->szOsFile % (int)_Alignof(struct main_tail) == 0);
    vfs_layer.xOpen = vfs_open;
    ensure(sqlite3_vfs_register(&vfs_layer, 0) == SQLITE_OK);
}

const char *sqlite_vfs_register(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, vfs_register_once);
    return VFS_NAME;
}
