/* demo.c: the timetable of the demo, as what to ask the server next. */
#include "demo/demo.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <yyjson.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/model.h"
#include "rush/wire.h"

#define CONNECTIONS    16
#define REQUEST_MAX    ((size_t)64 * 1024)
#define TIMEOUT_MS     5000
#define DROP_NAME      "Demo drop"
#define FIRST_ID       900001 /* out of the way of those that people make */
#define OPENS_AFTER_MS 5000
#define DROP_EVERY_MS  60000
#define ORDER_EVERY_MS 500
#define AGAIN_MS       500 /* after a step that failed */
#define LEFT_MAX       64  /* drops of an earlier run that are closed */

/* --- the demo --- */

/* What has to be done one after the other before people come, and then for each drop. */
enum demo_step {
    STEP_PRODUCTS,
    STEP_PAST,
    STEP_LOOK,  /* for drops that an earlier run has left open */
    STEP_CLEAR, /* closes them, and the last one of this run */
    STEP_CREATE,
    STEP_DROP, /* it runs */
};

enum demo_job { JOB_STEP, JOB_ORDER, JOB_CLAIM };

struct demo {
    struct demo_options options;
    char address[80];
    char host[64];
    char port[8];
    struct buffer token;
    pthread_t thread;
    struct wire *wire;
    struct wire_target target;
    struct buffer body; /* scratch, for the next request */
    struct buffer request;
    struct shop shop;

    enum demo_step step;
    bool step_is_out;   /* its answer has not come */
    int64_t step_at_ms; /* monotonic: not before */
    int64_t policy_id;
    int64_t left[LEFT_MAX]; /* policies to close */
    size_t left_count;
    char after[64];   /* where STEP_LOOK goes on; "": at the beginning */
    int64_t opens_ms; /* monotonic; of the drop that runs */
    size_t pressed;   /* of CROWD_COUNT */
    int64_t order_at_ms;
    int64_t quiet_until_ms; /* the server has asked for it */
    bool has_told;
};

/* --- requests --- */

/* "POST", "/v1/orders" and what is in demo->body, which may be empty. Valid until the next. */
static struct span demo_request(struct demo *demo, const char *method, const char *path)
{
    buffer_clear(&demo->request);
    wire_append_request(&demo->request, &demo->target, method, path, "", buffer_span(&demo->body));
    buffer_clear(&demo->body);
    return buffer_span(&demo->request);
}

/* --- steps --- */

static void append_policy(struct demo *demo, int64_t now_ms)
{
    struct buffer *body = &demo->body;
    demo->opens_ms = now_ms + OPENS_AFTER_MS;
    buffer_append_literal(body, "{");
    json_put(body, "id", demo->policy_id);
    buffer_printf(body, ",\"name\":\"%s\",\"total\":%d,\"opens_at\":", DROP_NAME, CROWD_TOTAL);
    json_append_time(body, clock_wall_ms() + OPENS_AFTER_MS);
    buffer_append_literal(body, ",\"discount\":{\"type\":\"percent\",\"value\":10}}");
}

static struct span step_request(struct demo *demo, int64_t now_ms)
{
    char path[128];
    switch (demo->step) {
    case STEP_PRODUCTS:
        shop_append_products(&demo->body);
        return demo_request(demo, "POST", "/v1/products");
    case STEP_PAST:
        shop_append_past(&demo->body, clock_wall_ms());
        return demo_request(demo, "POST", "/v1/orders");
    case STEP_LOOK:
        snprintf(path, sizeof(path), "/v1/policies?limit=500%s%s",
                 demo->after[0] != '\0' ? "&after=" : "", demo->after);
        return demo_request(demo, "GET", path);
    case STEP_CLEAR:
        snprintf(path, sizeof(path), "/v1/policies/%" PRId64, demo->left[demo->left_count - 1]);
        return demo_request(demo, "DELETE", path);
    case STEP_CREATE:
    case STEP_DROP:
        break;
    }
    append_policy(demo, now_ms);
    return demo_request(demo, "POST", "/v1/policies");
}

/* Which of the policies on this page were ours. */
static void note_left(struct demo *demo, yyjson_val *root)
{
    yyjson_val *items = yyjson_obj_get(root, "items");
    yyjson_val *item;
    size_t index;
    size_t count;
    yyjson_arr_foreach(items, index, count, item)
    {
        int64_t id = yyjson_get_sint(yyjson_obj_get(item, "id"));
        bool is_open = !yyjson_equals_str(yyjson_obj_get(item, "state"), "CLOSED");
        if (!yyjson_equals_str(yyjson_obj_get(item, "name"), DROP_NAME))
            continue;
        demo->policy_id = id >= demo->policy_id ? id + 1 : demo->policy_id;
        if (is_open && demo->left_count < LEFT_MAX)
            demo->left[demo->left_count++] = id;
    }
    const char *next = yyjson_get_str(yyjson_obj_get(root, "next"));
    snprintf(demo->after, sizeof(demo->after), "%s", next != NULL ? next : "");
}

static void tell(struct demo *demo)
{
    if (demo->has_told)
        return;
    demo->has_told = true;
    char text[160];
    snprintf(text, sizeof(text),
             "a drop of %d coupons opens in %d s, and a new one every %d s; watch http://%s/",
             CROWD_TOTAL, OPENS_AFTER_MS / 1000, DROP_EVERY_MS / 1000, demo->address);
    log_event(LOG_INFO, "demo", LOG_FIELD("policy", LOG_I64(demo->policy_id)),
              LOG_FIELD("words", LOG_TEXT(text)));
}

/* What comes next once the step has been answered well. */
static void step_done(struct demo *demo, int64_t now_ms, const struct rush_reply *reply)
{
    switch (demo->step) {
    case STEP_PRODUCTS:
        demo->step = STEP_PAST;
        return;
    case STEP_PAST:
        demo->step = STEP_LOOK;
        return;
    case STEP_LOOK: {
        yyjson_doc *page = yyjson_read(reply->body.bytes, reply->body.length, 0);
        demo->after[0] = '\0';
        note_left(demo, yyjson_doc_get_root(page));
        yyjson_doc_free(page);
        if (demo->after[0] == '\0')
            demo->step = demo->left_count > 0 ? STEP_CLEAR : STEP_CREATE;
        return;
    }
    case STEP_CLEAR:
        if (--demo->left_count == 0)
            demo->step = STEP_CREATE;
        return;
    case STEP_CREATE:
        demo->step = STEP_DROP;
        demo->pressed = 0;
        demo->step_at_ms = now_ms + DROP_EVERY_MS;
        tell(demo);
        return;
    case STEP_DROP:
        return;
    }
}

/* A minute is over: this one is closed, then comes the next. */
static void end_drop(struct demo *demo)
{
    demo->left[demo->left_count++] = demo->policy_id++;
    demo->step = STEP_CLEAR;
}

static void step_failed(struct demo *demo, int64_t now_ms, int status)
{
    /* Someone has a policy of that id; or has removed what was to be closed. */
    if (demo->step == STEP_CREATE && status == 409)
        demo->policy_id++;
    else if (demo->step == STEP_CLEAR && status == 404 && --demo->left_count == 0)
        demo->step = STEP_CREATE;
    demo->step_at_ms = now_ms + AGAIN_MS;
}

/* --- what is due --- */

static bool is_over(const struct demo *demo)
{
    return demo->options.is_over(demo->options.context);
}

static bool has_crowd(const struct demo *demo)
{
    return demo->step == STEP_DROP && demo->pressed < CROWD_COUNT;
}

static int64_t next_press_ms(const struct demo *demo)
{
    return demo->opens_ms + crowd_time_ms(demo->pressed);
}

static struct span claim_request(struct demo *demo)
{
    char path[64];
    char user[CROWD_USER_SIZE];
    crowd_user(demo->pressed++, user);
    snprintf(path, sizeof(path), "/v1/policies/%" PRId64 "/claims", demo->policy_id);
    buffer_printf(&demo->body, "{\"user\":\"%s\"}", user);
    return demo_request(demo, "POST", path);
}

static bool demo_next(void *context, int64_t now_ns, struct span *request, uint64_t *job)
{
    struct demo *demo = context;
    int64_t now_ms = now_ns / 1000000;
    if (is_over(demo) || now_ms < demo->quiet_until_ms)
        return false;
    if (!demo->step_is_out && now_ms >= demo->step_at_ms) {
        if (demo->step == STEP_DROP)
            end_drop(demo);
        demo->step_is_out = true;
        *job = JOB_STEP;
        *request = step_request(demo, now_ms);
        return true;
    }
    if (has_crowd(demo) && now_ms >= next_press_ms(demo)) {
        *job = JOB_CLAIM;
        *request = claim_request(demo);
        return true;
    }
    if (demo->step > STEP_PAST && now_ms >= demo->order_at_ms) {
        demo->order_at_ms = now_ms + ORDER_EVERY_MS;
        shop_append_order(&demo->shop, &demo->body, clock_wall_ms());
        *job = JOB_ORDER;
        *request = demo_request(demo, "POST", "/v1/orders");
        return true;
    }
    return false;
}

static int64_t demo_next_at_ns(void *context, int64_t now_ns)
{
    const struct demo *demo = context;
    if (is_over(demo))
        return WIRE_NEVER;
    int64_t due_ms = demo->order_at_ms;
    if (!demo->step_is_out && demo->step_at_ms < due_ms)
        due_ms = demo->step_at_ms;
    if (has_crowd(demo) && next_press_ms(demo) < due_ms)
        due_ms = next_press_ms(demo);
    return (due_ms > demo->quiet_until_ms ? due_ms : demo->quiet_until_ms) * 1000000;
}

/* --- what came back --- */

static void demo_answered(void *context, uint64_t job, int64_t now_ns,
                          const struct rush_reply *reply)
{
    struct demo *demo = context;
    int64_t now_ms = now_ns / 1000000;
    if ((reply->status == 429 || reply->status == 503) && reply->retry_after_s > 0)
        demo->quiet_until_ms = now_ms + reply->retry_after_s * INT64_C(1000);
    if (job != JOB_STEP)
        return;
    demo->step_is_out = false;
    if (reply->status >= 200 && reply->status < 300)
        step_done(demo, now_ms, reply);
    else
        step_failed(demo, now_ms, reply->status);
}

static void demo_failed(void *context, uint64_t job, int64_t now_ns, const char *why)
{
    struct demo *demo = context;
    if (job == JOB_STEP) {
        demo->step_is_out = false;
        step_failed(demo, now_ns / 1000000, 0);
    }
}

static void demo_tick(void *context, int64_t now_ns)
{
}

/* --- life --- */

static void *demo_run(void *context)
{
    struct demo *demo = context;
    struct error error;
    struct wire_options options = {.host = demo->host,
                                   .port = demo->port,
                                   .connection_count = CONNECTIONS,
                                   .timeout_ms = TIMEOUT_MS};
    struct wire_caller caller = {.next = demo_next,
                                 .next_at_ns = demo_next_at_ns,
                                 .answered = demo_answered,
                                 .failed = demo_failed,
                                 .tick = demo_tick,
                                 .context = demo};
    pthread_setname_np(pthread_self(), "demo");
    demo->step_at_ms = clock_monotonic_ms();
    if (wire_open(&demo->wire, &options, &error) == STATUS_OK)
        wire_run(demo->wire, &caller);
    else if (!is_over(demo))
        log_event(LOG_WARN, "demo_failed", LOG_FIELD("error", LOG_TEXT(error.text)));
    wire_close(demo->wire);
    return NULL;
}

/* "127.0.0.1:8080" and "[::1]:8080" into what getaddrinfo() reads. */
static void cut_address(struct demo *demo, const char *address)
{
    const char *colon = strrchr(address, ':');
    ensure(colon != NULL);
    const char *first = address[0] == '[' ? address + 1 : address;
    const char *end = colon > first && colon[-1] == ']' ? colon - 1 : colon;
    snprintf(demo->address, sizeof(demo->address), "%s", address);
    snprintf(demo->host, sizeof(demo->host), "%.*s", (int)(end - first), first);
    snprintf(demo->port, sizeof(demo->port), "%s", colon + 1);
}

static void demo_free(struct demo *demo)
{
    buffer_release(&demo->body);
    buffer_release(&demo->request);
    if (demo->token.bytes != NULL)
        explicit_bzero(demo->token.bytes, demo->token.capacity);
    buffer_release(&demo->token);
    free(demo);
}

enum status demo_start(struct demo **demo, const struct demo_options *options, struct error *error)
{
    struct demo *started = calloc(1, sizeof(*started));
    *demo = NULL;
    if (started == NULL)
        return error_set(error, STATUS_FAILED, "no memory for the demo");
    started->options = *options;
    cut_address(started, options->address);
    buffer_init(&started->token, 4096);
    buffer_append_span(&started->token, options->admin_token);
    started->target =
        (struct wire_target){.base = "",
                             .authority = started->address,
                             .token = started->token.length > 0 ? started->token.bytes : "",
                             .agent = "dibs-demo"};
    buffer_init(&started->body, REQUEST_MAX);
    buffer_init(&started->request, REQUEST_MAX);
    shop_init(&started->shop, clock_wall_ms());
    started->policy_id = FIRST_ID;
    if (pthread_create(&started->thread, NULL, demo_run, started) != 0) {
        demo_free(started);
        return error_set(error, STATUS_FAILED, "cannot start a thread");
    }
    *demo = started;
    return STATUS_OK;
}

void demo_stop(struct demo *demo)
{
    if (demo == NULL)
        return;
    pthread_join(demo->thread, NULL);
    demo_free(demo);
}

/* --- what the shop sells, its orders, and a crowd that is the same each time --- */

#define PAST_DAYS      6
#define ORDERS_PER_DAY 20
#define FASHION_MS     20000 /* so long a product is wanted most */

static const struct shop_product {
    const char *name;
    int price;
} products[] = {
    {"Ginger Tea", 9},     {"Linen Shirt", 49},    {"Desk Lamp", 39},    {"Running Shoes", 119},
    {"Rice Cooker", 89},   {"Wool Socks", 12},     {"Ceramic Mug", 14},  {"Rain Jacket", 79},
    {"Headphones", 149},   {"Yoga Mat", 29},       {"Notebook", 7},      {"Sunscreen", 19},
    {"Travel Pillow", 24}, {"Chopsticks", 11},     {"Keyboard", 99},     {"Tote Bag", 17},
    {"Phone Stand", 15},   {"Scented Candle", 22}, {"Water Bottle", 25}, {"Puzzle", 27},
};

void shop_init(struct shop *shop, int64_t wall_ms)
{
    *shop = (struct shop){.dice = (uint64_t)wall_ms | 1, .started_ms = wall_ms};
}

/* xorshift: a demo needs no better dice. */
static uint64_t roll(uint64_t *dice, uint64_t sides)
{
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    *dice ^= *dice << 17;
    return *dice % sides;
}

void shop_append_products(struct buffer *out)
{
    buffer_append_literal(out, "{\"products\":[");
    for (size_t i = 0; i < COUNT_OF(products); i++) {
        buffer_printf(out, "%s{\"product_id\":\"demo-%zu\",\"name\":\"%s\",\"price\":%d}",
                      i > 0 ? "," : "", i + 1, products[i].name, products[i].price);
    }
    buffer_append_literal(out, "]}");
}

static void append_items(struct buffer *out, size_t product, uint64_t quantity)
{
    buffer_printf(out, "\"items\":[{\"product_id\":\"demo-%zu\",\"quantity\":%" PRIu64 "}]}",
                  product + 1, quantity);
}

void shop_append_past(struct buffer *out, int64_t wall_ms)
{
    int64_t today = wall_ms / DAY_MS;
    buffer_append_literal(out, "{\"orders\":[");
    for (int64_t day = today - PAST_DAYS; day < today; day++) {
        uint64_t dice = (uint64_t)day * UINT64_C(0x9E3779B97F4A7C15) | 1;
        for (int i = 0; i < ORDERS_PER_DAY; i++) {
            /* The lower of two: the first products sell best. */
            uint64_t one = roll(&dice, COUNT_OF(products));
            uint64_t other = roll(&dice, COUNT_OF(products));
            buffer_printf(out, "%s{\"order_id\":\"demo-%" PRId64 "-%d\",\"paid_at\":",
                          day > today - PAST_DAYS || i > 0 ? "," : "", day, i);
            json_append_time(out, day * DAY_MS + i * (DAY_MS / ORDERS_PER_DAY));
            buffer_append_literal(out, ",");
            append_items(out, one < other ? one : other, 1 + roll(&dice, 3));
        }
    }
    buffer_append_literal(out, "]}");
}

void shop_append_order(struct shop *shop, struct buffer *out, int64_t wall_ms)
{
    uint64_t one = roll(&shop->dice, COUNT_OF(products));
    uint64_t other = roll(&shop->dice, COUNT_OF(products));
    uint64_t fashion = (uint64_t)(wall_ms / FASHION_MS) * 7 % COUNT_OF(products);
    uint64_t product = roll(&shop->dice, 4) == 0 ? fashion : one < other ? one : other;
    buffer_printf(out, "{\"order_id\":\"demo-%" PRId64 "-%" PRIu64 "\",", shop->started_ms,
                  ++shop->order_count);
    append_items(out, (size_t)product, 1 + roll(&shop->dice, 3));
}

/* --- the crowd --- */

/* So many presses, evenly, from one time to the next. */
static const struct wave {
    int64_t from_ms;
    int64_t until_ms;
    size_t count;
} waves[] = {
    {-2000, 0, 30},      /* too early */
    {0, 5000, 650},      /* the coupons are gone before this is over */
    {5000, 10000, 1300}, /* word has spread */
    {10000, 20000, 800}, /* latecomers */
};

int64_t crowd_time_ms(size_t index)
{
    for (size_t i = 0; i < COUNT_OF(waves); i++) {
        const struct wave *wave = &waves[i];
        if (index < wave->count) {
            int64_t length_ms = wave->until_ms - wave->from_ms;
            return wave->from_ms + length_ms * (int64_t)index / (int64_t)wave->count;
        }
        index -= wave->count;
    }
    return waves[COUNT_OF(waves) - 1].until_ms;
}

#define FIRST_COUNT   600 /* of the early ones and those at the opening */
#define REPEATS_EVERY 10
#define REPEATS_WHOM  17 /* presses before: long enough ago to have been answered */

void crowd_user(size_t index, char user[CROWD_USER_SIZE])
{
    static const char *const names[] = {
        "mina",  "jiho",    "sora", "alex",   "yuna",  "theo",  "hana", "minho",
        "clara", "joon",    "nora", "bora",   "felix", "eunji", "luca", "dasom",
        "ida",   "taeyang", "mila", "haneul", "oskar", "suji",  "emma",
    };
    if (index % REPEATS_EVERY == REPEATS_EVERY - 1 && index > REPEATS_WHOM) {
        /* Later on it is those who came first that look again whether they really have one. */
        index = index < FIRST_COUNT ? index - REPEATS_WHOM : index * 31 % FIRST_COUNT;
    }
    snprintf(user, CROWD_USER_SIZE, "%s-%zu", names[index * 7 % COUNT_OF(names)], 1000 + index);
}
