/* value.c: reads, keeps and prints values by their type, and reads the files they are in. */
#include "config/value.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/check.h"

#define SECOND_MS INT64_C(1000)
#define MINUTE_MS (60 * SECOND_MS)
#define HOUR_MS   (60 * MINUTE_MS)

/* Longest first, so that printing finds the shortest text; "m" is matched after "ms". */
static const struct {
    const char *name;
    int64_t unit_ms;
} duration_units[] = {{"h", HOUR_MS}, {"m", MINUTE_MS}, {"s", SECOND_MS}, {"ms", 1}};

#define DURATION_UNIT_COUNT (sizeof(duration_units) / sizeof(duration_units[0]))

char *config_copy(struct span text)
{
    char *copy = calloc(1, text.length + 1);
    ensure(copy != NULL);
    if (text.length > 0)
        memcpy(copy, text.bytes, text.length);
    return copy;
}

static void config_list_add(struct config_list *list, struct span text)
{
    char **items = realloc(list->items, (list->count + 1) * sizeof(*items));
    ensure(items != NULL);
    items[list->count++] = config_copy(text);
    list->items = items;
}

void config_warn(struct config *config, const char *format, ...)
{
    char text[3 * CONFIG_VALUE_LENGTH_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    config_list_add(&config->warnings, span_of(text));
}

void config_list_release(struct config_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct config_list){0};
}

static void *field_of(struct config *config, const struct config_key *key)
{
    return (char *)config + key->offset;
}

static const void *field_in(const struct config *config, const struct config_key *key)
{
    return (const char *)config + key->offset;
}

bool config_parse_duration(const char *text, int64_t *duration_ms)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 12)
        return false;
    int64_t number = strtoll(text, NULL, 10);
    for (size_t i = 0; i < DURATION_UNIT_COUNT; i++) {
        if (strcmp(text + digits, duration_units[i].name) == 0) {
            *duration_ms = number * duration_units[i].unit_ms;
            return true;
        }
    }
    return false;
}

void config_append_duration(struct buffer *out, int64_t duration_ms)
{
    size_t unit = 0;
    while (unit + 1 < DURATION_UNIT_COUNT &&
           (duration_ms == 0 ? duration_units[unit].unit_ms != SECOND_MS
                             : duration_ms % duration_units[unit].unit_ms != 0))
        unit++;
    buffer_printf(out, "%" PRId64 "%s", duration_ms / duration_units[unit].unit_ms,
                  duration_units[unit].name);
}

/* "12" or "0.5": digits, at most three of them after a point. */
static bool parse_rate(const char *text, double *rate)
{
    size_t whole = strspn(text, "0123456789");
    const char *rest = text + whole;
    size_t fraction = *rest == '.' ? strspn(rest + 1, "0123456789") : 0;
    if (whole == 0 || whole > 9 || fraction > 3 || (*rest == '.' && fraction == 0) ||
        rest[*rest == '.' ? fraction + 1 : 0] != '\0')
        return false;
    double thousandths = 0;
    for (size_t i = 0; i < 3; i++)
        thousandths = thousandths * 10 + (i < fraction ? rest[1 + i] - '0' : 0);
    *rate = (double)strtoll(text, NULL, 10) + thousandths / 1000;
    return true;
}

static void append_choices(struct buffer *out, const char *const *choices)
{
    for (size_t i = 0; choices[i] != NULL; i++) {
        const char *joint = i == 0 ? "" : choices[i + 1] == NULL ? " or " : ", ";
        buffer_printf(out, "%s%s", joint, choices[i]);
    }
}

void config_append_allowed(struct buffer *out, const struct config_key *key)
{
    switch (key->type) {
    case CONFIG_INTEGER:
    case CONFIG_RATE:
        buffer_printf(out, "%" PRId64 " to %" PRId64, key->minimum, key->maximum);
        break;
    case CONFIG_DURATION:
        config_append_duration(out, key->minimum);
        buffer_append_text(out, " to ");
        config_append_duration(out, key->maximum);
        break;
    case CONFIG_CHOICE:
    case CONFIG_ENUM:
        append_choices(out, key->choices);
        break;
    case CONFIG_SECRET:
        if (key->minimum > 1) {
            buffer_printf(out, "at least %" PRId64 " %s", key->minimum,
                          key->check == config_check_token ? "visible ASCII characters" : "bytes");
        } else {
            buffer_append_text(out, "one line");
        }
        break;
    case CONFIG_ADDRESS:
    case CONFIG_TEXT:
    case CONFIG_URL:
    case CONFIG_FILE:
    case CONFIG_LIST:
        break;
    }
}

/* "is too short; allowed: …" */
static enum status refuse(const struct config_key *key, const char *text, struct error *error)
{
    struct buffer allowed;
    buffer_init(&allowed, 512);
    config_append_allowed(&allowed, key);
    error_set(error, STATUS_INVALID, "%s; allowed: %s", text, allowed.bytes);
    buffer_release(&allowed);
    return STATUS_INVALID;
}

/* The same with the text in front, but of a URL no more than its scheme, which holds no password.
 */
static enum status refuse_text(const struct config_key *key, const char *text, const char *what,
                               struct error *error)
{
    char message[256];
    const char *scheme_end = strstr(text, "://");
    int length = scheme_end != NULL ? (int)(scheme_end - text) : (int)strnlen(text, 64);
    snprintf(message, sizeof(message), "\"%.*s%s\" %s", length > 64 ? 64 : length, text,
             scheme_end != NULL ? "://…" : "", what);
    return refuse(key, message, error);
}

static enum status set_text(struct config *config, const struct config_key *key, const char *text,
                            struct error *error)
{
    enum status status = STATUS_OK;
    if (key->type == CONFIG_ADDRESS)
        status = config_check_address(text, error);
    else if (key->check != NULL)
        status = key->check(text, error);
    if (status == STATUS_OK) {
        config_value_release(config, key);
        *(char **)field_of(config, key) = config_copy(span_of(text));
    }
    return status;
}

static enum status set_integer(struct config *config, const struct config_key *key,
                               const char *text, struct error *error)
{
    int64_t number = 0;
    if (key->type == CONFIG_DURATION) {
        if (!config_parse_duration(text, &number)) {
            return refuse_text(key, text,
                               "is not a duration with its unit, as in 500ms, 5s, 2m or 1h", error);
        }
    } else {
        size_t length = strlen(text);
        if (length == 0 || strspn(text, "0123456789") != length)
            return refuse_text(key, text, "is not a whole number", error);
        number = length <= 18 ? strtoll(text, NULL, 10) : INT64_MAX;
    }
    if (number < key->minimum || number > key->maximum)
        return refuse_text(key, text, "is out of range", error);
    *(int64_t *)field_of(config, key) = number;
    return STATUS_OK;
}

static enum status set_rate(struct config *config, const struct config_key *key, const char *text,
                            struct error *error)
{
    double rate = 0;
    if (!parse_rate(text, &rate))
        return refuse_text(key, text, "is not a number, as in 5 or 0.5", error);
    if (rate < (double)key->minimum || rate > (double)key->maximum)
        return refuse_text(key, text, "is out of range", error);
    *(double *)field_of(config, key) = rate;
    return STATUS_OK;
}

static enum status set_choice(struct config *config, const struct config_key *key, const char *text,
                              struct error *error)
{
    for (int i = 0; key->choices[i] != NULL; i++) {
        if (strcmp(key->choices[i], text) != 0)
            continue;
        if (key->type == CONFIG_CHOICE)
            return set_text(config, key, text, error);
        *(int *)field_of(config, key) = i;
        return STATUS_OK;
    }
    return refuse_text(key, text, "is not known", error);
}

static enum status set_list(struct config *config, const struct config_key *key, const char *text,
                            struct error *error)
{
    static const char separators[] = ", \t";
    struct config_list list = {0};
    bool any = false;
    for (const char *at = text + strspn(text, separators); *at != '\0';) {
        struct span item = {.bytes = at, .length = strcspn(at, separators)};
        config_list_add(&list, item);
        const char *added = list.items[list.count - 1];
        if (key->check != NULL && key->check(added, error) != STATUS_OK) {
            config_list_release(&list);
            return STATUS_INVALID;
        }
        any = any || strcmp(added, "*") == 0;
        at += item.length;
        at += strspn(at, separators);
    }
    if (any && list.count > 1) {
        config_list_release(&list);
        return error_set(error, STATUS_INVALID, "* stands for all and cannot be one of several");
    }
    config_value_release(config, key);
    *(struct config_list *)field_of(config, key) = list;
    return STATUS_OK;
}

enum status config_secret_set(struct config *config, const struct config_key *key,
                              struct span bytes, struct error *error)
{
    if (bytes.length < (size_t)key->minimum)
        return refuse(key, bytes.length == 0 ? "is empty" : "is too short", error);
    struct config_secret secret = {.bytes = config_copy(bytes), .length = bytes.length};
    if (key->check != NULL) {
        /* The checks read text, and a NUL would hide what follows it. */
        enum status status = memchr(secret.bytes, '\0', secret.length) != NULL
                                 ? error_set(error, STATUS_INVALID, "contains a NUL byte")
                                 : key->check(secret.bytes, error);
        if (status != STATUS_OK) {
            explicit_bzero(secret.bytes, secret.length);
            free(secret.bytes);
            return status;
        }
    }
    config_value_release(config, key);
    *(struct config_secret *)field_of(config, key) = secret;
    return STATUS_OK;
}

enum status config_value_set(struct config *config, const struct config_key *key, const char *text,
                             struct error *error)
{
    if (key->type == CONFIG_SECRET)
        return config_secret_set(config, key, span_of(text), error);
    if (strlen(text) > CONFIG_VALUE_LENGTH_MAX)
        return error_set(error, STATUS_INVALID, "is longer than %d bytes", CONFIG_VALUE_LENGTH_MAX);
    for (const char *at = text; *at != '\0'; at++)
        if (iscntrl((unsigned char)*at) && *at != '\t')
            return error_set(error, STATUS_INVALID, "contains a control character");
    switch (key->type) {
    case CONFIG_INTEGER:
    case CONFIG_DURATION:
        return set_integer(config, key, text, error);
    case CONFIG_RATE:
        return set_rate(config, key, text, error);
    case CONFIG_CHOICE:
    case CONFIG_ENUM:
        return set_choice(config, key, text, error);
    case CONFIG_LIST:
        return set_list(config, key, text, error);
    case CONFIG_ADDRESS:
    case CONFIG_TEXT:
    case CONFIG_URL:
    case CONFIG_FILE:
    case CONFIG_SECRET:
        break;
    }
    return set_text(config, key, text, error);
}

void config_value_release(struct config *config, const struct config_key *key)
{
    switch (key->type) {
    case CONFIG_ADDRESS:
    case CONFIG_TEXT:
    case CONFIG_FILE:
    case CONFIG_URL:
    case CONFIG_CHOICE: {
        char **text = field_of(config, key);
        secret_free(*text);
        *text = NULL;
        break;
    }
    case CONFIG_LIST:
        config_list_release(field_of(config, key));
        break;
    case CONFIG_SECRET: {
        struct config_secret *secret = field_of(config, key);
        if (secret->bytes != NULL) {
            explicit_bzero(secret->bytes, secret->length);
            free(secret->bytes);
        }
        *secret = (struct config_secret){0};
        break;
    }
    case CONFIG_INTEGER:
    case CONFIG_DURATION:
    case CONFIG_RATE:
    case CONFIG_ENUM:
        break;
    }
}

void config_append_value(struct buffer *out, const struct config *config,
                         const struct config_key *key)
{
    const void *field = field_in(config, key);
    switch (key->type) {
    case CONFIG_ADDRESS:
    case CONFIG_TEXT:
    case CONFIG_FILE:
    case CONFIG_CHOICE:
        buffer_append_text(out, *(char *const *)field);
        break;
    case CONFIG_URL:
        config_append_url(out, *(char *const *)field);
        break;
    case CONFIG_INTEGER:
        buffer_append_i64(out, *(const int64_t *)field);
        break;
    case CONFIG_DURATION:
        config_append_duration(out, *(const int64_t *)field);
        break;
    case CONFIG_RATE:
        buffer_printf(out, "%.10g", *(const double *)field);
        break;
    case CONFIG_ENUM:
        buffer_append_text(out, key->choices[*(const int *)field]);
        break;
    case CONFIG_SECRET:
        buffer_append_text(out, ((const struct config_secret *)field)->bytes != NULL ? "****" : "");
        break;
    case CONFIG_LIST: {
        const struct config_list *list = field;
        for (size_t i = 0; i < list->count; i++)
            buffer_printf(out, "%s%s", i == 0 ? "" : ", ", list->items[i]);
        break;
    }
    }
}

/* --- files --- */

static enum status read_to_end(int file, const char *path, struct buffer *out, struct error *error)
{
    char piece[4096];
    for (;;) {
        ssize_t length = read(file, piece, sizeof(piece));
        if (length == 0)
            return STATUS_OK;
        if (length < 0 && errno == EINTR)
            continue;
        if (length < 0)
            return error_set(error, STATUS_FAILED, "%s: cannot be read: %s", path, strerror(errno));
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
    if (fstat(file, &about) != 0)
        status = error_set(error, STATUS_FAILED, "%s: %s", path, strerror(errno));
    else if (S_ISDIR(about.st_mode))
        status = error_set(error, STATUS_FAILED, "%s: is a folder, not a file", path);
    else
        status = read_to_end(file, path, out, error);
    if (status == STATUS_OK && mode != NULL)
        *mode = about.st_mode;
    close(file);
    return status;
}
