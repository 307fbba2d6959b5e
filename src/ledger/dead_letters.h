/* dead_letters.h: what is kept of claims that came to nothing for good, until somebody has looked.
 *
 * Threads: one session, one thread.
 */
#pragma once

#include "ledger/driver.h"

/* Writes a letter in the caller's transaction; one that is there already stays as it is. */
enum status dead_letters_write(struct sql *sql, const struct dead_letter *letter,
                               struct error *error) MUST_CHECK;

/* NOT_FOUND when there is none. */
enum status dead_letters_read(struct sql *sql, int64_t policy_id, int64_t seq,
                              struct dead_letter *letter, struct error *error) MUST_CHECK;

/* Up to `max` letters after that pair, by rising policies and seqs. */
enum status dead_letters_list(struct sql *sql, int64_t after_policy_id, int64_t after_seq,
                              struct dead_letter *letters, size_t max, size_t *count,
                              struct error *error) MUST_CHECK;

struct drop_dead_letter {
    int64_t policy_id;
    int64_t seq;
    struct dead_letter *letter;
};
/* The body of a transaction: reads the letter, then deletes it. NOT_FOUND when there is none. */
enum status dead_letters_drop(struct sql *sql, void *argument, struct error *error);
