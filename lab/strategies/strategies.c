/* strategies.c: the list of all. */
#include "lab/strategies/strategies.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

extern const struct lab_strategy lab_update_where, lab_for_update, lab_optimistic, lab_redis_lock,
    lab_optimistic_lock, lab_decr_zset, lab_set_list, lab_hash_zset_nx, lab_zset_rank,
    lab_list_rpoplpush, lab_decr_kafka, lab_lua;

const struct lab_strategy *const lab_strategies[] = {
    &lab_update_where,
    &lab_for_update,
    &lab_optimistic,
    &lab_redis_lock,
    &lab_optimistic_lock,
    &lab_decr_zset,
    &lab_set_list,
    &lab_hash_zset_nx,
    &lab_zset_rank,
    &lab_list_rpoplpush,
    &lab_decr_kafka,
    &lab_lua,
    NULL,
};

const struct lab_strategy *lab_strategy_find(const char *name)
{
    for (size_t i = 0; lab_strategies[i] != NULL; i++)
        if (strcmp(lab_strategies[i]->name, name) == 0)
            return lab_strategies[i];
    return NULL;
}

void lab_number_text(char text[24], int64_t number)
{
    snprintf(text, 24, "%" PRId64, number);
}
