/* model.h: the words of the domain as plain values: policy, lease, claim, coupon.
 *
 * Gates, ledgers and relays speak to each other in these. Nothing here does I/O. Times are wall
 * milliseconds; 0 means "none".
 *
 * Threads: values only.
 */
#ifndef BASE_MODEL_H
#define BASE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buffer.h"

#define POLICY_ID_MAX              INT64_C(9007199254740991) /* 2^53 - 1: exact in every JSON reader */
#define POLICY_TOTAL_MAX           INT64_C(100000000)
#define POLICY_NAME_CHARACTERS_MAX 200
#define POLICY_NAME_SIZE           (POLICY_NAME_CHARACTERS_MAX * 4 + 1)
#define PER_USER_LIMIT_MAX         1000
#define DISCOUNT_PERCENT_MAX       100
#define DISCOUNT_FIXED_MAX         INT64_C(1000000000000)
#define COUPON_VALID_DAYS_MAX      3650
#define ID_LENGTH_MAX              64
#define REASON_SIZE                128

/* A user, product or order id: 1-64 bytes of a small alphabet, checked where it enters. */
struct user_id {
    uint8_t length;
    char bytes[ID_LENGTH_MAX];
};

static inline struct user_id user_id_of(struct span text)
{
    struct user_id id = {.length = (uint8_t)text.length};
    memcpy(id.bytes, text.bytes, text.length);
    return id;
}

static inline struct span user_id_span(const struct user_id *id)
{
    return (struct span){.bytes = id->bytes, .length = id->length};
}

static inline bool user_id_equal(const struct user_id *a, const struct user_id *b)
{
    return a->length == b->length && memcmp(a->bytes, b->bytes, a->length) == 0;
}

/* In byte order: what ids are sorted by everywhere. */
static inline int user_id_compare(const struct user_id *a, const struct user_id *b)
{
    int order = memcmp(a->bytes, b->bytes, a->length < b->length ? a->length : b->length);
    return order != 0 ? order : (int)a->length - (int)b->length;
}

/* Names one attempt. Made from the user and their Idempotency-Key (then the top bit of the first
 * byte is set, and the gate can be asked for it) or by the server (then the bit is clear). */
struct request_id {
    uint8_t bytes[16];
};

static inline bool request_id_is_keyed(const struct request_id *id)
{
    return (id->bytes[0] & 0x80) != 0;
}

enum discount_type { DISCOUNT_PERCENT, DISCOUNT_FIXED };

/* What is handed out, as the ledger's row has it. */
struct policy {
    int64_t id;
    char name[POLICY_NAME_SIZE];
    enum discount_type discount_type;
    int64_t discount_value;
    int64_t total;
    int32_t per_user_limit;
    int32_t coupon_valid_days; /* 0: none */
    int64_t opens_at_ms;       /* 0: open from the start */
    int64_t closes_at_ms;      /* 0: never by itself */
    int64_t reserve;
    bool paused;
    int64_t closed_at_ms; /* 0: not closed by hand */
    int64_t created_at_ms;
    int64_t version;  /* rises with every change */
    int64_t unleased; /* stock the ledger has not lent to a gate */
    int64_t next_seq; /* the first seq no lease has had yet */
};

/* By hand, or because its time is over. */
static inline bool policy_is_closed(const struct policy *policy, int64_t now_ms)
{
    return policy->closed_at_ms != 0 ||
           (policy->closes_at_ms != 0 && now_ms >= policy->closes_at_ms);
}

enum policy_state {
    POLICY_SCHEDULED,
    POLICY_OPEN,
    POLICY_PAUSED,
    POLICY_SOLD_OUT,
    POLICY_CLOSED,
};

/* "SCHEDULED", "OPEN", ... as the API says it. */
const char *policy_state_name(enum policy_state state);

/* A range of seqs, with as many units of stock, that the ledger has lent to a gate. */
struct lease {
    int64_t id;
    int64_t policy_id;
    int64_t first_seq;
    int64_t count;
    bool open;
};

/* A lease that gave units back: its new count. */
struct lease_shrunk {
    int64_t lease_id;
    int64_t count;
};

/* One user's win at the gate. */
struct claim {
    int64_t policy_id;
    int64_t seq;
    int64_t lease_id;
    int64_t requested_at_ms;
    struct request_id request_id;
    int32_t nth;
    int32_t attempt; /* how often the ledger has refused it before; of a shared gate's claims */
    struct user_id user;
};

/* So many keys are bound to one claim besides the one it was made with; the next is refused. */
#define CLAIM_KEYS_MAX 31

/* An Idempotency-Key that came with a claim its user already held. */
struct key_binding {
    int64_t policy_id;
    int64_t seq;
    struct request_id request_id;
    /* Whose claim it is: filled where the ledger tells of it. */
    int32_t nth;
    struct user_id user;
};

/* The fate of a claim in the ledger. EXPIRED is never stored: it is ISSUED past its time. */
enum coupon_state {
    COUPON_ISSUED,
    COUPON_REDEEMED,
    COUPON_CANCELLED,
    COUPON_EXPIRED,
    COUPON_VOID,
    COUPON_MERGED,
    COUPON_PENDING, /* never stored either: the ledger did not take it, and will be asked again */
};

const char *coupon_state_name(enum coupon_state state);

/* True while the coupon counts against `total` and holds its user's slot. */
static inline bool coupon_state_is_active(enum coupon_state state)
{
    return state == COUPON_ISSUED || state == COUPON_REDEEMED || state == COUPON_EXPIRED;
}

/* The ledger's row for a claim. */
struct coupon {
    struct claim claim;
    enum coupon_state state;
    int64_t issued_at_ms;
    int64_t expires_at_ms; /* from coupon_valid_days or the policy's closes_at; 0: never */
    int64_t redeemed_at_ms;
    int64_t cancelled_at_ms;
    int64_t merged_into_seq;  /* of a MERGED claim: the seq the user holds instead */
    struct user_id order_id;  /* length 0: none */
    char reason[REASON_SIZE]; /* why it is VOID; "" otherwise */
};

#define LETTER_REASON_SIZE 400

/* A claim that came to nothing for good, and why; for people to look at. */
struct dead_letter {
    struct claim claim; /* without its lease */
    int32_t attempts;
    int64_t died_at_ms;
    char reason[LETTER_REASON_SIZE];
};

/* A claim as a gate holds it. */
struct held_claim {
    struct claim claim;
    enum coupon_state state;
    bool is_pending; /* the ledger has not said yet that it has it */
};

/* What becomes of one press of the button. In the order of the contract: the first that applies is
 * the verdict. */
enum verdict {
    VERDICT_UNDECIDED,
    VERDICT_WON,
    VERDICT_NO_POLICY,
    VERDICT_HELD,      /* the claim this user or this key already holds */
    VERDICT_KEYS_FULL, /* the same, but no more keys can be bound to that claim */
    VERDICT_BLOCKED,
    VERDICT_CLOSED,
    VERDICT_PAUSED,
    VERDICT_NOT_OPEN, /* `opens_at_ms` says when */
    VERDICT_LIMIT_REACHED,
    VERDICT_SOLD_OUT,
    VERDICT_LEASE_WANTED, /* nothing left here, but the ledger still has stock to lend */
    VERDICT_UNAVAILABLE,  /* not decided; trying again is safe */
};
#define VERDICT_COUNT (VERDICT_UNAVAILABLE + 1)

#define DAY_MS        INT64_C(86400000)

/* When a coupon won at that time ends: after coupon_valid_days, else with the policy's window;
 * 0: never. */
int64_t coupon_expires_at_ms(const struct policy *policy, int64_t requested_at_ms);

/* The state a person sees: ISSUED turns into EXPIRED once its time has passed. */
enum coupon_state coupon_state_at(enum coupon_state state, int64_t expires_at_ms, int64_t now_ms);

#endif
