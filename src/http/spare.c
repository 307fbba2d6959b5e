/* spare.c: exchanges and buffers that a loop uses again, so that a request allocates nothing. */
#include <stdlib.h>

#include "http/loop.h"

/* A fresh buffer has room for a usual answer; one that has grown beyond this is not kept. */
#define SPARE_BUFFER_BYTES        1000
#define SPARE_BUFFER_CAPACITY_MAX ((size_t)16 * 1024)

static bool spare_add_slab(struct http_loop *loop)
{
    struct http_exchange_slab *slab = calloc(1, sizeof(*slab));
    if (slab == NULL) {
        return false;
    }
    slab->next = loop->slabs;
    loop->slabs = slab;
    for (size_t i = 0; i < HTTP_EXCHANGES_PER_SLAB; i++) {
        struct http_exchange *exchange = &slab->exchanges[i];
        buffer_init(&exchange->own, HTTP_OUT_BYTES_MAX);
        exchange->next = loop->spare_exchanges;
        loop->spare_exchanges = exchange;
    }
    return true;
}

struct http_exchange *http_loop_take_exchange(struct http_loop *loop)
{
    if (loop->spare_exchanges == NULL && !spare_add_slab(loop)) {
        return NULL;
    }
    struct http_exchange *exchange = loop->spare_exchanges;
    loop->spare_exchanges = exchange->next;
    loop->live_exchange_count++;
    return exchange;
}

void http_loop_give_exchange(struct http_loop *loop, struct http_exchange *exchange)
{
    exchange->next = loop->spare_exchanges;
    loop->spare_exchanges = exchange;
    loop->live_exchange_count--;
}

void http_loop_take_buffer(struct http_loop *loop, struct buffer *buffer)
{
    if (loop->spare_buffer_count > 0) {
        *buffer = loop->spare_buffers[--loop->spare_buffer_count];
        return;
    }
    buffer_init(buffer, HTTP_OUT_BYTES_MAX);
    (void)buffer_reserve(buffer, SPARE_BUFFER_BYTES);
}

void http_loop_give_buffer(struct http_loop *loop, struct buffer *buffer)
{
    if (buffer->bytes != NULL && buffer->capacity <= SPARE_BUFFER_CAPACITY_MAX &&
        loop->spare_buffer_count < HTTP_SPARE_BUFFERS_MAX) {
        buffer_clear(buffer);
        loop->spare_buffers[loop->spare_buffer_count++] = *buffer;
        buffer_init(buffer, HTTP_OUT_BYTES_MAX);
    } else {
        buffer_release(buffer);
        buffer_clear(buffer);
    }
}

void http_loop_abandon_exchanges(struct http_loop *loop)
{
    for (struct http_exchange_slab *slab = loop->slabs; slab != NULL; slab = slab->next) {
        for (size_t i = 0; i < HTTP_EXCHANGES_PER_SLAB; i++) {
            if (slab->exchanges[i].in_use) {
                http_exchange_free(&slab->exchanges[i]);
            }
        }
    }
}

void http_loop_free_spares(struct http_loop *loop)
{
    while (loop->slabs != NULL) {
        struct http_exchange_slab *slab = loop->slabs;
        loop->slabs = slab->next;
        free(slab);
    }
    while (loop->spare_buffer_count > 0) {
        buffer_release(&loop->spare_buffers[--loop->spare_buffer_count]);
    }
}
