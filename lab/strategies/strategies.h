/* strategies.h: what strategies share with each other: the stock in a row, the lock, a transaction.
 *
 * Threads: as in session.h.
 */
#pragma once

#include "lab/strategy.h"

/* A row with the whole stock. */
void lab_stock_prepare(struct lab_session *session);

/* Commits when the claim is told yes, and rolls back otherwise. */
enum lab_answer lab_in_transaction(struct lab_session *session, const char *user,
                                   enum lab_answer (*claim)(struct lab_session *, const char *));

enum lab_answer lab_optimistic_claim(struct lab_session *session, const char *user);

/* Claims with the one lock in Redis; BUSY when it was not free in time. */
enum lab_answer lab_in_lock(struct lab_session *session, const char *user,
                            enum lab_answer (*claim)(struct lab_session *, const char *));

void lab_number_text(char text[24], int64_t number);
