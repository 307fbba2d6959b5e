/* shop.h: the demo's shop: what it sells and its orders, as bodies of API calls, and the crowd that
 * comes to its drops.
 *
 * Threads: a struct shop belongs to one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

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
