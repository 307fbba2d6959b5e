/* request.c: a request line, a few headers, a body. */
#include "demo/request.h"

#define REQUEST_MAX ((size_t)64 * 1024)

void request_maker_init(struct request_maker *maker, const char *host, struct span token)
{
    *maker = (struct request_maker){.host = host, .token = token};
    buffer_init(&maker->body, REQUEST_MAX);
    buffer_init(&maker->bytes, REQUEST_MAX);
}

void request_maker_release(struct request_maker *maker)
{
    buffer_release(&maker->body);
    buffer_release(&maker->bytes);
}

struct span request_make(struct request_maker *maker, const char *method, const char *path)
{
    struct buffer *out = &maker->bytes;
    buffer_clear(out);
    buffer_printf(out, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: dibs-demo\r\n", method, path,
                  maker->host);
    if (maker->token.length > 0) {
        buffer_append_literal(out, "Authorization: Bearer ");
        buffer_append_span(out, maker->token);
        buffer_append_literal(out, "\r\n");
    }
    if (maker->body.length > 0) {
        buffer_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                      maker->body.length);
        buffer_append(out, maker->body.bytes, maker->body.length);
    } else {
        buffer_append_literal(out, "\r\n");
    }
    buffer_clear(&maker->body);
    return (struct span){out->bytes, out->length};
}
