/* load.c: lays defaults, settings file, environment and flags over each other, and fetches secrets.
 */
#include <stdlib.h>
#include <string.h>

#include "config/check.h"
#include "config/config.h"
#include "config/layer.h"
#include "config/value.h"

#define SETTINGS_FILE "dibs.conf"

static const char *config_text(const struct config *config, const struct config_key *key)
{
    return *(char *const *)((const char *)config + key->offset);
}

static void config_set_defaults(struct config *config)
{
    for (size_t i = 0; i < config_key_count; i++) {
        struct error error;
        if (config_keys[i].type != CONFIG_SECRET) {
            ensure(config_value_set(config, &config_keys[i], config_keys[i].fallback, &error) ==
                   STATUS_OK);
        }
    }
}

/* A file that was asked for must be there; the usual one need not. */
static enum status config_read_settings(struct config_layer *layer, const char *asked_for,
                                        struct error *error)
{
    enum status status =
        config_layer_read_file(layer, asked_for != NULL ? asked_for : SETTINGS_FILE, error);
    return status == STATUS_NOT_FOUND && asked_for == NULL ? STATUS_OK : status;
}

/* A password in the settings file is for dibs alone. */
static void warn_of_passwords(struct config *config, const struct config_layer *settings)
{
    mode_t open_to = settings->mode & (S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH);
    for (size_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        const char *value = settings->values[i];
        if (open_to == 0 || !S_ISREG(settings->mode) || key->type != CONFIG_URL || value == NULL ||
            !config_url_has_password(value))
            continue;
        config_warn(config,
                    "%s: %s holds a password and is open to %s (mode %04o); chmod 600 %s, or use "
                    "%s_password_file",
                    key->name, settings->file,
                    (open_to & (S_IROTH | S_IWOTH)) != 0 ? "everyone on this machine" : "its group",
                    (unsigned)(settings->mode & 07777), settings->file, key->name);
    }
}

static enum status config_apply_layers(struct config *config, int argc, char *const *argv,
                                       char *const *environment, struct error *error)
{
    struct config_layer flags = {0};
    struct config_layer variables = {0};
    struct config_layer settings = {0};
    enum status status = config_layer_read_flags(&flags, argc, argv, error);
    if (status == STATUS_OK)
        status = config_layer_read_environment(&variables, environment, error);
    if (status == STATUS_OK) {
        const char *asked_for = flags.file != NULL ? flags.file : variables.file;
        status = config_read_settings(&settings, asked_for, error);
    }
    if (status == STATUS_OK) {
        free(config->file);
        config->file = config_copy(span_of(settings.file != NULL ? settings.file : ""));
        status = config_layer_apply(&settings, config, error);
        warn_of_passwords(config, &settings);
    }
    if (status == STATUS_OK)
        status = config_layer_apply(&variables, config, error);
    if (status == STATUS_OK)
        status = config_layer_apply(&flags, config, error);
    config_layer_release(&flags);
    config_layer_release(&variables);
    config_layer_release(&settings);
    return status;
}

static void warn_if_public(struct config *config, const struct config_key *file_key,
                           const char *path, mode_t mode)
{
    /* Only regular files: a pipe or a device has no lasting reader but us. */
    if (S_ISREG(mode) && (mode & (S_IROTH | S_IWOTH)) != 0)
        config_warn(config, "%s: %s is open to everyone on this machine (mode %04o); chmod 600 %s",
                    file_key->name, path, (unsigned)(mode & 07777), path);
}

/* Reads the file of one secret; an editor's newline at its end is not a part of it. */
static enum status config_read_secret(struct config *config, const struct config_key *key,
                                      const struct config_key *file_key, const char *path,
                                      struct error *error)
{
    struct buffer bytes;
    mode_t mode = 0;
    buffer_init(&bytes, CONFIG_VALUE_LENGTH_MAX);
    /* Taken at once, so that growing leaves no copies of the secret behind. */
    buffer_reserve(&bytes, CONFIG_VALUE_LENGTH_MAX);
    enum status status = config_read_file(path, &bytes, &mode, error);
    if (status == STATUS_OK) {
        size_t length = bytes.length;
        if (length > 0 && bytes.bytes[length - 1] == '\n') {
            length--;
            length -= length > 0 && bytes.bytes[length - 1] == '\r';
        }
        status = config_secret_set(config, key, (struct span){bytes.bytes, length}, error);
        if (status != STATUS_OK)
            error_prefix(error, "%s", path);
    }
    if (status != STATUS_OK) {
        error_prefix(error, "%s", file_key->name);
        status = status == STATUS_NOT_FOUND ? STATUS_FAILED : status;
    } else {
        warn_if_public(config, file_key, path, mode);
    }
    if (bytes.bytes != NULL)
        explicit_bzero(bytes.bytes, bytes.length);
    buffer_release(&bytes);
    return status;
}

/* A secret and the name of its file are two ways to say one thing: the stronger source wins. */
static enum status config_resolve_secret(struct config *config, const struct config_key *key,
                                         struct error *error)
{
    const struct config_key *file_key = config_key_find(key->secret_file);
    ensure(file_key != NULL);
    const char *path = config_text(config, file_key);
    struct config_origin *origin = &config->origins[key - config_keys];
    const struct config_origin *file_origin = &config->origins[file_key - config_keys];
    if (path[0] == '\0' || file_origin->source < origin->source)
        return STATUS_OK;
    if (file_origin->source == origin->source) {
        struct buffer names;
        buffer_init(&names, 256);
        config_append_variable(&names, key);
        buffer_append_text(&names, " and ");
        config_append_variable(&names, file_key);
        enum status status = error_set(
            error, STATUS_INVALID, "%s are both set and say the same thing; keep one", names.bytes);
        buffer_release(&names);
        return status;
    }
    *origin = *file_origin;
    return config_read_secret(config, key, file_key, path, error);
}

enum status config_load(struct config *config, int argc, char *const *argv,
                        char *const *environment, struct error *error)
{
    struct error unwanted;
    error = error != NULL ? error : &unwanted;
    *config = (struct config){.file = config_copy(SPAN(""))};
    config_set_defaults(config);
    enum status status = config_apply_layers(config, argc, argv, environment, error);
    for (size_t i = 0; i < config_key_count && status == STATUS_OK; i++)
        if (config_keys[i].type == CONFIG_SECRET)
            status = config_resolve_secret(config, &config_keys[i], error);
    if (status != STATUS_OK)
        config_release(config);
    else
        config_warn_of_exposure(config);
    return status == STATUS_NOT_FOUND ? STATUS_FAILED : status;
}

void config_release(struct config *config)
{
    for (size_t i = 0; i < config_key_count; i++)
        config_value_release(config, &config_keys[i]);
    config_list_release(&config->warnings);
    free(config->file);
    *config = (struct config){0};
}

void config_append_origin(struct buffer *out, const struct config *config,
                          const struct config_key *key)
{
    const struct config_origin *origin = &config->origins[key - config_keys];
    if (key->type == CONFIG_SECRET && origin->source != CONFIG_FROM_DEFAULT) {
        const struct config_key *file_key = config_key_find(key->secret_file);
        const struct config_origin *file_origin = &config->origins[file_key - config_keys];
        if (file_origin->source == origin->source && config_text(config, file_key)[0] != '\0') {
            buffer_append_text(out, file_key->name);
            return;
        }
    }
    switch (origin->source) {
    case CONFIG_FROM_DEFAULT:
        buffer_append_text(out, "default");
        break;
    case CONFIG_FROM_FILE:
        buffer_printf(out, "%s:%d", config->file, origin->line);
        break;
    case CONFIG_FROM_ENVIRONMENT:
        config_append_variable(out, key);
        break;
    case CONFIG_FROM_FLAG:
        config_append_flag(out, key);
        break;
    }
}
