/* prove.c: the checks, each over arrays that are sorted once. */
#include "rush/prove.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One claim somebody was told of, or was found to hold. */
struct told {
    uint32_t user;
    int32_t nth;
    int64_t seq;
    int64_t sent_ns;
    int64_t answered_ns;
    enum { TOLD_WON, TOLD_HELD, TOLD_FOUND } how;
};

struct proving {
    const struct rush_evidence *evidence;
    struct rush_proof *proof;
    struct told *told; /* by user, then seq, then how */
    size_t told_count;
    struct told *claims; /* each claim once, by seq */
    size_t claim_count;
    struct told *wins; /* WON only, in the order a check wants */
    size_t win_count;
    struct rush_check *check; /* being made */
};

const char *rush_verdict_name(enum rush_verdict verdict)
{
    static const char *const names[] = {
        [RUSH_HOLDS] = "holds", [RUSH_BROKEN] = "broken", [RUSH_CANNOT_SAY] = "cannot_say"};
    ensure(verdict <= RUSH_CANNOT_SAY);
    return names[verdict];
}

PRINTF_LIKE(3, 4)
static void proving_say(struct proving *proving, enum rush_verdict verdict, const char *format, ...)
{
    va_list arguments;

    proving->check->verdict = verdict;
    va_start(arguments, format);
    vsnprintf(proving->check->text, sizeof(proving->check->text), format, arguments);
    va_end(arguments);
}

/* --- sorting --- */

static int told_by_user(const void *left, const void *right)
{
    const struct told *a = left;
    const struct told *b = right;

    if (a->user != b->user)
        return a->user < b->user ? -1 : 1;
    if (a->seq != b->seq)
        return a->seq < b->seq ? -1 : 1;
    return (int)a->how - (int)b->how;
}

static int told_by_seq(const void *left, const void *right)
{
    const struct told *a = left;
    const struct told *b = right;

    if (a->seq != b->seq)
        return a->seq < b->seq ? -1 : 1;
    return a->user < b->user ? -1 : a->user > b->user;
}

static int told_by_sent(const void *left, const void *right)
{
    const struct told *a = left;
    const struct told *b = right;
    return a->sent_ns < b->sent_ns ? -1 : a->sent_ns > b->sent_ns;
}

static int told_by_answered(const void *left, const void *right)
{
    const struct told *a = left;
    const struct told *b = right;
    return a->answered_ns < b->answered_ns ? -1 : a->answered_ns > b->answered_ns;
}

static void told_sort(struct told *told, size_t count, int (*compare)(const void *, const void *))
{
    if (count > 1)
        qsort(told, count, sizeof(*told), compare);
}

/* --- gathering --- */

static void proving_gather(struct proving *proving)
{
    const struct rush_evidence *evidence = proving->evidence;

    for (size_t i = 0; i < evidence->press_count; i++) {
        const struct rush_press *press = &evidence->presses[i];
        if (press->outcome != RUSH_WON && press->outcome != RUSH_HELD)
            continue;
        proving->told[proving->told_count++] = (struct told){
            .user = press->user,
            .nth = press->nth,
            .seq = press->seq,
            .sent_ns = press->sent_ns,
            .answered_ns = press->answered_ns,
            .how = press->outcome == RUSH_WON ? TOLD_WON : TOLD_HELD,
        };
    }
    for (size_t i = 0; i < evidence->holdings->coupon_count; i++) {
        const struct rush_coupon *coupon = &evidence->holdings->coupons[i];
        if (coupon->fate == RUSH_FATE_PENDING || coupon->fate == RUSH_FATE_ISSUED)
            proving->told[proving->told_count++] = (struct told){
                .user = coupon->user, .nth = coupon->nth, .seq = coupon->seq, .how = TOLD_FOUND};
    }
    told_sort(proving->told, proving->told_count, told_by_user);
    for (size_t i = 0; i < proving->told_count; i++) {
        const struct told *told = &proving->told[i];
        bool is_new = i == 0 || told[-1].user != told->user || told[-1].seq != told->seq;
        if (is_new)
            proving->claims[proving->claim_count++] = *told;
        if (told->how == TOLD_WON)
            proving->wins[proving->win_count++] = *told;
    }
    told_sort(proving->claims, proving->claim_count, told_by_seq);
    struct rush_proof *proof = proving->proof;
    proof->winner_count = proving->claim_count;
    proof->first_seq = proving->claim_count > 0 ? proving->claims[0].seq : 0;
    proof->last_seq = proving->claim_count > 0 ? proving->claims[proving->claim_count - 1].seq : 0;
}

static void proving_find_times(struct proving *proving)
{
    struct rush_proof *proof = proving->proof;

    proof->sold_out_ns = -1;
    proof->last_win_ns = -1;
    for (size_t i = 0; i < proving->evidence->press_count; i++) {
        const struct rush_press *press = &proving->evidence->presses[i];
        if (press->outcome == RUSH_SOLD_OUT &&
            (proof->sold_out_ns < 0 || press->answered_ns < proof->sold_out_ns))
            proof->sold_out_ns = press->answered_ns;
        if (press->outcome == RUSH_WON && press->answered_ns > proof->last_win_ns)
            proof->last_win_ns = press->answered_ns;
    }
}

/* --- the checks --- */

/* How many claims the presses that were decided could have won if there were enough; and how many
 * presses were not decided, or were turned away before it came to that (not open, closed, 401). */
static int64_t proving_capacity(const struct proving *proving, size_t *undecided_count,
                                size_t *refused_count)
{
    const struct rush_evidence *evidence = proving->evidence;
    uint32_t *counts = NULL;
    uint32_t user_max = 0;
    int64_t capacity = 0;

    *undecided_count = 0;
    *refused_count = 0;
    for (size_t i = 0; i < evidence->press_count; i++)
        if (evidence->presses[i].user > user_max)
            user_max = evidence->presses[i].user;
    counts = calloc((size_t)user_max + 1, sizeof(*counts));
    ensure(counts != NULL);
    for (size_t i = 0; i < evidence->press_count; i++) {
        const struct rush_press *press = &evidence->presses[i];
        if (!press->is_sent)
            continue;
        if (press->outcome == RUSH_NONE || press->outcome == RUSH_BUSY)
            (*undecided_count)++;
        else if (press->outcome == RUSH_REFUSED)
            (*refused_count)++;
        else if (counts[press->user] < evidence->per_user_limit) {
            counts[press->user]++;
            capacity++;
        }
    }
    free(counts);
    return capacity;
}

static void check_count(struct proving *proving)
{
    const struct rush_evidence *evidence = proving->evidence;
    size_t undecided_count;
    size_t refused_count;
    int64_t capacity = proving_capacity(proving, &undecided_count, &refused_count);
    int64_t stock = evidence->before.remaining;
    int64_t won = (int64_t)proving->claim_count;
    /* On a policy of others' the rest of what went may be theirs. */
    int64_t gone = evidence->after.is_known ? stock - evidence->after.remaining : won;
    int64_t others = !evidence->is_alone && gone > won ? gone - won : 0;
    int64_t most = capacity + (int64_t)undecided_count;

    if (!evidence->before.is_known)
        proving_say(proving, RUSH_CANNOT_SAY, "the server did not say how many there were");
    else if (won > stock)
        proving_say(proving, RUSH_BROKEN, "%" PRId64 " won, of %" PRId64 " coupons", won, stock);
    else if (won + others < (capacity < stock ? capacity : stock) && undecided_count == 0)
        proving_say(proving, RUSH_BROKEN,
                    "only %" PRId64 " won, of %" PRId64 " coupons and %" PRId64 " who could have",
                    won, stock, capacity);
    else if (won > most)
        proving_say(proving, RUSH_BROKEN,
                    "%" PRId64 " claims, but only %" PRId64 " could be asked for", won, most);
    else if (won + others < (most < stock ? most : stock))
        proving_say(proving, RUSH_CANNOT_SAY,
                    "%" PRId64 " won, of %" PRId64 "; %zu presses had no answer that tells", won,
                    stock, undecided_count);
    else if (won + others < stock && refused_count > 0)
        proving_say(proving, RUSH_CANNOT_SAY,
                    "%" PRId64 " won, of %" PRId64
                    "; %zu presses were turned away and prove nothing",
                    won, stock, refused_count);
    else if (others > 0)
        proving_say(proving, RUSH_HOLDS,
                    "%" PRId64 " won here and %" PRId64 " elsewhere, of %" PRId64, won, others,
                    stock);
    else
        proving_say(proving, RUSH_HOLDS,
                    "%" PRId64 " won, of %" PRId64 " coupons and %" PRId64 " who asked", won, stock,
                    capacity);
}

static void check_unique(struct proving *proving)
{
    size_t repeated_count = 0;
    int64_t example = 0;

    for (size_t i = 1; i < proving->claim_count; i++) {
        if (proving->claims[i].seq == proving->claims[i - 1].seq) {
            repeated_count++;
            example = proving->claims[i].seq;
        }
    }
    told_sort(proving->wins, proving->win_count, told_by_seq);
    for (size_t i = 1; i < proving->win_count; i++) {
        if (proving->wins[i].seq == proving->wins[i - 1].seq &&
            proving->wins[i].user == proving->wins[i - 1].user) {
            repeated_count++; /* told twice that they won, instead of what they hold */
            example = proving->wins[i].seq;
        }
    }
    if (proving->claim_count > 0 && proving->claims[0].seq == 0)
        proving_say(proving, RUSH_BROKEN, "a winner was told no seq");
    else if (repeated_count > 0)
        proving_say(proving, RUSH_BROKEN, "%zu seqs were given twice, such as %" PRId64,
                    repeated_count, example);
    else
        proving_say(proving, RUSH_HOLDS, "no seq was given twice");
}

/* Whether anybody had to hear that there is no verdict now. */
static bool proving_was_interrupted(const struct proving *proving)
{
    for (size_t i = 0; i < proving->evidence->press_count; i++) {
        const struct rush_press *press = &proving->evidence->presses[i];
        if (press->is_sent &&
            (press->may_be_done || press->outcome == RUSH_NONE || press->outcome == RUSH_BUSY))
            return true;
    }
    return false;
}

static void check_dense(struct proving *proving)
{
    const struct rush_evidence *evidence = proving->evidence;
    const struct rush_proof *proof = proving->proof;
    int64_t first = evidence->is_alone ? 1 : proof->first_seq;
    int64_t missing = proof->last_seq - first + 1 - (int64_t)proving->claim_count;

    if (proving->claim_count == 0)
        proving_say(proving, RUSH_HOLDS, "nobody won");
    else if (missing <= 0)
        proving_say(proving, RUSH_HOLDS, "seqs %" PRId64 " to %" PRId64 " without a gap",
                    proof->first_seq, proof->last_seq);
    else if (!evidence->is_alone)
        proving_say(proving, RUSH_HOLDS, "seqs %" PRId64 " to %" PRId64 ", with those of others",
                    proof->first_seq, proof->last_seq);
    else if (evidence->holdings->unknown_count > 0)
        /* Those whose answer was lost may hold them. */
        proving_say(proving, RUSH_CANNOT_SAY, "the server did not answer for %zu users",
                    evidence->holdings->unknown_count);
    else if (missing <= evidence->audit_gap_count && proving_was_interrupted(proving))
        /* A gate in Redis that was away goes on with a fresh lease. */
        proving_say(proving, RUSH_HOLDS,
                    "seqs 1 to %" PRId64 "; %" PRId64 " were given up when the gate was away",
                    proof->last_seq, missing);
    else
        proving_say(proving, RUSH_BROKEN, "%" PRId64 " seqs up to %" PRId64 " are nobody's",
                    missing, proof->last_seq);
}

static void check_limit(struct proving *proving)
{
    const struct told *told = proving->told;
    size_t over_count = 0;
    uint32_t example = 0;
    int64_t held = 0;

    for (size_t i = 0; i < proving->told_count; i++) {
        bool is_other_user = i == 0 || told[i].user != told[i - 1].user;
        bool is_new = is_other_user || told[i].seq != told[i - 1].seq;
        held = is_other_user ? 1 : held + is_new;
        if (is_new && held == proving->evidence->per_user_limit + 1) {
            over_count++;
            example = told[i].user;
        }
    }
    if (over_count > 0)
        proving_say(proving, RUSH_BROKEN, "%zu users have more than %" PRId64 ", such as number %u",
                    over_count, proving->evidence->per_user_limit, example);
    else
        proving_say(proving, RUSH_HOLDS, "nobody has more than %" PRId64,
                    proving->evidence->per_user_limit);
}

/* A winner who was answered before another one asked has the smaller seq. */
static void check_order(struct proving *proving)
{
    struct told *by_answered = proving->claims; /* the checks before this one are done with it */
    size_t count = proving->win_count;
    size_t overtaken_count = 0;
    size_t before = 0;
    int64_t highest = 0;
    struct told example = {0};

    memcpy(by_answered, proving->wins, count * sizeof(*by_answered));
    told_sort(by_answered, count, told_by_answered);
    told_sort(proving->wins, count, told_by_sent);
    for (size_t i = 0; i < count; i++) {
        const struct told *win = &proving->wins[i];
        while (before < count && by_answered[before].answered_ns < win->sent_ns) {
            if (by_answered[before].seq > highest)
                highest = by_answered[before].seq;
            before++;
        }
        if (highest > win->seq) {
            overtaken_count++;
            example = *win;
        }
    }
    if (overtaken_count > 0)
        proving_say(proving, RUSH_BROKEN,
                    "%zu have a smaller seq than one who was answered before they asked, such as "
                    "%" PRId64,
                    overtaken_count, example.seq);
    else
        proving_say(proving, RUSH_HOLDS, "no winner was overtaken by one who asked later");
}

/* Nobody is told SOLD_OUT while there is stock: then nobody who asks later wins. */
static void check_sold_out(struct proving *proving)
{
    size_t late_count = 0;
    int64_t sold_out_ns = proving->proof->sold_out_ns;

    for (size_t i = 0; i < proving->win_count && sold_out_ns >= 0; i++)
        late_count += proving->wins[i].sent_ns > sold_out_ns;
    if (sold_out_ns < 0)
        proving_say(proving, RUSH_HOLDS, "nobody was told that it is sold out");
    else if (late_count > 0 && proving->evidence->is_alone)
        proving_say(proving, RUSH_BROKEN, "%zu won although they asked after it was sold out",
                    late_count);
    else if (late_count > 0)
        proving_say(proving, RUSH_HOLDS, "%zu won after it was sold out: stock came back",
                    late_count);
    else
        proving_say(proving, RUSH_HOLDS, "sold out was sold out");
}

/* The place of the user's first entry, or the end. */
static size_t proving_find_user(const struct proving *proving, uint32_t user)
{
    size_t low = 0;
    size_t high = proving->told_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (proving->told[middle].user < user)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Whether this refusal came to somebody who had been told before that they hold a claim, and may
 * hold no more. */
static bool proving_is_forgotten(const struct proving *proving, const struct rush_press *press)
{
    if (press->outcome != RUSH_SOLD_OUT || proving->evidence->per_user_limit != 1)
        return false;
    for (size_t i = proving_find_user(proving, press->user);
         i < proving->told_count && proving->told[i].user == press->user; i++)
        if (proving->told[i].how != TOLD_FOUND && proving->told[i].answered_ns < press->sent_ns)
            return true;
    return false;
}

/* A winner who asks again gets the claim they hold. */
static void check_repeats(struct proving *proving)
{
    const struct told *told = proving->told;
    size_t repeat_count = 0;
    size_t strange_count = 0;
    size_t forgotten_count = 0;

    for (size_t i = 0; i < proving->told_count; i++) {
        if (told[i].how != TOLD_HELD)
            continue;
        repeat_count++;
        /* The same claim was won, or is really there. */
        size_t from = i;
        while (from > 0 && told[from - 1].user == told[i].user && told[from - 1].seq == told[i].seq)
            from--;
        bool is_real = false;
        for (size_t at = from; at < proving->told_count && told[at].user == told[i].user &&
                               told[at].seq == told[i].seq;
             at++)
            is_real = is_real || told[at].how != TOLD_HELD;
        strange_count += !is_real;
    }
    for (size_t i = 0; i < proving->evidence->press_count; i++)
        forgotten_count += proving_is_forgotten(proving, &proving->evidence->presses[i]);
    if (strange_count > 0)
        proving_say(proving, RUSH_BROKEN, "%zu were shown a claim that nobody gave them",
                    strange_count);
    else if (forgotten_count > 0)
        proving_say(proving, RUSH_BROKEN, "%zu winners were told SOLD_OUT when they asked again",
                    forgotten_count);
    else
        proving_say(proving, RUSH_HOLDS, "%zu who asked again got the claim they hold",
                    repeat_count);
}

/* Every 201 and 202 has its coupon. */
static void check_coupons(struct proving *proving)
{
    const struct rush_holdings *holdings = proving->evidence->holdings;
    size_t missing_count = 0;
    size_t found_count = 0;
    size_t void_count = 0;
    size_t pending_count = 0;
    size_t at = 0;
    int64_t example = 0;

    for (size_t i = 0; i < proving->told_count; i++) {
        const struct told *told = &proving->told[i];
        if (told->how == TOLD_FOUND || (i > 0 && told[-1].how != TOLD_FOUND &&
                                        told[-1].user == told->user && told[-1].seq == told->seq))
            continue;
        while (at < holdings->coupon_count && (holdings->coupons[at].user < told->user ||
                                               (holdings->coupons[at].user == told->user &&
                                                holdings->coupons[at].seq < told->seq)))
            at++;
        bool is_there = at < holdings->coupon_count && holdings->coupons[at].user == told->user &&
                        holdings->coupons[at].seq == told->seq;
        if (!is_there) {
            missing_count++;
            example = told->seq;
            continue;
        }
        found_count++;
        void_count += holdings->coupons[at].fate == RUSH_FATE_VOID;
        pending_count += holdings->coupons[at].fate == RUSH_FATE_PENDING;
    }
    if (missing_count > 0 && missing_count > holdings->unknown_count)
        proving_say(proving, RUSH_BROKEN,
                    "%zu winners have no coupon, such as that of seq %" PRId64, missing_count,
                    example);
    else if (void_count > 0)
        proving_say(proving, RUSH_BROKEN, "%zu winners' coupons came to nothing (VOID)",
                    void_count);
    else if (holdings->unknown_count > 0)
        proving_say(proving, RUSH_CANNOT_SAY, "the server did not answer for %zu users",
                    holdings->unknown_count);
    else if (pending_count > 0)
        proving_say(proving, RUSH_CANNOT_SAY, "%zu are still pending; wait longer with --settle",
                    pending_count);
    else
        proving_say(proving, RUSH_HOLDS, "%zu winners, %zu coupons", found_count, found_count);
}

static void check_ledger(struct proving *proving)
{
    const struct rush_evidence *evidence = proving->evidence;
    const struct rush_stock *after = &evidence->after;
    int64_t gone =
        after->issued + after->pending - evidence->before.issued - evidence->before.pending;
    int64_t won = (int64_t)proving->proof->winner_count;

    if (evidence->audit == RUSH_AUDIT_BROKEN)
        proving_say(proving, RUSH_BROKEN, "%s", evidence->audit_text);
    else if (!after->is_known)
        proving_say(proving, RUSH_CANNOT_SAY, "the server did not say how it stands");
    else if (after->remaining + after->pending + after->issued != after->total)
        proving_say(proving, RUSH_BROKEN,
                    "%" PRId64 " remaining, %" PRId64 " pending and %" PRId64
                    " issued do not make %" PRId64,
                    after->remaining, after->pending, after->issued, after->total);
    else if (evidence->is_alone ? gone != won : gone < won)
        proving_say(proving, RUSH_BROKEN,
                    "the policy gave out %" PRId64 ", and %" PRId64 " were told that they won",
                    gone, won);
    else if (evidence->is_alone && after->pending > 0)
        proving_say(proving, RUSH_CANNOT_SAY, "%" PRId64 " are still pending", after->pending);
    else
        proving_say(proving, RUSH_HOLDS,
                    "%" PRId64 " issued, %" PRId64 " remaining, of %" PRId64 "%s", after->issued,
                    after->remaining, after->total,
                    evidence->audit == RUSH_AUDIT_FINE ? "; the audit agrees" : "");
}

static const struct {
    const char *name;
    const char *title;
    void (*make)(struct proving *proving);
} checks[RUSH_CHECKS] = {
    {"count", "as many winners as coupons", check_count},
    {"unique", "no seq twice", check_unique},
    {"dense", "no seq left out", check_dense},
    {"limit", "nobody over the limit", check_limit},
    {"repeats", "asking again is safe", check_repeats},
    {"coupons", "every winner has a coupon", check_coupons},
    {"sold_out", "sold out means sold out", check_sold_out},
    {"order", "first come, first served", check_order},
    {"ledger", "the ledger agrees", check_ledger},
};

enum status rush_prove(struct rush_proof *proof, const struct rush_evidence *evidence,
                       struct error *error)
{
    size_t most = evidence->press_count + evidence->holdings->coupon_count + 1;
    struct proving proving = {.evidence = evidence, .proof = proof};
    enum status status = STATUS_OK;

    *proof = (struct rush_proof){.is_exact = true};
    proving.told = malloc(most * sizeof(*proving.told));
    proving.claims = malloc(most * sizeof(*proving.claims));
    proving.wins = malloc(most * sizeof(*proving.wins));
    if (proving.told == NULL || proving.claims == NULL || proving.wins == NULL) {
        status = error_set(error, STATUS_UNAVAILABLE, "no memory for the proof");
    } else {
        proving_gather(&proving);
        proving_find_times(&proving);
        for (size_t i = 0; i < RUSH_CHECKS; i++) {
            proving.check = &proof->checks[i];
            proving.check->name = checks[i].name;
            proving.check->title = checks[i].title;
            checks[i].make(&proving);
            proof->is_exact = proof->is_exact && proving.check->verdict == RUSH_HOLDS;
            proof->is_broken = proof->is_broken || proving.check->verdict == RUSH_BROKEN;
        }
    }
    free(proving.told);
    free(proving.claims);
    free(proving.wins);
    return status;
}
