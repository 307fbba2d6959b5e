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
