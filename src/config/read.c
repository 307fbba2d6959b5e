/* read.c: opens, reads to the end, closes. */
#include "config/read.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static enum status read_to_end(int file, const char *path, struct buffer *out, struct error *error)
{
    char piece[4096];
    for (;;) {
        ssize_t length = read(file, piece, sizeof(piece));
        if (length == 0) {
            return STATUS_OK;
        }
        if (length < 0 && errno == EINTR) {
            continue;
        }
        if (length < 0) {
            return error_set(error, STATUS_FAILED, "%s: cannot be read: %s", path, strerror(errno));
        }
        buffer_append(out, piece, (size_t)length);
        explicit_bzero(piece, (size_t)length);
        if (out->overflowed) {
            return error_set(error, STATUS_FAILED, "%s: is larger than %zu bytes", path,
                             out->length_max);
        }
    }
}

enum status config_read_file(const char *path, struct buffer *out, mode_t *mode,
                             struct error *error)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return error_set(error, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_FAILED,
                         "%s: cannot be opened: %s", path, strerror(errno));
    }
    struct stat about;
    enum status status = STATUS_OK;
    if (fstat(file, &about) != 0) {
        status = error_set(error, STATUS_FAILED, "%s: %s", path, strerror(errno));
    } else if (S_ISDIR(about.st_mode)) {
        status = error_set(error, STATUS_FAILED, "%s: is a folder, not a file", path);
    } else {
        status = read_to_end(file, path, out, error);
    }
    if (status == STATUS_OK && mode != NULL) {
        *mode = about.st_mode;
    }
    close(file);
    return status;
}
