/* guess.h: what guessing codes and tokens costs.
 *
 * One limiter for both: so many wrong ones per address, and so many in all. Who has used them up
 * gets 429, and the connection is closed. A right token always counts, whoever else has guessed
 * from the same address. A code is much shorter, so nobody's code is looked at where an address has
 * used up its tries, nor, once those of all are used up, where it has made any of them lately.
 *
 * Every wrong one is counted and, as far as it was allowed, logged; that some are not is an alarm,
 * once a minute.
 *
 * Threads: safe from any loop.
 */
#ifndef HTTP_GUESS_H
#define HTTP_GUESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "http/rate_limit.h"
#include "http/server.h"

enum guess_kind { GUESS_CODE, GUESS_TOKEN, GUESS_KINDS };

struct guesses {
    struct rate_limiter *addresses;
    struct rate_limiter *all;
    _Atomic uint64_t wrong[GUESS_KINDS];
    _Atomic uint64_t throttled;
    _Atomic int64_t alarm_ns; /* when it was last raised; 0: never */
};

struct ask;

enum status guesses_init(struct guesses *guesses, struct error *error) MUST_CHECK;
void guesses_release(struct guesses *guesses);

/* A code was sent: whether what came of it may be told. False after answering 429. */
bool guess_may_try_code(struct ask *ask);

/* A code or a token was wrong. False after answering 429; true: it is for the caller to refuse. */
bool guess_was_wrong(const struct ask *ask, enum guess_kind kind);

/* The same where whoever asks is answered in any case: counts it, and answers nothing. */
void guess_note_wrong(const struct ask *ask, enum guess_kind kind);

#endif
