/* value.h: one setting's value between its text and its field in struct config, and the files that
 * values are in.
 *
 * Threads: as struct config.
 */
#pragma once

#include <sys/stat.h>

#include "config/config.h"

/* Reads `text` and puts it in the place of the value the key had. STATUS_INVALID with words that
 * follow the name of the key ("\"many\" is not …; allowed: …") and leave the old value alone. */
enum status config_value_set(struct config *config, const struct config_key *key, const char *text,
                             struct error *error) MUST_CHECK;

/* The same for a secret, whose bytes may be any; they are copied. */
enum status config_secret_set(struct config *config, const struct config_key *key,
                              struct span bytes, struct error *error) MUST_CHECK;

/* Frees the value and leaves the field zeroed; wipes a secret. */
void config_value_release(struct config *config, const struct config_key *key);

/* Reads "500ms", "5s", "2m" or "1h"; false for anything else. */
bool config_parse_duration(const char *text, int64_t *duration_ms);

/* Appends the shortest of those that is exact. */
void config_append_duration(struct buffer *out, int64_t duration_ms);

/* Adds a warning for the operator. */
void config_warn(struct config *config, const char *format, ...) PRINTF_LIKE(2, 3);

/* Reads a small file whole: appends it to `out`. STATUS_NOT_FOUND when there is no such file,
 * STATUS_FAILED when it cannot be read or is larger than the buffer's maximum; the words begin with
 * the path. `mode` (may be NULL) gets its permissions. */
enum status config_read_file(const char *path, struct buffer *out, mode_t *mode,
                             struct error *error) MUST_CHECK;

/* Running out of memory at start-up leaves nothing to do: these end the process then. */
char *config_copy(struct span text);
void config_list_release(struct config_list *list);
