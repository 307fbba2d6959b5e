/* layer.c: flags, environment variables and the settings file as layers of settings, and laying one
 * over another. */
#include "config/layer.h"

#include <ctype.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/arguments.h"
#include "config/check.h"
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
    for (size_t i = 0; i < config_key_count; i++)
        if (strcmp(config_keys[i].name, name) == 0)
            return &config_keys[i];
    return NULL;
}

bool config_key_has_flag(const struct config_key *key)
{
    return key->type != CONFIG_SECRET;
}

const char *config_key_value_word(const struct config_key *key)
{
    static const char *const names[] = {
        [CONFIG_ADDRESS] = "ADDRESS", [CONFIG_TEXT] = "TEXT",         [CONFIG_URL] = "URL",
        [CONFIG_FILE] = "FILE",       [CONFIG_SECRET] = "SECRET",     [CONFIG_INTEGER] = "N",
        [CONFIG_RATE] = "RATE",       [CONFIG_DURATION] = "DURATION", [CONFIG_CHOICE] = "WORD",
        [CONFIG_ENUM] = "WORD",       [CONFIG_LIST] = "LIST",
    };
    return key->value_name != NULL ? key->value_name : names[key->type];
}

void config_append_flag(struct buffer *out, const struct config_key *key)
{
    buffer_append_text(out, "--");
    for (const char *at = key->name; *at != '\0'; at++)
        buffer_append(out, *at == '_' ? "-" : at, 1);
}

void config_append_variable(struct buffer *out, const struct config_key *key)
{
    buffer_append_text(out, VARIABLE_PREFIX);
    for (const char *at = key->name; *at != '\0'; at++) {
        char upper = (char)toupper((unsigned char)*at);
        buffer_append(out, &upper, 1);
    }
}

static void append_name(struct buffer *out, const struct config_key *key)
{
    buffer_append_text(out, key->name);
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
    struct buffer meant;
    suggestion_begin(&suggestion, name);
    for (size_t i = 0; i < config_key_count; i++)
        if (append == config_append_variable || config_key_has_flag(&config_keys[i]))
            suggestion_offer(&suggestion, config_keys[i].name);
    if (append != append_name)
        suggestion_offer(&suggestion, "config");
    buffer_init(&meant, 128);
    if (suggestion.best != NULL)
        append(&meant, &(struct config_key){.name = suggestion.best});
    suggestion.best = meant.bytes;
    enum status status =
        error_set(error, STATUS_INVALID, "unknown %s %.66s%s", kind, typed,
                  suggestion_hint(&suggestion, "", "; `dibs config` lists all settings"));
    buffer_release(&meant);
    return status;
}

static void replace(char **text, const char *value)
{
    free(*text);
    *text = config_copy(span_of(value));
}

/* A URL that lost its flag may hold a password. */
static enum status refuse_argument(const char *word, struct error *error)
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
        if (!argument.is_flag)
            return refuse_argument(argument.text, error);
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
        if (value == NULL && !names_file)
            value = key->alone;
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
        if (open_ended ? strncmp(name, known, length - 1) == 0 : strcmp(name, known) == 0)
            return true;
    }
    return false;
}

enum status config_layer_read_environment(struct config_layer *layer, char *const *environment,
                                          struct error *error)
{
    layer->source = CONFIG_FROM_ENVIRONMENT;
    for (char *const *at = environment; at != NULL && *at != NULL; at++) {
        const char *equals = strchr(*at, '=');
        if (equals == NULL || strncmp(*at, VARIABLE_PREFIX, strlen(VARIABLE_PREFIX)) != 0)
            continue;
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

/* --- the settings file ---
 *
 * inih does not tell a handler the line and silently cuts long lines in two, so it gets its lines
 * from a reader of ours that counts them and refuses what it would misread. */

/* One walk through the file; the first error is kept and the rest passed over. */
struct file_walk {
    struct config_layer *layer;
    struct span rest;
    int line;
    bool indented; /* the current line, which then goes on with the one before */
    enum status status;
    struct error *error;
};

static bool is_blank(char character)
{
    return character == ' ' || character == '\t';
}

static void walk_fail(struct file_walk *walk)
{
    walk->status = STATUS_INVALID;
    error_prefix(walk->error, "%s:%d", walk->layer->file, walk->line);
}

/* As fgets: one line with its newline into `line`, which has room for `size` bytes. */
static char *walk_read_line(char *line, int size, void *stream)
{
    struct file_walk *walk = stream;
    if (walk->rest.length == 0 || walk->status != STATUS_OK)
        return NULL;
    const char *newline = memchr(walk->rest.bytes, '\n', walk->rest.length);
    size_t length = newline != NULL ? (size_t)(newline + 1 - walk->rest.bytes) : walk->rest.length;
    walk->line++;
    if (length >= (size_t)size) {
        error_set(walk->error, STATUS_INVALID,
                  "the line is longer than %d bytes; a list may go on in indented lines", size - 2);
        walk_fail(walk);
        return NULL;
    }
    memcpy(line, walk->rest.bytes, length);
    line[length] = '\0';
    walk->indented = is_blank(line[0]);
    walk->rest.bytes += length;
    walk->rest.length -= length;
    return line;
}

/* A list may go on in indented lines; everything else is said once. */
static enum status add_value(struct file_walk *walk, const struct config_key *key,
                             const char *value, struct error *error)
{
    size_t place = place_of(key);
    char **kept = &walk->layer->values[place];
    if (*kept == NULL) {
        walk->layer->lines[place] = walk->line;
        *kept = config_copy(span_of(value));
        return STATUS_OK;
    }
    if (!walk->indented) {
        return error_set(error, STATUS_INVALID, "%s: is said twice; it is on line %d too",
                         key->name, walk->layer->lines[place]);
    }
    if (key->type != CONFIG_LIST) {
        return error_set(error, STATUS_INVALID,
                         "an indented line goes on with the one before, and %s is not a list",
                         key->name);
    }
    struct buffer joined;
    buffer_init(&joined, CONFIG_FILE_LENGTH_MAX);
    buffer_printf(&joined, "%s, %s", *kept, value);
    free(*kept);
    *kept = config_copy(buffer_span(&joined));
    buffer_release(&joined);
    return STATUS_OK;
}

/* 1 to go on, 0 for an error: inih's own convention. */
static int walk_take(void *user, const char *section, const char *name, const char *value)
{
    struct file_walk *walk = user;
    if (walk->status != STATUS_OK)
        return 0;
    enum status status = STATUS_OK;
    const struct config_key *key = config_key_find(name);
    if (*section != '\0') {
        status = error_set(walk->error, STATUS_INVALID,
                           "there are no sections: write the keys without [%.64s]", section);
    } else if (key == NULL) {
        char quoted[80];
        snprintf(quoted, sizeof(quoted), "\"%.64s\"", name);
        status = refuse_unknown("key", quoted, name, append_name, walk->error);
    } else if (!config_key_has_flag(key)) {
        status = error_set(walk->error, STATUS_INVALID,
                           "%s: a secret does not belong in this file; put it into a file of its "
                           "own and name that in %s",
                           key->name, key->secret_file);
    } else {
        status = add_value(walk, key, value, walk->error);
    }
    if (status != STATUS_OK)
        walk_fail(walk);
    return status == STATUS_OK;
}

enum status config_layer_read_text(struct config_layer *layer, const char *path, struct span text,
                                   struct error *error)
{
    struct error unwanted;
    error = error != NULL ? error : &unwanted;
    layer->source = CONFIG_FROM_FILE;
    free(layer->file);
    layer->file = config_copy(span_of(path));
    if (text.length > 0 && memchr(text.bytes, '\0', text.length) != NULL) {
        return error_set(error, STATUS_INVALID, "%s: contains a NUL byte; it is not a text file",
                         path);
    }
    struct file_walk walk = {.layer = layer, .rest = text, .error = error};
    int wrong_line = ini_parse_stream(walk_read_line, &walk, walk_take, &walk);
    /* inih goes on after a line it cannot read; what it was may be further up than what we found.
     */
    if (wrong_line != 0 && (walk.status == STATUS_OK || wrong_line < walk.line)) {
        return error_set(error, STATUS_INVALID,
                         "%s:%d: is not a setting, as in `listen = 127.0.0.1:8080`, nor a comment "
                         "that begins with # or ;",
                         path, wrong_line);
    }
    return walk.status;
}

enum status config_layer_read_file(struct config_layer *layer, const char *path,
                                   struct error *error)
{
    struct buffer text;
    buffer_init(&text, CONFIG_FILE_LENGTH_MAX);
    enum status status = config_read_file(path, &text, &layer->mode, error);
    if (status == STATUS_OK)
        status = config_layer_read_text(layer, path, buffer_span(&text), error);
    /* It may hold the password of a backend. */
    if (text.bytes != NULL)
        explicit_bzero(text.bytes, text.length);
    buffer_release(&text);
    return status;
}

/* --- laying one over another --- */

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
        if (layer->values[i] == NULL)
            continue;
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
    for (size_t i = 0; i < config_key_count; i++)
        secret_free(layer->values[i]);
    free(layer->file);
    *layer = (struct config_layer){0};
}
