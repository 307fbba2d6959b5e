/* read.h: a small file, whole.
 *
 * Threads: safe from any.
 */
#ifndef CONFIG_READ_H
#define CONFIG_READ_H

#include <sys/stat.h>

#include "base/buffer.h"
#include "base/error.h"

/* Appends the file to `out`. STATUS_NOT_FOUND when there is no such file, STATUS_FAILED when it
 * cannot be read or is larger than the buffer's maximum; the words begin with the path. `mode`
 * (may be NULL) gets its permissions. */
enum status config_read_file(const char *path, struct buffer *out, mode_t *mode,
                             struct error *error) MUST_CHECK;

#endif
