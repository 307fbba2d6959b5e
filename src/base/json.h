/* json.h: strict reading of small JSON objects and writing of JSON text.
 *
 * Reading goes through a table of fields, so that unknown fields, duplicate keys, wrong types and
 * numbers out of range are refused in one place with words that name the field. Depth at most 8,
 * UTF-8 checked, nothing after the value.
 *
 * Threads: a json_reader belongs to one thread (one per loop); it reuses a fixed pool of memory
 * and allocates nothing per document.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

#define JSON_DEPTH_MAX 8

/* Room for the path of a field, cut if need be, and its NUL. */
#define JSON_FIELD_SIZE 64

enum json_kind {
    JSON_TEXT,    /* struct span: decoded string without U+0000, `minimum`..`maximum` counts
                     characters */
    JSON_ID,      /* struct span: an id (user, product, order), as json_id_valid() has it; an
                     integer >= 0 is taken as its decimal digits */
    JSON_INTEGER, /* int64_t within minimum..maximum */
    JSON_FLAG,    /* bool */
    JSON_TIME,    /* int64_t wall ms > 0, from RFC 3339 text */
    JSON_OBJECT,  /* nested: `fields`/`field_count` */
    JSON_LIST,    /* struct json_list: `minimum`..`maximum` objects of `fields`/`field_count` */
};

/* Where the objects of a JSON_LIST go. Each is read through the field's `fields`, whose targets lie
 * in `element`, set to zero before; what `element` then holds is copied behind the ones before. */
struct json_list {
    void *element;
    size_t element_size;
    void *elements; /* with room for the field's `maximum` */
    size_t count;
    /* Of a list within the objects of a list, else NULL: where in the outer `element` it is told
     * which elements are this object's. Those of all objects lie behind each other, `count` in all,
     * to be set to 0 before reading; `elements` has room for `elements_max`. */
    struct json_part *part;
    size_t elements_max;
};

struct json_part {
    size_t first;
    size_t count;
};

enum json_presence { JSON_REQUIRED, JSON_OPTIONAL, JSON_OPTIONAL_OR_NULL };

/* One field that an object may have (at most 64 in one object). `target` points to where the value
 * goes (type by kind), `seen` (may be NULL) becomes JSON_SEEN_VALUE or JSON_SEEN_NULL when the
 * field was there, else JSON_NOT_SEEN. */
enum json_seen { JSON_NOT_SEEN = 0, JSON_SEEN_VALUE, JSON_SEEN_NULL };
struct json_field {
    const char *name;
    enum json_kind kind;
    enum json_presence presence;
    int64_t minimum;
    int64_t maximum;
    void *target;
    enum json_seen *seen;
    const struct json_field *fields;
    size_t field_count;
};

struct json_reader;

/* What is wrong with a body, in the order in which it was found; no more is looked for than there
 * are places. `message` is what the words of the first say behind "field: "; `field` is "" where it
 * is the body as a whole. */
#define JSON_MISTAKES_MAX 16
#define JSON_MESSAGE_SIZE 256
struct json_mistakes {
    size_t count;
    struct {
        char field[JSON_FIELD_SIZE];
        char message[JSON_MESSAGE_SIZE];
    } items[JSON_MISTAKES_MAX];
};

/* `body_max` bytes is the longest document it will ever read. NULL when there is no memory. */
struct json_reader *json_reader_new(size_t body_max);
void json_reader_free(struct json_reader *reader);

/* Decodes one object. STATUS_INVALID with words such as
 * "total: must be an integer from 1 to 100000000" or "discount.value: is missing"; `field` (may be
 * NULL, else JSON_FIELD_SIZE bytes) gets the path of the offending field or "": of the first, all
 * are among the reader's mistakes. Targets may be
 * partly written after a failure. Spans stay valid until the next call with the same reader. An
 * empty body counts as {} only when no field is required. */
enum status json_read_object(struct json_reader *reader, struct span body,
                             const struct json_field *fields, size_t field_count, char *field,
                             struct error *error) MUST_CHECK;

/* Those of the last document. */
const struct json_mistakes *json_reader_mistakes(const struct json_reader *reader);

/* One more, about a field that nothing is known against; `message` may begin with "field: ". */
void json_reader_note(struct json_reader *reader, const char *field, const char *message);

/* What an id is, in the words of a refusal. */
#define JSON_ID_RULE                                                               \
    "must be 1 to 128 bytes of UTF-8 without control characters, \"/\" or spaces " \
    "at its ends, and not \".\" or \"..\""

/* True for 1-128 bytes of UTF-8 without "/", what utf8_is_deceptive() and spaces at the ends; "."
 * and ".." are none. Ids are compared byte for byte. */
bool json_id_valid(struct span id);

/* Appends a quoted, escaped string; bytes that are not UTF-8 become U+FFFD. */
void json_append_text(struct buffer *out, struct span text);

/* Appends "2026-11-15T12:00:00.000Z", or null for 0. */
void json_append_time(struct buffer *out, int64_t wall_ms);

/* --- writing, member by member ---
 *
 * json_put(out, "total", 100) writes "total":100, with a comma in front where a value ends just
 * before. Names are literals; a value is a number, a span or a text that ends with a NUL (NULL:
 * null). Times and flags, which C takes for numbers, have calls of their own. Brackets are the
 * caller's: json_begin(out, '{') opens an object or a list behind a value or at the start. */
#define json_put(out, name, value)                                          \
    (json_name((out), "\"" name "\":", sizeof(name) + 2), _Generic((value), \
         bool: "json_put_flag() is meant",                                  \
         struct span: json_append_text,                                     \
         char *: json_append_chars,                                         \
         const char *: json_append_chars,                                   \
         default: buffer_append_i64)((out), (value)))
#define json_put_time(out, name, wall_ms) \
    (json_name((out), "\"" name "\":", sizeof(name) + 2), json_append_time((out), (wall_ms)))
#define json_put_flag(out, name, flag) \
    (json_name((out), "\"" name "\":", sizeof(name) + 2), json_append_flag((out), (flag)))
/* null where the value is the one that stands for none. */
#define json_put_unless(out, name, none, value) \
    ((value) == (none) ? json_put_null((out), name) : json_put((out), name, (value)))
#define json_put_null(out, name) json_name((out), "\"" name "\":null", sizeof(name) + 6)

void json_begin(struct buffer *out, char bracket);
void json_name(struct buffer *out, const char *quoted, size_t length);
void json_append_flag(struct buffer *out, bool flag);
void json_append_chars(struct buffer *out, const char *text);
