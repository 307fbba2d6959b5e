/* file.c: the settings file as a layer, read with inih.
 *
 * inih does not tell a handler the line and silently cuts long lines in two, so it gets its lines
 * from a reader of ours that counts them and refuses what it would misread.
 */
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/layer.h"
#include "config/read.h"
#include "config/suggest.h"
#include "config/value.h"

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
    if (walk->rest.length == 0 || walk->status != STATUS_OK) {
        return NULL;
    }
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

static enum status refuse_key(const char *name, struct error *error)
{
    struct suggestion suggestion;
    suggestion_begin(&suggestion, name);
    for (size_t i = 0; i < config_key_count; i++) {
        if (config_key_has_flag(&config_keys[i])) {
            suggestion_offer(&suggestion, config_keys[i].name);
        }
    }
    const char *best = suggestion_best(&suggestion);
    if (best == NULL) {
        return error_set(error, STATUS_INVALID,
                         "unknown key \"%.64s\"; `dibs config` lists all settings", name);
    }
    return error_set(error, STATUS_INVALID, "unknown key \"%.64s\"; did you mean %s?", name, best);
}

/* A list may go on in indented lines; everything else is said once. */
static enum status add_value(struct file_walk *walk, const struct config_key *key,
                             const char *value, struct error *error)
{
    size_t place = (size_t)(key - config_keys);
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
    *kept = config_copy((struct span){joined.bytes, joined.length});
    buffer_release(&joined);
    return STATUS_OK;
}

/* 1 to go on, 0 for an error: inih's own convention. */
static int walk_take(void *user, const char *section, const char *name, const char *value)
{
    struct file_walk *walk = user;
    if (walk->status != STATUS_OK) {
        return 0;
    }
    enum status status = STATUS_OK;
    const struct config_key *key = config_key_find(name);
    if (*section != '\0') {
        status = error_set(walk->error, STATUS_INVALID,
                           "there are no sections: write the keys without [%.64s]", section);
    } else if (key == NULL) {
        status = refuse_key(name, walk->error);
    } else if (!config_key_has_flag(key)) {
        status = error_set(walk->error, STATUS_INVALID,
                           "%s: a secret does not belong in this file; put it into a file of its "
                           "own and name that in %s",
                           key->name, key->secret_file);
    } else {
        status = add_value(walk, key, value, walk->error);
    }
    if (status != STATUS_OK) {
        walk_fail(walk);
    }
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
    if (status == STATUS_OK) {
        status = config_layer_read_text(layer, path, (struct span){text.bytes, text.length}, error);
    }
    /* It may hold the password of a backend. */
    if (text.bytes != NULL) {
        explicit_bzero(text.bytes, text.length);
    }
    buffer_release(&text);
    return status;
}
