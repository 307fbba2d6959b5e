/* model.h: the words of the domain as plain values: policy, lease, claim, coupon.
 *
 * Gates, ledgers and relays speak to each other in these. Nothing here does I/O. Times are wall
 * milliseconds; 0 means "none".
 *
 * Threads: values only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/policy.h"
#include "base/verdict.h"

#define ID_LENGTH_MAX 128
#define REASON_SIZE   128

/* A user, product or order id: json_id_valid() of base/json.h, checked where it enters. */
struct id {
    uint8_t length;
    char bytes[ID_LENGTH_MAX];
};

static inline struct id id_of(struct span text)
{
    struct id id = {.length = (uint8_t)text.length};
    memcpy(id.bytes, text.bytes, text.length);
    return id;
}

/* Copies what there is of an id in whole steps, which takes fewer instructions than its exact
 * length or all of it: up to ID_COPY_STEP - 1 bytes behind its end are copied with it. */
#define ID_COPY_STEP 32
_Static_assert(ID_LENGTH_MAX % ID_COPY_STEP == 0, "no step reads behind an id");

static inline void id_copy_bytes(char *to, const struct id *from)
{
    size_t length = from->length;
    size_t at = 0;

    do {
        memcpy(to + at, from->bytes + at, ID_COPY_STEP);
        at += ID_COPY_STEP;
    } while (at < length);
}

static inline void id_copy(struct id *to, const struct id *from)
{
    to->length = from->length;
    id_copy_bytes(to->bytes, from);
}

static inline struct span id_span(const struct id *id)
{
    return (struct span){.bytes = id->bytes, .length = id->length};
}

static inline bool id_equal(const struct id *a, const struct id *b)
{
    return a->length == b->length && memcmp(a->bytes, b->bytes, a->length) == 0;
}

/* In byte order: what ids are sorted by everywhere. */
static inline int id_compare(const struct id *a, const struct id *b)
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

enum policy_state {
    POLICY_SCHEDULED,
    POLICY_OPEN,
    POLICY_PAUSED,
    POLICY_SOLD_OUT,
    POLICY_CLOSED,
};

/* "issued", "already_issued", ... as metrics and totals have it. */
const char *claim_result_name(enum claim_result result);

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
    struct id user;
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
    struct id user;
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
    int64_t issued_at_ms;
    int64_t expires_at_ms; /* coupon_expires_at_ms(); 0: never */
    int64_t redeemed_at_ms;
    int64_t cancelled_at_ms;
    int64_t merged_into_seq; /* of a MERGED claim: the seq the user holds instead */
    enum coupon_state state;
    struct id order_id;       /* length 0: none */
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

/* What a gate tells of itself; what has no callback is left out. A status other than OK ends the
 * walk and is returned by it. */
struct claim_visitor {
    /* The row as last set; `next_seq` is above every seq the gate has seen. */
    enum status (*policy)(void *context, const struct policy *policy, struct error *error);
    /* A lease with units left, of which the first `given_count` were given out. When the highest
     * lease seen has none left, it comes last: closed and empty. */
    enum status (*lease)(void *context, const struct lease *lease, int64_t given_count,
                         struct error *error);
    /* In rising seq order, also those whose slot was freed as far as the gate keeps them. The lease
     * is not kept: its id is 0. */
    enum status (*claim)(void *context, const struct held_claim *held, struct error *error);
    enum status (*key)(void *context, const struct key_binding *binding, struct error *error);
    enum status (*blocked)(void *context, const struct id *user, struct error *error);
    void *context;
};

#define DAY_MS INT64_C(86400000)

/* When a coupon won at that time ends: after its policy's coupon_valid_days (0: none) or at its
 * coupon_expires_at (0: none), whichever is earlier; 0: never. */
int64_t coupon_expires_at_ms(int64_t valid_days, int64_t expires_at_ms, int64_t requested_at_ms);

static inline int64_t policy_coupon_ends_ms(const struct policy *policy, int64_t requested_at_ms)
{
    return coupon_expires_at_ms(policy->coupon_valid_days, policy->coupon_expires_at_ms,
                                requested_at_ms);
}

/* The state a person sees: ISSUED turns into EXPIRED once its time has passed. */
enum coupon_state coupon_state_at(enum coupon_state state, int64_t expires_at_ms, int64_t now_ms);
