/* holdings.c: two open-addressing tables over an array of claims. */
#include "gate/local/holdings.h"

#include <string.h>

#define KEY_TARGET_BOUND UINT32_C(0x80000000) /* the target is a bound key, not a claim */
#define TABLE_SLOTS_MIN  8u
/* A table of so many slots is moved as a whole, in some microseconds; of a larger one each claim
 * moves a few, so that it is done when a hundredth of the claims that it has room for have come. */
#define MOVED_AT_ONCE   4096u
#define MOVED_PER_ENTRY 128u
#define FORGOTTEN_SLOTS 65536u
/* From this size on (half a million claims) a table takes large pages: fewer faults, and each of
 * them, a page of zeros, takes less than a millisecond. */
#define TABLE_LARGE_MIN ((size_t)8 << 20)

static struct holdings_slot *holdings_slots(const struct region *region)
{
    return region->base;
}

void holdings_init(struct holdings *holdings)
{
    *holdings = (struct holdings){.hash_key = hash_key_random()};
}

void holdings_release(struct holdings *holdings)
{
    region_release(&holdings->records);
    region_release(&holdings->names);
    region_release(&holdings->users.slots);
    region_release(&holdings->users.old);
    region_release(&holdings->keys.slots);
    region_release(&holdings->keys.old);
    region_release(&holdings->bound);
}

/* The smallest power of two that keeps `count` entries at three quarters or less. */
static uint64_t holdings_slots_for(uint64_t count)
{
    uint64_t slots = TABLE_SLOTS_MIN;
    while (slots * 3 / 4 < count)
        slots *= 2;
    return slots;
}

static void holdings_put(struct holdings_slot *slots, size_t mask, struct holdings_slot entry)
{
    size_t at = entry.hash & mask;
    while (slots[at].target != 0)
        at = (at + 1) & mask;
    slots[at] = entry;
}

/* Gives back the memory of old slots that were moved. A search in the old table ends at an empty
 * slot, so what stands before one is needed by nobody. */
static void holdings_table_forget(struct holdings_table *table)
{
    const struct holdings_slot *old = holdings_slots(&table->old);
    uint32_t at = table->moved - 1;

    while (at > table->forgotten && old[at].target != 0)
        at--;
    region_forget_below(&table->old, (size_t)at * sizeof(*old));
    table->forgotten = table->moved;
}

/* Moves so many of the old slots. */
static void holdings_table_move(struct holdings_table *table, uint32_t count)
{
    const struct holdings_slot *old = holdings_slots(&table->old);
    struct holdings_slot *slots = holdings_slots(&table->slots);
    size_t mask = table->mask;
    uint32_t left = table->old_mask + 1 - table->moved;
    uint32_t moved = count < left ? count : left;
    const struct holdings_slot *from = old + table->moved;

    for (const struct holdings_slot *end = from + moved; from != end; from++)
        if (from->target != 0)
            holdings_put(slots, mask, *from);
    table->moved += moved;
    if (table->moved > table->old_mask)
        region_release(&table->old);
    else if (table->moved - table->forgotten >= FORGOTTEN_SLOTS)
        holdings_table_forget(table);
}

static bool holdings_table_make_room(struct holdings_table *table, uint32_t count)
{
    uint64_t needed = (uint64_t)table->used + count;
    struct region fresh = {0};

    if (table->slots.base != NULL && needed <= ((uint64_t)table->mask + 1) * 3 / 4)
        return true;
    uint64_t slot_count = holdings_slots_for(needed);
    if (slot_count > UINT64_C(1) << 31 ||
        !region_grow(&fresh, slot_count * sizeof(struct holdings_slot)))
        return false;
    if (fresh.size >= TABLE_LARGE_MIN)
        region_prefer_large_pages(&fresh);
    if (table->old.base != NULL)
        holdings_table_move(table, table->old_mask + 1);
    table->old = table->slots;
    table->old_mask = table->mask;
    table->moved = table->forgotten = 0;
    table->slots = fresh;
    table->mask = (uint32_t)(slot_count - 1);
    if (table->old.base != NULL && table->old_mask < MOVED_AT_ONCE)
        holdings_table_move(table, MOVED_AT_ONCE);
    return true;
}

/* One entry was added: some of those that wait to be moved follow it. */
static void holdings_table_count(struct holdings_table *table)
{
    table->used++;
    if (table->old.base != NULL)
        holdings_table_move(table, MOVED_PER_ENTRY);
}

bool holdings_reserve(struct holdings *holdings, uint64_t count)
{
    if (count <= holdings->capacity)
        return true;
    if (count >= KEY_TARGET_BOUND / 2)
        return false;
    uint64_t records_size = count * sizeof(struct holding);
    uint64_t names_size = ((uint64_t)holdings->names_used * NAME_UNIT) +
                          (count - holdings->count) * (uint64_t)ID_LENGTH_MAX + ID_COPY_STEP;
    if (names_size > (uint64_t)NAME_UNIT * UINT32_MAX)
        return false;
    /* What is small is on the heap, where all of it is resident: it grows with the claims. */
    if (records_size >= REGION_MAPPED_MIN && (!region_grow(&holdings->records, records_size) ||
                                              !region_grow(&holdings->names, names_size)))
        return false;
    holdings->capacity = (uint32_t)count;
    return true;
}

/* At least `needed` bytes, and twice what there was, up to `most`. */
static bool holdings_grow(struct region *region, size_t needed, size_t most)
{
    size_t size = region->size * 2 < most ? region->size * 2 : most;

    return needed <= region->size || region_grow(region, size < needed ? needed : size);
}

bool holdings_make_room(struct holdings *holdings, uint32_t count, size_t names_length)
{
    size_t names_size =
        ((size_t)holdings->names_used + count) * NAME_UNIT + names_length + ID_COPY_STEP;

    ensure(holdings->count + count <= holdings->capacity);
    return holdings_grow(&holdings->records,
                         (size_t)(holdings->count + count) * sizeof(struct holding),
                         (size_t)holdings->capacity * sizeof(struct holding)) &&
           holdings_grow(&holdings->names, names_size, SIZE_MAX) &&
           holdings_table_make_room(&holdings->users, count) &&
           holdings_table_make_room(&holdings->keys, count);
}

static bool holdings_is_user(const struct holdings *holdings, const struct holding *holding,
                             const struct id *user)
{
    const char *names = holdings->names.base;
    return holding->user_length == user->length &&
           memcmp(names + (size_t)holding->user_at * NAME_UNIT, user->bytes, user->length) == 0;
}

/* From `at` on, the next slot with this hash, or the empty one before it. */
static inline struct holdings_slot *holdings_seek(struct holdings_slot *slots, size_t mask,
                                                  size_t at, uint32_t hash)
{
    for (at &= mask; slots[at].target != 0 && slots[at].hash != hash; at = (at + 1) & mask)
        continue;
    return &slots[at];
}

/* The same for a user, `slot` being the first with their hash. */
static inline struct holdings_slot *holdings_seek_user(const struct holdings *holdings,
                                                       struct holdings_slot *slots, uint32_t mask,
                                                       struct holdings_slot *slot, uint32_t hash,
                                                       const struct id *user)
{
    while (slot->target != 0 &&
           !holdings_is_user(holdings, holdings_at(holdings, slot->target - 1), user))
        slot = holdings_seek(slots, mask, (size_t)(slot - slots) + 1, hash);
    return slot;
}

/* The slot of a user, or the empty one where they would go; `slot` is the first with their hash. */
__attribute__((noinline)) static struct holdings_slot *holdings_slot_of(
    const struct holdings *holdings, struct holdings_slot *slot, uint32_t hash,
    const struct id *user)
{
    const struct holdings_table *users = &holdings->users;

    slot =
        holdings_seek_user(holdings, holdings_slots(&users->slots), users->mask, slot, hash, user);
    if (slot->target != 0 || users->old.base == NULL)
        return slot;
    struct holdings_slot *slots = holdings_slots(&users->old);
    struct holdings_slot *old =
        holdings_seek_user(holdings, slots, users->old_mask,
                           holdings_seek(slots, users->old_mask, hash, hash), hash, user);
    return old->target != 0 ? old : slot;
}

static inline struct holdings_slot *holdings_user_slot(const struct holdings *holdings,
                                                       uint32_t hash, const struct id *user)
{
    const struct holdings_table *users = &holdings->users;
    struct holdings_slot *slot =
        holdings_seek(holdings_slots(&users->slots), users->mask, hash, hash);

    /* Nearly every new user is done here. */
    return slot->target == 0 && users->old.base == NULL
               ? slot
               : holdings_slot_of(holdings, slot, hash, user);
}

struct holdings_place holdings_find(const struct holdings *holdings, uint64_t hash,
                                    const struct id *user)
{
    struct holdings_place place = {.newest = HOLDINGS_NONE};
    const struct holdings_table *users = &holdings->users;

    if (users->slots.base == NULL)
        return place;
    place.slot = holdings_user_slot(holdings, (uint32_t)hash, user);
    if (place.slot->target != 0 && holdings_at(holdings, place.slot->target - 1)->held_count != 0)
        place.newest = place.slot->target - 1;
    return place;
}

/* Request ids are hashes that anyone can compute, so they are hashed once more, with our key. */
static uint32_t holdings_key_hash(const struct holdings *holdings, const struct request_id *id)
{
    return (uint32_t)hash_table(holdings->hash_key, id->bytes, sizeof(id->bytes));
}

static uint32_t holdings_probe_key(const struct holdings *holdings, const struct region *table,
                                   uint32_t mask, uint32_t hash, const struct request_id *id)
{
    const struct holdings_slot *slots = holdings_slots(table);
    const struct bound_key *bound = holdings->bound.base;

    for (uint32_t at = hash & mask; slots[at].target != 0; at = (at + 1) & mask) {
        if (slots[at].hash != hash)
            continue;
        uint32_t target = slots[at].target - 1;
        if (target & KEY_TARGET_BOUND) {
            const struct bound_key *key = &bound[target & ~KEY_TARGET_BOUND];
            if (memcmp(key->request_id.bytes, id->bytes, sizeof(id->bytes)) == 0)
                return key->holding;
        } else if (memcmp(holdings_at(holdings, target)->request_id.bytes, id->bytes,
                          sizeof(id->bytes)) == 0) {
            return target;
        }
    }
    return HOLDINGS_NONE;
}

uint32_t holdings_of_key(const struct holdings *holdings, const struct request_id *id)
{
    const struct holdings_table *keys = &holdings->keys;

    if (keys->used == 0)
        return HOLDINGS_NONE;
    uint32_t hash = holdings_key_hash(holdings, id);
    uint32_t found = holdings_probe_key(holdings, &keys->slots, keys->mask, hash, id);
    return found != HOLDINGS_NONE || keys->old.base == NULL
               ? found
               : holdings_probe_key(holdings, &keys->old, keys->old_mask, hash, id);
}

uint32_t holdings_below(const struct holdings *holdings, int64_t seq)
{
    uint32_t low = 0;
    uint32_t high = holdings->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (holdings_at(holdings, middle)->seq < seq)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t holdings_of_seq(const struct holdings *holdings, int64_t seq)
{
    uint32_t index = holdings_below(holdings, seq);

    return index < holdings->count && holdings_at(holdings, index)->seq == seq ? index
                                                                               : HOLDINGS_NONE;
}

/* The lowest nth the user does not hold; `newest` holds `held_count` claims. A user without gaps,
 * which is nearly everyone, costs no walk. */
static uint16_t holdings_free_nth(const struct holdings *holdings, const struct holding *newest)
{
    uint64_t taken[(PER_USER_LIMIT_MAX + 64) / 64] = {0};

    if (newest->held_count == newest->nth_top)
        return (uint16_t)(newest->nth_top + 1);
    for (const struct holding *holding = newest;;) {
        taken[(holding->nth - 1) / 64] |= UINT64_C(1) << ((holding->nth - 1) % 64);
        if (holding->previous == 0)
            break;
        holding = holdings_at(holdings, holding->previous - 1);
    }
    uint16_t nth = 1;
    while (taken[(nth - 1) / 64] >> ((nth - 1) % 64) & 1)
        nth++;
    return nth;
}

static inline uint32_t holdings_store_name(struct holdings *holdings, const struct id *user)
{
    uint32_t at = holdings->names_used;
    id_copy_bytes((char *)holdings->names.base + (size_t)at * NAME_UNIT, user);
    holdings->names_used += ((uint32_t)user->length + NAME_UNIT - 1) / NAME_UNIT;
    return at;
}

/* How the claim of a user who has, or had, others goes before those. */
__attribute__((noinline)) static struct holding holdings_link(const struct holdings *holdings,
                                                              uint32_t newest_target, uint16_t nth)
{
    const struct holding *newest = holdings_at(holdings, newest_target - 1);
    struct holding link = {.user_at = newest->user_at, .nth = nth != 0 ? nth : 1, .held_count = 1};

    if (newest->held_count > 0) {
        if (nth == 0)
            link.nth = holdings_free_nth(holdings, newest);
        link.previous = newest_target;
        link.held_count = (uint16_t)(newest->held_count + 1);
    }
    link.nth_top =
        newest->held_count > 0 && newest->nth_top > link.nth ? newest->nth_top : link.nth;
    return link;
}

/* A record, linked like that, its key already known. */
static inline uint32_t holdings_append(struct holdings *holdings, const struct claim *claim,
                                       enum coupon_state state, struct holding link)
{
    uint32_t index = holdings->count++;

    *holdings_at(holdings, index) = (struct holding){
        .seq = claim->seq,
        .requested_at_ms = claim->requested_at_ms,
        .request_id = claim->request_id,
        .user_at = link.user_at,
        .previous = link.previous,
        .nth = link.nth,
        .held_count = link.held_count,
        .nth_top = link.nth_top,
        .user_length = claim->user.length,
        .state = (uint8_t)state & 7,
    };
    if (request_id_is_keyed(&claim->request_id)) {
        holdings_put(holdings_slots(&holdings->keys.slots), holdings->keys.mask,
                     (struct holdings_slot){.hash = holdings_key_hash(holdings, &claim->request_id),
                                            .target = index + 1});
        holdings_table_count(&holdings->keys);
    }
    return index;
}

static inline int32_t holdings_add_active(struct holdings *holdings, struct holdings_slot *slot,
                                          uint64_t hash, const struct claim *claim,
                                          enum coupon_state state)
{
    uint16_t nth = (uint16_t)claim->nth;
    struct holding link;

    if (slot->target != 0) {
        link = holdings_link(holdings, slot->target, nth);
        slot->target = holdings_append(holdings, claim, state, link) + 1;
        return link.nth;
    }
    nth = nth != 0 ? nth : 1;
    link = (struct holding){.user_at = holdings_store_name(holdings, &claim->user),
                            .nth = nth,
                            .held_count = 1,
                            .nth_top = nth};
    slot->target = holdings_append(holdings, claim, state, link) + 1;
    slot->hash = (uint32_t)hash;
    holdings_table_count(&holdings->users);
    return nth;
}

int32_t holdings_add_at(struct holdings *holdings, struct holdings_place place, uint64_t hash,
                        const struct claim *claim)
{
    return holdings_add_active(holdings, place.slot, hash, claim, COUPON_ISSUED);
}

uint32_t holdings_add(struct holdings *holdings, uint64_t hash, const struct claim *claim,
                      enum coupon_state state)
{
    if (coupon_state_is_active(state))
        holdings_add_active(holdings, holdings_user_slot(holdings, (uint32_t)hash, &claim->user),
                            hash, claim, state);
    else
        holdings_append(holdings, claim, state,
                        (struct holding){.user_at = holdings_store_name(holdings, &claim->user),
                                         .nth = (uint16_t)claim->nth});
    return holdings->count - 1;
}

/* Writes at the user's newest claim how many they hold and their highest nth. */
static void holdings_recount(const struct holdings *holdings, uint32_t newest)
{
    struct holding *head = holdings_at(holdings, newest);
    uint16_t held_count = 0;
    uint16_t nth_top = 0;

    for (const struct holding *holding = head;;) {
        held_count++;
        if (holding->nth > nth_top)
            nth_top = holding->nth;
        if (holding->previous == 0)
            break;
        holding = holdings_at(holdings, holding->previous - 1);
    }
    head->held_count = held_count;
    head->nth_top = nth_top;
}

void holdings_free_slot(struct holdings *holdings, uint32_t index, enum coupon_state state)
{
    struct holding *holding = holdings_at(holdings, index);
    bool was_active = coupon_state_is_active((enum coupon_state)holding->state);
    struct id user = {.length = holding->user_length};

    holding->state = (uint8_t)state & 7;
    if (!was_active)
        return;
    memcpy(user.bytes, (const char *)holdings->names.base + (size_t)holding->user_at * NAME_UNIT,
           user.length);
    struct holdings_slot *slot =
        holdings_user_slot(holdings, (uint32_t)holdings_hash(holdings, &user), &user);
    uint32_t newest = slot->target - 1;

    if (newest == index) {
        if (holding->previous == 0) {
            holding->held_count = 0; /* The slot stays: it keeps the name for the next claim. */
            return;
        }
        newest = holding->previous - 1;
        slot->target = holding->previous;
    } else {
        struct holding *later = holdings_at(holdings, newest);
        while (later->previous != index + 1)
            later = holdings_at(holdings, later->previous - 1);
        later->previous = holding->previous;
    }
    holding->previous = 0;
    holding->held_count = 0;
    holdings_recount(holdings, newest);
}

/* The old name's slot stays: what it leads to has another name, so that nobody finds it there. */
bool holdings_rename(struct holdings *holdings, uint32_t *indexes, size_t count,
                     const struct id *from, const struct id *to)
{
    uint32_t newest = holdings_find(holdings, holdings_hash(holdings, from), from).newest;
    uint64_t hash = holdings_hash(holdings, to);
    size_t names_size = ((size_t)holdings->names_used + 1) * NAME_UNIT + to->length;

    if (!holdings_grow(&holdings->names, names_size, SIZE_MAX) ||
        !holdings_table_make_room(&holdings->users, 1))
        return false;
    uint32_t name_at = holdings_store_name(holdings, to);
    for (size_t i = 0; i < count; i++) {
        struct holding *holding = holdings_at(holdings, indexes[i]);
        indexes[i] = name_at;
        if (!holdings_is_user(holdings, holding, from))
            continue;
        indexes[i] = holding->user_at;
        holding->user_at = name_at;
        holding->user_length = to->length;
    }
    for (size_t i = 0; i < count; i++)
        if (indexes[i] != name_at)
            memset((char *)holdings->names.base + (size_t)indexes[i] * NAME_UNIT, 0, from->length);
    if (newest == HOLDINGS_NONE)
        return true;
    *holdings_user_slot(holdings, (uint32_t)hash, to) =
        (struct holdings_slot){.hash = (uint32_t)hash, .target = newest + 1};
    holdings_table_count(&holdings->users);
    return true;
}

bool holdings_bind(struct holdings *holdings, uint32_t index, const struct request_id *id)
{
    struct holding *holding = holdings_at(holdings, index);
    uint32_t at = holdings->bound_count;

    if (at >= KEY_TARGET_BOUND - 1 ||
        !holdings_grow(&holdings->bound, (size_t)(at + 1) * sizeof(struct bound_key), SIZE_MAX) ||
        !holdings_table_make_room(&holdings->keys, 1))
        return false;
    ((struct bound_key *)holdings->bound.base)[at] =
        (struct bound_key){.request_id = *id, .holding = index};
    holdings->bound_count++;
    if (holding->bound_count < CLAIM_KEYS_MAX)
        holding->bound_count++;
    holdings_put(holdings_slots(&holdings->keys.slots), holdings->keys.mask,
                 (struct holdings_slot){.hash = holdings_key_hash(holdings, id),
                                        .target = (at | KEY_TARGET_BOUND) + 1});
    holdings_table_count(&holdings->keys);
    return true;
}
