/* request.h: the demo's requests as bytes.
 *
 * Threads: the buffer's.
 */
#ifndef DEMO_REQUEST_H
#define DEMO_REQUEST_H

#include <inttypes.h>

#include "base/buffer.h"

struct request_maker {
    const char *host;   /* as the Host header has it */
    struct span token;  /* length 0: none */
    struct buffer body; /* scratch, for the caller to write the body into */
    struct buffer bytes;
};

void request_maker_init(struct request_maker *maker, const char *host, struct span token);
void request_maker_release(struct request_maker *maker);

/* "POST", "/v1/orders" and what is in maker->body, which may be empty. Valid until the next. */
struct span request_make(struct request_maker *maker, const char *method, const char *path);

#endif
