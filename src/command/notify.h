/* notify.h: what systemd is told where it runs us with Type=notify: that we are ready, that we stop
 * and, where it keeps a watchdog, again and again that we are still alive. Elsewhere, nothing.
 *
 * Threads: the owner's; is_alive() is called on a thread of its own.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/periodic.h"

/* All zero: nothing was told yet. */
struct notify {
    struct periodic beat;
    int64_t beat_ms;
    bool (*is_alive)(void *context);
    void *context;
};

/* Tells that we are ready. From then on, for a watchdog, a few times within its time: that we are
 * alive, whenever is_alive(context) says so. UNAVAILABLE: there is no thread to be had. */
enum status notify_ready(struct notify *notify, bool (*is_alive)(void *context), void *context,
                         struct error *error) MUST_CHECK;

/* Tells that we stop; from any thread. */
void notify_stopping(void);

/* is_alive() is not called any more. */
void notify_end(struct notify *notify);
