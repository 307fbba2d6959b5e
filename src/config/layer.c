/* layer.c: flags and environment variables as layers of settings, and laying one over another. */
#include "config/layer.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/arguments.h"
#include "config/check.h"
#include "config/suggest.h"
#include "config/value.h"

#define VARIABLE_PREFIX   "DIBS_"
#define VARIABLE_NAME_MAX 64

/* Variables with our prefix that are not settings. A name that ends with '*' is a prefix.
 * Kubernetes gives every pod next to a service called "dibs" the ones about SERVICE and PORT. */
static const char *const foreign_variables[] = {
    "DIBS_URL",          "DIBS_BINARY",        "DIBS_BUILD_DIR", "DIBS_FAULT*", "DIBS_TEST_*",
    "DIBS_SERVICE_HOST", "DIBS_SERVICE_PORT*", "DIBS_PORT",      "DIBS_PORT_*",
};

static size_t place_of(const struct config_key *key)
{
    return (size_t)(key - config_keys);
}

const struct config_key *config_key_find(const char *name)
{
    for (size_t i = 0; i < config_key_count; i++) {
        if (strcmp(config_keys[i].name, name) == 0) {
            return &config_keys[i];
        }
    }
    return NULL;
}

bool config_key_has_flag(const struct config_key *key)
{
    return key->type != CONFIG_SECRET;
}

const char *config_key_value_word(const struct config_key *key)
{
    static const char *const words[] = {
        [CONFIG_ADDRESS] = "ADDRESS", [CONFIG_TEXT] = "TEXT",         [CONFIG_URL] = "URL",
        [CONFIG_FILE] = "FILE",       [CONFIG_SECRET] = "SECRET",     [CONFIG_INTEGER] = "N",
        [CONFIG_RATE] = "RATE",       [CONFIG_DURATION] = "DURATION", [CONFIG_CHOICE] = "WORD",
        [CONFIG_ENUM] = "WORD",       [CONFIG_LIST] = "LIST",
    };
    return key->value_word != NULL ? key->value_word : words[key->type];
}

void config_append_flag(struct buffer *out, const struct config_key *key)
{
    buffer_append_text(out, "--");
    for (const char *at = key->name; *at != '\0'; at++) {
        buffer_append(out, *at == '_' ? "-" : at, 1);
    }
}

void config_append_variable(struct buffer *out, const struct config_key *key)
{
    buffer_append_text(out, VARIABLE_PREFIX);
    for (const char *at = key->name; *at != '\0'; at++) {
        char upper = (char)toupper((unsigned char)*at);
        buffer_append(out, &upper, 1);
    }
}

/* A key whose flag or variable is `name` (without "--" or the prefix). */
static const struct config_key *find_written(const char *name,
                                             void (*append)(struct buffer *,
                                                            const struct config_key *))
{
    struct buffer written;
    buffer_init(&written, 128);
    const struct config_key *found = NULL;
    for (size_t i = 0; i < config_key_count && found == NULL; i++) {
        buffer_clear(&written);
        append(&written, &config_keys[i]);
        found = strcmp(written.bytes, name) == 0 ? &config_keys[i] : NULL;
    }
    buffer_release(&written);
    return found;
}

/* "unknown variable DIBS_LISTN; did you mean DIBS_LISTEN?" The words that were offered are names of
 * keys, so they are written as the source writes them. */
static enum status refuse_unknown(const char *kind, const char *typed, const char *name,
                                  void (*append)(struct buffer *, const struct config_key *),
                                  struct error *error)
{
    struct suggestion suggestion;
    suggestion_begin(&suggestion, name);
    for (size_t i = 0; i < config_key_count; i++) {
        if (append != config_append_flag || config_key_has_flag(&config_keys[i])) {
            suggestion_offer(&suggestion, config_keys[i].name);
        }
    }
    suggestion_offer(&suggestion, "config");
    const char *best = suggestion_best(&suggestion);
    if (best == NULL) {
        return error_set(error, STATUS_INVALID,
                         "unknown %s %.64s; `dibs config` lists all settings", kind, typed);
    }
    struct buffer meant;
    buffer_init(&meant, 128);
    append(&meant, &(struct config_key){.name = best});
    enum status status = error_set(error, STATUS_INVALID, "unknown %s %.64s; did you mean %s?",
                                   kind, typed, meant.bytes);
    buffer_release(&meant);
    return status;
}

static void replace(char **text, const char *value)
{
    free(*text);
    *text = config_copy(span_of(value));
}

/* A URL that lost its flag may hold a password. */
static enum status refuse_word(const char *word, struct error *error)
{
    struct buffer shown;
    buffer_init(&shown, CONFIG_VALUE_LENGTH_MAX);
    config_append_url(&shown, word);
    error_set(error, STATUS_INVALID,
              "unexpected \"%.64s\"; settings are flags, as in --listen ADDRESS",
              shown.length > 0 ? shown.bytes : "");
    buffer_release(&shown);
    return STATUS_INVALID;
}

enum status config_layer_read_flags(struct config_layer *layer, int argc, char *const *argv,
                                    struct error *error)
{
    layer->source = CONFIG_FROM_FLAG;
    struct arguments arguments;
    struct argument argument;
    arguments_begin(&arguments, argc, argv);
    while (arguments_next(&arguments, &argument)) {
        if (!argument.is_flag) {
            return refuse_word(argument.text, error);
        }
        char written[ARGUMENT_NAME_SIZE + 2];
        snprintf(written, sizeof(written), "--%s", argument.name);
        const struct config_key *key = find_written(written, config_append_flag);
        bool names_file = strcmp(written, "--config") == 0;
        if (argument.text[1] != '-' || (key == NULL && !names_file)) {
            char typed[ARGUMENT_NAME_SIZE + 2];
            snprintf(typed, sizeof(typed), "%.*s", argument.text_length, argument.text);
            return refuse_unknown("flag", typed, argument.name, config_append_flag, error);
        }
        if (key != NULL && !config_key_has_flag(key)) {
            return error_set(error, STATUS_INVALID,
                             "%s: a secret on a command line can be seen by everyone on the "
                             "machine; use %s-file FILE",
                             written, written);
        }
        const char *value = arguments_value(&arguments, &argument);
        if (value == NULL && !names_file) {
            value = key->alone;
        }
        if (value == NULL) {
            return error_set(error, STATUS_INVALID, "%s: needs a value, as in %s %s", written,
                             written, names_file ? "dibs.conf" : key->example);
        }
        replace(names_file ? &layer->file : &layer->values[place_of(key)], value);
    }
    return STATUS_OK;
}

static bool is_foreign(const char *name)
{
    for (size_t i = 0; i < sizeof(foreign_variables) / sizeof(foreign_variables[0]); i++) {
        const char *known = foreign_variables[i];
        size_t length = strlen(known);
        bool open_ended = known[length - 1] == '*';
        if (open_ended ? strncmp(name, known, length - 1) == 0 : strcmp(name, known) == 0) {
            return true;
        }
    }
    return false;
}

enum status config_layer_read_environment(struct config_layer *layer, char *const *environment,
                                          struct error *error)
{
    layer->source = CONFIG_FROM_ENVIRONMENT;
    for (char *const *at = environment; at != NULL && *at != NULL; at++) {
        const char *equals = strchr(*at, '=');
        if (equals == NULL || strncmp(*at, VARIABLE_PREFIX, strlen(VARIABLE_PREFIX)) != 0) {
            continue;
        }
        char name[VARIABLE_NAME_MAX + 1];
        snprintf(name, sizeof(name), "%.*s", (int)(equals - *at), *at);
        if (strcmp(name, VARIABLE_PREFIX "CONFIG") == 0) {
            replace(&layer->file, equals + 1);
            continue;
        }
        const struct config_key *key = find_written(name, config_append_variable);
        if (key != NULL) {
            replace(&layer->values[place_of(key)], equals + 1);
        } else if (!is_foreign(name)) {
            return refuse_unknown("variable", name, name + strlen(VARIABLE_PREFIX),
                                  config_append_variable, error);
        }
    }
    return STATUS_OK;
}

static void append_place(struct buffer *out, const struct config_layer *layer,
                         const struct config_key *key)
{
    switch (layer->source) {
    case CONFIG_FROM_FLAG:
        config_append_flag(out, key);
        break;
    case CONFIG_FROM_ENVIRONMENT:
        config_append_variable(out, key);
        break;
    case CONFIG_FROM_FILE:
        buffer_printf(out, "%.200s:%d: %s", layer->file, layer->lines[place_of(key)], key->name);
        break;
    case CONFIG_FROM_DEFAULT:
        buffer_append_text(out, key->name);
        break;
    }
}

/* Sets one value, unless it would show a password to everyone who can list processes. */
static enum status set_from(const struct config_layer *layer, struct config *config,
                            const struct config_key *key, const char *value, struct error *error)
{
    if (layer->source == CONFIG_FROM_FLAG && key->type == CONFIG_URL &&
        config_url_has_password(value)) {
        struct buffer variable;
        buffer_init(&variable, 128);
        config_append_variable(&variable, key);
        error_set(error, STATUS_INVALID,
                  "holds a password, and anyone on this machine can read the arguments of a "
                  "process; put the URL into %s or dibs.conf, or use %s_password_file",
                  variable.bytes, key->name);
        buffer_release(&variable);
        return STATUS_INVALID;
    }
    return config_value_set(config, key, value, error);
}

enum status config_layer_apply(const struct config_layer *layer, struct config *config,
                               struct error *error)
{
    for (size_t i = 0; i < config_key_count; i++) {
        if (layer->values[i] == NULL) {
            continue;
        }
        if (set_from(layer, config, &config_keys[i], layer->values[i], error) != STATUS_OK) {
            struct buffer place;
            buffer_init(&place, 512);
            append_place(&place, layer, &config_keys[i]);
            error_prefix(error, "%s", place.bytes);
            buffer_release(&place);
            return STATUS_INVALID;
        }
        config->origins[i] = (struct config_origin){layer->source, layer->lines[i]};
    }
    return STATUS_OK;
}

void config_layer_release(struct config_layer *layer)
{
    for (size_t i = 0; i < config_key_count; i++) {
        if (layer->values[i] != NULL) {
            explicit_bzero(layer->values[i], strlen(layer->values[i]));
        }
        free(layer->values[i]);
    }
    free(layer->file);
    *layer = (struct config_layer){0};
}
