/* storm.c: sends what is due, repeats what was not done, keeps the answers. */
#include "rush/storm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "version.h"

#define MICROSECOND_NS INT64_C(1000)
#define MILLISECOND_NS INT64_C(1000000)
#define SECOND_NS      INT64_C(1000000000)
#define BACKOFF_NS     (100 * MILLISECOND_NS)
#define BACKOFF_MAX_NS (2 * SECOND_NS)
#define NUMBER_DIGITS  8

struct storm_retry {
    int64_t due_ns;
    uint32_t press;
};

/* --- requests --- */

static void storm_put_number(char *digits, uint32_t number)
{
    for (int i = NUMBER_DIGITS - 1; i >= 0; i--, number /= 10)
        digits[i] = (char)('0' + number % 10);
}

void rush_user_name(char name[RUSH_USER_SIZE], const char *run, uint32_t user)
{
    snprintf(name, RUSH_USER_SIZE, "rush-%.8s-%08u", run, user % 100000000);
}

/* All requests are alike but for the digits of user and key. */
static enum status storm_write_request(struct storm *storm, struct error *error)
{
    const struct storm_options *options = &storm->options;
    char user[RUSH_USER_SIZE];
    char body[64];
    char key[80] = "";
    char token[4200] = "";

    rush_user_name(user, options->run, 0);
    snprintf(body, sizeof(body), "{\"user\":\"%s\"}", user);
    if (options->sends_keys)
        snprintf(key, sizeof(key), "Idempotency-Key: rush-%.8s-%08u\r\n", options->run, 0);
    if (options->token[0] != '\0')
        snprintf(token, sizeof(token), "Authorization: Bearer %s\r\n", options->token);
    int length = snprintf(storm->request, sizeof(storm->request),
                          "POST %s/v1/policies/%" PRId64 "/claims HTTP/1.1\r\nHost: %s\r\n"
                          "User-Agent: dibs-rush/%s\r\nContent-Type: application/json\r\n"
                          "Content-Length: %zu\r\n%s%s\r\n%s",
                          options->base, options->policy_id, options->authority, DIBS_VERSION,
                          strlen(body), token, key, body);
    if (length < 0 || (size_t)length >= sizeof(storm->request))
        return error_set(error, STATUS_INVALID, "the URL and the token make too long a request");
    storm->request_length = (size_t)length;
    storm->user_at = storm->request_length - strlen("\"}") - NUMBER_DIGITS;
    if (options->sends_keys)
        storm->key_at = storm->request_length - strlen(body) - strlen("\r\n\r\n") - NUMBER_DIGITS;
    return STATUS_OK;
}

/* --- what is tried again --- */

static void storm_retry_push(struct storm *storm, int64_t due_ns, uint32_t press)
{
    size_t at = storm->retry_count++;

    while (at > 0 && storm->retries[(at - 1) / 2].due_ns > due_ns) {
        storm->retries[at] = storm->retries[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    storm->retries[at] = (struct storm_retry){due_ns, press};
}

static uint32_t storm_retry_pop(struct storm *storm)
{
    uint32_t press = storm->retries[0].press;
    struct storm_retry last = storm->retries[--storm->retry_count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= storm->retry_count)
            break;
        if (child + 1 < storm->retry_count &&
            storm->retries[child + 1].due_ns < storm->retries[child].due_ns)
            child++;
        if (storm->retries[child].due_ns >= last.due_ns)
            break;
        storm->retries[at] = storm->retries[child];
        at = child;
    }
    storm->retries[at] = last;
    return press;
}

/* Between a half and the whole of it, so that nobody comes back with everybody else. */
static int64_t storm_jitter(struct storm *storm, int64_t wait_ns)
{
    storm->random = storm->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return wait_ns / 2 + (int64_t)((storm->random >> 33) % (uint64_t)(wait_ns / 2 + 1));
}

/* True when the press will be tried again. */
static bool storm_tries_again(struct storm *storm, uint32_t number, int64_t now_ns, int after_s)
{
    struct rush_press *press = &storm->presses[number];

    if (press->tries > storm->options.retry_max || *storm->options.stop)
        return false;
    int64_t wait_ns = BACKOFF_NS << (press->tries < 6 ? press->tries - 1 : 5);
    if (wait_ns > BACKOFF_MAX_NS)
        wait_ns = BACKOFF_MAX_NS;
    wait_ns = after_s > 0 ? after_s * SECOND_NS + storm_jitter(storm, SECOND_NS)
                          : storm_jitter(storm, wait_ns);
    storm_retry_push(storm, now_ns + wait_ns, number);
    storm->numbers.retries++;
    return true;
}

/* --- the wire's calls --- */

static bool storm_next(void *context, int64_t now_ns, struct span *request, uint64_t *job)
{
    struct storm *storm = context;
    const struct rush_plan *plan = storm->options.plan;
    uint32_t number;
    int64_t since_ns = now_ns - storm->start_ns;

    if (*storm->options.stop)
        return false;
    if (storm->retry_count > 0 && storm->retries[0].due_ns <= now_ns) {
        number = storm_retry_pop(storm);
    } else {
        if (storm->next_press == storm->press_count)
            return false;
        int64_t due_ns = plan->options.shape == RUSH_CLOSED
                             ? since_ns
                             : rush_plan_due_ns(plan, storm->next_press);
        if (due_ns > since_ns)
            return false;
        number = (uint32_t)storm->next_press++;
        struct rush_press *press = &storm->presses[number];
        press->due_ns = due_ns;
        press->sent_ns = since_ns;
        press->is_sent = true;
        storm->numbers.sent++;
        if (since_ns - due_ns > storm->numbers.slip_ns)
            storm->numbers.slip_ns = since_ns - due_ns;
    }
    struct rush_press *press = &storm->presses[number];
    press->tries++;
    storm_put_number(storm->request + storm->user_at, press->user);
    if (storm->key_at != 0)
        storm_put_number(storm->request + storm->key_at, number);
    *request = (struct span){storm->request, storm->request_length};
    *job = number;
    return true;
}

static int64_t storm_next_at_ns(void *context, int64_t now_ns)
{
    struct storm *storm = context;
    int64_t next_ns = WIRE_NEVER;

    if (*storm->options.stop)
        return WIRE_NEVER;
    if (storm->next_press < storm->press_count)
        next_ns = storm->options.plan->options.shape == RUSH_CLOSED
                      ? now_ns
                      : storm->start_ns + rush_plan_due_ns(storm->options.plan, storm->next_press);
    if (storm->retry_count > 0 && storm->retries[0].due_ns < next_ns)
        next_ns = storm->retries[0].due_ns;
    return next_ns;
}

static void storm_finish(struct storm *storm, struct rush_press *press, int64_t now_ns)
{
    press->answered_ns = now_ns - storm->start_ns;
    storm->numbers.answered++;
    storm->numbers.outcomes[press->outcome]++;
    histogram_record(&storm->latencies_us,
                     (uint64_t)((press->answered_ns - press->due_ns) / MICROSECOND_NS));
}

static void storm_answered(void *context, uint64_t job, int64_t now_ns,
                           const struct rush_reply *reply)
{
    struct storm *storm = context;
    struct rush_press *press = &storm->presses[job];
    struct rush_claim claim;

    rush_claim_read(reply, &claim);
    press->status = (uint16_t)reply->status;
    press->outcome = (uint8_t)claim.outcome;
    if ((claim.outcome == RUSH_BUSY || claim.outcome == RUSH_NONE) &&
        storm_tries_again(storm, (uint32_t)job, now_ns, reply->retry_after_s)) {
        /* A 503 says "not done" or "look it up"; only the next answer tells. */
        press->may_be_done = true;
        return;
    }
    press->seq = claim.seq;
    press->nth = claim.nth;
    press->is_issued = claim.is_issued;
    if (claim.outcome == RUSH_REFUSED && storm->first_refusal[0] == '\0')
        snprintf(storm->first_refusal, sizeof(storm->first_refusal), "%d %s", reply->status,
                 claim.code);
    storm_finish(storm, press, now_ns);
}

static void storm_failed(void *context, uint64_t job, int64_t now_ns, const char *why)
{
    struct storm *storm = context;
    struct rush_press *press = &storm->presses[job];

    storm->numbers.failures++;
    press->may_be_done = true;
    press->outcome = RUSH_NONE;
    press->status = 0;
    if (storm_tries_again(storm, (uint32_t)job, now_ns, 0))
        return;
    if (storm->first_refusal[0] == '\0')
        snprintf(storm->first_refusal, sizeof(storm->first_refusal), "%s", why);
    storm_finish(storm, press, now_ns);
}

static void storm_measure(struct storm *storm, int64_t now_ns)
{
    struct histogram_snapshot snapshot = {.count = 0};

    histogram_add_to(&storm->latencies_us, &snapshot);
    storm->numbers.p50_us = histogram_quantile(&snapshot, 0.50);
    storm->numbers.p99_us = histogram_quantile(&snapshot, 0.99);
    storm->numbers.elapsed_ns = now_ns - storm->start_ns;
    wire_count(storm->options.wire, &storm->numbers.wire);
}

static void storm_tick(void *context, int64_t now_ns)
{
    struct storm *storm = context;

    storm_measure(storm, now_ns);
    storm->options.tell(storm->options.context, &storm->numbers);
}

/* --- life --- */

enum status storm_run(struct storm *storm, const struct storm_options *options, struct error *error)
{
    size_t count = options->plan->press_count;

    *storm = (struct storm){.options = *options, .press_count = count};
    storm->presses = calloc(count, sizeof(*storm->presses));
    storm->retries = malloc(count * sizeof(*storm->retries));
    if (storm->presses == NULL || storm->retries == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for %zu presses", count);
    for (size_t i = 0; i < count; i++)
        storm->presses[i].user = options->plan->users[i];
    storm->numbers.press_count = count;
    storm->random = options->plan->options.seed | 1;
    enum status status = storm_write_request(storm, error);
    if (status != STATUS_OK)
        return status;
    storm->start_ns = clock_monotonic_ns();
    wire_run(options->wire, &(struct wire_caller){.next = storm_next,
                                                  .next_at_ns = storm_next_at_ns,
                                                  .answered = storm_answered,
                                                  .failed = storm_failed,
                                                  .tick = storm_tick,
                                                  .context = storm});
    storm_measure(storm, clock_monotonic_ns());
    /* What still waited for another try when it was stopped has no answer. */
    while (storm->retry_count > 0)
        storm_finish(storm, &storm->presses[storm_retry_pop(storm)], clock_monotonic_ns());
    return STATUS_OK;
}

void storm_release(struct storm *storm)
{
    free(storm->presses);
    free(storm->retries);
    storm->presses = NULL;
    storm->retries = NULL;
}
