/* shop.c: twenty products, of which some are in fashion, and a crowd that is the same each time. */
#include "demo/shop.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/array.h"
#include "base/json.h"
#include "base/model.h"

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
