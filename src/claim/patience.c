/* patience.c: a short list, searched from end to end: refusals are rare. */
#include "claim/patience.h"

#include <stdlib.h>

#define FORGET_MS INT64_C(600000)

void patience_release(struct patience *patience)
{
    free(patience->claims);
    *patience = (struct patience){0};
}

static struct patience_claim *patience_find(const struct patience *patience, int64_t policy_id,
                                            int64_t seq)
{
    for (size_t i = 0; i < patience->count; i++) {
        if (patience->claims[i].policy_id == policy_id && patience->claims[i].seq == seq)
            return &patience->claims[i];
    }
    return NULL;
}

void patience_note(struct patience *patience, const struct claim *claim, int64_t now_ms)
{
    struct patience_claim *kept = patience_find(patience, claim->policy_id, claim->seq);

    if (kept == NULL && patience->count == patience->capacity) {
        size_t capacity = patience->capacity == 0 ? 16 : patience->capacity * 2;
        struct patience_claim *grown = realloc(patience->claims, capacity * sizeof(*grown));
        if (grown == NULL)
            return;
        patience->claims = grown;
        patience->capacity = capacity;
    }
    if (kept == NULL) {
        kept = &patience->claims[patience->count++];
        *kept = (struct patience_claim){.policy_id = claim->policy_id, .seq = claim->seq};
    }
    kept->attempt = claim->attempt + 1;
    int doublings = kept->attempt < 10 ? kept->attempt - 1 : 9;
    kept->again_at_ms = now_ms + ((int64_t)PATIENCE_PAUSE_MS << doublings);
}

void patience_forget(struct patience *patience, const struct claim *claim)
{
    if (patience->count == 0)
        return;
    struct patience_claim *kept = patience_find(patience, claim->policy_id, claim->seq);
    if (kept != NULL)
        *kept = patience->claims[--patience->count];
}

size_t patience_sift(const struct patience *patience, struct claim *claims, size_t count,
                     int64_t now_ms)
{
    size_t left = 0;

    for (size_t i = 0; i < count; i++) {
        const struct patience_claim *kept =
            patience->count == 0 ? NULL
                                 : patience_find(patience, claims[i].policy_id, claims[i].seq);
        if (kept != NULL && kept->again_at_ms > now_ms)
            continue;
        if (left != i)
            claims[left] = claims[i];
        claims[left++].attempt = kept == NULL ? 0 : kept->attempt;
    }
    return left;
}

size_t patience_waiting(const struct patience *patience, int64_t policy_id, int64_t now_ms)
{
    size_t waiting = 0;

    for (size_t i = 0; i < patience->count; i++)
        waiting +=
            patience->claims[i].policy_id == policy_id && patience->claims[i].again_at_ms > now_ms;
    return waiting;
}

void patience_sweep(struct patience *patience, int64_t now_ms)
{
    for (size_t i = 0; i < patience->count;) {
        if (now_ms - patience->claims[i].again_at_ms > FORGET_MS)
            patience->claims[i] = patience->claims[--patience->count];
        else
            i++;
    }
}
