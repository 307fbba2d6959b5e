/* audit.h: everything that gate and ledger say of a policy, held against each other.
 *
 * People claim meanwhile, and both sides move: what one snapshot or one step tells is judged by
 * itself; what takes two is looked at again, and counts when the very same is found every time. A
 * repair goes the ways that stewards go: claims are put back where the ledger finds them, stock is
 * set by what is issued and lent, and a policy of a shared gate is disarmed, so that its steward
 * builds it anew. It takes no coupon from anyone, and what is right it leaves alone.
 *
 * Threads: every function may be called from any thread, and blocks.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "ledger/ledger.h"

struct service;

/* What can be wrong with a policy. */
enum audit_check {
    AUDIT_OVERSOLD,   /* more coupons are active, or told, than there may be: guarantee 1 */
    AUDIT_STOCK,      /* total is not unleased + leased + active */
    AUDIT_OVER_LIMIT, /* users with more active coupons than the limit */
    AUDIT_SLOT,       /* coupons whose slot does not fit their state */
    AUDIT_STRAY,      /* coupons of a lease, or with a seq, that the policy never had */
    AUDIT_POLICY,     /* the ledger lacks the policy, or has an older one than the gate */
    AUDIT_MISSING,    /* claims that the gate says are issued, and the ledger lacks */
    AUDIT_UNKNOWN,    /* coupons that the gate lost, or never gave */
    AUDIT_OUTDATED,   /* coupons redeemed or cancelled in the gate, and not in the ledger */
    AUDIT_REPEATED,   /* seqs that two users hold in the gate */
    AUDIT_PENDING,    /* what is pending though nobody holds it */
    AUDIT_UNLEASED,   /* pending claims that no lease of the policy covers */
    AUDIT_REMAINING,  /* the gate's stock is not what its leases have left */
    AUDIT_LEASE,      /* leases of the gate that the ledger does not have so */
    AUDIT_ADRIFT,     /* units that are lent, and that the gate does not have */
    AUDIT_MARK,       /* the mark of what is published is above every seq */
    /* Nothing else of such a policy was looked at: */
    AUDIT_CORRUPT, /* a value in a shared gate that is not readable */
    AUDIT_DAMAGED, /* a number in the ledger that cannot be */
    AUDIT_CHECKS,
};

/* "oversold", … */
const char *audit_check_name(enum audit_check check);

enum audit_gate {
    AUDIT_GATE_ARMED,
    AUDIT_GATE_UNARMED,
    AUDIT_GATE_SUSPENDED, /* the ledger lacks the policy, or has an older copy of it */
    AUDIT_GATE_UNKNOWN,
};

#define AUDIT_CORRUPT_SIZE 256

struct policy_audit {
    int64_t policy_id;
    struct ledger_balance balance; /* zeros when the ledger lacks the policy */
    bool is_lacking;               /* the ledger has no such policy */
    bool is_older;                 /* the ledger's row is older than the gate's */
    enum audit_gate gate;          /* UNARMED, UNKNOWN: the gate was not looked into */
    int64_t pending;               /* claims that the ledger has not yet: no drift */
    int64_t unaccounted; /* seqs with neither a coupon nor a unit: lost 202s, or never given */
    int64_t counts[AUDIT_CHECKS];
    char corrupt[AUDIT_CORRUPT_SIZE]; /* which value that is */
};

/* What is not where it should be: total − unleased − leased − active. */
int64_t policy_audit_imbalance(const struct policy_audit *audit);

/* What one check found means; of one that is corrupt or damaged, which value that is. */
const char *policy_audit_text(const struct policy_audit *audit, enum audit_check check);

/* True when nothing was found. */
bool policy_audit_is_fine(const struct policy_audit *audit);

/* What a repair would do about it: the line with that number, or NULL when there is none. */
const char *policy_audit_plan(const struct service *service, const struct policy_audit *audit,
                              size_t number);

enum audit_depth {
    AUDIT_DEEP,  /* every claim is compared with its coupon */
    AUDIT_LIGHT, /* of policies with very many coupons only the sums */
};

/* Audits policies with ids above `after_id`, in rising order, up to `max`; takes as long as it
 * takes to read their coupons. */
enum status service_audit(struct service *service, enum audit_depth depth, int64_t after_id,
                          struct policy_audit *audits, size_t max, size_t *count, bool *has_more,
                          struct error *error) MUST_CHECK;

/* NOT_FOUND: neither gate nor ledger has it. */
enum status service_audit_one(struct service *service, enum audit_depth depth, int64_t policy_id,
                              struct policy_audit *audit, struct error *error) MUST_CHECK;

/* The ranking's board, of all products. */
struct board_audit {
    bool is_known; /* else there is none here, or it cannot be read just now */
    const char *kind;
    bool is_built;       /* else the ledger answers, and nothing can be wrong */
    int64_t counters;    /* of a product on a day */
    int64_t differences; /* of them, found every time */
};
void service_audit_board(struct service *service, struct board_audit *audit);

/* What was done. Of a gate in memory the ledger is written from it. */
struct audit_repair {
    struct ledger_repair ledger;
    int64_t policy_count; /* that were looked after */
    int64_t stock_count;  /* whose stock was set right */
    int64_t claim_count;  /* claims put back or removed in a shared gate, coupons placed or kept */
    int64_t built_count;  /* policies that were built anew in it */
    int64_t dead_letter_count; /* dead letters of policies that were let go */
    bool is_board_built;       /* the ranking's board was built anew */
    char text[512];            /* what is left to be done by people; "": nothing */
};

/* What becomes of a policy that a shared gate has and the ledger lacks. */
enum audit_lacking {
    AUDIT_WRITE_BACK, /* the ledger gets it, with all claims, as the gate has it */
    AUDIT_LET_GO,     /* it goes, and of every claim a dead letter stays */
};

/* Repairs one policy, or all (0). Nothing is done where nothing is wrong. CONFLICT: the ledger is
 * not an older copy of this one; the words say what to do. UNKNOWN: it may have been done. */
enum status service_repair(struct service *service, int64_t policy_id, enum audit_lacking lacking,
                           struct audit_repair *done, struct error *error) MUST_CHECK;

/* --- in the background --- */

struct audit_numbers {
    int64_t counts[AUDIT_CHECKS]; /* of all policies, as last seen */
    struct board_audit board;
    int64_t ended_at_ms; /* wall, of the last that went through, or of the start */
    int64_t took_ms;
};

/* False: this process does not audit. */
bool service_count_audit(struct service *service, struct audit_numbers *numbers);
