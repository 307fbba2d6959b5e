/* holdings.h: who holds what: the claims of one policy, found by user, by key and by seq.
 *
 * A claim costs 48 bytes, its user's name and two table slots, and units that nobody has claimed
 * cost nothing: addresses are set aside with holdings_reserve() when stock is lent, and memory is
 * taken with holdings_make_room() before claims are added. A table grows by a second one beside it,
 * into which each claim that is added moves a few entries, so that nobody waits for all of them.
 * Records are kept in rising seq order and never move or go away; a released one stays, so that
 * its key still finds it, but no longer counts for its user.
 *
 * Threads: none of its own; the owner locks.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/model.h"
#include "base/region.h"

#define HOLDINGS_NONE UINT32_MAX

/* Names start at multiples of so many bytes: with 32 bits, the longest names of the largest policy
 * can be told apart. */
#define NAME_UNIT 4

/* One claim held. */
struct holding {
    int64_t seq;
    int64_t requested_at_ms;
    struct request_id request_id;
    uint32_t user_at;  /* where the name starts, in units of NAME_UNIT */
    uint32_t previous; /* the user's claim before this one, +1; 0: none */
    uint16_t nth;
    uint16_t held_count; /* at the user's newest claim: how many they hold */
    uint16_t nth_top;    /* at the user's newest claim: the highest nth among them */
    uint8_t user_length;
    uint8_t state : 3;       /* enum coupon_state */
    uint8_t bound_count : 5; /* keys bound besides its own; stays at CLAIM_KEYS_MAX */
};

/* An Idempotency-Key bound to a claim besides the one it was made with. */
struct bound_key {
    struct request_id request_id;
    uint32_t holding;
};

/* A table slot: 32 bits of hash, whose low bits are also the home position, so that a table can be
 * rebuilt from itself; and what it leads to, +1 (0: empty). */
struct holdings_slot {
    uint32_t hash;
    uint32_t target;
};

/* Entries are found in `slots` or, while it is moved from, in `old`. None is ever taken out. */
struct holdings_table {
    struct region slots; /* struct holdings_slot */
    struct region old;   /* likewise; nothing: all is moved */
    uint32_t mask;
    uint32_t old_mask;
    uint32_t used;      /* entries in both */
    uint32_t moved;     /* of the old slots */
    uint32_t forgotten; /* of those, whose memory was given back */
};

struct holdings {
    struct hash_key hash_key;
    struct region records;       /* struct holding */
    struct region names;         /* users' names, each starting at an even offset */
    struct region bound;         /* struct bound_key */
    struct holdings_table users; /* user → newest claim */
    struct holdings_table keys;  /* request id → claim or bound key */
    uint32_t count;
    uint32_t capacity;
    uint32_t names_used; /* in units of NAME_UNIT */
    uint32_t bound_count;
};

void holdings_init(struct holdings *holdings);
void holdings_release(struct holdings *holdings);

/* Sets aside what `count` claims in all will need. False when the system has no room for it. */
bool holdings_reserve(struct holdings *holdings, uint64_t count);

/* Room to add so many claims, whose users' names are so long together, of those set aside. False
 * when there is no memory. */
bool holdings_make_room(struct holdings *holdings, uint32_t count, size_t names_length);

static inline uint64_t holdings_hash(const struct holdings *holdings, const struct id *user)
{
    return hash_table(holdings->hash_key, user->bytes, user->length);
}

/* Starts loading what a look-up of this hash will touch. */
static inline void holdings_prefetch(const struct holdings *holdings, uint64_t hash)
{
    const struct holdings_slot *slots = holdings->users.slots.base;
    if (slots != NULL)
        __builtin_prefetch(&slots[(uint32_t)hash & holdings->users.mask]);
}

static inline struct holding *holdings_at(const struct holdings *holdings, uint32_t index)
{
    return (struct holding *)holdings->records.base + index;
}

/* Where a user is in the table or would go; good until the next claim is added or room is made. */
struct holdings_place {
    struct holdings_slot *slot;
    uint32_t newest; /* the user's newest claim, or HOLDINGS_NONE when they hold none now */
};

struct holdings_place holdings_find(const struct holdings *holdings, uint64_t hash,
                                    const struct id *user);

/* The claim a key belongs to. */
uint32_t holdings_of_key(const struct holdings *holdings, const struct request_id *id);

/* How many claims have lower seqs. */
uint32_t holdings_below(const struct holdings *holdings, int64_t seq);

/* The claim with this seq. */
uint32_t holdings_of_seq(const struct holdings *holdings, int64_t seq);

/* Adds a claim with a seq above all others; there must be room. `nth` 0 picks the lowest free one.
 * Returns its index. */
uint32_t holdings_add(struct holdings *holdings, uint64_t hash, const struct claim *claim,
                      enum coupon_state state);

/* The same for a winner whose place was just found; returns their nth. */
int32_t holdings_add_at(struct holdings *holdings, struct holdings_place place, uint64_t hash,
                        const struct claim *claim);

/* The claim no longer counts for its user. */
void holdings_free_slot(struct holdings *holdings, uint32_t index, enum coupon_state state);

/* The claims at those indexes that are `from`'s become those of `to`, who has none; whatever counts
 * for `from` must be among them. The old name is wiped, and `indexes` used up. False when there is
 * no memory, and then nothing changed. */
bool holdings_rename(struct holdings *holdings, uint32_t *indexes, size_t count,
                     const struct id *from, const struct id *to);

/* Binds another key to a claim; whoever decides looks first whether it has CLAIM_KEYS_MAX already.
 * False when there is no memory. */
bool holdings_bind(struct holdings *holdings, uint32_t index, const struct request_id *id);
