/* sales.h: the ledger's half of the ranking: orders, products, totals per day, and the feed that
 * boards follow.
 *
 * An order counts once, whatever is sent again: its id is its key, and a repeat with other contents
 * is told from a repeat. The day of a sale is the calendar day of paid_at in the ledger's zone,
 * computed when the order is written and kept with it; a refund takes the quantities back from that
 * same day.
 *
 * In one snapshot: the total of a (day, product) = Σ quantities of its orders that are not refunded
 * = Σ of its feed entries. Feed ids are given under the lock of one row, held until the commit:
 * they become visible in rising order, 1, 2, 3, …, although several processes write. Who has
 * applied all up to an id therefore has applied everything that is visible up to it, and nothing
 * twice.
 *
 * Threads: every function may be called from any thread.
 */
#pragma once

#include "ledger/ledger.h"

#define ORDER_ITEMS_MAX             500     /* products of one order */
#define ORDER_BATCH_MAX             1000    /* orders in one call */
#define ORDER_BATCH_ITEMS_MAX       4000    /* items of all of them */
#define ORDER_QUANTITY_MAX          1000000 /* of one item */
#define ORDER_AHEAD_MAX_MS          60000   /* of paid_at: clocks differ */
#define PRODUCT_NAME_CHARACTERS_MAX 200
#define PRODUCT_NAME_SIZE           (PRODUCT_NAME_CHARACTERS_MAX * 4 + 1)
#define PRODUCT_PRICE_MAX           INT64_C(1000000000000)
#define PRODUCT_PRICE_NONE          INT64_C(-1)
#define PRODUCT_BATCH_MAX           1000

/* Feed entries that are kept. A board that is further behind is built anew from the totals. */
#define SALES_FEED_KEPT INT64_C(1000000)

/* --- the zone --- */

/* Notes in the ledger that days are those of the zone it was opened with. CONFLICT: it has orders
 * that were counted in another zone's days; the words say which and what to do. Before any order is
 * written by this process. */
enum status ledger_zone_settle(struct ledger *ledger, struct error *error) MUST_CHECK;

/* --- orders --- */

struct order_item {
    struct id product_id;
    int64_t quantity;
};

enum order_result {
    ORDER_ADDED,
    ORDER_KNOWN,   /* the same order was there already; nothing was changed */
    ORDER_DIFFERS, /* an order with that id and other contents is there; nothing was changed */
};

struct order {
    struct id order_id;
    int64_t paid_at_ms; /* asked: 0 means when it is received; then what is there */
    /* Asked: borrowed for the call, in any order; a product may come twice and counts as one with
     * the sum. */
    const struct order_item *items;
    size_t item_count;
    /* Told: what is in the ledger under that id. */
    enum order_result result;
    int64_t day; /* since 1970-01-01, see base/zone.h */
    int64_t received_at_ms;
    int64_t refunded_at_ms; /* 0: not refunded */
};

/* Writes a batch in one transaction; each order has its own result, and one that differs does not
 * keep the others out. An id that comes twice in a batch is judged as if it came twice. At most
 * ORDER_BATCH_MAX orders with ORDER_BATCH_ITEMS_MAX items, each with at least one. UNKNOWN: it may
 * have been done; the same batch again tells. */
enum status ledger_orders_add(struct ledger *ledger, struct order *orders, size_t count,
                              int64_t now_ms, struct error *error) MUST_CHECK;

/* Orders that were paid before that time are not taken any more: the ledger may have counted and
 * deleted them. 0: all are. */
int64_t ledger_orders_earliest_ms(const struct ledger *ledger);

/* Deletes up to ORDER_TRIM_MAX orders of days before that one: *count of them. What they add to the
 * totals of their days stays. Of one that is deleted nothing is known: it would count again. */
#define ORDER_TRIM_MAX 100
enum status ledger_orders_trim(struct ledger *ledger, int64_t before_day, int64_t *count,
                               struct error *error) MUST_CHECK;

/* Takes the order's quantities back; a second time changes nothing. `order` (without items) becomes
 * what is now there, *is_news whether this call did it. NOT_FOUND: there is no such order. */
enum status ledger_order_refund(struct ledger *ledger, const struct id *order_id, int64_t now_ms,
                                struct order *order, bool *is_news, struct error *error) MUST_CHECK;

/* An order and its items, by rising product ids; there are at most ORDER_ITEMS_MAX. order->items
 * points to `items`. NOT_FOUND. */
enum status ledger_order_get(struct ledger *ledger, const struct id *order_id, struct order *order,
                             struct order_item items[ORDER_ITEMS_MAX],
                             struct error *error) MUST_CHECK;

/* --- products --- */

struct product {
    struct id id;
    char name[PRODUCT_NAME_SIZE]; /* "": nobody has told */
    int64_t price;                /* PRODUCT_PRICE_NONE: nobody has told */
    int64_t updated_at_ms;
};

/* Inserts or replaces a batch in one transaction; of an id that comes twice the last counts. At
 * most PRODUCT_BATCH_MAX. */
enum status ledger_products_put(struct ledger *ledger, const struct product *products, size_t count,
                                int64_t now_ms, struct error *error) MUST_CHECK;

/* NOT_FOUND: nobody has told of it; it may have been sold nevertheless. */
enum status ledger_product_get(struct ledger *ledger, const struct id *id, struct product *product,
                               struct error *error) MUST_CHECK;

/* Fills name and price of products whose ids are given, of any that are not known "" and
 * PRODUCT_PRICE_NONE. At most PRODUCT_BATCH_MAX. */
enum status ledger_products_fill(struct ledger *ledger, struct product *products, size_t count,
                                 struct error *error) MUST_CHECK;

/* --- signals --- */

/* What a ranking by score counts. The numbers are the ledger's. */
enum sales_kind {
    SALES_KIND_NONE, /* an entry whose moment was not kept */
    SALES_ORDER = 1,
    SALES_CART = 2,
    SALES_VIEW = 3,
    SALES_KIND_COUNT,
};

#define SIGNAL_BATCH_MAX 1000
#define SIGNAL_DAYS_KEPT 32 /* no window, nor yesterday's, reaches further back */

enum signal_result { SIGNAL_ADDED, SIGNAL_KNOWN, SIGNAL_DIFFERS };

struct signal {
    struct id signal_id;
    enum sales_kind kind; /* a view or a cart */
    struct id product_id;
    int64_t quantity;
    int64_t at_ms; /* 0: when it is received */
    /* Told. */
    enum signal_result result;
};

/* Writes a batch in one transaction, as ledger_orders_add() does orders; a signal that is known and
 * was sent with another product, kind, quantity or time differs. For a ledger that keeps moments.
 * 1 … SIGNAL_BATCH_MAX of them. */
enum status ledger_signals_add(struct ledger *ledger, struct signal *signals, size_t count,
                               int64_t now_ms, struct error *error) MUST_CHECK;

/* --- the feed --- */

/* When a change happened, to the second, and how much of which kind. Kept only where a ranking by
 * score is set. */
struct sales_moment {
    enum sales_kind kind;
    int64_t at_s;     /* wall */
    int64_t quantity; /* negative: taken back */
};

/* A place in the feed. Of two databases of which one was restored from a backup of the other, the
 * entries with one id differ in their time. {0} is the place before the first entry. */
struct feed_place {
    int64_t feed_id;
    int64_t written_at_ms;
};

struct feed_entry {
    struct feed_place place;
    int64_t day;
    struct id product_id;
    int64_t quantity; /* negative: taken back; 0: of a signal, which changes no total */
    struct sales_moment moment;
};

/* Up to `max` (at least 1) entries after that place, in order, without gaps; none: there is nothing
 * new yet. NOT_FOUND: the feed does not go on from there, because the entries were dropped or the
 * database is another than it was; build anew with ledger_sales_days(). */
enum status ledger_sales_after(struct ledger *ledger, const struct feed_place *after,
                               struct feed_entry *entries, size_t max, size_t *count,
                               struct error *error) MUST_CHECK;

/* --- totals --- */

struct sales_visitor {
    /* First, once: the place in the feed that the totals stand for. */
    enum status (*place)(void *context, const struct feed_place *place, struct error *error);
    /* By rising days, then by rising product ids; also totals of 0. */
    enum status (*total)(void *context, int64_t day, const struct id *product_id, int64_t sold,
                         struct error *error);
    /* Behind the totals, in no order, unless this is NULL: everything that counts on these days. */
    enum status (*moment)(void *context, int64_t day, const struct id *product_id,
                          const struct sales_moment *moment, struct error *error);
    void *context;
};

/* The totals of days first_day … last_day, and the place up to which they count, in one snapshot:
 * who goes on with ledger_sales_after() from there misses nothing and counts nothing twice. */
enum status ledger_sales_days(struct ledger *ledger, int64_t first_day, int64_t last_day,
                              const struct sales_visitor *visitor, struct error *error) MUST_CHECK;

/* One line of a ranking. */
struct sales_line {
    int64_t rank; /* from 1 */
    struct id product_id;
    int64_t sold;          /* in the window; above 0, unless there is a score */
    int64_t sold_last_day; /* of it, on the window's last day */
    double score;          /* of a board that keeps scores, when its last day began; else 0 */
};

/* The ranking of days first_day … last_day computed by the database: more sold, then more sold on
 * the last day, then the smaller product id in byte order. At most `limit` lines, best first. */
enum status ledger_sales_top(struct ledger *ledger, int64_t first_day, int64_t last_day,
                             size_t limit, struct sales_line *lines, size_t *count,
                             struct error *error) MUST_CHECK;

/* The lines of the given products, those that have any, by rank; `lines` has room for `id_count`,
 * which is at most PRODUCT_BATCH_MAX. */
enum status ledger_sales_of(struct ledger *ledger, int64_t first_day, int64_t last_day,
                            const struct id *ids, size_t id_count, struct sales_line *lines,
                            size_t *count, struct error *error) MUST_CHECK;

/* The product's line and up to `distance` lines on both sides of it, by rank; none when it has no
 * line. `lines` has room for 2 × distance + 1. */
enum status ledger_sales_around(struct ledger *ledger, int64_t first_day, int64_t last_day,
                                const struct id *product_id, int64_t distance,
                                struct sales_line *lines, size_t *count,
                                struct error *error) MUST_CHECK;
