/* shared.c: one answer for all servers: its text, and which of them makes it. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "ranking/parts.h"

/* For an answer that another server makes. */
#define POLL_MS   20
#define POLLS_MAX 50

/* --- its text --- */

static void ranking_write_line(const struct ranking_line *line, struct buffer *text)
{
    const char *name = line->product.name;

    json_begin(text, '{');
    json_put(text, "rank", line->sales.rank);
    json_put(text, "product_id", id_span(&line->sales.product_id));
    json_put(text, "name", name[0] != '\0' ? name : NULL);
    json_put_unless(text, "price", PRODUCT_PRICE_NONE, line->product.price);
    json_put(text, "sold", line->sales.sold);
    json_put(text, "sold_last_day", line->sales.sold_last_day);
    json_put_unless(text, "change", RANKING_CHANGE_NONE, line->change);
    buffer_append_literal(text, "}");
}

void ranking_write_text(const struct ranking_answer *answer, struct buffer *text)
{
    char last_day[ZONE_DAY_TEXT_SIZE];

    zone_format_day(answer->last_day, last_day);
    buffer_append_literal(text, "{\"items\":[");
    for (size_t i = 0; i < answer->count; i++)
        ranking_write_line(&answer->lines[i], text);
    buffer_append_literal(text, "]");
    json_put(text, "days", answer->days);
    json_put(text, "last_day", (const char *)last_day);
    json_put_time(text, "as_of", answer->as_of_ms);
    buffer_append_literal(text, "}");
}

/* A line as it is read; what may be null says whether it is. */
struct ranking_text_line {
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

static void ranking_fill_line(struct ranking_line *line, const struct ranking_text_line *read)
{
    struct id id = id_of(read->product_id);
    bool has_price = read->price_seen == JSON_SEEN_VALUE;
    bool has_change = read->change_seen == JSON_SEEN_VALUE;

    *line = (struct ranking_line){
        .sales = {.rank = read->rank,
                  .product_id = id,
                  .sold = read->sold,
                  .sold_last_day = read->sold_last_day},
        .product = {.id = id, .price = has_price ? read->price : PRODUCT_PRICE_NONE},
        .change = has_change ? read->change : RANKING_CHANGE_NONE};
    if (read->name_seen == JSON_SEEN_VALUE && read->name.length < PRODUCT_NAME_SIZE)
        memcpy(line->product.name, read->name.bytes, read->name.length);
}

static enum status ranking_read_text_with(struct json_reader *reader, struct span text,
                                          struct ranking_text_line *lines,
                                          struct ranking_answer *answer, struct error *error)
{
    struct ranking_text_line one = {0};
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
        ranking_fill_line(&answer->lines[i], &lines[i]);
    return STATUS_OK;
}

enum status ranking_read_text(struct span text, struct ranking_answer *answer, struct error *error)
{
    struct json_reader *reader = json_reader_new(text.length);
    struct ranking_text_line *lines = calloc(RANKING_LIMIT_MAX, sizeof(*lines));
    enum status status = reader == NULL || lines == NULL
                             ? error_set(error, STATUS_UNAVAILABLE, "no memory for an answer")
                             : ranking_read_text_with(reader, text, lines, answer, error);

    json_reader_free(reader);
    free(lines);
    return status;
}

/* --- which server makes it --- */

/* The answer that one of them has left for all. NULL: there is none for today. */
static struct ranking_answer *ranking_recall(struct ranking *ranking, int64_t today)
{
    struct ranking_answer *answer = ranking_answer_new(ranking, RANKING_CACHE_DAYS, today);
    struct board *board = ranking->board;
    struct buffer text;
    struct error error;
    int64_t age_ms;

    buffer_init(&text, RANKING_TEXT_MAX);
    bool is_good =
        answer != NULL && board->cache->recall(board, &text, &age_ms, &error) == STATUS_OK &&
        ranking_read_text((struct span){text.bytes, text.length}, answer, &error) == STATUS_OK &&
        answer->days == RANKING_CACHE_DAYS && answer->last_day == today;
    buffer_release(&text);
    if (!is_good) {
        free(answer);
        return NULL;
    }
    answer->source = RANKING_FROM_CACHE;
    answer->made_at_ms -= age_ms;
    atomic_store(&answer->fresh_at_ms, answer->made_at_ms);
    return answer;
}

/* Makes the answer and leaves it for all. */
static struct ranking_answer *ranking_make_for_all(struct ranking *ranking, int64_t today,
                                                   const char *token)
{
    struct ranking_answer *answer = ranking_make(ranking, RANKING_CACHE_DAYS, today);
    struct board *board = ranking->board;
    struct buffer text;

    if (answer == NULL)
        return NULL;
    buffer_init(&text, RANKING_TEXT_MAX);
    ranking_write_text(answer, &text);
    /* If that fails, the others make it once more. */
    (void)!board->cache->keep(board, token, (struct span){text.bytes, text.length}, NULL);
    buffer_release(&text);
    return answer;
}

struct ranking_answer *ranking_make_once(struct ranking *ranking, int64_t today)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000};
    struct board *board = ranking->board;
    char token[BOARD_TOKEN_SIZE];
    enum status status = STATUS_BUSY;

    for (int i = 0; i < POLLS_MAX && status == STATUS_BUSY; i++) {
        if (i > 0)
            nanosleep(&pause, NULL);
        struct ranking_answer *answer = ranking_recall(ranking, today);
        if (answer != NULL)
            return answer;
        status = board->cache->refresh(board, token, NULL);
    }
    /* The board fell behind while this thread waited. */
    if (status == STATUS_BUSY)
        (void)ranking_follow(ranking, today);
    return status == STATUS_OK ? ranking_make_for_all(ranking, today, token)
                               : ranking_make(ranking, RANKING_CACHE_DAYS, today);
}

void ranking_renew(struct ranking *ranking, int64_t today)
{
    struct board *board = ranking->board;
    int64_t wall_ms = clock_wall_ms();
    char token[BOARD_TOKEN_SIZE];

    if (board->cache == NULL || ranking->turn == wall_ms / BOARD_CACHE_MS)
        return;
    struct ranking_answer *answer = ranking_recall(ranking, today);
    bool is_done = answer != NULL && answer->as_of_ms >= wall_ms - wall_ms % BOARD_CACHE_MS;
    ranking_answer_release(answer);
    if (!is_done && board->cache->refresh(board, token, NULL) == STATUS_OK) {
        pthread_mutex_lock(&ranking->lock);
        uint64_t version = ranking->version;
        pthread_mutex_unlock(&ranking->lock);
        answer = ranking_make_for_all(ranking, today, token);
        is_done = answer != NULL;
        ranking_publish(ranking, RANKING_CACHE_DAYS, answer, version);
    }
    if (is_done)
        ranking->turn = wall_ms / BOARD_CACHE_MS;
}
