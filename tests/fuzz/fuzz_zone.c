/* fuzz_zone.c: any bytes as a file of the tz database: never a crash, and a zone that is taken has
 * days that hold together. */
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/zone.h"

#define OFFSET_MAX_S INT64_C(93600)
#define STEP_MS      INT64_C(9876543211) /* not a whole number of anything */
#define PROBES       64

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* An instant belongs to a day that has begun by then, and the next one has not begun before it. */
static void check_instant(const struct zone *zone, int64_t wall_ms)
{
    int64_t offset_s = zone_offset_s(zone, wall_ms);
    int64_t day = zone_day(zone, wall_ms);
    int64_t start_ms = zone_day_start_ms(zone, day);

    ensure(offset_s >= -OFFSET_MAX_S && offset_s <= OFFSET_MAX_S);
    ensure(start_ms <= wall_ms);
    ensure(zone_day(zone, start_ms) >= day);
    ensure(zone_day_start_ms(zone, day + 1) >= start_ms);
}

static void check_text(struct span text)
{
    char again[ZONE_DAY_TEXT_SIZE];
    int64_t day;

    if (!zone_parse_day(text, &day))
        return;
    zone_format_day(day, again);
    ensure(span_equal(span_of(again), text));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct span file = {(const char *)bytes, size};
    struct zone *zone = NULL;
    struct error error = {""};

    check_text(file);
    if (zone_read(&zone, "Some/Where", file, &error) != STATUS_OK) {
        ensure(zone == NULL && error.text[0] != '\0');
        return 0;
    }
    for (int64_t i = 0; i < PROBES; i++)
        check_instant(zone, i * STEP_MS);
    check_instant(zone, CLOCK_WALL_MAX_MS);
    zone_free(zone);
    return 0;
}
