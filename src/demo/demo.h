/* demo.h: a shop with a drop every minute, so that a newcomer sees one happen.
 *
 * One thread that talks to the server as any client does, over a few connections: it makes a policy
 * that opens five seconds later, presses the button for some thousands of people, sells a few
 * products meanwhile, and closes the policy before it makes the next. When the server asks to wait,
 * it waits.
 *
 * Threads: demo_start() and demo_stop() are called by one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

struct demo;

struct demo_options {
    const char *address;     /* of the server: "127.0.0.1:8080", "[::1]:8080" */
    struct span admin_token; /* bytes NULL: none is needed */
    /* From the demo's thread, a few times a second: whether the server stops. */
    bool (*is_over)(const void *context);
    const void *context;
};

/* Starts it; the server must listen already. The address and the token are copied. */
enum status demo_start(struct demo **demo, const struct demo_options *options,
                       struct error *error) MUST_CHECK;

/* Waits until its thread has ended, which is at once when the server is over. NULL is fine. */
void demo_stop(struct demo *demo);

/* --- the shop ---
 *
 * The demo's shop: what it sells and its orders, as bodies of API calls, and the crowd that
 * comes to its drops.
 */

struct shop {
    uint64_t dice;
    uint64_t order_count;
    int64_t started_ms; /* wall; its orders' ids begin with it */
};

void shop_init(struct shop *shop, int64_t wall_ms);

/* {"products":[…]}: all of them. */
void shop_append_products(struct buffer *out);

/* {"orders":[…]}: what was sold on the days before, so that there is something to compare with. The
 * same day gives the same orders, which count once. */
void shop_append_past(struct buffer *out, int64_t wall_ms);

/* One new order; what sells well changes with time. */
void shop_append_order(struct shop *shop, struct buffer *out, int64_t wall_ms);

/* --- the crowd ---
 *
 * Some are early, most come when it opens, more come when it is sold out already; one in ten
 * presses again. */

#define CROWD_TOTAL     500 /* coupons of a drop */
#define CROWD_COUNT     2780
#define CROWD_USER_SIZE 32

/* When the press with that index, of CROWD_COUNT, is made: in milliseconds since the opening. */
int64_t crowd_time_ms(size_t index);

/* Whose press it is. */
void crowd_user(size_t index, char user[CROWD_USER_SIZE]);
