/* preflight.c: how each part of the service stands; before a drop, looks at all that it needs and
 * judges what it sees. */
#include "claim/preflight.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>

#include "base/clock.h"
#include "claim/parts.h"

/* What a coupon takes at most in a table and its indexes, and what the logs of changes need. */
#define COUPON_BYTES    400
#define LOG_BYTES       (INT64_C(64) * 1024 * 1024)
#define MEGABYTE        (INT64_C(1024) * 1024)
#define AHEAD_WARN_MS   100
#define AHEAD_FAIL_MS   1000
#define LEDGER_SLOW_MS  100
#define SECONDS_PER_DAY INT64_C(86400)

__attribute__((format(printf, 3, 4))) static struct preflight_check check_of(
    const char *name, enum preflight_state state, const char *format, ...)
{
    struct preflight_check check = {.name = name, .state = state};
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(check.text, sizeof(check.text), format, arguments);
    va_end(arguments);
    return check;
}

static void add(struct preflight *preflight, struct preflight_check check)
{
    ensure(preflight->count < PREFLIGHT_CHECKS_MAX);
    preflight->checks[preflight->count++] = check;
}

/* "2 d 3 h", "3 h 5 min", "5 min 7 s", "7 s". */
static void write_duration(int64_t duration_ms, char text[48])
{
    int64_t seconds = (duration_ms + 999) / 1000;

    if (seconds >= SECONDS_PER_DAY)
        snprintf(text, 48, "%lld d %lld h", (long long)(seconds / SECONDS_PER_DAY),
                 (long long)(seconds % SECONDS_PER_DAY / 3600));
    else if (seconds >= 3600)
        snprintf(text, 48, "%lld h %lld min", (long long)(seconds / 3600),
                 (long long)(seconds % 3600 / 60));
    else if (seconds >= 60)
        snprintf(text, 48, "%lld min %lld s", (long long)(seconds / 60), (long long)(seconds % 60));
    else
        snprintf(text, 48, "%lld s", (long long)seconds);
}

/* --- how each part of the service stands, in words for people and probes --- */

/* A policy that is suspended, or was paused for a broken guarantee, is worth a word, but keeps
 * nobody from the others. */
static void service_add_audit(struct service *service, struct service_part *part)
{
    char text[200];
    size_t length = strlen(part->text);

    sync_lost_text(service->sync, text, sizeof(text));
    if (text[0] == '\0')
        audit_watch_text(service->audit_watch, text, sizeof(text));
    if (text[0] != '\0')
        snprintf(part->text + length, sizeof(part->text) - length, "; %s", text);
}

/* Events that wait are worth a word, but keep nobody from claiming. False: none wait. */
static bool service_add_events(struct service *service, enum ledger_sink sink,
                               struct service_part *part)
{
    struct announcer *announcer = atomic_load(&service->announcers[sink]);
    struct announcer_numbers numbers = {.state = ANNOUNCER_FLOWS};

    if (announcer != NULL)
        announcer_count(announcer, &numbers);
    if (numbers.state != ANNOUNCER_HELD_UP)
        return false;
    size_t length = strlen(part->text);
    int64_t age_ms = numbers.oldest_at_ms == 0 ? 0 : clock_wall_ms() - numbers.oldest_at_ms;
    snprintf(part->text + length, sizeof(part->text) - length,
             "; %lld events wait, the oldest for %lld s: %s", (long long)numbers.waiting,
             (long long)(age_ms / 1000), numbers.text);
    return true;
}

/* How the webhook does that this process delivers to. */
static struct service_part service_webhook_part(struct service *service)
{
    struct service_part part = {.name = "webhook", .kind = "https", .claims_go_on = true};
    struct announcer_numbers numbers;

    announcer_count(atomic_load(&service->announcers[LEDGER_SINK_WEBHOOK]), &numbers);
    snprintf(part.text, sizeof(part.text), "%s",
             numbers.is_given_up
                 ? "disabled, as it fails for a day; `dibs webhook enable` tries again"
                 : "ok");
    part.ready = !service_add_events(service, LEDGER_SINK_WEBHOOK, &part);
    return part;
}

/* Claims without a worker are won and wait. */
static struct service_part service_workers_part(struct service *service)
{
    struct service_part part = {
        .name = "workers",
        .kind = service->workers != NULL ? "in process" : "processes",
        .ready = service_worker_count(service) != 0,
        .claims_go_on = true,
    };

    snprintf(part.text, sizeof(part.text), "%s",
             part.ready ? "ok"
                        : "none is alive: claims are taken, and none becomes a coupon; start "
                          "`dibs worker`");
    return part;
}

/* People who claim need no broker: it is only told how Kafka stands, but for a worker that carries
 * claims through it. */
static struct service_part service_relay_part(struct service *service)
{
    struct service_part part = {
        .name = "relay", .kind = "direct", .ready = true, .claims_go_on = true, .text = "ok"};
    struct error failure;

    if (service->kafka != NULL) {
        part.kind = "kafka";
        part.ready = kafka_is_ready(service->kafka, &failure) ||
                     service->options.role != SERVICE_WORKS ||
                     service->kafka->target.claims_are_direct;
        snprintf(part.text, sizeof(part.text), "%.255s", failure.text);
    }
    service_add_events(service, LEDGER_SINK_KAFKA, &part);
    return part;
}

bool service_parts(struct service *service, struct service_part parts[SERVICE_PARTS], size_t *count)
{
    struct error failure;
    bool all_ready = true;

    parts[0] = (struct service_part){.name = "gate",
                                     .kind = service->gate->ops->name,
                                     .claims_go_on = service->options.fallback == FALLBACK_LEDGER};
    parts[0].ready = service->topology->is_ready(service, &failure);
    snprintf(parts[0].text, sizeof(parts[0].text), "%.255s", failure.text);
    ledger_state(service->ledger, &failure);
    parts[1] = (struct service_part){.name = "ledger",
                                     .kind = ledger_kind(service->ledger),
                                     .ready = ledger_healthy(service->ledger),
                                     .claims_go_on = service->topology->gate_is_outside};
    snprintf(parts[1].text, sizeof(parts[1].text), "%.255s", failure.text);
    service_add_audit(service, &parts[1]);
    parts[2] = service_relay_part(service);
    bool has_doubts = steward_has_doubts(&service->steward);
    parts[3] = (struct service_part){
        .name = "steward",
        .kind = "in process",
        .ready = !has_doubts,
        .claims_go_on = true,
    };
    snprintf(parts[3].text, sizeof(parts[3].text), "%s",
             has_doubts ? "the gate waits to hear what the ledger made of a change" : "ok");
    for (size_t i = 0; i < 4; i++)
        all_ready = all_ready && parts[i].ready;
    parts[4] = service_workers_part(service);
    *count = service->topology->part_count;
    if (atomic_load(&service->announcers[LEDGER_SINK_WEBHOOK]) != NULL)
        parts[(*count)++] = service_webhook_part(service);
    return all_ready;
}

/* --- the judgements --- */

struct preflight_check preflight_judge_window(const struct gate_numbers *numbers, int64_t now_ms)
{
    char until[48];

    switch (numbers->state) {
    case POLICY_CLOSED:
        return check_of("window", PREFLIGHT_FAIL, "The policy is closed: nobody can claim.");
    case POLICY_PAUSED:
        return check_of("window", PREFLIGHT_WARN,
                        "The policy is paused: nobody can claim until it is resumed.");
    case POLICY_SCHEDULED:
        write_duration(numbers->opens_at_ms - now_ms, until);
        return check_of("window", PREFLIGHT_OK, "Opens in %s.", until);
    default:
        if (numbers->closes_at_ms == 0)
            return check_of("window", PREFLIGHT_OK, "Open, until it is closed by hand.");
        write_duration(numbers->closes_at_ms - now_ms, until);
        return check_of("window", PREFLIGHT_OK, "Open, and closes in %s.", until);
    }
}

struct preflight_check preflight_judge_stock(const struct gate_numbers *numbers)
{
    if (numbers->remaining > 0)
        return check_of("stock", PREFLIGHT_OK, "%lld of %lld coupons can be claimed.",
                        (long long)numbers->remaining, (long long)numbers->total);
    return check_of("stock", numbers->state == POLICY_CLOSED ? PREFLIGHT_WARN : PREFLIGHT_FAIL,
                    "None of the %lld coupons is left.", (long long)numbers->total);
}

/* Where claims go on from the reserve while the gate is away: whether there is one. */
static struct preflight_check preflight_judge_reserve(const struct policy *policy)
{
    if (policy->reserve == 0)
        return check_of("reserve", PREFLIGHT_WARN,
                        "fallback=ledger serves claims from the reserve while Redis is away, and "
                        "this policy has none: they would get 503.");
    return check_of("reserve", PREFLIGHT_OK,
                    "Up to %lld coupons are kept for claims while Redis is away.",
                    (long long)policy->reserve);
}

struct preflight_check preflight_judge_clock(int64_t ahead_ms, bool is_synced)
{
    int64_t apart_ms = ahead_ms < 0 ? -ahead_ms : ahead_ms;

    if (apart_ms > AHEAD_WARN_MS)
        return check_of("clock", apart_ms > AHEAD_FAIL_MS ? PREFLIGHT_FAIL : PREFLIGHT_WARN,
                        "Redis judges the window, and its clock is %lld ms %s this server's; let "
                        "both follow the same time service.",
                        (long long)apart_ms, ahead_ms > 0 ? "ahead of" : "behind");
    if (!is_synced)
        return check_of("clock", PREFLIGHT_WARN,
                        "No time service keeps this machine's clock right, says its kernel; "
                        "compare it before the drop.");
    return check_of("clock", PREFLIGHT_OK, "The clocks agree to %lld ms.", (long long)apart_ms);
}

/* "445 MB", "79 GB". */
static const char *size_text(int64_t bytes, char text[32])
{
    long long megabytes = (long long)(bytes / MEGABYTE);

    if (megabytes < 10000)
        snprintf(text, 32, "%lld MB", megabytes);
    else
        snprintf(text, 32, "%lld GB", megabytes / 1000);
    return text;
}

struct preflight_check preflight_judge_disk(int64_t free_bytes, int64_t coupons)
{
    int64_t wanted = coupons * COUPON_BYTES + LOG_BYTES;
    char free_text[32];
    char wanted_text[32];

    size_text(wanted, wanted_text);
    if (free_bytes < 0)
        return check_of("disk", PREFLIGHT_OK,
                        "The database's disk is not seen from here; it needs about %s free.",
                        wanted_text);
    return check_of("disk",
                    free_bytes < wanted       ? PREFLIGHT_FAIL
                    : free_bytes < 2 * wanted ? PREFLIGHT_WARN
                                              : PREFLIGHT_OK,
                    "%s are free under the ledger, and it may need %s.",
                    size_text(free_bytes, free_text), wanted_text);
}

struct preflight_check preflight_judge_loss(enum gate_loss loss, int replicas)
{
    switch (loss) {
    case GATE_LOSES_ACCEPTED:
        return check_of("loss", PREFLIGHT_OK,
                        "Nothing that was answered 201: a winner is told when the ledger has the "
                        "coupon. A 202 after ack_timeout is only in Redis until then.");
    case GATE_LOSES_PENDING:
        return check_of("loss", PREFLIGHT_FAIL,
                        "Redis writes no append-only file: a crash of it loses every 202 that is "
                        "not in the ledger yet. Set appendonly yes and appendfsync always.");
    case GATE_LOSES_SECONDS:
        return check_of("loss", PREFLIGHT_WARN,
                        "A crash of Redis may lose up to 2 s of 202s, a failover the last ones. "
                        "appendfsync always, or ack=ledger, lose nothing at a crash.");
    case GATE_LOSES_AT_FAILOVER:
        if (replicas > 0)
            return check_of("loss", PREFLIGHT_OK,
                            "A crash of Redis loses nothing; a failover only if the replica that "
                            "takes over is none of the %d that had the win when it was told.",
                            replicas);
        return check_of("loss", PREFLIGHT_OK,
                        "A crash of Redis loses nothing; a failover may lose the last 202s "
                        "(replicas=1 waits for a replica, ack=ledger for the ledger).");
    default:
        return check_of("loss", PREFLIGHT_OK,
                        "Nothing: a winner is told when the ledger has the coupon on disk.");
    }
}

/* --- looking --- */

/* `counted` is what became of asking for the policy's numbers, and `words` why. */
static void check_gate(struct service *service, int64_t policy_id, enum status counted,
                       struct error *failure, struct preflight *preflight)
{
    bool is_well =
        counted == STATUS_OK && service->topology->check(service, policy_id, failure) == STATUS_OK;

    if (is_well)
        error_set(failure, STATUS_OK, "The %s gate knows the policy and decides.",
                  service->gate->ops->name);
    add(preflight,
        check_of("gate", is_well ? PREFLIGHT_OK : PREFLIGHT_FAIL, "%.400s", failure->text));
}

static void check_ledger(struct service *service, int64_t policy_id, struct preflight *preflight)
{
    struct error failure;
    struct policy policy;
    int64_t asked_ms = clock_monotonic_ms();
    enum status status = ledger_policy_get(service->ledger, policy_id, &policy, &failure);
    long long took_ms = (long long)(clock_monotonic_ms() - asked_ms);

    if (!ledger_healthy(service->ledger)) {
        ledger_state(service->ledger, &failure);
        status = STATUS_UNAVAILABLE;
    }
    if (status != STATUS_OK) {
        add(preflight, check_of("ledger", PREFLIGHT_FAIL, "%.400s", failure.text));
        return;
    }
    if (service->fallback != NULL && service->options.fallback == FALLBACK_LEDGER)
        add(preflight, preflight_judge_reserve(&policy));
    add(preflight,
        check_of("ledger", took_ms > LEDGER_SLOW_MS ? PREFLIGHT_WARN : PREFLIGHT_OK,
                 "%s answered in %lld ms, and commits.", ledger_kind(service->ledger), took_ms));
}

/* Relay, steward, workers and webhook, as /readyz sees them. Nobody has to wait for the last. */
static void check_parts(struct service *service, struct preflight *preflight)
{
    struct service_part parts[SERVICE_PARTS];
    size_t count;

    (void)service_parts(service, parts, &count);
    for (size_t i = 2; i < count; i++) {
        bool is_webhook = strcmp(parts[i].name, "webhook") == 0;
        enum preflight_state missing = is_webhook ? PREFLIGHT_WARN : PREFLIGHT_FAIL;
        add(preflight,
            check_of(parts[i].name, parts[i].ready ? PREFLIGHT_OK : missing, "%s", parts[i].text));
    }
}

static bool clock_is_synced(void)
{
    struct timex state = {.modes = 0};

    /* A kernel that does not tell is given the benefit of the doubt. */
    return adjtimex(&state) == -1 || (state.status & STA_UNSYNC) == 0;
}

/* What only a gate that is there can tell. */
static void check_survey(struct service *service, int64_t policy_id, struct preflight *preflight)
{
    struct gate_survey survey;
    struct error failure;

    if (service->topology->survey(service, policy_id, &survey, &failure) != STATUS_OK) {
        add(preflight, check_of("clock", PREFLIGHT_FAIL, "Not known: %.400s", failure.text));
        add(preflight, check_of("loss", PREFLIGHT_WARN, "Not known: %.400s", failure.text));
        return;
    }
    add(preflight, preflight_judge_clock(survey.ahead_ms, clock_is_synced()));
    add(preflight, preflight_judge_loss(survey.loss, service->options.replicas));
}

enum status service_preflight(struct service *service, int64_t policy_id,
                              struct preflight *preflight, struct error *error)
{
    struct gate_numbers numbers = {0};
    struct error why = {.text = ""};
    enum status counted =
        service->topology->numbers(service, policy_id, NUMBERS_KNOWN, &numbers, &why);

    if (counted != STATUS_OK) {
        struct policy policy;
        enum status status = ledger_policy_get(service->ledger, policy_id, &policy, error);
        if (status != STATUS_OK)
            return status;
        numbers.total = policy.total;
        numbers.remaining = policy.total;
    }
    *preflight = (struct preflight){.now_ms = clock_wall_ms()};
    check_gate(service, policy_id, counted, &why, preflight);
    if (counted == STATUS_OK) {
        add(preflight, preflight_judge_stock(&numbers));
        add(preflight, preflight_judge_window(&numbers, preflight->now_ms));
    }
    check_ledger(service, policy_id, preflight);
    add(preflight, preflight_judge_disk(ledger_room(service->ledger), numbers.remaining));
    check_parts(service, preflight);
    check_survey(service, policy_id, preflight);
    return STATUS_OK;
}

bool preflight_is_ready(const struct preflight *preflight)
{
    for (size_t i = 0; i < preflight->count; i++)
        if (preflight->checks[i].state == PREFLIGHT_FAIL)
            return false;
    return true;
}

const char *preflight_state_name(enum preflight_state state)
{
    static const char *const names[] = {
        [PREFLIGHT_OK] = "ok", [PREFLIGHT_WARN] = "warn", [PREFLIGHT_FAIL] = "fail"};

    return names[state];
}
