/* query.c: name=value pairs, strictly. */
#include "http/query.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>

#include "http/router.h"

static enum status read_pair(struct span pair, struct query_param *params, size_t count,
                             char field[QUERY_NAME_SIZE], struct error *error)
{
    const char *equals = memchr(pair.bytes, '=', pair.length);
    size_t name_length = equals == NULL ? pair.length : (size_t)(equals - pair.bytes);
    size_t length;
    if (!percent_decode((struct span){pair.bytes, name_length}, field, QUERY_NAME_SIZE - 1,
                        &length)) {
        return error_set(error, STATUS_INVALID, "The query's percent-encoding is broken.");
    }
    field[length] = '\0';
    struct query_param *param = NULL;
    for (size_t index = 0; index < count; index++) {
        if (strcmp(params[index].name, field) == 0 && strlen(field) == length) {
            param = &params[index];
        }
    }
    if (param == NULL) {
        return error_set(error, STATUS_INVALID, "%s: is not a parameter of this call", field);
    }
    if (param->present) {
        return error_set(error, STATUS_INVALID, "%s: is given twice", field);
    }
    size_t skipped = name_length + (equals != NULL);
    struct span value = {pair.bytes + skipped, pair.length - skipped};
    if (!percent_decode(value, param->value, sizeof param->value, &param->length)) {
        return error_set(error, STATUS_INVALID, "%s: its percent-encoding is broken", field);
    }
    if (param->length == sizeof param->value) {
        return error_set(error, STATUS_INVALID, "%s: is too long", field);
    }
    param->value[param->length] = '\0';
    param->present = true;
    return STATUS_OK;
}

enum status query_read(struct span query, struct query_param *params, size_t count,
                       char field[QUERY_NAME_SIZE], struct error *error)
{
    field[0] = '\0';
    for (size_t index = 0; index < count; index++) {
        params[index].present = false;
        params[index].length = 0;
    }
    size_t start = 0;
    for (size_t at = 0; at <= query.length; at++) {
        if (at < query.length && query.bytes[at] != '&') {
            continue;
        }
        if (at > start) {
            struct span pair = {query.bytes + start, at - start};
            enum status status = read_pair(pair, params, count, field, error);
            if (status != STATUS_OK) {
                return status;
            }
        }
        start = at + 1;
    }
    return STATUS_OK;
}

/* Digits only, no leading zero but "0" itself, up to 18 of them. */
static bool read_digits(const char **at, const char *end, int64_t *number)
{
    const char *start = *at;
    *number = 0;
    while (*at < end && **at >= '0' && **at <= '9' && *at - start < 18) {
        *number = *number * 10 + (**at - '0');
        (*at)++;
    }
    size_t length = (size_t)(*at - start);
    return length > 0 && (start[0] != '0' || length == 1);
}

enum status query_integer(const struct query_param *param, int64_t minimum, int64_t maximum,
                          int64_t fallback, int64_t *number, struct error *error)
{
    *number = fallback;
    if (!param->present) {
        return STATUS_OK;
    }
    const char *at = param->value;
    const char *end = param->value + param->length;
    if (!read_digits(&at, end, number) || at != end || *number < minimum || *number > maximum) {
        return error_set(error, STATUS_INVALID,
                         "%s: must be an integer from %" PRId64 " to %" PRId64, param->name,
                         minimum, maximum);
    }
    return STATUS_OK;
}

void cursor_write(char text[CURSOR_SIZE], char kind, int64_t first, int64_t second)
{
    char plain[44];
    int length = snprintf(plain, sizeof plain, "%c%" PRId64 "-%" PRId64, kind, first, second);
    sodium_bin2base64(text, CURSOR_SIZE, (const unsigned char *)plain, (size_t)length,
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
}

bool cursor_read(struct span text, char kind, int64_t *first, int64_t *second)
{
    char plain[44];
    size_t length;
    if (sodium_base642bin((unsigned char *)plain, sizeof plain, text.bytes, text.length, NULL,
                          &length, NULL, sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0) {
        return false;
    }
    const char *at = plain + 1;
    const char *end = plain + length;
    if (length < 4 || plain[0] != kind || !read_digits(&at, end, first) || at == end ||
        *at != '-') {
        return false;
    }
    at++;
    return read_digits(&at, end, second) && at == end;
}
