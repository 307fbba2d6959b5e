/* lookout.h: a listener of its own for /healthz, /readyz and /metrics, on a thread of its own.
 *
 * A worker has no other; in front of a server it is one that strangers do not reach.
 *
 * Threads: the owner's.
 */
#ifndef COMMAND_LOOKOUT_H
#define COMMAND_LOOKOUT_H

#include <pthread.h>
#include <stdbool.h>

#include "claim/service.h"
#include "config/config.h"
#include "http/api.h"

struct lookout {
    struct api *api;
    struct http_server *server;
    pthread_t thread;
    bool is_running;
};

/* Listens on `where` and says so on the log; "" means nowhere. `watched`, if not NULL, is the API
 * whose metrics it shows. When it fails, lookout_close() is still due. */
enum status lookout_open(struct lookout *lookout, const char *where, struct service *service,
                         const struct config *config, struct api *watched,
                         struct error *error) MUST_CHECK;

/* Before the service closes: nobody asks about it any more. */
void lookout_stop(struct lookout *lookout);
/* After it. */
void lookout_close(struct lookout *lookout);

#endif
