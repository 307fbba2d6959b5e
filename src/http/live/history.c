/* history.c: counting on each loop, adding up for all. */
#include "http/live/history.h"

#include <stdlib.h>
#include <string.h>

/* --- masking --- */

/* Where the character begins that stands in front of `end`. */
static unsigned character_before(const struct id *user, unsigned end)
{
    do
        end--;
    while (end > 0 && ((unsigned char)user->bytes[end] & 0xc0) == 0x80);
    return end;
}

struct live_mask live_mask_of(const struct id *user)
{
    struct live_mask mask = {"", ""};
    unsigned character_count = 0;
    unsigned second = 0; /* where the first characters end */
    unsigned third = 0;
    for (unsigned at = 0; at < user->length; at++) {
        if (((unsigned char)user->bytes[at] & 0xc0) == 0x80)
            continue;
        if (character_count == 1)
            second = at;
        else if (character_count == 2)
            third = at;
        character_count++;
    }
    memcpy(mask.head, user->bytes, character_count >= 4 ? third : second);
    unsigned last = character_count >= 6 ? character_before(user, user->length) : user->length;
    memcpy(mask.tail, user->bytes + last, user->length - last);
    return mask;
}

double live_past_latency_ms(const struct live_past *past, double quantile)
{
    struct histogram_snapshot recent = {.count = 0};
    int64_t last = 0;
    for (size_t index = 0; index < LIVE_LATENCY_SECONDS + 1; index++)
        last = past->latencies[index].second > last ? past->latencies[index].second : last;
    for (size_t index = 0; index < LIVE_LATENCY_SECONDS + 1; index++) {
        const struct live_latency *latency = &past->latencies[index];
        if (latency->second <= last - LIVE_LATENCY_SECONDS)
            continue;
        for (unsigned bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++) {
            recent.counts[bucket] += latency->counts[bucket];
            recent.count += latency->counts[bucket];
        }
    }
    return (double)histogram_quantile(&recent, quantile) / 1e6;
}

/* --- the shared history; under its lock --- */

static struct live_past *history_find(const struct live_history *history, int64_t policy_id)
{
    for (size_t index = 0; index < history->past_count; index++)
        if (history->pasts[index]->policy_id == policy_id)
            return history->pasts[index];
    return NULL;
}

/* A place for one more policy: a new one, or that of whoever was left alone the longest. NULL: no
 * memory, and then nothing is kept. */
static struct live_past *history_room(struct live_history *history)
{
    struct live_past *past = NULL;
    if (history->past_count < LIVE_POLICIES_MAX) {
        past = malloc(sizeof(*past));
        if (past != NULL) {
            history->pasts[history->past_count++] = past;
            return past;
        }
    }
    for (size_t index = 0; index < history->past_count; index++)
        if (past == NULL || history->pasts[index]->touched_ms < past->touched_ms)
            past = history->pasts[index];
    return past;
}

static struct live_past *history_touch(struct live_history *history, int64_t policy_id,
                                       int64_t now_ms)
{
    struct live_past *past = history_find(history, policy_id);
    if (past == NULL) {
        past = history_room(history);
        if (past == NULL)
            return NULL;
        memset(past, 0, sizeof(*past));
        past->policy_id = policy_id;
    }
    past->touched_ms = past->touched_ms < now_ms ? now_ms : past->touched_ms;
    return past;
}

/* Two loops come in any order: the other one's first claim may have been a moment earlier. */
static void past_begin(struct live_past *past, int64_t tenth)
{
    if (past->first_tenth == 0) {
        past->first_tenth = tenth;
        return;
    }
    int64_t earlier = past->first_tenth - tenth;
    if (earlier <= 0 || earlier >= LIVE_TENTHS)
        return;
    size_t by = (size_t)earlier;
    memmove(past->tenths + by, past->tenths, (LIVE_TENTHS - by) * sizeof(past->tenths[0]));
    memset(past->tenths, 0, by * sizeof(past->tenths[0]));
    past->first_tenth = tenth;
    past->tenth_count = past->tenth_count + by < LIVE_TENTHS ? past->tenth_count + by : LIVE_TENTHS;
    for (size_t index = 0; index < past->tenth_count; index++)
        past->tenths[index].change = past->changes;
}

static void past_add_tenth(struct live_past *past, const struct live_tally *tally)
{
    if (tally->has_begun)
        past_begin(past, tally->tenth);
    int64_t index = tally->tenth - past->first_tenth;
    if (past->first_tenth == 0 || index < 0 || index >= LIVE_TENTHS)
        return;
    struct live_tenth *tenth = &past->tenths[index];
    tenth->change = past->changes;
    for (unsigned outcome = 0; outcome < LIVE_OUTCOMES; outcome++) {
        unsigned part = outcome <= LIVE_ACCEPTED   ? LIVE_TENTH_WON
                        : outcome == LIVE_SOLD_OUT ? LIVE_TENTH_SOLD_OUT
                                                   : LIVE_TENTH_OTHER;
        tenth->counts[part] += tally->counts[outcome];
    }
    if (past->tenth_count <= (size_t)index)
        past->tenth_count = (size_t)index + 1;
}

static void past_add_second(struct live_past *past, const struct live_tally *tally)
{
    int64_t second = tally->tenth * TENTH_MS / 1000;
    struct live_second *kept = &past->seconds[second % LIVE_SECONDS];
    if (kept->second > second)
        return; /* The clock went back by a quarter of an hour. */
    if (kept->second != second) {
        memset(kept, 0, sizeof(*kept));
        kept->second = second;
    }
    kept->change = past->changes;
    for (unsigned outcome = 0; outcome < LIVE_OUTCOMES; outcome++) {
        kept->counts[outcome < LIVE_OTHER ? outcome : LIVE_OTHER] += tally->counts[outcome];
        past->received += tally->counts[outcome];
    }
    struct live_latency *latency = &past->latencies[second % (LIVE_LATENCY_SECONDS + 1)];
    if (latency->second != second) {
        memset(latency, 0, sizeof(*latency));
        latency->second = second;
    }
    for (unsigned bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++)
        latency->counts[bucket] += tally->latencies[bucket];
}

static void past_add_feed(struct live_past *past, const struct live_tally *tally)
{
    uint64_t first = tally->feed_count > LIVE_TALLY_FEED ? tally->feed_count - LIVE_TALLY_FEED : 0;
    for (uint64_t index = first; index < tally->feed_count; index++)
        past->feed[past->feed_count++ % LIVE_FEED] = tally->feed[index % LIVE_TALLY_FEED];
}

static void history_add(struct live_history *history, const struct live_tally *tally)
{
    totals_add(history->totals, tally->policy_id, tally->tenth * TENTH_MS, tally->results);
    struct live_past *past = history_touch(history, tally->policy_id, tally->tenth * TENTH_MS);
    if (past == NULL)
        return;
    past->changes++;
    past_add_second(past, tally);
    past_add_tenth(past, tally);
    past_add_feed(past, tally);
}

/* --- a loop's tallies --- */

static void tally_clear(struct live_tally *tally, int64_t policy_id, int64_t tenth)
{
    tally->policy_id = policy_id;
    tally->tenth = tenth;
    tally->has_begun = false;
    tally->feed_count = 0;
    memset(tally->counts, 0, sizeof(tally->counts));
    memset(tally->results, 0, sizeof(tally->results));
    memset(tally->latencies, 0, sizeof(tally->latencies));
}

/* The place is another policy's or holds what is over: that goes to the history first. */
static void tally_begin(struct live_tallies *tallies, struct live_tally *tally, int64_t policy_id,
                        int64_t tenth)
{
    if (tally->policy_id != 0) {
        pthread_mutex_lock(&tallies->history->lock);
        history_add(tallies->history, tally);
        pthread_mutex_unlock(&tallies->history->lock);
    }
    tally_clear(tally, policy_id, tenth);
}

void live_tallies_count(struct live_tallies *tallies, const struct live_answer *answer)
{
    size_t place = (uint64_t)answer->policy_id % LIVE_TALLIES;
    struct live_tally *tally = &tallies->tallies[place];
    int64_t tenth = answer->wall_ms / TENTH_MS;
    if (tally->policy_id != answer->policy_id || tally->tenth != tenth) {
        tally_begin(tallies, tally, answer->policy_id, tenth);
        tallies->used |= UINT64_C(1) << place;
    }
    tally->counts[answer->outcome]++;
    tally->results[answer->result]++;
    tally->latencies[histogram_bucket(answer->elapsed_ns)]++;
    tally->has_begun |= answer->begins;
    tally->feed[tally->feed_count++ % LIVE_TALLY_FEED] = (struct live_claim){
        .at_ms = answer->wall_ms,
        .seq = answer->seq,
        .result = answer->result,
        .user = live_mask_of(answer->user),
    };
}

size_t live_tallies_fold(struct live_tallies *tallies, int64_t *folded)
{
    size_t count = 0;
    if (tallies->used == 0)
        return 0;
    pthread_mutex_lock(&tallies->history->lock);
    for (uint64_t used = tallies->used; used != 0; used &= used - 1) {
        struct live_tally *tally = &tallies->tallies[__builtin_ctzll(used)];
        history_add(tallies->history, tally);
        folded[count++] = tally->policy_id;
        tally->policy_id = 0;
    }
    pthread_mutex_unlock(&tallies->history->lock);
    tallies->used = 0;
    return count;
}

/* --- what is shared --- */

void live_history_init(struct live_history *history, struct totals *totals)
{
    history->totals = totals;
    pthread_mutex_init(&history->lock, NULL);
    history->past_count = 0;
}

void live_history_release(struct live_history *history)
{
    for (size_t index = 0; index < history->past_count; index++)
        free(history->pasts[index]);
    pthread_mutex_destroy(&history->lock);
}

bool live_history_copy(struct live_history *history, int64_t policy_id, struct live_past *copy)
{
    pthread_mutex_lock(&history->lock);
    const struct live_past *past = history_find(history, policy_id);
    if (past != NULL)
        memcpy(copy, past, sizeof(*copy));
    pthread_mutex_unlock(&history->lock);
    if (past == NULL) {
        memset(copy, 0, sizeof(*copy));
        copy->policy_id = policy_id;
    }
    return past != NULL;
}

void live_history_observe(struct live_history *history, const struct gate_numbers *now,
                          int64_t now_ms, struct gate_numbers *before)
{
    *before = (struct gate_numbers){.policy_id = 0};
    pthread_mutex_lock(&history->lock);
    struct live_past *past = history_touch(history, now->policy_id, now_ms);
    if (past != NULL) {
        *before = past->look;
        past->look = *now;
    }
    pthread_mutex_unlock(&history->lock);
}
