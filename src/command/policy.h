/* policy.h: the table of policies, which `policy list` and `status` both show.
 *
 * Threads: the main thread.
 */
#ifndef COMMAND_POLICY_H
#define COMMAND_POLICY_H

#include "command/exchange.h"

/* Asks for all pages of policies and prints them as one table after `heading`, or says that there
 * are none. COMMAND_FINE, or COMMAND_FAILED in words. Not for --json. */
int policy_print_all(struct exchange *exchange, const char *heading);

#endif
