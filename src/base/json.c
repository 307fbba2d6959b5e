/* json.c: decodes JSON objects through tables of fields. */
#include "base/json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <yyjson.h>

#include "base/clock.h"
#include "base/model.h"
#include "base/utf8.h"

/* One bit per field remembers what an object has already had. */
#define FIELD_COUNT_MAX 64

struct json_reader {
    size_t body_max;
    char *text; /* a copy of the body, decoded in place */
    void *pool; /* what yyjson builds its values in */
    size_t pool_size;
    struct buffer digits; /* ids that came as numbers */
    struct json_mistakes mistakes;
};

/* Where the reader stands in the document; only walked when something has to be refused. */
struct json_place {
    const struct json_place *parent; /* NULL: a field of the body itself */
    struct span name;
};

/* One call of json_read_object. */
struct json_reading {
    struct json_reader *reader;
    char *field;
    struct error *error;
};

static enum status read_object(const struct json_reading *reading, const struct json_place *place,
                               yyjson_val *object, const struct json_field *fields,
                               size_t field_count);

struct json_reader *json_reader_new(size_t body_max)
{
    struct json_reader *reader = calloc(1, sizeof(*reader));
    if (reader == NULL)
        return NULL;
    reader->body_max = body_max;
    reader->pool_size = yyjson_read_max_memory_usage(body_max, YYJSON_READ_INSITU);
    reader->text = malloc(body_max + YYJSON_PADDING_SIZE);
    reader->pool = malloc(reader->pool_size);
    /* No number has more digits than the body has bytes. */
    buffer_init(&reader->digits, body_max);
    if (reader->text == NULL || reader->pool == NULL ||
        !buffer_reserve(&reader->digits, body_max)) {
        json_reader_free(reader);
        return NULL;
    }
    return reader;
}

void json_reader_free(struct json_reader *reader)
{
    if (reader == NULL)
        return;
    buffer_release(&reader->digits);
    free(reader->pool);
    free(reader->text);
    free(reader);
}

const struct json_mistakes *json_reader_mistakes(const struct json_reader *reader)
{
    return &reader->mistakes;
}

void json_reader_note(struct json_reader *reader, const char *field, const char *message)
{
    struct json_mistakes *mistakes = &reader->mistakes;
    size_t length = strlen(field);
    for (size_t i = 0; i < mistakes->count; i++)
        if (strcmp(mistakes->items[i].field, field) == 0)
            return;
    if (mistakes->count == JSON_MISTAKES_MAX)
        return;
    bool has_field =
        strncmp(message, field, length) == 0 && strncmp(message + length, ": ", 2) == 0;
    snprintf(mistakes->items[mistakes->count].field, JSON_FIELD_SIZE, "%.*s", JSON_FIELD_SIZE - 1,
             field);
    snprintf(mistakes->items[mistakes->count].message, JSON_MESSAGE_SIZE, "%.*s",
             JSON_MESSAGE_SIZE - 1, message + (has_field ? length + 2 : 0));
    mistakes->count++;
}

/* "discount.value", cut to fit, without control characters. */
static void write_path(const struct json_place *place, char path[JSON_FIELD_SIZE])
{
    const struct json_place *chain[JSON_DEPTH_MAX + 1];
    size_t depth = 0;
    for (; place != NULL && depth <= JSON_DEPTH_MAX; place = place->parent)
        chain[depth++] = place;
    size_t length = 0;
    while (depth > 0) {
        struct span name = utf8_prefix(chain[--depth]->name, JSON_FIELD_SIZE - 1 - length);
        for (size_t i = 0; i < name.length; i++) {
            unsigned char byte = (unsigned char)name.bytes[i];
            path[length++] = byte < ' ' || byte == 0x7f ? '?' : (char)byte;
        }
        if (depth > 0 && length < JSON_FIELD_SIZE - 1)
            path[length++] = '.';
    }
    path[length] = '\0';
}

static enum status refuse(const struct json_reading *reading, const struct json_place *place,
                          const char *format, ...) PRINTF_LIKE(3, 4);

static enum status refuse(const struct json_reading *reading, const struct json_place *place,
                          const char *format, ...)
{
    struct json_mistakes *mistakes = &reading->reader->mistakes;
    char path[JSON_FIELD_SIZE];
    char text[JSON_MESSAGE_SIZE];
    bool is_first = mistakes->count == 0;
    write_path(place, path);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    json_reader_note(reading->reader, path, text);
    if (!is_first)
        return STATUS_INVALID;
    if (reading->field != NULL)
        memcpy(reading->field, path, strlen(path) + 1);
    return error_set(reading->error, STATUS_INVALID, "%s: %s", path[0] != '\0' ? path : "body",
                     text);
}

/* More mistakes could not be told. */
static bool is_full(const struct json_reading *reading)
{
    return reading->reader->mistakes.count == JSON_MISTAKES_MAX;
}

static enum status refuse_unknown(const struct json_reading *reading,
                                  const struct json_place *place, const struct json_field *fields,
                                  size_t field_count)
{
    char known[256] = "none";
    size_t length = 0;
    for (size_t i = 0; i < field_count && length < sizeof(known); i++) {
        length += (size_t)snprintf(known + length, sizeof(known) - length, "%s%s",
                                   i > 0 ? ", " : "", fields[i].name);
    }
    return refuse(reading, place, "is not a known field; known are %s", known);
}

static enum status refuse_kind(const struct json_reading *reading, const struct json_place *place,
                               const struct json_field *field)
{
    const char *or_null = field->presence == JSON_OPTIONAL_OR_NULL ? ", or null" : "";
    switch (field->kind) {
    case JSON_TEXT:
        return refuse(reading, place,
                      "must be a string of %" PRId64 " to %" PRId64 " characters without U+0000%s",
                      field->minimum, field->maximum, or_null);
    case JSON_ID:
        return refuse(reading, place, JSON_ID_RULE ", or an integer from 0%s", or_null);
    case JSON_INTEGER:
        return refuse(reading, place, "must be an integer from %" PRId64 " to %" PRId64 "%s",
                      field->minimum, field->maximum, or_null);
    case JSON_FLAG:
        return refuse(reading, place, "must be true or false%s", or_null);
    case JSON_TIME:
        return refuse(reading, place,
                      "must be an RFC 3339 time after 1970 such as \"2026-11-15T12:00:00Z\"%s",
                      or_null);
    case JSON_OBJECT:
        return refuse(reading, place, "must be an object%s", or_null);
    case JSON_LIST:
        return refuse(reading, place, "must be a list of %" PRId64 " to %" PRId64 " objects%s",
                      field->minimum, field->maximum, or_null);
    }
    ensure_failed("a known kind of field", __FILE__, __LINE__, __func__);
}

static struct span span_of_value(yyjson_val *text)
{
    return (struct span){.bytes = unsafe_yyjson_get_str(text),
                         .length = unsafe_yyjson_get_len(text)};
}

static bool read_text(const struct json_field *field, yyjson_val *value)
{
    if (!yyjson_is_str(value))
        return false;
    struct span text = span_of_value(value);
    int64_t character_count = 0;
    for (size_t i = 0; i < text.length; i++) {
        /* Texts end up in C strings and in databases that know no NUL. */
        if (text.bytes[i] == '\0')
            return false;
        character_count += ((unsigned char)text.bytes[i] & 0xc0) != 0x80;
    }
    *(struct span *)field->target = text;
    return character_count >= field->minimum && character_count <= field->maximum;
}

static bool read_id(struct json_reader *reader, const struct json_field *field, yyjson_val *value)
{
    struct span *target = field->target;
    if (yyjson_is_str(value)) {
        *target = span_of_value(value);
        return json_id_valid(*target);
    }
    if (yyjson_is_uint(value)) {
        size_t start = reader->digits.length;
        buffer_append_u64(&reader->digits, unsafe_yyjson_get_uint(value));
        *target = (struct span){.bytes = reader->digits.bytes + start,
                                .length = reader->digits.length - start};
        return true;
    }
    return false;
}

/* 1.0, 1e3 and what does not fit 64 bits are reals to yyjson, hence no integers. */
static bool read_integer(const struct json_field *field, yyjson_val *value)
{
    int64_t number;
    if (yyjson_is_uint(value) && unsafe_yyjson_get_uint(value) <= INT64_MAX)
        number = (int64_t)unsafe_yyjson_get_uint(value);
    else if (yyjson_is_sint(value))
        number = unsafe_yyjson_get_sint(value);
    else
        return false;
    *(int64_t *)field->target = number;
    return number >= field->minimum && number <= field->maximum;
}

static bool read_flag(const struct json_field *field, yyjson_val *value)
{
    if (!yyjson_is_bool(value))
        return false;
    *(bool *)field->target = unsafe_yyjson_get_bool(value);
    return true;
}

/* Wall time 0 means "none" everywhere, so the first instant of 1970 cannot be said. */
static bool read_time(const struct json_field *field, yyjson_val *value)
{
    int64_t *wall_ms = field->target;
    return yyjson_is_str(value) && clock_parse_rfc3339(span_of_value(value), wall_ms) &&
           *wall_ms != 0;
}

static void clear_seen(const struct json_field *fields, size_t field_count)
{
    for (size_t i = 0; i < field_count; i++) {
        if (fields[i].seen != NULL)
            *fields[i].seen = JSON_NOT_SEEN;
        if (fields[i].kind == JSON_OBJECT || fields[i].kind == JSON_LIST)
            clear_seen(fields[i].fields, fields[i].field_count);
    }
}

/* "items.3" names the third object of a list. */
static enum status read_list(const struct json_reading *reading, const struct json_place *place,
                             const struct json_field *field, yyjson_val *array)
{
    struct json_list *list = field->target;
    size_t count = yyjson_arr_size(array);
    if ((int64_t)count < field->minimum || (int64_t)count > field->maximum)
        return refuse_kind(reading, place, field);
    if (list->part == NULL)
        list->count = 0;
    else if (list->elements_max - list->count < count)
        return refuse(reading, place, "must be at most %zu in all", list->elements_max);
    else
        *list->part = (struct json_part){.first = list->count, .count = count};
    enum status result = STATUS_OK;
    size_t index;
    yyjson_val *value;
    yyjson_arr_foreach(array, index, count, value)
    {
        char number[24];
        snprintf(number, sizeof(number), "%zu", index + 1);
        struct json_place here = {.parent = place, .name = span_of(number)};
        if (!yyjson_is_obj(value)) {
            result = refuse(reading, &here, "must be an object");
            continue;
        }
        memset(list->element, 0, list->element_size);
        clear_seen(field->fields, field->field_count);
        if (read_object(reading, &here, value, field->fields, field->field_count) != STATUS_OK)
            result = STATUS_INVALID;
        if (is_full(reading))
            break;
        memcpy((char *)list->elements + list->count * list->element_size, list->element,
               list->element_size);
        list->count++;
    }
    return result;
}

static enum status read_value(const struct json_reading *reading, const struct json_place *place,
                              const struct json_field *field, yyjson_val *value)
{
    if (field->presence == JSON_OPTIONAL_OR_NULL && yyjson_is_null(value)) {
        if (field->seen != NULL)
            *field->seen = JSON_SEEN_NULL;
        return STATUS_OK;
    }
    if (field->seen != NULL)
        *field->seen = JSON_SEEN_VALUE;
    bool fits = false;
    switch (field->kind) {
    case JSON_TEXT:
        fits = read_text(field, value);
        break;
    case JSON_ID:
        fits = read_id(reading->reader, field, value);
        break;
    case JSON_INTEGER:
        fits = read_integer(field, value);
        break;
    case JSON_FLAG:
        fits = read_flag(field, value);
        break;
    case JSON_TIME:
        fits = read_time(field, value);
        break;
    case JSON_OBJECT:
        if (yyjson_is_obj(value))
            return read_object(reading, place, value, field->fields, field->field_count);
        break;
    case JSON_LIST:
        if (yyjson_is_arr(value))
            return read_list(reading, place, field, value);
        break;
    }
    return fits ? STATUS_OK : refuse_kind(reading, place, field);
}

/* Names are short and mostly differ at once, so the library's calls would cost more than they do.
 */
static bool is_name(const char *name, struct span key)
{
    size_t i = 0;
    while (i < key.length && name[i] == key.bytes[i] && name[i] != '\0')
        i++;
    return i == key.length && name[i] == '\0';
}

static size_t find_field(const struct json_field *fields, size_t field_count, struct span key)
{
    size_t i = 0;
    while (i < field_count && !is_name(fields[i].name, key))
        i++;
    return i;
}

static enum status read_object(const struct json_reading *reading, const struct json_place *place,
                               yyjson_val *object, const struct json_field *fields,
                               size_t field_count)
{
    ensure(field_count <= FIELD_COUNT_MAX);
    uint64_t had = 0;
    enum status result = STATUS_OK;
    size_t index;
    size_t count;
    yyjson_val *key;
    yyjson_val *value;
    yyjson_obj_foreach(object, index, count, key, value)
    {
        struct json_place here = {.parent = place, .name = span_of_value(key)};
        size_t i = find_field(fields, field_count, here.name);
        enum status status = STATUS_OK;
        if (i == field_count)
            status = refuse_unknown(reading, &here, fields, field_count);
        else if ((had >> i & 1) != 0)
            status = refuse(reading, &here, "must be there only once");
        else
            status = read_value(reading, &here, &fields[i], value);
        had |= i < field_count ? UINT64_C(1) << i : 0;
        result = status != STATUS_OK ? status : result;
        if (is_full(reading))
            return result;
    }
    for (size_t i = 0; i < field_count; i++) {
        if (fields[i].presence == JSON_REQUIRED && (had >> i & 1) == 0) {
            struct json_place here = {.parent = place, .name = span_of(fields[i].name)};
            result = refuse(reading, &here, "is missing");
        }
    }
    return result;
}

/* yyjson keeps all values in one array, each container before what it contains. */
static bool is_too_deep(yyjson_doc *doc)
{
    size_t value_count = yyjson_doc_get_val_count(doc);
    if (value_count <= JSON_DEPTH_MAX)
        return false;
    const yyjson_val *ends[JSON_DEPTH_MAX];
    size_t depth = 0;
    yyjson_val *first = yyjson_doc_get_root(doc);
    for (yyjson_val *value = first; value < first + value_count; value++) {
        while (depth > 0 && value >= ends[depth - 1])
            depth--;
        if (yyjson_is_ctn(value)) {
            if (depth == JSON_DEPTH_MAX)
                return true;
            ends[depth++] = unsafe_yyjson_get_next(value);
        }
    }
    return false;
}

/* Sets the document's root, or refuses what is no JSON text. */
static enum status parse_body(const struct json_reading *reading, struct span body,
                              yyjson_val **root)
{
    struct json_reader *reader = reading->reader;
    if (body.length > reader->body_max)
        return refuse(reading, NULL, "must have at most %zu bytes", reader->body_max);
    memcpy(reader->text, body.bytes, body.length);
    memset(reader->text + body.length, 0, YYJSON_PADDING_SIZE);

    /* A fresh pool for every document, so that nothing has to be freed. */
    yyjson_alc pool;
    ensure(yyjson_alc_pool_init(&pool, reader->pool, reader->pool_size));
    yyjson_read_err why;
    yyjson_doc *doc = yyjson_read_opts(reader->text, body.length, YYJSON_READ_INSITU, &pool, &why);
    if (doc == NULL) {
        /* The pool is enough for every valid text, so only unfinished ones exhaust it. */
        const char *text =
            why.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION ? "too many open brackets" : why.msg;
        return refuse(reading, NULL, "must be valid JSON: %s at byte %zu", text, why.pos);
    }
    if (is_too_deep(doc))
        return refuse(reading, NULL, "must not be nested deeper than %d levels", JSON_DEPTH_MAX);
    *root = yyjson_doc_get_root(doc);
    return STATUS_OK;
}

static bool any_required(const struct json_field *fields, size_t field_count)
{
    for (size_t i = 0; i < field_count; i++)
        if (fields[i].presence == JSON_REQUIRED)
            return true;
    return false;
}

enum status json_read_object(struct json_reader *reader, struct span body,
                             const struct json_field *fields, size_t field_count, char *field,
                             struct error *error)
{
    struct json_reading reading = {.reader = reader, .field = field, .error = error};
    if (field != NULL)
        field[0] = '\0';
    buffer_clear(&reader->digits);
    reader->mistakes.count = 0;
    clear_seen(fields, field_count);
    if (body.length == 0) {
        return any_required(fields, field_count)
                   ? refuse(&reading, NULL, "must be a JSON object and is empty")
                   : STATUS_OK;
    }
    yyjson_val *root = NULL;
    enum status status = parse_body(&reading, body, &root);
    if (status != STATUS_OK)
        return status;
    if (!yyjson_is_obj(root))
        return refuse(&reading, NULL, "must be a JSON object");
    return read_object(&reading, NULL, root, fields, field_count);
}

/* Where an id has a byte that is not plain ASCII: the rest, character by character. */
static bool id_is_printable(struct span id)
{
    uint32_t code_point;
    for (size_t at = 0, count; at < id.length; at += count) {
        count = utf8_decode(id.bytes + at, id.length - at, &code_point);
        bool is_at_end = at == 0 || at + count == id.length;
        if (count == 0 || code_point == '/' || utf8_is_deceptive(code_point) ||
            (is_at_end && utf8_is_space(code_point)))
            return false;
    }
    return true;
}

bool json_id_valid(struct span id)
{
    static const bool plain[256] = {['!' ... '.'] = true, ['0' ... '~'] = true};
    if (id.length < 1 || id.length > ID_LENGTH_MAX)
        return false;
    bool all_plain = true; /* most ids are, so none is left early */
    for (size_t i = 0; i < id.length; i++)
        all_plain &= plain[(unsigned char)id.bytes[i]];
    /* "." and ".." mean something else in a URL's path. */
    bool dots = id.length <= 2 && id.bytes[0] == '.' && id.bytes[id.length - 1] == '.';
    return !dots && (all_plain || id_is_printable(id));
}
