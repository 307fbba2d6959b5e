/* fragile.h: a disk that remembers what was synced, holds up the syncs of a main file for as long
 * as a test likes, and shows what a power cut would leave at any moment: of what was written and
 * not synced each sector is there or is not.
 *
 * Threads: safe from any; a crash is looked at on the thread that writes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* From now on, for the database at this path and its log. */
void fragile_watch(const char *path);
void fragile_forget(void);

/* Called on the writing thread after each of its writes and syncs; NULL: nothing is. */
void fragile_after_step(void (*look)(void));

/* Holds up the syncs of the main file that others than the writing thread begin. */
void fragile_hold(bool is_held);
/* Whether such a sync is held up. */
bool fragile_is_stuck(void);

/* Writes what is left of both files after a power cut to copies of them. */
void fragile_crash_into(const char *copy);

/* How often the main file was written to, and synced; and the log synced. */
struct fragile_counts {
    int main_writes;
    int main_syncs;
    int log_syncs;
    int syncs_by_writer; /* of the main file, on the thread that writes */
};
struct fragile_counts fragile_counts(void);
