/* cached.c: writes and reads the text of an answer. */
#include "ranking/cached.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"

/* --- writing --- */

static void cached_write_number(struct buffer *text, const char *name, int64_t number, int64_t null)
{
    if (number == null)
        buffer_printf(text, ",\"%s\":null", name);
    else
        buffer_printf(text, ",\"%s\":%lld", name, (long long)number);
}

static void cached_write_line(const struct ranking_line *line, struct buffer *text)
{
    buffer_printf(text, "{\"rank\":%lld,\"product_id\":", (long long)line->sales.rank);
    json_append_text(text, user_id_span(&line->sales.product_id));
    buffer_append_literal(text, ",\"name\":");
    if (line->product.name[0] == '\0')
        buffer_append_literal(text, "null");
    else
        json_append_text(text, span_of(line->product.name));
    cached_write_number(text, "price", line->product.price, PRODUCT_PRICE_NONE);
    cached_write_number(text, "sold", line->sales.sold, INT64_MIN);
    cached_write_number(text, "sold_last_day", line->sales.sold_last_day, INT64_MIN);
    cached_write_number(text, "change", line->change, RANKING_CHANGE_NONE);
    buffer_append_literal(text, "}");
}

void cached_write(const struct ranking_answer *answer, struct buffer *text)
{
    char last_day[ZONE_DAY_TEXT_SIZE];

    buffer_append_literal(text, "{\"items\":[");
    for (size_t i = 0; i < answer->count; i++) {
        if (i > 0)
            buffer_append_literal(text, ",");
        cached_write_line(&answer->lines[i], text);
    }
    zone_format_day(answer->last_day, last_day);
    buffer_printf(text, "],\"days\":%d,\"last_day\":\"%s\",\"as_of\":", answer->days, last_day);
    json_append_time(text, answer->as_of_ms);
    buffer_append_literal(text, "}");
}

/* --- reading --- */

struct cached_line {
    int64_t rank;
    struct span product_id;
    struct span name;
    enum json_seen name_seen;
    int64_t price;
    enum json_seen price_seen;
    int64_t sold;
    int64_t sold_last_day;
    int64_t change;
    enum json_seen change_seen;
};

static void cached_fill(struct ranking_line *line, const struct cached_line *read)
{
    struct user_id id = user_id_of(read->product_id);

    *line = (struct ranking_line){
        .sales = {.rank = read->rank,
                  .product_id = id,
                  .sold = read->sold,
                  .sold_last_day = read->sold_last_day},
        .product = {.id = id,
                    .price =
                        read->price_seen == JSON_SEEN_VALUE ? read->price : PRODUCT_PRICE_NONE},
        .change = read->change_seen == JSON_SEEN_VALUE ? read->change : RANKING_CHANGE_NONE};
    if (read->name_seen == JSON_SEEN_VALUE && read->name.length < PRODUCT_NAME_SIZE)
        memcpy(line->product.name, read->name.bytes, read->name.length);
}

static enum status cached_read_with(struct json_reader *reader, struct span text,
                                    struct cached_line *lines, struct ranking_answer *answer,
                                    struct error *error)
{
    struct cached_line one = {0};
    struct json_list list = {.element = &one, .element_size = sizeof(one), .elements = lines};
    int64_t days;
    struct span last_day;
    const struct json_field line[] = {
        {"rank", JSON_INTEGER, JSON_REQUIRED, 1, INT64_MAX, &one.rank, NULL, NULL, 0},
        {"product_id", JSON_ID, JSON_REQUIRED, 0, 0, &one.product_id, NULL, NULL, 0},
        {"name", JSON_TEXT, JSON_OPTIONAL_OR_NULL, 1, PRODUCT_NAME_CHARACTERS_MAX, &one.name,
         &one.name_seen, NULL, 0},
        {"price", JSON_INTEGER, JSON_OPTIONAL_OR_NULL, 0, PRODUCT_PRICE_MAX, &one.price,
         &one.price_seen, NULL, 0},
        {"sold", JSON_INTEGER, JSON_REQUIRED, 1, INT64_MAX, &one.sold, NULL, NULL, 0},
        {"sold_last_day", JSON_INTEGER, JSON_REQUIRED, 0, INT64_MAX, &one.sold_last_day, NULL, NULL,
         0},
        {"change", JSON_INTEGER, JSON_OPTIONAL_OR_NULL, -INT64_MAX, INT64_MAX, &one.change,
         &one.change_seen, NULL, 0},
    };
    const struct json_field fields[] = {
        {"items", JSON_LIST, JSON_REQUIRED, 0, RANKING_LIMIT_MAX, &list, NULL, line,
         sizeof(line) / sizeof(line[0])},
        {"days", JSON_INTEGER, JSON_REQUIRED, 1, RANKING_DAYS_MAX, &days, NULL, NULL, 0},
        {"last_day", JSON_TEXT, JSON_REQUIRED, 10, 10, &last_day, NULL, NULL, 0},
        {"as_of", JSON_TIME, JSON_REQUIRED, 0, 0, &answer->as_of_ms, NULL, NULL, 0},
    };
    enum status status =
        json_read_object(reader, text, fields, sizeof(fields) / sizeof(fields[0]), NULL, error);

    if (status != STATUS_OK)
        return status;
    if (!zone_parse_day(last_day, &answer->last_day))
        return error_set(error, STATUS_INVALID, "last_day: is not a day");
    answer->days = (int)days;
    answer->count = list.count;
    for (size_t i = 0; i < list.count; i++)
        cached_fill(&answer->lines[i], &lines[i]);
    return STATUS_OK;
}

enum status cached_read(struct span text, struct ranking_answer *answer, struct error *error)
{
    struct json_reader *reader = json_reader_new(text.length);
    struct cached_line *lines = calloc(RANKING_LIMIT_MAX, sizeof(*lines));
    enum status status = reader == NULL || lines == NULL
                             ? error_set(error, STATUS_UNAVAILABLE, "no memory for an answer")
                             : cached_read_with(reader, text, lines, answer, error);

    json_reader_free(reader);
    free(lines);
    return status;
}
