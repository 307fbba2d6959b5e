/* proxy.c: walks what proxies have written, from the nearest one outwards. */
#include "http/server/proxy.h"

#include <stdlib.h>
#include <strings.h>

enum status proxies_init(struct proxies *proxies, const struct config_list *trusted,
                         struct error *error)
{
    *proxies = (struct proxies){.networks = NULL};
    if (trusted->count == 0)
        return STATUS_OK;
    proxies->networks = calloc(trusted->count, sizeof(*proxies->networks));
    if (proxies->networks == NULL)
        return error_set(error, STATUS_FAILED, "no memory for trusted_proxies");
    proxies->count = trusted->count;
    for (size_t index = 0; index < trusted->count; index++) {
        bool read = network_parse(span_of(trusted->items[index]), &proxies->networks[index]);
        ensure(read);
    }
    return STATUS_OK;
}

void proxies_release(struct proxies *proxies)
{
    free(proxies->networks);
    *proxies = (struct proxies){.networks = NULL};
}

bool proxies_trust(const struct proxies *proxies, const struct address *address)
{
    for (size_t index = 0; index < proxies->count; index++)
        if (network_contains(&proxies->networks[index], address))
            return true;
    return false;
}

/* Cuts what follows the last `end` off `text`; false when nothing is left to cut. */
static bool cut_last(struct span *text, char end, struct span *piece)
{
    if (text->bytes == NULL)
        return false;
    const char *found = text->length > 0 ? memrchr(text->bytes, end, text->length) : NULL;
    const char *start = found != NULL ? found + 1 : text->bytes;
    *piece = (struct span){start, text->length - (size_t)(start - text->bytes)};
    *text = found != NULL ? (struct span){text->bytes, (size_t)(found - text->bytes)}
                          : (struct span){NULL, 0};
    return true;
}

static struct span trim(struct span text, const char *unwanted)
{
    while (text.length > 0 && strchr(unwanted, text.bytes[0]) != NULL)
        text = (struct span){text.bytes + 1, text.length - 1};
    while (text.length > 0 && strchr(unwanted, text.bytes[text.length - 1]) != NULL)
        text.length--;
    return text;
}

/* "192.0.2.1", "192.0.2.1:4711", "2001:db8::1", "[2001:db8::1]" or "[2001:db8::1]:4711". */
static bool read_node(struct span node, struct address *address)
{
    if (node.length > 0 && node.bytes[0] == '[') {
        const char *end = memchr(node.bytes, ']', node.length);
        return end != NULL &&
               address_parse((struct span){node.bytes + 1, (size_t)(end - node.bytes) - 1},
                             address);
    }
    const char *colon = node.length > 0 ? memchr(node.bytes, ':', node.length) : NULL;
    if (colon != NULL && memrchr(node.bytes, ':', node.length) == colon)
        node.length = (size_t)(colon - node.bytes);
    return address_parse(node, address);
}

/* An element of X-Forwarded-For is a node by itself. */
static struct span node_of_plain(struct span element)
{
    return trim(element, " \t");
}

/* The for= of one element of Forwarded (RFC 7239), without its quotes. */
static struct span node_of_pairs(struct span element)
{
    struct span pair;
    while (cut_last(&element, ';', &pair)) {
        pair = trim(pair, " \t");
        if (pair.length > 4 && strncasecmp(pair.bytes, "for=", 4) == 0)
            return trim((struct span){pair.bytes + 4, pair.length - 4}, "\"");
    }
    return (struct span){NULL, 0};
}

/* Goes from address to address as long as the one that told of the next is trusted. False when it
 * has ended: what stands in `client` is the one. */
static bool walk_value(const struct proxies *proxies, struct span value,
                       struct span (*node_of)(struct span element), struct address *client)
{
    struct span element;
    while (cut_last(&value, ',', &element)) {
        struct address next;
        if (!proxies_trust(proxies, client) || !read_node(node_of(element), &next))
            return false;
        *client = next;
    }
    return true;
}

/* All headers of that name, the last first; false when there is none. */
static bool walk_headers(const struct proxies *proxies, struct span head, struct span name,
                         struct span (*node_of)(struct span element), struct address *client)
{
    struct span line;
    bool found = false;
    bool goes_on = true;
    while (goes_on && cut_last(&head, '\n', &line)) {
        if (line.length <= name.length || strncasecmp(line.bytes, name.bytes, name.length) != 0)
            continue;
        found = true;
        struct span value = {line.bytes + name.length, line.length - name.length};
        goes_on = walk_value(proxies, trim(value, " \t\r"), node_of, client);
    }
    return found;
}

struct address proxies_client(const struct proxies *proxies, struct address peer,
                              const struct http_request *request)
{
    struct address client = peer;
    if (request->is_forwarded && proxies_trust(proxies, &peer) &&
        !walk_headers(proxies, request->headers, SPAN("X-Forwarded-For:"), node_of_plain, &client))
        (void)walk_headers(proxies, request->headers, SPAN("Forwarded:"), node_of_pairs, &client);
    return client;
}
