/* strategies.c: finds them by name, and what several of them need. */
#include "lab/strategies/strategies.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lab/run.h"

const struct lab_strategy *lab_strategy_find(const char *name)
{
    for (size_t i = 0; lab_contestants[i].name != NULL; i++)
        if (lab_contestants[i].strategy != NULL &&
            strcmp(lab_contestants[i].strategy->name, name) == 0)
            return lab_contestants[i].strategy;
    return NULL;
}

void lab_number_text(char text[24], int64_t number)
{
    snprintf(text, 24, "%" PRId64, number);
}
