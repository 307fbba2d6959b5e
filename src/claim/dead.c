/* dead.c: dead letters: looked at, tried once more, put away. */
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "claim/parts.h"

#define DURABLE_LOOK_MS 2

enum status service_letters(struct service *service, int64_t after_policy_id, int64_t after_seq,
                            struct dead_letter *letters, size_t max, size_t *count,
                            struct error *error)
{
    return ledger_letters(service->ledger, after_policy_id, after_seq, letters, max, count, error);
}

enum status service_letter_drop(struct service *service, int64_t policy_id, int64_t seq,
                                struct dead_letter *letter, struct error *error)
{
    return ledger_letter_drop(service->ledger, policy_id, seq, letter, error);
}

/* Why the gate does not let them win, for whoever asked it to. */
static enum status service_letter_refused(const struct wish *wish, struct error *error)
{
    switch (wish->verdict) {
    case VERDICT_HELD:
        return error_set(error, STATUS_CONFLICT,
                         "The user holds %lld-%lld already; drop the letter.",
                         (long long)wish->policy_id, (long long)wish->seq);
    case VERDICT_LIMIT_REACHED:
        return error_set(error, STATUS_CONFLICT,
                         "The user has as many coupons as the policy allows; drop the letter.");
    case VERDICT_BLOCKED:
        return error_set(error, STATUS_CONFLICT, "The user is blocked; unblock them first.");
    case VERDICT_SOLD_OUT:
        return error_set(error, STATUS_CONFLICT, "No stock is left; raise the total first.");
    case VERDICT_CLOSED:
        return error_set(error, STATUS_CONFLICT, "The policy is closed.");
    case VERDICT_PAUSED:
        return error_set(error, STATUS_CONFLICT, "The policy is paused; resume it first.");
    case VERDICT_NOT_OPEN:
        return error_set(error, STATUS_CONFLICT, "The policy is not open yet.");
    case VERDICT_NO_POLICY:
        return error_set(error, STATUS_CONFLICT, "There is no such policy any more.");
    default:
        return error_set(error, STATUS_UNAVAILABLE, "the gate does not answer");
    }
}

/* A win of a gate in memory is one when the ledger has it. */
static enum status service_letter_await(struct service *service, const struct wish *wish,
                                        struct error *error)
{
    int64_t deadline_ms = clock_monotonic_ms() + service->options.ack_timeout_ms;

    while (ledger_durable(service->ledger) < wish->ticket) {
        struct timespec pause = {.tv_nsec = DURABLE_LOOK_MS * 1000000};
        if (clock_monotonic_ms() >= deadline_ms)
            return error_set(error, STATUS_UNAVAILABLE, "the ledger takes too long");
        nanosleep(&pause, NULL);
    }
    return gate_stands(service->gate, wish)
               ? STATUS_OK
               : error_set(error, STATUS_UNAVAILABLE,
                           "the ledger did not take it this time either");
}

enum status service_letter_retry(struct service *service, int64_t policy_id, int64_t seq,
                                 struct wish *wish, struct error *error)
{
    struct dead_letter letter;
    enum status status = ledger_letter_get(service->ledger, policy_id, seq, &letter, error);

    if (status == STATUS_OK && policy_id == 0)
        status = error_set(error, STATUS_CONFLICT,
                           "The message is no claim; whoever sent it has to send it right.");
    if (status != STATUS_OK)
        return status;
    *wish = (struct wish){.policy_id = policy_id, .user = letter.claim.user};
    random_bytes(&wish->request_id, sizeof(wish->request_id));
    wish->request_id.bytes[0] &= 0x7f; /* no client's key */
    status = gate_ask(service->gate, wish, clock_wall_ms(), error);
    if (status == STATUS_OK && wish->verdict != VERDICT_WON)
        status = service_letter_refused(wish, error);
    if (status == STATUS_OK && wish->ticket != 0)
        status = service_letter_await(service, wish, error);
    if (status != STATUS_OK)
        return status;
    struct error words = {""};
    if (ledger_letter_drop(service->ledger, policy_id, seq, &letter, &words) != STATUS_OK)
        log_event(LOG_WARN, "letter_stays", LOG_FIELD("policy", LOG_I64(policy_id)),
                  LOG_FIELD("seq", LOG_I64(seq)), LOG_FIELD("error", LOG_TEXT(words.text)));
    return STATUS_OK;
}
