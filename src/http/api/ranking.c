/* ranking.c: which products sell best, and where one of them stands.
 *
 * A crowd asks the same question: a loop keeps the answers it has sent as bytes, under the very
 * query that asked for them, and sends them again while the answer is the same one. */
#include "ranking/ranking.h"
#include "http/api/call.h"
#include "http/api/handlers.h"
#include "http/api/reply.h"

#define DAYS_DEFAULT  3
#define LIMIT_DEFAULT 5

struct ranking_call {
    struct call call;
    int days;
    size_t limit;
    enum ranking_wish wish;
};

/* --- writing --- */

/* Six digits tell two scores apart that anyone would. */
static void append_score(struct buffer *out, const struct scoring *scoring, double score)
{
    if (scoring_is_on(scoring))
        buffer_printf(out, ",\"score\":%.6g", score);
}

static void append_line(struct buffer *out, const struct scoring *scoring,
                        const struct ranking_line *line)
{
    const struct product *product = &line->product;
    json_begin(out, '{');
    json_put(out, "rank", line->sales.rank);
    json_put(out, "product_id", id_span(&product->id));
    json_put(out, "name", product->name[0] != '\0' ? product->name : NULL);
    json_put_unless(out, "price", PRODUCT_PRICE_NONE, product->price);
    json_put(out, "sold", line->sales.sold);
    append_score(out, scoring, line->score);
    json_put_unless(out, "change", RANKING_CHANGE_NONE, line->change);
    buffer_append_literal(out, "}");
}

static void append_lines(struct buffer *out, const struct scoring *scoring,
                         const struct ranking_line *lines, size_t count)
{
    buffer_append_literal(out, "[");
    for (size_t i = 0; i < count; i++)
        append_line(out, scoring, &lines[i]);
    buffer_append_literal(out, "]");
}

static void append_origin(struct buffer *out, const struct scoring *scoring, int64_t as_of_ms,
                          const char *source)
{
    if (scoring_is_on(scoring))
        json_put(out, "ranking", scoring->half_life_ms > 0 ? "decay" : "weights");
    json_put_time(out, "as_of", as_of_ms);
    json_put(out, "source", source);
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
    if (count == 0)
        json_put(out, "code", "INSUFFICIENT_SALES_DATA");
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
    if (!call_is_done(call, status, &error, PROBLEM_NOT_FOUND))
        return;
    append_top(call_json(call, 200), ranking_scoring(service_ranking(service)), answer, self->limit,
               false);
    ranking_answer_release(answer);
}

/* --- sending again --- */

static struct ranking_page *page_of(struct api_loop *loop, struct span query)
{
    size_t sum = query.length;
    for (size_t at = 0; at < query.length; at++)
        sum = sum * 31 + (unsigned char)query.bytes[at];
    return &loop->rankings[sum % RANKING_PAGES];
}

bool ranking_send_again(struct api_loop *loop, struct http_exchange *exchange, struct span query)
{
    struct ranking_page *page = page_of(loop, query);
    if (page->answer == NULL ||
        !span_equal(query, (struct span){page->query, page->query_length}) ||
        !ranking_still(service_ranking(loop->api->service), page->answer,
                       http_loop_wall_ms(loop->http),
                       http_exchange_notes(exchange)->started_ns / 1000000))
        return false;
    counter_add(&loop->counters.rankings, 1);
    reply_json(loop, exchange, 200, (struct span){page->body.bytes, page->body.length});
    return true;
}

/* Sends the answer at hand; takes it over. */
static void send_at_hand(struct ask *ask, struct ranking_answer *answer, size_t limit)
{
    struct span query = ask->request->query;
    struct ranking_page *page = page_of(ask->loop, query);
    bool is_kept = query.length <= RANKING_QUERY_MAX;
    struct buffer *body = is_kept ? &page->body : &ask->loop->body;
    buffer_clear(body);
    append_top(body, ranking_scoring(service_ranking(ask->loop->api->service)), answer, limit,
               true);
    if (is_kept) {
        ranking_answer_release(page->answer);
        page->answer = answer;
        page->query_length = (uint8_t)query.length;
        if (query.length > 0)
            memcpy(page->query, query.bytes, query.length);
    } else {
        ranking_answer_release(answer);
    }
    reply_json(ask->loop, ask->exchange, 200, (struct span){body->bytes, body->length});
}

static bool read_fresh(struct ask *ask, const struct query_param *param, enum ranking_wish *wish)
{
    struct span text = {param->value, param->length};
    *wish = RANKING_CACHED;
    if (param->present && span_equal(text, SPAN("true")))
        *wish = RANKING_FRESH;
    if (!param->present || *wish == RANKING_FRESH || span_equal(text, SPAN("false")))
        return true;
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
        !ask_number(ask, &params[0], 1, RANKING_DAYS_MAX, DAYS_DEFAULT, &days) ||
        !ask_number(ask, &params[1], 1, RANKING_LIMIT_MAX, LIMIT_DEFAULT, &limit) ||
        !read_fresh(ask, &params[2], &wish))
        return;
    counter_add(&ask->loop->counters.rankings, 1);
    struct ranking *ranking = service_ranking(ask->loop->api->service);
    struct ranking_answer *answer =
        wish == RANKING_CACHED ? ranking_peek(ranking, (int)days) : NULL;
    if (answer != NULL) {
        send_at_hand(ask, answer, (size_t)limit);
        return;
    }
    if (ask_identify(ask))
        call_start_with(ask, work_top, struct ranking_call, .days = (int)days,
                        .limit = (size_t)limit, .wish = wish);
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
    enum status status = ranking_around(service_ranking(service), self->days, &call->id, lines,
                                        &count, &source, &as_of_ms, &error);
    if (!call_is_done(call, status, &error, PROBLEM_NOT_FOUND))
        return;
    for (size_t i = 0; i < count; i++)
        if (id_equal(&lines[i].product.id, &call->id))
            own = &lines[i];
    struct buffer *out = call_json(call, 200);
    buffer_append_literal(out, "{");
    json_put(out, "product_id", id_span(&call->id));
    json_put_unless(out, "rank", 0, own != NULL ? own->sales.rank : 0);
    json_put(out, "sold", own != NULL ? own->sales.sold : 0);
    append_score(out, scoring, own != NULL ? own->score : 0);
    json_put_unless(out, "change", RANKING_CHANGE_NONE,
                    own != NULL ? own->change : RANKING_CHANGE_NONE);
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
    if (ask_query(ask, params, 1) &&
        ask_number(ask, &params[0], 1, RANKING_DAYS_MAX, DAYS_DEFAULT, &days))
        call_start_with(ask, work_rank, struct ranking_call, .days = (int)days);
}

/* --- per loop --- */

void ranking_loop_init(struct api_loop *loop)
{
    for (size_t index = 0; index < RANKING_PAGES; index++)
        buffer_init(&loop->rankings[index].body, ANSWER_LENGTH_MAX);
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
