/* zone.h: calendar days in a time zone.
 *
 * A day is a number: days since 1970-01-01 in the proleptic Gregorian calendar. Which day an
 * instant belongs to depends on the zone: its days have 23, 25 or 24½ hours when clocks are
 * changed, and one may be missing (Apia had no 2011-12-30). Rules come from the system's tz
 * database, one file per zone, read once; nothing of the process's own zone (TZ, tzset) is used or
 * changed.
 *
 * Threads: a zone does not change once it is open; any thread may ask it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

#define ZONE_NAME_LENGTH_MAX 64

struct zone;

/* --- life cycle --- */

/* Reads the rules of an IANA name, as in "Europe/Berlin". "UTC" needs no files. INVALID: there is
 * no such zone, or its file is not one; the words say what to do. */
enum status zone_open(struct zone **zone, const char *name, struct error *error) MUST_CHECK;

/* The same from the bytes of a TZif file (RFC 8536), version 2 or later. */
enum status zone_read(struct zone **zone, const char *name, struct span file,
                      struct error *error) MUST_CHECK;

/* NULL is fine. */
void zone_free(struct zone *zone);

/* UTC, which is always there and never freed. */
const struct zone *zone_utc(void);

/* --- operations --- */

const char *zone_name(const struct zone *zone);

/* What the zone's clocks are ahead of UTC at that instant. */
int64_t zone_offset_s(const struct zone *zone, int64_t wall_ms);

/* The day that an instant belongs to. Where clocks are set back over midnight, an instant of the
 * hour that comes twice belongs to the day that the clocks show. */
int64_t zone_day(const struct zone *zone, int64_t wall_ms);

/* The first instant of a day; of a day that the zone left out, the first of the next. */
int64_t zone_day_start_ms(const struct zone *zone, int64_t day);

/* --- days as text --- */

#define ZONE_DAY_TEXT_SIZE 11
/* "2026-11-15"; years 0 to 9999. */
void zone_format_day(int64_t day, char text[ZONE_DAY_TEXT_SIZE]);
/* False for everything else, also for days that do not exist. */
bool zone_parse_day(struct span text, int64_t *day);
