/* start_wait.c: pauses between the tries of a start, and tells the operator about them. */
#include "claim/start_wait.h"

#include <time.h>

#include "base/clock.h"
#include "base/log.h"

#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 1000
#define SAY_EVERY_MS 5000

static bool start_wait_passes(enum status status)
{
    return status == STATUS_UNAVAILABLE || status == STATUS_BUSY || status == STATUS_UNKNOWN;
}

static void start_wait_say(struct start_wait *wait, int64_t now_ms, const struct error *error)
{
    if (wait->said_ms != 0 && now_ms - wait->said_ms < SAY_EVERY_MS)
        return;
    wait->said_ms = now_ms;
    log_event(LOG_WARN, "start_waits",
              LOG_FIELD("waited_s", LOG_I64((now_ms - wait->since_ms) / 1000)),
              LOG_FIELD("start_timeout_s", LOG_I64(wait->timeout_ms / 1000)),
              LOG_FIELD("for", LOG_TEXT(error->text)));
}

static void start_wait_pause(struct start_wait *wait)
{
    wait->pause_ms = wait->pause_ms == 0 ? PAUSE_MIN_MS : wait->pause_ms * 2;
    if (wait->pause_ms > PAUSE_MAX_MS)
        wait->pause_ms = PAUSE_MAX_MS;
    nanosleep(&(struct timespec){.tv_sec = wait->pause_ms / 1000,
                                 .tv_nsec = wait->pause_ms % 1000 * 1000000},
              NULL);
}

bool start_wait_again(struct start_wait *wait, enum status status, struct error *error)
{
    int64_t now_ms = clock_monotonic_ms();

    if (status == STATUS_OK && wait->said_ms != 0) {
        log_event(LOG_INFO, "start_goes_on",
                  LOG_FIELD("waited_ms", LOG_I64(now_ms - wait->since_ms)));
        wait->said_ms = 0;
        wait->pause_ms = 0;
    }
    if (!start_wait_passes(status) || wait->timeout_ms == 0)
        return false;
    if (wait->since_ms == 0)
        wait->since_ms = now_ms;
    if (now_ms - wait->since_ms >= wait->timeout_ms) {
        error_prefix(error, "given up after %lld s (start_timeout)",
                     (long long)(wait->timeout_ms / 1000));
        return false;
    }
    start_wait_say(wait, now_ms, error);
    start_wait_pause(wait);
    return true;
}
