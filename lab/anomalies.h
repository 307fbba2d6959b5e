/* anomalies.h: what can go wrong when coupons are handed out, once for the counting, the table, the
 * JSON and the page.
 *
 * Threads: values only.
 */
#pragma once

/* X(field and JSON name, constant, heading, what it means); all of them are 0 in a run that was
 * right. */
#define LAB_ANOMALIES(X)                                                                          \
    X(oversold, OVERSOLD, "oversold", "rows beyond the total")                                    \
    X(overtold, OVERTOLD, "overtold", "people told yes beyond the total")                         \
    X(unsold, UNSOLD, "unsold", "coupons nobody got, though more people asked than there are")    \
    X(burnt, BURNT, "burnt", "coupons nobody got because somebody pressed twice")                 \
    X(yes_without_row, NO_ROW, "no row", "told yes, and no row")                                  \
    X(row_without_yes, NO_YES, "no yes", "a row, and told no")                                    \
    X(won_twice, TWICE, "twice", "users with two rows, or told twice that they have just won")    \
    X(already_with_nothing, ALREADY, "\"already\"", "told that they have one, and have none")     \
    X(taken_back, TAKEN_BACK, "taken back", "told yes, then shown a reason why not after all")    \
    X(sent_away, SENT_AWAY, "sent away", "heard nothing but errors and \"busy\" until they left") \
    X(overtaken, OVERTAKEN, "overtaken", "losers who had their no before a winner asked")

enum lab_wrong {
#define CONSTANT(field, constant, heading, words) LAB_WRONG_##constant,
    LAB_ANOMALIES(CONSTANT)
#undef CONSTANT
        LAB_WRONGS
};

/* What is done to a run. */
enum lab_fault {
    LAB_NO_FAULT,
    LAB_WORKER_KILLED, /* between two of its commands */
    LAB_SERVER_KILLED, /* the same of a front */
    LAB_REDIS_KILLED,  /* kill -9 in the middle */
    LAB_BROKER_AWAY,   /* kill -9 in the middle of the storm, and for some seconds there is none */
    LAB_POISON,        /* one user whose row the database refuses */
    LAB_FAULTS,
};

/* What only the processes of a run can count. */
enum lab_tally {
    LAB_TALLY_BURNT,        /* units that a second press took */
    LAB_TALLY_RETRIES,      /* of a claim that lost a race */
    LAB_TALLY_LOCK_TIMEOUT, /* claims that gave up waiting for the lock */
    LAB_TALLIES
};
