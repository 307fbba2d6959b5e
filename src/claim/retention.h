/* retention.h: what is old enough goes from the ledger, a little at a time.
 *
 * Threads: one of its own.
 */
#pragma once

#include "base/error.h"

struct retention;
struct service;

/* A step of opening; nothing where everything is kept, or in a process that owns no policies. */
enum status retention_start(struct service *service, struct error *error) MUST_CHECK;
void retention_stop(struct retention *retention);
