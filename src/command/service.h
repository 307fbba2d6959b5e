/* service.h: from the settings to the options of a service, for the commands that run one.
 *
 * Threads: no state.
 */
#ifndef COMMAND_SERVICE_H
#define COMMAND_SERVICE_H

#include "claim/service.h"
#include "config/config.h"

/* The texts are the config's. The code key in it is to be wiped by the caller. */
struct service_options command_service_options(const struct config *config, enum service_role role);

/* Logs what the operator should know before it serves or works. */
void command_warn(const struct config *config);

#endif
