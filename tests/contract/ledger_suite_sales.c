/* ledger_suite_sales.c: orders, refunds, products, the feed of sales, and rankings made of them. */
#include "ledger_fixture.h"

#include <stdatomic.h>

#include "base/zone.h"
#include "ledger/sales/sales.h"

#define TODAY    (NOW / DAY_MS)
#define FEED_MAX 4096

static struct id text_id(const char *text)
{
    return id_of(span_of(text));
}

/* --- moves --- */

static enum order_result add_at(struct fixture *fixture, const char *order_id, int64_t paid_at_ms,
                                const struct order_item *items, size_t count)
{
    struct order order = {.order_id = text_id(order_id),
                          .paid_at_ms = paid_at_ms,
                          .items = items,
                          .item_count = count};
    check(fixture, ledger_orders_add(fixture->ledger, &order, 1, NOW, &fixture->error));
    return order.result;
}

/* An order of one product. */
static enum order_result sell(struct fixture *fixture, const char *order_id, const char *product,
                              int64_t quantity, int64_t day)
{
    struct order_item item = {.product_id = text_id(product), .quantity = quantity};
    return add_at(fixture, order_id, day * DAY_MS + DAY_MS / 2, &item, 1);
}

static bool refund(struct fixture *fixture, const char *order_id)
{
    struct id id = text_id(order_id);
    struct order order;
    bool is_news = false;

    check(fixture,
          ledger_order_refund(fixture->ledger, &id, NOW + 5, &order, &is_news, &fixture->error));
    assert_true(id_equal(&order.order_id, &id));
    assert_true(order.refunded_at_ms > 0);
    return is_news;
}

/* What the database itself says is sold, minus what its orders say; and minus what its feed says.
 */
static void assert_sums_agree(struct fixture *fixture)
{
    assert_int_equal(
        ask(fixture->session,
            "SELECT COUNT(*) FROM (SELECT s.day, s.product_id, SUM(s.quantity) AS q FROM ("
            " SELECT day, product_id, quantity FROM sale_day UNION ALL"
            " SELECT o.day, i.product_id, -i.quantity FROM sale_order o JOIN sale_item i"
            " ON i.order_id = o.order_id WHERE o.refunded_at IS NULL) AS s"
            " GROUP BY s.day, s.product_id) AS sums WHERE q <> 0"),
        0);
    assert_int_equal(
        ask(fixture->session,
            "SELECT COUNT(*) FROM (SELECT s.day, s.product_id, SUM(s.quantity) AS q FROM ("
            " SELECT day, product_id, quantity FROM sale_day UNION ALL"
            " SELECT day, product_id, -quantity FROM sale_feed) AS s"
            " GROUP BY s.day, s.product_id) AS sums WHERE q <> 0"),
        0);
    assert_int_equal(ask(fixture->session, "SELECT COUNT(*) - MAX(id) FROM sale_feed"), 0);
    assert_int_equal(ask(fixture->session, "SELECT MAX(id) - (SELECT last_id FROM sale_counter)"
                                           " FROM sale_feed"),
                     0);
}

static int64_t sold_on(struct fixture *fixture, const char *product, int64_t day)
{
    return ask(fixture->session,
               "SELECT quantity FROM sale_day WHERE product_id = '%s' AND day = %lld", product,
               (long long)day);
}

/* "a=5 b=3": the best sellers of those days. */
static void assert_top(struct fixture *fixture, int64_t first_day, int64_t last_day, size_t limit,
                       const char *expected)
{
    struct sales_line lines[20];
    struct buffer text;
    size_t count = 0;

    check(fixture, ledger_sales_top(fixture->ledger, first_day, last_day, limit, lines, &count,
                                    &fixture->error));
    buffer_init(&text, 4096);
    buffer_append_text(&text, "");
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(lines[i].rank, i + 1);
        buffer_printf(&text, "%s%.*s=%lld", i > 0 ? " " : "", lines[i].product_id.length,
                      lines[i].product_id.bytes, (long long)lines[i].sold);
    }
    assert_string_equal(count > 0 ? text.bytes : "", expected);
    buffer_release(&text);
}

/* --- orders --- */

static void test_sales__order_counts_once(void **state)
{
    struct fixture *fixture = *state;
    const struct order_item items[] = {{text_id("a"), 2}, {text_id("b"), 1}, {text_id("a"), 3}};
    const struct order_item turned[] = {{text_id("b"), 1}, {text_id("a"), 5}};
    const struct order_item other[] = {{text_id("a"), 5}, {text_id("b"), 2}};

    assert_int_equal(add_at(fixture, "o1", NOW, items, 3), ORDER_ADDED);
    assert_int_equal(add_at(fixture, "o1", NOW, items, 3), ORDER_KNOWN);
    assert_int_equal(add_at(fixture, "o1", NOW, turned, 2), ORDER_KNOWN);
    assert_int_equal(add_at(fixture, "o1", NOW, other, 2), ORDER_DIFFERS);
    assert_int_equal(add_at(fixture, "o1", NOW + 1, items, 3), ORDER_DIFFERS);
    assert_int_equal(add_at(fixture, "o1", 0, items, 3), ORDER_DIFFERS);
    reopen(fixture);
    assert_int_equal(add_at(fixture, "o1", NOW, items, 3), ORDER_KNOWN);
    assert_int_equal(add_at(fixture, "O1", NOW, items, 3), ORDER_ADDED); /* another id */
    assert_int_equal(sold_on(fixture, "a", TODAY), 10);
    assert_int_equal(sold_on(fixture, "b", TODAY), 2);
    assert_sums_agree(fixture);
}

/* A repeat without paid_at is a repeat at any time. */
static void test_sales__order_without_a_time(void **state)
{
    struct fixture *fixture = *state;
    struct order_item item = {text_id("a"), 1};
    struct order_item items[ORDER_ITEMS_MAX];
    struct order order = {.order_id = text_id("o"), .items = &item, .item_count = 1};
    struct id nobody = text_id("nobody");

    check(fixture, ledger_orders_add(fixture->ledger, &order, 1, NOW, &fixture->error));
    assert_int_equal(order.result, ORDER_ADDED);
    assert_int_equal(order.paid_at_ms, NOW);
    assert_int_equal(order.day, TODAY);
    order.paid_at_ms = 0;
    check(fixture, ledger_orders_add(fixture->ledger, &order, 1, NOW + DAY_MS, &fixture->error));
    assert_int_equal(order.result, ORDER_KNOWN);
    assert_int_equal(order.paid_at_ms, NOW);
    assert_int_equal(order.received_at_ms, NOW);
    assert_int_equal(order.day, TODAY);

    order = (struct order){0};
    struct id id = text_id("o");
    check(fixture, ledger_order_get(fixture->ledger, &id, &order, items, &fixture->error));
    assert_true(id_equal(&order.order_id, &id));
    assert_int_equal(order.item_count, 1);
    assert_true(id_equal(&order.items[0].product_id, &item.product_id));
    assert_int_equal(order.items[0].quantity, 1);
    assert_int_equal(order.refunded_at_ms, 0);
    assert_int_equal(ledger_order_get(fixture->ledger, &nobody, &order, items, &fixture->error),
                     STATUS_NOT_FOUND);
}

/* Each order of a batch is judged on its own, and one that comes twice as if it came twice. */
static void test_sales__batch_of_orders(void **state)
{
    struct fixture *fixture = *state;
    struct order_item one = {text_id("a"), 1};
    struct order_item two = {text_id("a"), 2};
    struct order orders[] = {
        {.order_id = text_id("new"), .paid_at_ms = NOW, .items = &one, .item_count = 1},
        {.order_id = text_id("old"), .paid_at_ms = NOW, .items = &one, .item_count = 1},
        {.order_id = text_id("twice"), .paid_at_ms = NOW - DAY_MS, .items = &two, .item_count = 1},
        {.order_id = text_id("old"), .paid_at_ms = NOW, .items = &two, .item_count = 1},
        {.order_id = text_id("twice"), .paid_at_ms = NOW - DAY_MS, .items = &two, .item_count = 1},
        {.order_id = text_id("twice"), .paid_at_ms = NOW, .items = &one, .item_count = 1},
    };
    static const enum order_result expected[] = {ORDER_ADDED,   ORDER_KNOWN, ORDER_ADDED,
                                                 ORDER_DIFFERS, ORDER_KNOWN, ORDER_DIFFERS};

    assert_int_equal(add_at(fixture, "old", NOW, &one, 1), ORDER_ADDED);
    check(fixture, ledger_orders_add(fixture->ledger, orders, 6, NOW, &fixture->error));
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(orders[i].result, expected[i]);
    assert_int_equal(sold_on(fixture, "a", TODAY), 2);
    assert_int_equal(sold_on(fixture, "a", TODAY - 1), 2);
    assert_sums_agree(fixture);
    assert_int_equal(ask(fixture->session, "SELECT COUNT(*) FROM sale_order"), 3);
}

static void test_sales__largest_batch(void **state)
{
    struct fixture *fixture = *state;
    struct order *orders = calloc(ORDER_BATCH_MAX, sizeof(*orders));
    struct order_item items[ORDER_BATCH_ITEMS_MAX / ORDER_BATCH_MAX];
    size_t item_count = sizeof(items) / sizeof(items[0]);
    char text[ID_LENGTH_MAX + 1];

    for (size_t i = 0; i < item_count; i++) {
        snprintf(text, sizeof(text), "%064zu", i);
        items[i] = (struct order_item){text_id(text), ORDER_QUANTITY_MAX};
    }
    for (size_t i = 0; i < ORDER_BATCH_MAX; i++) {
        snprintf(text, sizeof(text), "%064zu", i);
        orders[i] = (struct order){
            .order_id = text_id(text), .paid_at_ms = NOW, .items = items, .item_count = item_count};
    }
    check(fixture,
          ledger_orders_add(fixture->ledger, orders, ORDER_BATCH_MAX, NOW, &fixture->error));
    assert_int_equal(sold_on(fixture, text + 0, TODAY), 0);
    snprintf(text, sizeof(text), "%064d", 0);
    assert_int_equal(sold_on(fixture, text, TODAY), INT64_C(1000) * ORDER_QUANTITY_MAX);
    assert_int_equal(ask(fixture->session, "SELECT COUNT(*) FROM sale_feed"), item_count);
    assert_sums_agree(fixture);
    free(orders);
}

static void test_sales__refund_takes_back_once(void **state)
{
    struct fixture *fixture = *state;
    const struct order_item items[] = {{text_id("a"), 2}, {text_id("b"), 7}};
    struct id nobody = text_id("nobody");
    struct order order;
    bool is_news;

    assert_int_equal(add_at(fixture, "o1", NOW - DAY_MS, items, 2), ORDER_ADDED);
    assert_int_equal(sell(fixture, "o2", "a", 5, TODAY - 1), ORDER_ADDED);
    assert_true(refund(fixture, "o1"));
    assert_false(refund(fixture, "o1"));
    assert_int_equal(sold_on(fixture, "a", TODAY - 1), 5);
    assert_int_equal(sold_on(fixture, "b", TODAY - 1), 0);
    reopen(fixture);
    assert_false(refund(fixture, "o1"));
    assert_int_equal(add_at(fixture, "o1", NOW - DAY_MS, items, 2), ORDER_KNOWN);
    assert_int_equal(sold_on(fixture, "a", TODAY - 1), 5);
    assert_sums_agree(fixture);
    assert_top(fixture, TODAY - 1, TODAY, 10, "a=5");
    assert_int_equal(
        ledger_order_refund(fixture->ledger, &nobody, NOW, &order, &is_news, &fixture->error),
        STATUS_NOT_FOUND);
}

/* The day of a sale is the zone's, and that of the payment, not of the refund. */
static void test_sales__days_are_the_zones(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_options options = options_of(fixture);
    struct order_item item = {text_id("a"), 1};
    struct zone *seoul = NULL;
    int64_t day = 0;

    ledger_close(fixture->ledger);
    check(fixture, zone_open(&seoul, "Asia/Seoul", &fixture->error));
    options.zone = seoul;
    check(fixture, ledger_open(&fixture->ledger, &options, &fixture->error));
    assert_true(zone_parse_day(SPAN("2024-02-29"), &day));
    assert_int_equal(add_at(fixture, "last", (day + 1) * DAY_MS - 9 * 3600000 - 1, &item, 1),
                     ORDER_ADDED);
    assert_int_equal(add_at(fixture, "first", (day + 1) * DAY_MS - 9 * 3600000, &item, 1),
                     ORDER_ADDED);
    assert_int_equal(sold_on(fixture, "a", day), 1);
    assert_int_equal(sold_on(fixture, "a", day + 1), 1);
    assert_true(refund(fixture, "last"));
    assert_int_equal(sold_on(fixture, "a", day), 0);
    assert_int_equal(sold_on(fixture, "a", day + 1), 1);
    ledger_close(fixture->ledger);
    zone_free(seoul);
    open_ledger(fixture);
}

/* The ledger notes its zone, and keeps to it once there are orders. */
static void test_sales__zone_is_settled(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_options options = options_of(fixture);
    struct zone *seoul = NULL;

    check(fixture, ledger_zone_settle(fixture->ledger, &fixture->error));
    check(fixture, ledger_zone_settle(fixture->ledger, &fixture->error));
    ledger_close(fixture->ledger);
    check(fixture, zone_open(&seoul, "Asia/Seoul", &fixture->error));
    options.zone = seoul;
    check(fixture, ledger_open(&fixture->ledger, &options, &fixture->error));
    check(fixture, ledger_zone_settle(fixture->ledger, &fixture->error));
    sell(fixture, "o1", "a", 1, TODAY);
    check(fixture, ledger_zone_settle(fixture->ledger, &fixture->error));
    ledger_close(fixture->ledger);
    zone_free(seoul);
    open_ledger(fixture);
    assert_int_equal(ledger_zone_settle(fixture->ledger, &fixture->error), STATUS_CONFLICT);
    assert_non_null(strstr(fixture->error.text, "set timezone to Asia/Seoul"));
}

/* --- products --- */

static void test_sales__products(void **state)
{
    struct fixture *fixture = *state;
    struct product products[4] = {
        {.id = text_id("b"), .name = "first", .price = 1},
        {.id = text_id("a"), .name = "\"K\xc3\xa4se\" \\ \xf0\x9f\xa7\x80\n", .price = 0},
        {.id = text_id("b"), .name = "second", .price = PRODUCT_PRICE_NONE},
        {.id = text_id("B"), .name = "", .price = PRODUCT_PRICE_MAX},
    };
    struct product asked[4] = {
        {.id = text_id("B")}, {.id = text_id("none")}, {.id = text_id("b")}, {.id = text_id("a")}};
    struct product got;
    struct id id = text_id("a");

    check(fixture, ledger_products_put(fixture->ledger, products, 4, NOW, &fixture->error));
    check(fixture, ledger_product_get(fixture->ledger, &id, &got, &fixture->error));
    assert_string_equal(got.name, products[1].name);
    assert_int_equal(got.price, 0);
    assert_int_equal(got.updated_at_ms, NOW);
    check(fixture, ledger_products_fill(fixture->ledger, asked, 4, &fixture->error));
    assert_int_equal(asked[0].price, PRODUCT_PRICE_MAX);
    assert_string_equal(asked[1].name, "");
    assert_int_equal(asked[1].price, PRODUCT_PRICE_NONE);
    assert_true(asked[1].id.length == 4);
    assert_string_equal(asked[2].name, "second");
    assert_int_equal(asked[2].price, PRODUCT_PRICE_NONE);
    assert_string_equal(asked[3].name, products[1].name);
    products[1].price = 5;
    check(fixture, ledger_products_put(fixture->ledger, products + 1, 1, NOW + 1, &fixture->error));
    check(fixture, ledger_product_get(fixture->ledger, &id, &got, &fixture->error));
    assert_int_equal(got.price, 5);
    assert_int_equal(got.updated_at_ms, NOW + 1);
    id = text_id("none");
    assert_int_equal(ledger_product_get(fixture->ledger, &id, &got, &fixture->error),
                     STATUS_NOT_FOUND);
}

static void test_sales__largest_batch_of_products(void **state)
{
    struct fixture *fixture = *state;
    struct product *products = calloc(PRODUCT_BATCH_MAX, sizeof(*products));
    char text[ID_LENGTH_MAX + 1];

    for (size_t i = 0; i < PRODUCT_BATCH_MAX; i++) {
        snprintf(text, sizeof(text), "%064zu", i);
        products[i].id = text_id(text);
        products[i].price = PRODUCT_PRICE_MAX;
        for (size_t j = 0; j < PRODUCT_NAME_CHARACTERS_MAX; j++)
            memcpy(products[i].name + 4 * j, "\xf0\x9f\xa7\x80", 4);
    }
    check(fixture,
          ledger_products_put(fixture->ledger, products, PRODUCT_BATCH_MAX, NOW, &fixture->error));
    products[0].name[0] = '\0';
    check(fixture,
          ledger_products_fill(fixture->ledger, products, PRODUCT_BATCH_MAX, &fixture->error));
    for (size_t i = 0; i < PRODUCT_BATCH_MAX; i++)
        assert_int_equal(strlen(products[i].name), 4 * PRODUCT_NAME_CHARACTERS_MAX);
    free(products);
}

/* --- rankings --- */

static void test_sales__ties(void **state)
{
    struct fixture *fixture = *state;

    /* 6 each; more on the last day first, then by bytes: digits, capitals, _, small letters. */
    sell(fixture, "o1", "late", 1, TODAY - 2);
    sell(fixture, "o2", "late", 5, TODAY);
    sell(fixture, "o3", "early", 5, TODAY - 2);
    sell(fixture, "o4", "early", 1, TODAY);
    sell(fixture, "o5", "a", 6, TODAY - 1);
    sell(fixture, "o6", "_", 6, TODAY - 1);
    sell(fixture, "o7", "B", 6, TODAY - 1);
    sell(fixture, "o8", "10", 6, TODAY - 1);
    sell(fixture, "o9", "9", 6, TODAY - 1);
    sell(fixture, "o10", "A", 6, TODAY - 1);
    sell(fixture, "o11", "A-", 6, TODAY - 1);
    sell(fixture, "o12", "most", 7, TODAY - 2);
    sell(fixture, "o13", "too-old", 100, TODAY - 3);
    sell(fixture, "o14", "too-new", 100, TODAY + 1);
    assert_top(fixture, TODAY - 2, TODAY, 20,
               "most=7 late=6 early=6 10=6 9=6 A=6 A-=6 B=6 _=6 a=6");
    assert_top(fixture, TODAY - 2, TODAY, 3, "most=7 late=6 early=6");
    assert_top(fixture, TODAY - 1, TODAY, 3, "10=6 9=6 A=6");
    assert_top(fixture, TODAY, TODAY, 20, "late=5 early=1");
    assert_top(fixture, TODAY + 2, TODAY + 3, 20, "");
}

static void test_sales__lines_of_and_around(void **state)
{
    struct fixture *fixture = *state;
    struct sales_line lines[9];
    struct id ids[] = {text_id("p1"), text_id("p9"), text_id("none"), text_id("p5")};
    struct id middle = text_id("p5");
    struct id first = text_id("p9");
    size_t count;

    for (int i = 1; i <= 9; i++) {
        char order[8];
        char product[8];
        snprintf(order, sizeof(order), "o%d", i);
        snprintf(product, sizeof(product), "p%d", i);
        sell(fixture, order, product, i, TODAY);
    }
    check(fixture, ledger_sales_of(fixture->ledger, TODAY - 2, TODAY, ids, 4, lines, &count,
                                   &fixture->error));
    assert_int_equal(count, 3);
    assert_int_equal(lines[0].rank, 1);
    assert_int_equal(lines[1].rank, 5);
    assert_int_equal(lines[1].sold, 5);
    assert_int_equal(lines[1].sold_last_day, 5);
    assert_int_equal(lines[2].rank, 9);
    check(fixture, ledger_sales_around(fixture->ledger, TODAY - 2, TODAY, &middle, 2, lines, &count,
                                       &fixture->error));
    assert_int_equal(count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(lines[i].rank, 3 + i);
        assert_int_equal(lines[i].sold, 7 - i);
    }
    check(fixture, ledger_sales_around(fixture->ledger, TODAY - 2, TODAY, &first, 2, lines, &count,
                                       &fixture->error));
    assert_int_equal(count, 3);
    assert_true(id_equal(&lines[0].product_id, &first));
    check(fixture, ledger_sales_around(fixture->ledger, TODAY - 2, TODAY, &ids[2], 2, lines, &count,
                                       &fixture->error));
    assert_int_equal(count, 0);
}

/* --- the feed --- */

static size_t read_feed(struct fixture *fixture, struct feed_place *place,
                        struct feed_entry *entries, size_t max)
{
    size_t count = 0;

    check(fixture,
          ledger_sales_after(fixture->ledger, place, entries, max, &count, &fixture->error));
    if (count > 0)
        *place = entries[count - 1].place;
    return count;
}

static void test_sales__feed_in_pages(void **state)
{
    struct fixture *fixture = *state;
    struct feed_place place = {0};
    struct feed_entry entries[3];
    const struct order_item items[] = {{text_id("b"), 2}, {text_id("a"), 1}};

    assert_int_equal(read_feed(fixture, &place, entries, 3), 0);
    add_at(fixture, "o1", NOW, items, 2);
    sell(fixture, "o2", "a", 4, TODAY - 1);
    refund(fixture, "o1");
    assert_int_equal(read_feed(fixture, &place, entries, 3), 3);
    assert_int_equal(entries[0].place.feed_id, 1);
    assert_true(entries[0].product_id.bytes[0] == 'a' && entries[0].quantity == 1);
    assert_true(entries[1].product_id.bytes[0] == 'b' && entries[1].quantity == 2);
    assert_int_equal(entries[2].day, TODAY - 1);
    assert_int_equal(read_feed(fixture, &place, entries, 3), 2);
    assert_int_equal(entries[0].place.feed_id, 4);
    assert_true(entries[0].product_id.bytes[0] == 'a' && entries[0].quantity == -1);
    assert_true(entries[1].product_id.bytes[0] == 'b' && entries[1].quantity == -2);
    assert_int_equal(read_feed(fixture, &place, entries, 3), 0);
    reopen(fixture);
    assert_int_equal(read_feed(fixture, &place, entries, 3), 0);
    sell(fixture, "o3", "c", 1, TODAY);
    assert_int_equal(read_feed(fixture, &place, entries, 1), 1);
    assert_int_equal(place.feed_id, 6);
}

/* A place is only gone on from in the feed that it was read from. */
static void test_sales__feed_of_another_database(void **state)
{
    struct fixture *fixture = *state;
    struct feed_place place = {0};
    struct feed_entry entries[8];
    size_t count = 0;

    sell(fixture, "o1", "a", 1, TODAY);
    sell(fixture, "o2", "a", 1, TODAY);
    sell(fixture, "o3", "a", 1, TODAY);
    assert_int_equal(read_feed(fixture, &place, entries, 2), 2);
    struct feed_place later = {.feed_id = 9, .written_at_ms = NOW};
    assert_int_equal(
        ledger_sales_after(fixture->ledger, &later, entries, 8, &count, &fixture->error),
        STATUS_NOT_FOUND);
    struct feed_place other = {.feed_id = 2, .written_at_ms = place.written_at_ms + 1};
    assert_int_equal(
        ledger_sales_after(fixture->ledger, &other, entries, 8, &count, &fixture->error),
        STATUS_NOT_FOUND);
    assert_int_equal(read_feed(fixture, &place, entries, 8), 1);
    ask(fixture->session, "DELETE FROM sale_feed WHERE id <= 2");
    struct feed_place start = {0};
    assert_int_equal(
        ledger_sales_after(fixture->ledger, &start, entries, 8, &count, &fixture->error),
        STATUS_NOT_FOUND);
    assert_int_equal(read_feed(fixture, &place, entries, 8), 0);
}

static void test_sales__old_entries_are_dropped(void **state)
{
    struct fixture *fixture = *state;
    struct feed_place place = {.feed_id = SALES_FEED_KEPT + 999, .written_at_ms = NOW + 1};
    struct feed_entry entries[8];

    sell(fixture, "o1", "a", 1, TODAY);
    sell(fixture, "o2", "a", 1, TODAY);
    ask(fixture->session, "UPDATE sale_feed SET id = id + %lld",
        (long long)(SALES_FEED_KEPT + 997));
    ask(fixture->session, "UPDATE sale_counter SET last_id = last_id + %lld",
        (long long)(SALES_FEED_KEPT + 997));
    ask(fixture->session, "INSERT INTO sale_feed (id, written_at, day, product_id, quantity) VALUES"
                          " (998, 1, 1, 'a', 0), (1000, 1, 1, 'a', 0), (1001, 1, 1, 'a', 0)");
    sell(fixture, "o3", "a", 1, TODAY);
    assert_int_equal(read_feed(fixture, &place, entries, 8), 1);
    assert_int_equal(place.feed_id, SALES_FEED_KEPT + 1000);
    assert_int_equal(ask(fixture->session, "SELECT MIN(id) FROM sale_feed"), 1001);
}

struct totals {
    struct feed_place place;
    int64_t sold[3][4]; /* per day and product a, b, c, d */
    size_t count;
};

static enum status note_place(void *context, const struct feed_place *place, struct error *error)
{
    struct totals *totals = context;
    (void)error;
    assert_int_equal(totals->count, 0);
    totals->place = *place;
    return STATUS_OK;
}

static enum status note_total(void *context, int64_t day, const struct id *product_id, int64_t sold,
                              struct error *error)
{
    struct totals *totals = context;
    (void)error;
    totals->sold[day - (TODAY - 2)][product_id->bytes[0] - 'a'] = sold;
    totals->count++;
    return STATUS_OK;
}

static struct totals totals_of(struct fixture *fixture)
{
    struct totals totals = {0};
    struct sales_visitor visitor = {.place = note_place, .total = note_total, .context = &totals};

    check(fixture, ledger_sales_days(fixture->ledger, TODAY - 2, TODAY, &visitor, &fixture->error));
    return totals;
}

/* Totals and their place, and from there the feed: everything once. */
static void test_sales__totals_and_feed_join(void **state)
{
    struct fixture *fixture = *state;
    struct feed_entry entries[8];

    assert_int_equal(totals_of(fixture).place.feed_id, 0);
    sell(fixture, "o1", "a", 1, TODAY);
    sell(fixture, "o2", "b", 2, TODAY - 2);
    sell(fixture, "o3", "b", 4, TODAY - 3);
    sell(fixture, "o4", "b", 8, TODAY + 1);
    refund(fixture, "o1");
    struct totals totals = totals_of(fixture);
    assert_int_equal(totals.place.feed_id, 5);
    assert_int_equal(totals.count, 2);
    assert_int_equal(totals.sold[2][0], 0);
    assert_int_equal(totals.sold[0][1], 2);
    assert_int_equal(read_feed(fixture, &totals.place, entries, 8), 0);
    sell(fixture, "o5", "c", 3, TODAY);
    assert_int_equal(read_feed(fixture, &totals.place, entries, 8), 1);
    assert_true(entries[0].product_id.bytes[0] == 'c' && entries[0].quantity == 3);
}

/* --- many at once --- */

#define LEDGERS 3
#define THREADS 6
#define ROUNDS  25
#define ORDERS  40 /* ids that all of them use */

struct market {
    struct fixture *fixtures[LEDGERS];
    atomic_int added[ORDERS];
    atomic_int refunded[ORDERS];
    atomic_int troubles;
    atomic_bool is_over;
    size_t followed_count;
};

struct seller {
    struct market *market;
    struct fixture *fixture;
    unsigned number;
};

/* What order n has: product a to d, n + 1 of it. */
static struct order_item item_of(int number)
{
    char name[2] = {(char)('a' + number % 4), '\0'};
    return (struct order_item){text_id(name), number + 1};
}

static void *act_seller(void *context)
{
    struct seller *seller = context;
    struct market *market = seller->market;
    struct ledger *ledger = seller->fixture->ledger;
    struct error error = {""};
    unsigned seed = seller->number;

    for (int round = 0; round < ROUNDS; round++) {
        struct order orders[4];
        struct order_item items[4];
        int numbers[4];
        bool is_news = false;
        for (int i = 0; i < 4; i++) {
            char id[16];
            numbers[i] = rand_r(&seed) % ORDERS;
            snprintf(id, sizeof(id), "o%d", numbers[i]);
            items[i] = item_of(numbers[i]);
            orders[i] = (struct order){.order_id = text_id(id),
                                       .paid_at_ms = NOW - numbers[i] % 3 * DAY_MS,
                                       .items = &items[i],
                                       .item_count = 1};
        }
        enum status status = ledger_orders_add(ledger, orders, 4, NOW, &error);
        for (int i = 0; i < 4 && status == STATUS_OK; i++) {
            atomic_fetch_add(&market->added[numbers[i]], orders[i].result == ORDER_ADDED);
            if (orders[i].result == ORDER_DIFFERS)
                status = error_set(&error, STATUS_FAILED, "an order differs");
        }
        struct order order;
        if (status == STATUS_OK && round % 2 == 0)
            status =
                ledger_order_refund(ledger, &orders[0].order_id, NOW, &order, &is_news, &error);
        if (is_news)
            atomic_fetch_add(&market->refunded[numbers[0]], 1);
        if (status != STATUS_OK) {
            print_error("%s: %s\n", status_name(status), error.text);
            atomic_fetch_add(&market->troubles, 1);
        }
    }
    return NULL;
}

/* Follows the feed, as a board would, while all the others write. */
static void *act_follower(void *context)
{
    struct market *market = context;
    struct fixture *fixture = market->fixtures[0];
    struct feed_place place = {0};
    struct feed_entry entries[7];
    struct error error = {""};
    size_t count = 0;

    for (bool is_last = false; !is_last || count > 0;) {
        if (count == 0)
            is_last = atomic_load(&market->is_over);
        enum status status =
            ledger_sales_after(fixture->ledger, &place, entries, 7, &count, &error);
        for (size_t i = 0; i < count; i++) {
            if (entries[i].place.feed_id != place.feed_id + 1 ||
                entries[i].place.written_at_ms < place.written_at_ms)
                status = error_set(&error, STATUS_FAILED, "entries are out of order");
            place = entries[i].place;
        }
        market->followed_count += count;
        if (status != STATUS_OK) {
            print_error("%s: %s\n", status_name(status), error.text);
            atomic_fetch_add(&market->troubles, 1);
            break;
        }
    }
    return NULL;
}

/* Several processes add and refund the same orders: each counts once and goes back once, and one
 * who follows the feed sees every entry, in order. */
static void test_sales__many_sellers(void **state)
{
    struct fixture *fixture = *state;
    struct market market = {.fixtures = {fixture, fixture, fixture}};
    struct seller sellers[THREADS];
    pthread_t threads[THREADS + 1];

    for (int i = 1; i < LEDGERS && ledger_suite_is_shared; i++) {
        market.fixtures[i] = fixture_new(fixture->url, LEDGER_SHARE);
        open_ledger(market.fixtures[i]);
    }
    pthread_create(&threads[THREADS], NULL, act_follower, &market);
    for (unsigned i = 0; i < THREADS; i++) {
        sellers[i] = (struct seller){&market, market.fixtures[i % LEDGERS], i};
        pthread_create(&threads[i], NULL, act_seller, &sellers[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&market.is_over, true);
    pthread_join(threads[THREADS], NULL);
    for (int i = 1; i < LEDGERS && ledger_suite_is_shared; i++) {
        ledger_close(market.fixtures[i]->ledger);
        fixture_free(market.fixtures[i]);
    }
    assert_int_equal(market.troubles, 0);
    int64_t sold = 0;
    for (int i = 0; i < ORDERS; i++) {
        assert_true(market.added[i] <= 1 && market.refunded[i] <= market.added[i]);
        sold += (int64_t)(market.added[i] - market.refunded[i]) * item_of(i).quantity;
    }
    assert_int_equal(ask(fixture->session, "SELECT SUM(quantity) FROM sale_day"), sold);
    assert_int_equal(ask(fixture->session, "SELECT COUNT(*) FROM sale_feed"),
                     market.followed_count);
    assert_sums_agree(fixture);
}

int ledger_suite_run_sales(void)
{
#define SALES_TEST(name) cmocka_unit_test_setup_teardown(test_sales__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        SALES_TEST(order_counts_once),
        SALES_TEST(order_without_a_time),
        SALES_TEST(batch_of_orders),
        SALES_TEST(largest_batch),
        SALES_TEST(refund_takes_back_once),
        SALES_TEST(days_are_the_zones),
        SALES_TEST(zone_is_settled),
        SALES_TEST(products),
        SALES_TEST(largest_batch_of_products),
        SALES_TEST(ties),
        SALES_TEST(lines_of_and_around),
        SALES_TEST(feed_in_pages),
        SALES_TEST(feed_of_another_database),
        SALES_TEST(old_entries_are_dropped),
        SALES_TEST(totals_and_feed_join),
        cmocka_unit_test_setup_teardown(test_sales__many_sellers,
                                        ledger_suite_is_shared ? set_up_shared : set_up, tear_down),
    };
    return cmocka_run_group_tests_name("sales", tests, NULL, NULL);
}
