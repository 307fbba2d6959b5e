/* fuzz_event.c: any message from a topic: never a crash, and what is taken comes back the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "event/event.h"

/* The input: lines "name: value" for headers, "key: …" among them for the key, up to an empty line;
 * then the value. */
static struct event_header headers[EVENT_HEADERS_SEEN + 8];
static char names[EVENT_HEADERS_SEEN + 8][32];

static struct event_message message_of(struct span input)
{
    struct event_message message = {.headers = headers};
    while (input.length > 0) {
        const char *end = memchr(input.bytes, '\n', input.length);
        size_t length = end != NULL ? (size_t)(end - input.bytes) : input.length;
        struct span line = {.bytes = input.bytes, .length = length};
        size_t step = length < input.length ? length + 1 : length;
        input.bytes += step;
        input.length -= step;
        const char *colon = length > 0 ? memchr(line.bytes, ':', length) : NULL;
        size_t name_length = colon != NULL ? (size_t)(colon - line.bytes) : 0;
        if (colon == NULL || name_length >= sizeof(names[0]) ||
            memchr(line.bytes, '\0', name_length) != NULL ||
            message.header_count == EVENT_HEADERS_SEEN + 8)
            break;
        struct span value = {.bytes = colon + 1, .length = length - name_length - 1};
        if (name_length == 3 && memcmp(line.bytes, "key", 3) == 0) {
            message.key = value;
            continue;
        }
        char *name = names[message.header_count];
        memcpy(name, line.bytes, name_length);
        name[name_length] = '\0';
        headers[message.header_count++] = (struct event_header){.name = name, .value = value};
    }
    message.value = input;
    return message;
}

static void check_claim(struct json_reader *reader, const struct event_message *message)
{
    static struct event event;
    struct claim claim;
    struct claim again;
    struct span trace;
    struct error error = {.text = ""};
    if (event_read_claim(reader, message, &claim, &trace, &error) != STATUS_OK) {
        ensure(error.text[0] != '\0');
        return;
    }
    ensure(json_id_valid(id_span(&claim.user)));
    event_write_claim(&event, &claim, trace);
    ensure(span_equal(event.message.key, message->key));
    ensure(event_read_claim(reader, &event.message, &again, &trace, &error) == STATUS_OK);
    ensure(memcmp(&claim, &again, sizeof(claim)) == 0);
}

static void check_order(struct json_reader *reader, const struct event_message *message)
{
    static struct order_item items[ORDER_ITEMS_MAX];
    struct order order;
    struct error error = {.text = ""};
    if (event_read_order(reader, message, &order, items, &error) != STATUS_OK) {
        ensure(error.text[0] != '\0');
        return;
    }
    ensure(json_id_valid(id_span(&order.order_id)));
    ensure(order.item_count >= 1 && order.item_count <= ORDER_ITEMS_MAX);
    for (size_t i = 0; i < order.item_count; i++) {
        ensure(json_id_valid(id_span(&order.items[i].product_id)));
        ensure(order.items[i].quantity >= 1 && order.items[i].quantity <= ORDER_QUANTITY_MAX);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct json_reader *reader;
    if (reader == NULL) {
        reader = json_reader_new(EVENT_VALUE_MAX);
        ensure(reader != NULL);
    }
    struct event_message message =
        message_of((struct span){.bytes = (const char *)bytes, .length = size});
    check_claim(reader, &message);
    check_order(reader, &message);
    return 0;
}
