/* storm.c: plans the presses, sends what is due, repeats what was not done, keeps the answers. */
#include "rush/storm.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define MICROSECOND_NS INT64_C(1000)
#define MILLISECOND_NS INT64_C(1000000)
#define SECOND_NS      INT64_C(1000000000)
#define BACKOFF_NS     (100 * MILLISECOND_NS)
#define BACKOFF_MAX_NS (2 * SECOND_NS)
#define NUMBER_DIGITS  8
#define REQUEST_MAX    6144
/* A user who presses twice does so while about so many others press. */
#define DUPLICATE_REACH 200

/* --- users' tokens --- */

#define HEAD         "eyJhbGciOiJIUzI1NiJ9." /* {"alg":"HS256"} */
#define HEAD_LENGTH  (sizeof(HEAD) - 1)
#define AUDIENCE_MAX 100
#define VARIANT      sodium_base64_VARIANT_URLSAFE_NO_PADDING

/* Characters of so many bytes in base64. */
static size_t signer_encoded(size_t length)
{
    return sodium_base64_encoded_len(length, VARIANT) - 1;
}

enum status rush_signer_init(struct rush_signer *signer, struct span key, const char *audience,
                             const char *run, int64_t expires_s, struct error *error)
{
    char user[RUSH_USER_SIZE];
    char wanted[AUDIENCE_MAX + 16] = "";

    if (key.length < SIGNER_KEY_MIN)
        return error_set(error, STATUS_INVALID, "the users' key has %zu bytes; it needs %d",
                         key.length, SIGNER_KEY_MIN);
    if (strlen(audience) > AUDIENCE_MAX || strpbrk(audience, "\"\\") != NULL)
        return error_set(error, STATUS_INVALID, "the audience is too long, or has a quote");
    if (audience[0] != '\0')
        snprintf(wanted, sizeof(wanted), ",\"aud\":\"%s\"", audience);
    crypto_auth_hmacsha256_init(&signer->keyed, (const unsigned char *)key.bytes, key.length);
    rush_user_name(user, run, 0);
    int length = snprintf(signer->claims, sizeof(signer->claims),
                          "{\"sub\":\"%s\",\"exp\":%" PRId64 "%s}", user, expires_s, wanted);
    ensure(length > 0 && (size_t)length < sizeof(signer->claims));
    signer->claims_length = (size_t)length;
    signer->number_at = strlen("{\"sub\":\"") + strlen(user) - NUMBER_DIGITS;
    signer->token_length = HEAD_LENGTH + signer_encoded(signer->claims_length) + 1 +
                           signer_encoded(crypto_auth_hmacsha256_BYTES);
    ensure(signer->token_length < SIGNER_TOKEN_SIZE);
    return STATUS_OK;
}

/* Writes the token of that user, token_length characters without a NUL. */
static void rush_signer_write(struct rush_signer *signer, uint32_t user, char *token)
{
    crypto_auth_hmacsha256_state state = signer->keyed;
    unsigned char mac[crypto_auth_hmacsha256_BYTES];
    char text[SIGNER_TOKEN_SIZE] = HEAD;
    size_t length = HEAD_LENGTH;

    for (int i = NUMBER_DIGITS - 1; i >= 0; i--, user /= 10)
        signer->claims[signer->number_at + (size_t)i] = (char)('0' + user % 10);
    sodium_bin2base64(text + length, sizeof(text) - length, (unsigned char *)signer->claims,
                      signer->claims_length, VARIANT);
    length += signer_encoded(signer->claims_length);
    crypto_auth_hmacsha256_update(&state, (unsigned char *)text, length);
    crypto_auth_hmacsha256_final(&state, mac);
    text[length++] = '.';
    sodium_bin2base64(text + length, sizeof(text) - length, mac, sizeof(mac), VARIANT);
    memcpy(token, text, signer->token_length);
}

struct storm_retry {
    int64_t due_ns;
    uint32_t press;
};

/* --- the plan --- */

/* splitmix64: numbers in a row become numbers in no order. */
static uint64_t rush_random(uint64_t *state)
{
    uint64_t x = (*state += UINT64_C(0x9e3779b97f4a7c15));
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t rush_random_below(uint64_t *state, uint64_t limit)
{
    return (uint64_t)(((unsigned __int128)rush_random(state) * limit) >> 64);
}

/* How many presses the duration holds; 0: it does not say. */
static double rush_plan_wanted(const struct rush_plan_options *options)
{
    switch (options->shape) {
    case RUSH_STEADY:
        return options->rate_per_s * options->duration_s;
    case RUSH_RAMP:
        return options->rate_per_s * options->duration_s / 2;
    case RUSH_BURSTS:
        return ceil(options->duration_s * (double)SECOND_NS / (double)options->burst_interval_ns) *
               options->burst_size;
    case RUSH_CLOSED:
        break;
    }
    return 0;
}

static int rush_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* Presses sorted by place: a user's own place, and for a second press one a little behind. */
static size_t rush_plan_order(const struct rush_plan_options *options, uint64_t *places,
                              uint64_t *random)
{
    size_t count = 0;

    for (uint64_t user = 0; user < options->user_count; user++) {
        places[count++] = user << 32 | user;
        /* A thousandth at a time is fine enough for a share. */
        if (rush_random_below(random, 100000) < (uint64_t)(options->duplicate_share * 100000))
            places[count++] = (user + 1 + rush_random_below(random, DUPLICATE_REACH)) << 32 | user;
    }
    qsort(places, count, sizeof(*places), rush_compare);
    return count;
}

enum status rush_plan_make(struct rush_plan *plan, const struct rush_plan_options *options,
                           struct error *error)
{
    double wanted = rush_plan_wanted(options);
    uint64_t random = options->seed;

    *plan = (struct rush_plan){.options = *options};
    if (wanted > RUSH_PRESSES_MAX)
        return error_set(error, STATUS_INVALID,
                         "that makes %.0f presses; at most %d fit into one storm", wanted,
                         RUSH_PRESSES_MAX);
    uint64_t *places = malloc((size_t)options->user_count * 2 * sizeof(*places));
    if (places == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the plan");
    size_t count = rush_plan_order(options, places, &random);
    plan->press_count = wanted > 0 ? (size_t)wanted : count;
    if (plan->press_count == 0)
        plan->press_count = 1;
    plan->users = malloc(plan->press_count * sizeof(*plan->users));
    for (size_t i = 0; plan->users != NULL && i < plan->press_count; i++)
        plan->users[i] = i < count ? (uint32_t)places[i]
                                   : (uint32_t)rush_random_below(&random, options->user_count);
    free(places);
    return plan->users != NULL ? STATUS_OK
                               : error_set(error, STATUS_UNAVAILABLE, "no memory for the plan");
}

void rush_plan_release(struct rush_plan *plan)
{
    free(plan->users);
    *plan = (struct rush_plan){0};
}

int64_t rush_plan_due_ns(const struct rush_plan *plan, size_t press)
{
    const struct rush_plan_options *options = &plan->options;

    switch (options->shape) {
    case RUSH_STEADY:
        return (int64_t)((double)press * (double)SECOND_NS / options->rate_per_s);
    case RUSH_RAMP:
        /* By the time t the ramp of length T has sent rate * t^2 / 2T; without a duration it is as
         * long as all presses need. */
        return (int64_t)(sqrt((double)press * (double)plan->press_count) * 2 * (double)SECOND_NS /
                         options->rate_per_s);
    case RUSH_BURSTS:
        return (int64_t)(press / options->burst_size) * options->burst_interval_ns;
    case RUSH_CLOSED:
        break;
    }
    return 0;
}

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

/* Where the text is in the request. */
static size_t storm_find(const struct buffer *request, const char *text)
{
    const char *found = memmem(request->bytes, request->length, text, strlen(text));

    ensure(found != NULL);
    return (size_t)(found - request->bytes);
}

/* All requests are alike but for the digits of user and key, and the user's token. */
static enum status storm_write_request(struct storm *storm, struct error *error)
{
    const struct storm_options *options = &storm->options;
    char user[RUSH_USER_SIZE];
    char path[64];
    char body[64];
    char key[80] = "";
    char token[SIGNER_TOKEN_SIZE] = "";
    struct wire_target target = *options->target;

    rush_user_name(user, options->run, 0);
    snprintf(path, sizeof(path), "/v1/policies/%" PRId64 "/claims", options->policy_id);
    snprintf(body, sizeof(body), "{\"user\":\"%s\"}", user);
    if (options->sends_keys)
        snprintf(key, sizeof(key), "Idempotency-Key: rush-%.8s-%08u\r\n", options->run, 0);
    if (options->signer != NULL) {
        rush_signer_write(options->signer, 0, token);
        target.token = token;
    }
    buffer_init(&storm->request, REQUEST_MAX);
    wire_append_request(&storm->request, &target, "POST", path, key, span_of(body));
    if (storm->request.overflowed)
        return error_set(error, STATUS_INVALID, "the URL and the token make too long a request");
    storm->user_at = storm->request.length - strlen("\"}") - NUMBER_DIGITS;
    if (options->signer != NULL)
        storm->token_at = storm_find(&storm->request, token);
    if (options->sends_keys)
        storm->key_at = storm->request.length - strlen(body) - strlen("\r\n\r\n") - NUMBER_DIGITS;
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
    storm_put_number(storm->request.bytes + storm->user_at, press->user);
    if (storm->token_at != 0)
        rush_signer_write(storm->options.signer, press->user,
                          storm->request.bytes + storm->token_at);
    if (storm->key_at != 0)
        storm_put_number(storm->request.bytes + storm->key_at, number);
    *request = buffer_span(&storm->request);
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

/* The last place is for all that find no other. */
static void storm_count_refusal(struct storm_numbers *numbers, int status, const char *code)
{
    char text[sizeof(numbers->refusals[0].text)];
    size_t at = 0;

    snprintf(text, sizeof(text), "%d %s", status, code);
    while (at < numbers->refusal_count && at < STORM_REFUSALS_MAX - 1 &&
           strcmp(numbers->refusals[at].text, text) != 0)
        at++;
    if (at == numbers->refusal_count) {
        snprintf(numbers->refusals[at].text, sizeof(text), "%s",
                 at == STORM_REFUSALS_MAX - 1 ? "others" : text);
        numbers->refusal_count++;
    }
    numbers->refusals[at].count++;
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
    if (claim.outcome == RUSH_REFUSED)
        storm_count_refusal(&storm->numbers, reply->status, claim.code);
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
    if (storm->first_failure[0] == '\0')
        snprintf(storm->first_failure, sizeof(storm->first_failure), "%s", why);
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
    buffer_release(&storm->request);
    storm->presses = NULL;
    storm->retries = NULL;
}
