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

enum look_state { LOOK_WAITS, LOOK_ASKED, LOOK_DONE };

struct looking {
    const struct holdings_options *options;
    uint8_t *states; /* enum look_state of each user */
    size_t next;     /* the next user of this round */
    size_t done_count;
    size_t left_count; /* of this round, that have to be asked again */
    int64_t round_at_ns;
    int64_t until_ns;
    struct rush_holdings *look;
    size_t capacity;
    struct buffer request;
};

static bool looking_is_over(const struct looking *looking, int64_t now_ns)
{
    return looking->done_count == looking->options->user_count || now_ns >= looking->until_ns ||
           *looking->options->stop;
}

static bool looking_next(void *context, int64_t now_ns, struct span *request, uint64_t *job)
{
    struct looking *looking = context;
    const struct holdings_options *options = looking->options;
    char user[RUSH_USER_SIZE];
    char path[128];

    if (looking_is_over(looking, now_ns) || now_ns < looking->round_at_ns)
        return false;
    while (looking->next < options->user_count && looking->states[looking->next] != LOOK_WAITS)
        looking->next++;
    if (looking->next == options->user_count) {
        if (looking->left_count > 0) { /* another round for those who are not final */
            looking->next = 0;
            looking->left_count = 0;
            looking->round_at_ns = now_ns + ROUND_NS;
        }
        return false;
    }
    rush_user_name(user, options->run, options->users[looking->next]);
    snprintf(path, sizeof(path), "/v1/policies/%" PRId64 "/claims/%s", options->policy_id, user);
    buffer_clear(&looking->request);
    wire_append_request(&looking->request, options->target, "GET", path, "", SPAN(""));
    ensure(!looking->request.overflowed);
    looking->states[looking->next] = LOOK_ASKED;
    *request = buffer_span(&looking->request);
    *job = looking->next++;
    return true;
}

static int64_t looking_next_at_ns(void *context, int64_t now_ns)
{
    const struct looking *looking = context;

    if (looking_is_over(looking, now_ns))
        return WIRE_NEVER;
    if (looking->round_at_ns > now_ns)
        return looking->round_at_ns;
    /* A round that waits for its last answers has nothing to ask. */
    return looking->next < looking->options->user_count || looking->left_count > 0
               ? now_ns + MILLISECOND_NS
               : now_ns + ROUND_NS;
}

static void looking_again(struct looking *looking, size_t user)
{
    looking->states[user] = LOOK_WAITS;
    looking->left_count++;
}

static enum rush_fate looking_fate(const char *state)
{
    if (state != NULL && strcmp(state, "ISSUED") == 0)
        return RUSH_FATE_ISSUED;
    if (state != NULL && strcmp(state, "MERGED") == 0)
        return RUSH_FATE_MERGED;
    return state != NULL && strcmp(state, "VOID") == 0 ? RUSH_FATE_VOID : RUSH_FATE_PENDING;
}

static void looking_add(struct looking *looking, const struct rush_coupon *coupon)
{
    struct rush_holdings *look = looking->look;

    ensure(array_make_room(look->coupons, look->coupon_count, looking->capacity));
    look->coupons[look->coupon_count++] = *coupon;
}

/* Keeps what the user holds; false: something of it is pending, and there is time to ask again. */
static bool looking_keep(struct looking *looking, size_t user, yyjson_val *root, bool is_last)
{
    size_t before = looking->look->coupon_count;
    yyjson_val *claims = yyjson_obj_get(root, "claims");
    yyjson_val *item;
    yyjson_arr_iter items;

    yyjson_arr_iter_init(claims, &items);
    /* A server that shows only the latest claim shows it as the answer itself. */
    item = yyjson_arr_size(claims) > 0 ? yyjson_arr_iter_next(&items) : root;
    for (; item != NULL; item = yyjson_arr_iter_next(&items)) {
        struct rush_coupon coupon = {
            .user = looking->options->users[user],
            .seq = yyjson_get_sint(yyjson_obj_get(item, "seq")),
            .nth = (int32_t)yyjson_get_sint(yyjson_obj_get(item, "nth")),
            .fate = looking_fate(yyjson_get_str(yyjson_obj_get(item, "state"))),
        };
        if (coupon.fate == RUSH_FATE_PENDING && !is_last) {
            looking->look->coupon_count = before;
            return false;
        }
        looking_add(looking, &coupon);
    }
    return true;
}

static void looking_answered(void *context, uint64_t job, int64_t now_ns,
                             const struct rush_reply *reply)
{
    struct looking *looking = context;
    yyjson_doc *document = NULL;

    if (reply->status == 200)
        document = yyjson_read(reply->body.bytes, reply->body.length, YYJSON_READ_NOFLAG);
    yyjson_val *root = yyjson_doc_get_root(document);
    bool is_known =
        reply->status == 404 || (yyjson_is_obj(root) && looking_keep(looking, job, root, false));
    /* The last look at what stays pending is kept as it is. */
    if (!is_known && yyjson_is_obj(root) && now_ns + 2 * ROUND_NS >= looking->until_ns)
        is_known = looking_keep(looking, job, root, true);
    yyjson_doc_free(document);
    if (is_known) {
        looking->states[job] = LOOK_DONE;
        looking->done_count++;
    } else {
        looking_again(looking, job);
    }
}

static void looking_failed(void *context, uint64_t job, int64_t now_ns, const char *why)
{
    looking_again(context, job);
}

static void looking_tick(void *context, int64_t now_ns)
{
    struct looking *looking = context;

    looking->options->tell(looking->options->context, looking->done_count,
                           looking->options->user_count);
}

static int looking_compare(const void *left, const void *right)
{
    const struct rush_coupon *a = left;
    const struct rush_coupon *b = right;

    if (a->user != b->user)
        return a->user < b->user ? -1 : 1;
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

enum status rush_holdings(struct rush_holdings *look, const struct holdings_options *options,
                          struct error *error)
{
    struct looking *looking = calloc(1, sizeof(*looking));

    *look = (struct rush_holdings){.asked_count = options->user_count};
    if (looking != NULL)
        looking->states = calloc(options->user_count + 1, 1);
    if (looking == NULL || looking->states == NULL) {
        free(looking);
        return error_set(error, STATUS_UNAVAILABLE, "no memory to look at %zu users",
                         options->user_count);
    }
    looking->options = options;
    looking->look = look;
    buffer_init(&looking->request, REQUEST_MAX);
    looking->until_ns = clock_monotonic_ns() + options->timeout_ms * MILLISECOND_NS;
    wire_run(options->wire, &(struct wire_caller){.next = looking_next,
                                                  .next_at_ns = looking_next_at_ns,
                                                  .answered = looking_answered,
                                                  .failed = looking_failed,
                                                  .tick = looking_tick,
                                                  .context = looking});
    look->unknown_count = options->user_count - looking->done_count;
    if (look->coupon_count > 0)
        qsort(look->coupons, look->coupon_count, sizeof(*look->coupons), looking_compare);
    buffer_release(&looking->request);
    free(looking->states);
    free(looking);
    return STATUS_OK;
}

void rush_holdings_release(struct rush_holdings *look)
{
    free(look->coupons);
    *look = (struct rush_holdings){0};
}
