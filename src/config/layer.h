/* layer.h: what one source (flags, environment, settings file) says, before it is understood.
 *
 * Threads: start-up only.
 */
#pragma once

#include <sys/stat.h>

#include "config/config.h"

struct config_layer {
    enum config_source source;
    char *values[CONFIG_KEYS_MAX]; /* by the key's place in the table; NULL: nothing said */
    int lines[CONFIG_KEYS_MAX];    /* of the settings file */
    char *file;                    /* flags, environment: the settings file they name, or NULL.
                                      file: its own path */
    mode_t mode;                   /* of the settings file; 0 when it was not a file */
};

/* Start with a zeroed layer. Each reports unknown names, with the one that was probably meant, and
 * names that this source may not set. A failure leaves a layer that still must be released. */
enum status config_layer_read_flags(struct config_layer *layer, int argc, char *const *argv,
                                    struct error *error) MUST_CHECK;
enum status config_layer_read_environment(struct config_layer *layer, char *const *environment,
                                          struct error *error) MUST_CHECK;

/* `text` is what is in the settings file; `path` is for words only. */
enum status config_layer_read_text(struct config_layer *layer, const char *path, struct span text,
                                   struct error *error) MUST_CHECK;

/* Reads the file and then as above. STATUS_NOT_FOUND when there is none, STATUS_FAILED when it
 * cannot be read. */
enum status config_layer_read_file(struct config_layer *layer, const char *path,
                                   struct error *error) MUST_CHECK;

void config_layer_release(struct config_layer *layer);

/* Puts what the layer says over what the config has; the words of an error begin with where the
 * value came from. */
enum status config_layer_apply(const struct config_layer *layer, struct config *config,
                               struct error *error) MUST_CHECK;
