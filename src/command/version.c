/* version.c: `dibs version`: what this binary is. */
#include "version.h"

#include <stdio.h>

#include "command/command.h"

int command_version(const struct command_call *call)
{
    if (command_option(call, "json") != NULL) {
        printf("{\"version\":\"%s\",\"revision\":\"%s\"}\n", DIBS_VERSION, DIBS_REVISION);
    } else {
        printf("dibs %s (%s)\n", DIBS_VERSION, DIBS_REVISION);
    }
    return COMMAND_FINE;
}
