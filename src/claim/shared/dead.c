/* dead.c: a dead letter is tried once more. */
#include "base/clock.h"
#include "base/log.h"
#include "claim/parts.h"

#define DURABLE_LOOK_MS 2
#define ROW_LOOK_MS     20

/* Why the gate does not let them win, for whoever asked it to. */
static enum status service_dead_letter_refused(const struct wish *wish, struct error *error)
{
#define VERDICT_WHY(VERDICT, LETTER, RESULT, WHY) [VERDICT_##VERDICT] = WHY,
    static const char *const reasons[VERDICT_COUNT] = {VERDICTS(VERDICT_WHY)};

    if (wish->verdict == VERDICT_HELD)
        return error_set(error, STATUS_CONFLICT,
                         "The user holds %lld-%lld already; drop the letter.",
                         (long long)wish->policy_id, (long long)wish->seq);
    if (reasons[wish->verdict] == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "the gate does not answer");
    return error_set(error, STATUS_CONFLICT, "%s", reasons[wish->verdict]);
}

/* A win of a gate in memory is one when the ledger has it. */
static enum status service_dead_letter_await(struct service *service, const struct wish *wish,
                                             struct error *error)
{
    int64_t deadline_ms = clock_monotonic_ms() + service->options.ack_timeout_ms;

    while (ledger_durable(service->ledger) < wish->ticket) {
        if (clock_monotonic_ms() >= deadline_ms)
            return error_set(error, STATUS_UNAVAILABLE, "the ledger takes too long");
        service_pause(DURABLE_LOOK_MS);
    }
    return gate_stands(service->gate, wish)
               ? STATUS_OK
               : error_set(error, STATUS_UNAVAILABLE,
                           "the ledger did not take it this time either");
}

/* Whether the claim that the user holds is this letter's: an earlier retry, maybe by a server that
 * ended before it put the letter away, or the client's own with its key. A claim of a shared gate
 * is told by its row, which is awaited. */
static enum status service_dead_letter_is_own(struct service *service, const struct wish *wish,
                                              bool *is_own, struct error *error)
{
    int64_t deadline_ms = clock_monotonic_ms() + service->options.ack_timeout_ms;
    struct coupon coupon;
    enum status status;

    while ((status = ledger_coupon_get(service->ledger, wish->policy_id, wish->seq, &coupon,
                                       error)) == STATUS_NOT_FOUND &&
           clock_monotonic_ms() < deadline_ms)
        service_pause(ROW_LOOK_MS);
    if (status == STATUS_NOT_FOUND)
        return error_set(error, STATUS_UNAVAILABLE, "the ledger takes too long");
    *is_own = status == STATUS_OK &&
              memcmp(&coupon.claim.request_id, &wish->request_id, sizeof(wish->request_id)) == 0;
    return status;
}

/* With a limit of one a user who holds something is not asked about: the gate would bind the
 * letter's key to that. */
static enum status service_dead_letter_ask(struct service *service, struct wish *wish,
                                           struct error *error)
{
    struct policy policy;
    struct gate_claim held;
    size_t count = 0;
    enum status status = ledger_policy_get(service->ledger, wish->policy_id, &policy, error);

    if (status == STATUS_OK && policy.per_user_limit == 1 &&
        gate_find(service->gate, wish->policy_id, &wish->user, &held, 1, &count, error) ==
            STATUS_OK &&
        count > 0) {
        wish->verdict = VERDICT_HELD;
        wish->seq = held.seq;
        wish->nth = held.nth;
        wish->coupon_state = held.coupon_state;
        return STATUS_OK;
    }
    if (status == STATUS_OK || status == STATUS_NOT_FOUND)
        status = gate_ask(service->gate, wish, clock_wall_ms(), error);
    return status;
}

/* The user wins, or has won, by this letter; else why not. */
static enum status service_dead_letter_win(struct service *service, struct wish *wish,
                                           struct error *error)
{
    bool is_own = false;
    enum status status = service_dead_letter_ask(service, wish, error);

    if (status == STATUS_OK && wish->ticket != 0)
        status = service_dead_letter_await(service, wish, error);
    if (status == STATUS_OK && wish->verdict == VERDICT_HELD)
        status = service_dead_letter_is_own(service, wish, &is_own, error);
    if (is_own)
        wish->is_accepted = false; /* It is in the ledger. */
    if (status == STATUS_OK && wish->verdict != VERDICT_WON && !is_own)
        status = service_dead_letter_refused(wish, error);
    return status;
}

enum status service_dead_letter_retry(struct service *service, int64_t policy_id, int64_t seq,
                                      struct wish *wish, struct error *error)
{
    struct dead_letter letter;
    enum status status = ledger_dead_letter_get(service->ledger, policy_id, seq, &letter, error);

    if (status == STATUS_OK && policy_id == 0)
        status = error_set(error, STATUS_CONFLICT,
                           "The message is no claim; whoever sent it has to send it right.");
    if (status != STATUS_OK)
        return status;
    /* It is the same attempt as the claim that died, and so is every further retry of it or of a
     * letter that it leaves itself: as a key, for which the gate gives one claim only. */
    *wish = (struct wish){
        .policy_id = policy_id, .user = letter.claim.user, .request_id = letter.claim.request_id};
    wish->request_id.bytes[0] |= 0x80;
    status = service_dead_letter_win(service, wish, error);
    if (status != STATUS_OK)
        return status;
    struct error failure = {""};
    enum status dropped =
        ledger_dead_letter_drop(service->ledger, policy_id, seq, &letter, &failure);
    if (dropped != STATUS_OK && dropped != STATUS_NOT_FOUND) /* Another server may have done it. */
        log_event(LOG_WARN, "letter_stays", LOG_FIELD("policy", LOG_I64(policy_id)),
                  LOG_FIELD("seq", LOG_I64(seq)), LOG_FIELD("error", LOG_TEXT(failure.text)));
    return STATUS_OK;
}
