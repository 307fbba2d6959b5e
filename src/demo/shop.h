/* shop.h: the products that the demo's shop sells, and its orders, as bodies of API calls.
 *
 * Threads: a struct shop belongs to one thread.
 */
#ifndef DEMO_SHOP_H
#define DEMO_SHOP_H

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

#endif
