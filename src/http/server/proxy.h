/* proxy.h: whose address counts when a trusted proxy has forwarded a request.
 *
 * Every proxy adds the address that it was asked from at the right of X-Forwarded-For (or
 * Forwarded). Whoever is not trusted can have written anything left of that, so the client is the
 * rightmost address that is not a trusted proxy's. X-Forwarded-For counts where both are there.
 *
 * Threads: written by init and release only; any thread may ask.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/address.h"
#include "config/config.h"
#include "http/server/server.h"

struct proxies {
    struct network *networks;
    size_t count;
};

/* `trusted` holds networks that the settings' check has read. */
enum status proxies_init(struct proxies *proxies, const struct config_list *trusted,
                         struct error *error) MUST_CHECK;
void proxies_release(struct proxies *proxies);

/* Whether that address is one of them. */
bool proxies_trust(const struct proxies *proxies, const struct address *address);

/* The client's address: `peer` itself unless it is a trusted proxy. */
struct address proxies_client(const struct proxies *proxies, struct address peer,
                              const struct http_request *request);
