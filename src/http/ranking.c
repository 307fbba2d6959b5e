/* ranking.c: which products sell best, and where one of them stands.
 *
 * A crowd asks the same question: a loop keeps the answers it has sent as bytes, under the very
 * query that asked for them, and sends them again while the answer is the same one. */
#include "ranking/ranking.h"
#include "http/call.h"
#include "http/handlers.h"
#include "http/reply.h"

#define DAYS_DEFAULT  3
#define LIMIT_DEFAULT 5

struct ranking_call {
    struct call call;
    int days;
    size_t limit;
    enum ranking_wish wish;
    struct user_id product_id; /* whose rank is asked for */
};

/* --- writing --- */

static void append_number_or_null(struct buffer *out, int64_t number, int64_t null)
{
    if (number == null) {
        buffer_append_literal(out, "null");
    } else {
        buffer_append_i64(out, number);
    }
}

static void append_product(struct buffer *out, const struct product *product)
{
    json_put(out, "product_id", user_id_span(&product->id));
    buffer_append_literal(out, ",\"name\":");
    if (product->name[0] == '\0') {
        buffer_append_literal(out, "null");
    } else {
        json_append_text(out, span_of(product->name));
    }
    buffer_append_literal(out, ",\"price\":");
    append_number_or_null(out, product->price, PRODUCT_PRICE_NONE);
}

/* Six digits tell two scores apart that anyone would. */
static void append_score(struct buffer *out, const struct scoring *scoring, double score)
{
    if (scoring_is_on(scoring)) {
        buffer_printf(out, ",\"score\":%.6g", score);
    }
}

static void append_line(struct buffer *out, const struct scoring *scoring,
                        const struct ranking_line *line)
{
    buffer_append_literal(out, "{");
    json_put(out, "rank", line->sales.rank);
    buffer_append_literal(out, ",");
    append_product(out, &line->product);
    json_put(out, "sold", line->sales.sold);
    append_score(out, scoring, line->score);
    buffer_append_literal(out, ",\"change\":");
    append_number_or_null(out, line->change, RANKING_CHANGE_NONE);
    buffer_append_literal(out, "}");
}

static void append_lines(struct buffer *out, const struct scoring *scoring,
                         const struct ranking_line *lines, size_t count)
{
    buffer_append_literal(out, "[");
    for (size_t i = 0; i < count; i++) {
        if (i > 0) {
            buffer_append_literal(out, ",");
        }
        append_line(out, scoring, &lines[i]);
    }
    buffer_append_literal(out, "]");
}

static void append_origin(struct buffer *out, const struct scoring *scoring, int64_t as_of_ms,
                          const char *source)
{
    if (scoring_is_on(scoring)) {
        buffer_append_text(out, scoring->half_life_ms > 0 ? ",\"ranking\":\"decay\""
                                                          : ",\"ranking\":\"weights\"");
    }
    json_put_time(out, "as_of", as_of_ms);
    buffer_append_literal(out, ",\"source\":\"");
    buffer_append_text(out, source);
    buffer_append_literal(out, "\"");
}

/* "board" for what was worked out for this question or is as fresh as it would be; "cache" for
 * what was at hand. */
static void append_top(struct buffer *out, const struct scoring *scoring,
                       const struct ranking_answer *answer, size_t limit, bool is_cached)
{
    const char *source = answer->source == RANKING_FROM_LEDGER               ? "ledger"
                         : is_cached || answer->source == RANKING_FROM_CACHE ? "cache"
                                                                             : "board";
    size_t count = answer->count < limit ? answer->count : limit;
    buffer_append_literal(out, "{\"items\":");
    append_lines(out, scoring, answer->lines, count);
    json_put(out, "days", answer->days);
    append_origin(out, scoring, answer->as_of_ms, source);
    if (count == 0) {
        buffer_append_literal(out, ",\"code\":\"INSUFFICIENT_SALES_DATA\"");
    }
    buffer_append_literal(out, "}");
}

/* --- the best --- */

static void work_top(struct call *call, struct service *service)
{
    struct ranking_call *self = (struct ranking_call *)(void *)call;
    struct ranking_answer *answer;
    struct error error;
    enum status status =
        ranking_top(service_ranking(service), self->days, self->wish, &answer, &error);
    if (status != STATUS_OK) {
        call_failed(call, status, &error, PROBLEM_NOT_FOUND);
        return;
    }
    append_top(call_json(call, 200), ranking_scoring(service_ranking(service)), answer, self->limit,
               false);
    ranking_answer_release(answer);
}

/* --- sending again --- */

static struct ranking_page *page_of(struct api_loop *loop, struct span query)
{
    size_t sum = query.length;
    for (size_t at = 0; at < query.length; at++) {
        sum = sum * 31 + (unsigned char)query.bytes[at];
    }
    return &loop->rankings[sum % RANKING_PAGES];
}

bool ranking_send_again(struct api_loop *loop, struct http_exchange *exchange, struct span query)
{
    struct ranking_page *page = page_of(loop, query);
    if (page->answer == NULL || page->query_length != query.length ||
        (query.length > 0 && memcmp(page->query, query.bytes, query.length) != 0) ||
        !ranking_still(service_ranking(loop->api->service), page->answer,
                       page->is_fresh ? RANKING_FRESH : RANKING_CACHED,
                       http_loop_wall_ms(loop->http),
                       http_exchange_notes(exchange)->started_ns / 1000000)) {
        return false;
    }
    counter_add(&loop->counters.rankings, 1);
    reply_json(loop, exchange, 200, (struct span){page->body.bytes, page->body.length});
    return true;
}

/* Sends the answer at hand; takes it over. */
static void send_at_hand(struct ask *ask, struct ranking_answer *answer, size_t limit,
                         enum ranking_wish wish)
{
    struct span query = ask->request->query;
    struct ranking_page *page = page_of(ask->loop, query);
    bool is_kept = query.length <= RANKING_QUERY_MAX;
    struct buffer *body = is_kept ? &page->body : &ask->loop->body;
    buffer_clear(body);
    append_top(body, ranking_scoring(service_ranking(ask->loop->api->service)), answer, limit,
               wish == RANKING_CACHED);
    if (is_kept) {
        ranking_answer_release(page->answer);
        page->answer = answer;
        page->is_fresh = wish == RANKING_FRESH;
        page->query_length = (uint8_t)query.length;
        if (query.length > 0) {
            memcpy(page->query, query.bytes, query.length);
        }
    } else {
        ranking_answer_release(answer);
    }
    reply_json(ask->loop, ask->exchange, 200, (struct span){body->bytes, body->length});
}

static bool read_number(struct ask *ask, const struct query_param *param, int64_t maximum,
                        int64_t fallback, int64_t *number)
{
    struct error error;
    if (query_integer(param, 1, maximum, fallback, number, &error) == STATUS_OK) {
        return true;
    }
    ask_refuse(ask, error.text, param->name);
    return false;
}

static bool read_fresh(struct ask *ask, const struct query_param *param, enum ranking_wish *wish)
{
    struct span text = {param->value, param->length};
    *wish = RANKING_CACHED;
    if (!param->present || (text.length == 5 && memcmp(text.bytes, "false", 5) == 0)) {
        return true;
    }
    if (text.length == 4 && memcmp(text.bytes, "true", 4) == 0) {
        *wish = RANKING_FRESH;
        return true;
    }
    ask_refuse(ask, "fresh: must be true or false", param->name);
    return false;
}

void ranking_show_top(struct ask *ask)
{
    struct query_param params[] = {{.name = "days"}, {.name = "limit"}, {.name = "fresh"}};
    int64_t days;
    int64_t limit;
    enum ranking_wish wish;
    if (!ask_query(ask, params, 3) ||
        !read_number(ask, &params[0], RANKING_DAYS_MAX, DAYS_DEFAULT, &days) ||
        !read_number(ask, &params[1], RANKING_LIMIT_MAX, LIMIT_DEFAULT, &limit) ||
        !read_fresh(ask, &params[2], &wish)) {
        return;
    }
    counter_add(&ask->loop->counters.rankings, 1);
    struct ranking *ranking = service_ranking(ask->loop->api->service);
    struct ranking_answer *answer = ranking_peek(ranking, (int)days, wish);
    if (answer != NULL) {
        send_at_hand(ask, answer, (size_t)limit, wish);
        return;
    }
    if (!ask_identify(ask)) {
        return;
    }
    struct ranking_call *self = call_new(ask->loop, ask->exchange, sizeof *self, work_top);
    if (self != NULL) {
        self->days = (int)days;
        self->limit = (size_t)limit;
        self->wish = wish;
        call_submit_or_refuse(&self->call);
    }
}

/* --- one product --- */

static void work_rank(struct call *call, struct service *service)
{
    struct ranking_call *self = (struct ranking_call *)(void *)call;
    struct ranking_line lines[2 * RANKING_DISTANCE + 1];
    size_t count;
    enum ranking_source source;
    int64_t as_of_ms;
    struct error error;
    const struct ranking_line *own = NULL;
    const struct scoring *scoring = ranking_scoring(service_ranking(service));
    enum status status = ranking_around(service_ranking(service), self->days, &self->product_id,
                                        lines, &count, &source, &as_of_ms, &error);
    if (status != STATUS_OK) {
        call_failed(call, status, &error, PROBLEM_NOT_FOUND);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (user_id_equal(&lines[i].product.id, &self->product_id)) {
            own = &lines[i];
        }
    }
    struct buffer *out = call_json(call, 200);
    buffer_append_literal(out, "{");
    json_put(out, "product_id", user_id_span(&self->product_id));
    buffer_append_literal(out, ",\"rank\":");
    append_number_or_null(out, own != NULL ? own->sales.rank : 0, 0);
    json_put(out, "sold", own != NULL ? own->sales.sold : 0);
    append_score(out, scoring, own != NULL ? own->score : 0);
    buffer_append_literal(out, ",\"change\":");
    append_number_or_null(out, own != NULL ? own->change : RANKING_CHANGE_NONE,
                          RANKING_CHANGE_NONE);
    buffer_append_literal(out, ",\"neighbours\":");
    append_lines(out, scoring, lines, count);
    json_put(out, "days", self->days);
    append_origin(out, scoring, as_of_ms, source == RANKING_FROM_LEDGER ? "ledger" : "board");
    buffer_append_literal(out, "}");
}

void ranking_show_product(struct ask *ask)
{
    struct query_param params[] = {{.name = "days"}};
    int64_t days;
    struct user_id product_id;
    if (!ask_identify(ask) || !ask_id(ask, 0, "product_id", &product_id) ||
        !ask_query(ask, params, 1) ||
        !read_number(ask, &params[0], RANKING_DAYS_MAX, DAYS_DEFAULT, &days)) {
        return;
    }
    struct ranking_call *self = call_new(ask->loop, ask->exchange, sizeof *self, work_rank);
    if (self != NULL) {
        self->days = (int)days;
        self->product_id = product_id;
        call_submit_or_refuse(&self->call);
    }
}

/* --- per loop --- */

void ranking_loop_init(struct api_loop *loop)
{
    for (size_t index = 0; index < RANKING_PAGES; index++) {
        buffer_init(&loop->rankings[index].body, ANSWER_LENGTH_MAX);
    }
}

void ranking_loop_close(struct api_loop *loop)
{
    for (size_t index = 0; index < RANKING_PAGES; index++) {
        struct ranking_page *page = &loop->rankings[index];
        ranking_answer_release(page->answer);
        page->answer = NULL;
        buffer_release(&page->body);
    }
}
