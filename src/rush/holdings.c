/* holdings.c: one status request per user, repeated while the answer is not final. */
#include "rush/holdings.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include "base/array.h"
#include "base/clock.h"
#include "rush/storm.h"

#define MILLISECOND_NS INT64_C(1000000)
#define ROUND_NS       (50 * MILLISECOND_NS)
#define REQUEST_MAX    6144

enum survey_state { SURVEY_WAITS, SURVEY_ASKED, SURVEY_DONE };

struct survey {
    const struct holdings_options *options;
    uint8_t *states; /* enum survey_state of each user */
    size_t next;     /* the next user of this round */
    size_t done_count;
    size_t left_count; /* of this round, that have to be asked again */
    int64_t round_at_ns;
    int64_t until_ns;
    struct rush_holdings *holdings;
    size_t capacity;
    struct buffer request;
};

static bool survey_is_over(const struct survey *survey, int64_t now_ns)
{
    return survey->done_count == survey->options->user_count || now_ns >= survey->until_ns ||
           *survey->options->stop;
}

static bool survey_next(void *context, int64_t now_ns, struct span *request, uint64_t *job)
{
    struct survey *survey = context;
    const struct holdings_options *options = survey->options;
    char user[RUSH_USER_SIZE];
    char path[128];

    if (survey_is_over(survey, now_ns) || now_ns < survey->round_at_ns)
        return false;
    while (survey->next < options->user_count && survey->states[survey->next] != SURVEY_WAITS)
        survey->next++;
    if (survey->next == options->user_count) {
        if (survey->left_count > 0) { /* another round for those who are not final */
            survey->next = 0;
            survey->left_count = 0;
            survey->round_at_ns = now_ns + ROUND_NS;
        }
        return false;
    }
    rush_user_name(user, options->run, options->users[survey->next]);
    snprintf(path, sizeof(path), "/v1/policies/%" PRId64 "/claims/%s", options->policy_id, user);
    buffer_clear(&survey->request);
    wire_append_request(&survey->request, options->target, "GET", path, "", SPAN(""));
    ensure(!survey->request.overflowed);
    survey->states[survey->next] = SURVEY_ASKED;
    *request = buffer_span(&survey->request);
    *job = survey->next++;
    return true;
}

static int64_t survey_next_at_ns(void *context, int64_t now_ns)
{
    const struct survey *survey = context;

    if (survey_is_over(survey, now_ns))
        return WIRE_NEVER;
    if (survey->round_at_ns > now_ns)
        return survey->round_at_ns;
    /* A round that waits for its last answers has nothing to ask. */
    return survey->next < survey->options->user_count || survey->left_count > 0
               ? now_ns + MILLISECOND_NS
               : now_ns + ROUND_NS;
}

static void survey_again(struct survey *survey, size_t user)
{
    survey->states[user] = SURVEY_WAITS;
    survey->left_count++;
}

static enum rush_fate survey_fate(const char *state)
{
    if (state != NULL && strcmp(state, "ISSUED") == 0)
        return RUSH_FATE_ISSUED;
    if (state != NULL && strcmp(state, "MERGED") == 0)
        return RUSH_FATE_MERGED;
    return state != NULL && strcmp(state, "VOID") == 0 ? RUSH_FATE_VOID : RUSH_FATE_PENDING;
}

static int64_t survey_time_ms(yyjson_val *item, const char *name)
{
    const char *text = yyjson_get_str(yyjson_obj_get(item, name));
    int64_t at_ms;

    return text != NULL && clock_parse_rfc3339(span_of(text), &at_ms) ? at_ms : 0;
}

static void survey_add(struct survey *survey, const struct rush_coupon *coupon)
{
    struct rush_holdings *holdings = survey->holdings;

    ensure(array_make_room(holdings->coupons, holdings->coupon_count, survey->capacity));
    holdings->coupons[holdings->coupon_count++] = *coupon;
}

/* Keeps what the user holds; false: something of it is pending, and there is time to ask again. */
static bool survey_keep(struct survey *survey, size_t user, yyjson_val *root, bool is_last)
{
    size_t before = survey->holdings->coupon_count;
    yyjson_val *claims = yyjson_obj_get(root, "claims");
    yyjson_val *item;
    yyjson_arr_iter items;

    yyjson_arr_iter_init(claims, &items);
    /* A server that shows only the latest claim shows it as the answer itself. */
    item = yyjson_arr_size(claims) > 0 ? yyjson_arr_iter_next(&items) : root;
    for (; item != NULL; item = yyjson_arr_iter_next(&items)) {
        struct rush_coupon coupon = {
            .user = survey->options->users[user],
            .seq = yyjson_get_sint(yyjson_obj_get(item, "seq")),
            .nth = (int32_t)yyjson_get_sint(yyjson_obj_get(item, "nth")),
            .requested_at_ms = survey_time_ms(item, "requested_at"),
            .issued_at_ms = survey_time_ms(item, "issued_at"),
            .fate = survey_fate(yyjson_get_str(yyjson_obj_get(item, "state"))),
        };
        if (coupon.fate == RUSH_FATE_PENDING && !is_last) {
            survey->holdings->coupon_count = before;
            return false;
        }
        survey_add(survey, &coupon);
    }
    return true;
}

static void survey_answered(void *context, uint64_t job, int64_t now_ns,
                            const struct rush_reply *reply)
{
    struct survey *survey = context;
    yyjson_doc *document = NULL;

    if (reply->status == 200)
        document = yyjson_read(reply->body.bytes, reply->body.length, YYJSON_READ_NOFLAG);
    yyjson_val *root = yyjson_doc_get_root(document);
    bool is_known =
        reply->status == 404 || (yyjson_is_obj(root) && survey_keep(survey, job, root, false));
    /* The last look at what stays pending is kept as it is. */
    if (!is_known && yyjson_is_obj(root) && now_ns + 2 * ROUND_NS >= survey->until_ns)
        is_known = survey_keep(survey, job, root, true);
    yyjson_doc_free(document);
    if (is_known) {
        survey->states[job] = SURVEY_DONE;
        survey->done_count++;
    } else {
        survey_again(survey, job);
    }
}

static void survey_failed(void *context, uint64_t job, int64_t now_ns, const char *why)
{
    survey_again(context, job);
}

static void survey_tick(void *context, int64_t now_ns)
{
    struct survey *survey = context;

    survey->options->tell(survey->options->context, survey->done_count,
                          survey->options->user_count);
}

static int survey_compare(const void *left, const void *right)
{
    const struct rush_coupon *a = left;
    const struct rush_coupon *b = right;

    if (a->user != b->user)
        return a->user < b->user ? -1 : 1;
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

enum status rush_holdings(struct rush_holdings *holdings, const struct holdings_options *options,
                          struct error *error)
{
    struct survey *survey = calloc(1, sizeof(*survey));

    *holdings = (struct rush_holdings){.asked_count = options->user_count};
    if (survey != NULL)
        survey->states = calloc(options->user_count + 1, 1);
    if (survey == NULL || survey->states == NULL) {
        free(survey);
        return error_set(error, STATUS_UNAVAILABLE, "no memory to look at %zu users",
                         options->user_count);
    }
    survey->options = options;
    survey->holdings = holdings;
    buffer_init(&survey->request, REQUEST_MAX);
    survey->until_ns = clock_monotonic_ns() + options->timeout_ms * MILLISECOND_NS;
    wire_run(options->wire, &(struct wire_caller){.next = survey_next,
                                                  .next_at_ns = survey_next_at_ns,
                                                  .answered = survey_answered,
                                                  .failed = survey_failed,
                                                  .tick = survey_tick,
                                                  .context = survey});
    holdings->unknown_count = options->user_count - survey->done_count;
    if (holdings->coupon_count > 0)
        qsort(holdings->coupons, holdings->coupon_count, sizeof(*holdings->coupons),
              survey_compare);
    buffer_release(&survey->request);
    free(survey->states);
    free(survey);
    return STATUS_OK;
}

size_t rush_holdings_rows(const struct rush_holdings *holdings, int64_t *last_row_ms)
{
    int64_t accepted_ms = 0;
    int64_t issued_ms = 0;
    size_t count = 0;

    for (size_t i = 0; i < holdings->coupon_count; i++) {
        const struct rush_coupon *coupon = &holdings->coupons[i];
        if (coupon->fate != RUSH_FATE_ISSUED)
            continue;
        count++;
        accepted_ms = coupon->requested_at_ms > accepted_ms ? coupon->requested_at_ms : accepted_ms;
        issued_ms = coupon->issued_at_ms > issued_ms ? coupon->issued_at_ms : issued_ms;
    }
    *last_row_ms = accepted_ms == 0 || issued_ms == 0 ? -1
                   : issued_ms > accepted_ms          ? issued_ms - accepted_ms
                                                      : 0;
    return count;
}

void rush_holdings_release(struct rush_holdings *holdings)
{
    free(holdings->coupons);
    *holdings = (struct rush_holdings){0};
}
