/* zone.c: reads TZif files (RFC 8536) and answers which day it is.
 *
 * A file has a table of the changes that are known, and a footer in the words of POSIX's TZ for all
 * time after them. Both are read as a series of spans of time, in each of which the zone's clocks
 * are a fixed number of seconds ahead of UTC. */
#include "base/zone.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

#define ZONEINFO_FOLDER "/usr/share/zoneinfo"
#define FILE_LENGTH_MAX ((size_t)256 * 1024)
#define HEADER_LENGTH   44
#define DAY_S           INT64_C(86400)
#define HOUR_S          INT64_C(3600)
#define OFFSET_MAX_S    (26 * HOUR_S)
#define CHANGES_MAX     100000
#define TYPES_MAX       256
#define RULE_TIME_USUAL (2 * HOUR_S)

/* When clocks are changed, every year: as POSIX has it. */
enum zone_rule_kind {
    RULE_MONTH,      /* Mm.w.d: the week'th weekday of a month, 5 being the last */
    RULE_JULIAN,     /* Jn: day 1 to 365, 29 February is never counted */
    RULE_DAY_OF_YEAR /* n: day 0 to 365, 29 February is counted */
};

struct zone_rule {
    enum zone_rule_kind kind;
    int month;
    int week;
    int day;
    int64_t time_s; /* of that day, by the clocks as they are before */
};

struct zone_change {
    int64_t at_s;
    int64_t offset_s; /* from then on */
};

struct zone {
    char name[ZONE_NAME_LENGTH_MAX + 1];
    int64_t first_offset_s; /* before all changes */
    struct zone_change *changes;
    size_t change_count;
    /* After all changes; without a footer the last change holds for ever. */
    bool has_footer;
    bool has_rules;
    int64_t standard_s;
    int64_t summer_s;
    struct zone_rule starts; /* of summer time */
    struct zone_rule ends;
};

static const struct zone zone_of_utc = {.name = "UTC"};

const struct zone *zone_utc(void)
{
    return &zone_of_utc;
}

const char *zone_name(const struct zone *zone)
{
    return zone->name;
}

/* --- the footer's rules --- */

static int64_t zone_floor(int64_t number, int64_t by)
{
    return number / by - (number % by < 0);
}

static bool zone_is_leap(int64_t year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* Days from 1970-01-01 to the first of a year. */
static int64_t zone_year_start(int64_t year)
{
    int64_t before = year - 1;
    return 365 * (year - 1970) + (zone_floor(before, 4) - 492) - (zone_floor(before, 100) - 19) +
           (zone_floor(before, 400) - 4);
}

static int64_t zone_year_of_day(int64_t day)
{
    int64_t year = 1970 + zone_floor(day * 400, 146097);

    while (zone_year_start(year) > day)
        year--;
    while (zone_year_start(year + 1) <= day)
        year++;
    return year;
}

static int64_t zone_month_start(int64_t year, int month)
{
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
    return zone_year_start(year) + before[month - 1] + (month > 2 && zone_is_leap(year));
}

static int64_t zone_rule_day(const struct zone_rule *rule, int64_t year)
{
    if (rule->kind == RULE_JULIAN)
        return zone_year_start(year) + rule->day - 1 + (rule->day >= 60 && zone_is_leap(year));
    if (rule->kind == RULE_DAY_OF_YEAR)
        return zone_year_start(year) + rule->day;
    int64_t first = zone_month_start(year, rule->month);
    int64_t next_month =
        rule->month == 12 ? zone_year_start(year + 1) : zone_month_start(year, rule->month + 1);
    int64_t weekday = ((first + 4) % 7 + 7) % 7; /* 1970-01-01 was a Thursday; Sunday is 0 */
    int64_t day = first + (rule->day - weekday + 7) % 7 + 7 * (rule->week - 1);
    while (day >= next_month)
        day -= 7;
    return day;
}

/* The instant of a rule in a year, by clocks that are so far ahead of UTC. */
static int64_t zone_rule_at(const struct zone_rule *rule, int64_t year, int64_t offset_s)
{
    return zone_rule_day(rule, year) * DAY_S + rule->time_s - offset_s;
}

/* --- spans --- */

/* From an instant on, the zone's clocks are `offset_s` ahead until `end_s`. */
struct zone_span {
    int64_t offset_s;
    int64_t end_s;
};

/* The rules' changes of three years around the instant are looked at: a rule's time may be a week
 * off its day. */
static struct zone_span zone_span_by_rules(const struct zone *zone, int64_t at_s)
{
    struct zone_span span = {.offset_s = zone->standard_s, .end_s = INT64_MAX};
    int64_t year = zone_year_of_day(zone_floor(at_s + zone->standard_s, DAY_S));
    int64_t latest_s = INT64_MIN;

    if (!zone->has_rules)
        return span;
    for (int64_t y = year - 1; y <= year + 1; y++) {
        const struct zone_change changes[] = {
            {zone_rule_at(&zone->starts, y, zone->standard_s), zone->summer_s},
            {zone_rule_at(&zone->ends, y, zone->summer_s), zone->standard_s}};
        for (size_t i = 0; i < 2; i++) {
            if (changes[i].at_s > at_s && changes[i].at_s < span.end_s)
                span.end_s = changes[i].at_s;
            /* Summer time all the year ends in the moment it begins: then it goes on. */
            if (changes[i].at_s <= at_s &&
                (changes[i].at_s > latest_s || (changes[i].at_s == latest_s && i == 0))) {
                latest_s = changes[i].at_s;
                span.offset_s = changes[i].offset_s;
            }
        }
    }
    return span;
}

static struct zone_span zone_span_at(const struct zone *zone, int64_t at_s)
{
    size_t low = 0;

    for (size_t high = zone->change_count; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (zone->changes[middle].at_s <= at_s)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < zone->change_count)
        return (struct zone_span){.offset_s = low == 0 ? zone->first_offset_s
                                                       : zone->changes[low - 1].offset_s,
                                  .end_s = zone->changes[low].at_s};
    if (zone->has_footer)
        return zone_span_by_rules(zone, at_s);
    return (struct zone_span){.offset_s =
                                  low == 0 ? zone->first_offset_s : zone->changes[low - 1].offset_s,
                              .end_s = INT64_MAX};
}

int64_t zone_offset_s(const struct zone *zone, int64_t wall_ms)
{
    return zone_span_at(zone, zone_floor(wall_ms, 1000)).offset_s;
}

int64_t zone_day(const struct zone *zone, int64_t wall_ms)
{
    int64_t at_s = zone_floor(wall_ms, 1000);
    return zone_floor(at_s + zone_span_at(zone, at_s).offset_s, DAY_S);
}

/* Goes through the spans around that midnight until one has an instant of the day or a later one.
 */
int64_t zone_day_start_ms(const struct zone *zone, int64_t day)
{
    int64_t at_s = day * DAY_S - OFFSET_MAX_S;

    for (;;) {
        struct zone_span span = zone_span_at(zone, at_s);
        int64_t start_s = day * DAY_S - span.offset_s;
        if (start_s < at_s)
            start_s = at_s;
        if (start_s < span.end_s)
            return start_s * 1000;
        at_s = span.end_s;
    }
}

/* --- reading a footer --- */

/* What is left of a footer; `bytes` is NULL after something in it was wrong. */
static void zone_wrong(struct span *text)
{
    *text = (struct span){0};
}

static bool zone_take(struct span *text, char letter)
{
    if (text->length == 0 || text->bytes[0] != letter)
        return false;
    text->bytes++;
    text->length--;
    return true;
}

static int64_t zone_take_number(struct span *text, int64_t maximum)
{
    int64_t number = 0;
    size_t digits = 0;

    while (text->length > 0 && isdigit((unsigned char)text->bytes[0]) && digits < 4) {
        number = number * 10 + (text->bytes[0] - '0');
        digits++;
        text->bytes++;
        text->length--;
    }
    if (digits == 0 || number > maximum)
        zone_wrong(text);
    return number;
}

/* A name of letters, or of anything between < and >. */
static void zone_take_name(struct span *text)
{
    size_t length = 0;

    if (zone_take(text, '<')) {
        while (text->length > 0 && text->bytes[0] != '>')
            (void)zone_take(text, text->bytes[0]);
        if (!zone_take(text, '>'))
            zone_wrong(text);
        return;
    }
    while (text->length > 0 && isalpha((unsigned char)text->bytes[0])) {
        (void)zone_take(text, text->bytes[0]);
        length++;
    }
    if (length < 3)
        zone_wrong(text);
}

/* [+-]h[h][:mm[:ss]] */
static int64_t zone_take_time(struct span *text, int64_t hours_max)
{
    int64_t sign = zone_take(text, '-') ? -1 : 1;

    if (sign > 0)
        (void)zone_take(text, '+');
    int64_t seconds = zone_take_number(text, hours_max) * HOUR_S;
    if (zone_take(text, ':'))
        seconds += zone_take_number(text, 59) * 60;
    if (zone_take(text, ':'))
        seconds += zone_take_number(text, 59);
    return sign * seconds;
}

static struct zone_rule zone_take_rule(struct span *text)
{
    struct zone_rule rule = {.kind = RULE_DAY_OF_YEAR, .time_s = RULE_TIME_USUAL};

    if (!zone_take(text, ','))
        zone_wrong(text);
    if (zone_take(text, 'M')) {
        rule.kind = RULE_MONTH;
        rule.month = (int)zone_take_number(text, 12);
        if (!zone_take(text, '.'))
            zone_wrong(text);
        rule.week = (int)zone_take_number(text, 5);
        if (!zone_take(text, '.'))
            zone_wrong(text);
        rule.day = (int)zone_take_number(text, 6);
        if (rule.month < 1 || rule.week < 1)
            zone_wrong(text);
    } else if (zone_take(text, 'J')) {
        rule.kind = RULE_JULIAN;
        rule.day = (int)zone_take_number(text, 365);
        if (rule.day < 1)
            zone_wrong(text);
    } else {
        rule.day = (int)zone_take_number(text, 365);
    }
    if (zone_take(text, '/'))
        rule.time_s = zone_take_time(text, 167);
    return rule;
}

/* std offset [dst [offset] , start [/time] , end [/time]]; offsets count to the west. */
static bool zone_read_footer(struct zone *zone, struct span text)
{
    if (text.length == 0)
        return true;
    zone_take_name(&text);
    zone->standard_s = -zone_take_time(&text, 24);
    zone->has_footer = true;
    if (text.length == 0)
        return text.bytes != NULL;
    zone_take_name(&text);
    zone->summer_s = zone->standard_s + HOUR_S;
    if (text.length > 0 && text.bytes[0] != ',')
        zone->summer_s = -zone_take_time(&text, 24);
    zone->starts = zone_take_rule(&text);
    zone->ends = zone_take_rule(&text);
    zone->has_rules = true;
    return text.bytes != NULL && text.length == 0;
}

/* --- reading a file --- */

struct zone_header {
    char version;
    uint32_t isut_count;
    uint32_t isstd_count;
    uint32_t leap_count;
    uint32_t change_count;
    uint32_t type_count;
    uint32_t dead_letter_count;
};

static uint64_t zone_read_number(const char *bytes, size_t size)
{
    uint64_t number = 0;
    for (size_t i = 0; i < size; i++)
        number = number << 8 | (unsigned char)bytes[i];
    return number;
}

static bool zone_read_header(struct span file, struct zone_header *header)
{
    if (file.length < HEADER_LENGTH || memcmp(file.bytes, "TZif", 4) != 0)
        return false;
    const char *counts = file.bytes + 20;
    *header = (struct zone_header){
        .version = file.bytes[4],
        .isut_count = (uint32_t)zone_read_number(counts, 4),
        .isstd_count = (uint32_t)zone_read_number(counts + 4, 4),
        .leap_count = (uint32_t)zone_read_number(counts + 8, 4),
        .change_count = (uint32_t)zone_read_number(counts + 12, 4),
        .type_count = (uint32_t)zone_read_number(counts + 16, 4),
        .dead_letter_count = (uint32_t)zone_read_number(counts + 20, 4),
    };
    return header->change_count <= CHANGES_MAX && header->type_count >= 1 &&
           header->type_count <= TYPES_MAX && header->dead_letter_count <= FILE_LENGTH_MAX &&
           header->leap_count <= FILE_LENGTH_MAX && header->isstd_count <= TYPES_MAX &&
           header->isut_count <= TYPES_MAX;
}

/* What follows a header, with times of so many bytes. */
static size_t zone_block_length(const struct zone_header *header, size_t time_size)
{
    return header->change_count * (time_size + 1) + header->type_count * (size_t)6 +
           header->dead_letter_count + header->leap_count * (time_size + 4) + header->isstd_count +
           header->isut_count;
}

static bool zone_read_changes(struct zone *zone, const struct zone_header *header,
                              const char *block)
{
    const char *indices = block + (size_t)header->change_count * 8;
    const char *types = indices + header->change_count;

    zone->first_offset_s = (int32_t)zone_read_number(types, 4);
    zone->changes = calloc((size_t)header->change_count + 1, sizeof(*zone->changes));
    if (zone->changes == NULL)
        return false;
    for (size_t i = 0; i < header->change_count; i++) {
        size_t type = (unsigned char)indices[i];
        if (type >= header->type_count)
            return false;
        zone->changes[i] =
            (struct zone_change){.at_s = (int64_t)zone_read_number(block + i * 8, 8),
                                 .offset_s = (int32_t)zone_read_number(types + type * 6, 4)};
        if (i > 0 && zone->changes[i].at_s <= zone->changes[i - 1].at_s)
            return false;
        if (llabs(zone->changes[i].offset_s) > OFFSET_MAX_S)
            return false;
    }
    zone->change_count = header->change_count;
    return llabs(zone->first_offset_s) <= OFFSET_MAX_S;
}

/* The first block is for readers of 1996; the second one has times of 64 bits. A file that counts
 * leap seconds is of a clock that wall time is not. */
static bool zone_read_file(struct zone *zone, struct span file)
{
    struct zone_header header;

    if (!zone_read_header(file, &header) || header.version < '2')
        return false;
    size_t skipped = HEADER_LENGTH + zone_block_length(&header, 4);
    if (skipped > file.length)
        return false;
    file.bytes += skipped;
    file.length -= skipped;
    if (!zone_read_header(file, &header) || header.leap_count > 0)
        return false;
    size_t block_length = zone_block_length(&header, 8);
    if (HEADER_LENGTH + block_length + 2 > file.length ||
        !zone_read_changes(zone, &header, file.bytes + HEADER_LENGTH))
        return false;
    const char *footer = file.bytes + HEADER_LENGTH + block_length;
    const char *end = file.bytes + file.length;
    const char *footer_end =
        footer[0] == '\n' ? memchr(footer + 1, '\n', (size_t)(end - footer - 1)) : NULL;
    if (footer_end == NULL)
        return false;
    return zone_read_footer(
        zone, (struct span){.bytes = footer + 1, .length = (size_t)(footer_end - footer - 1)});
}

enum status zone_read(struct zone **zone, const char *name, struct span file, struct error *error)
{
    struct zone *read = calloc(1, sizeof(*read));

    *zone = NULL;
    if (read == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a time zone");
    snprintf(read->name, sizeof(read->name), "%s", name);
    if (!zone_read_file(read, file)) {
        zone_free(read);
        return error_set(error, STATUS_INVALID,
                         "the rules of the time zone %.64s cannot be read; install tzdata anew",
                         name);
    }
    *zone = read;
    return STATUS_OK;
}

void zone_free(struct zone *zone)
{
    if (zone == NULL || zone == &zone_of_utc)
        return;
    free(zone->changes);
    free(zone);
}

/* --- opening --- */

static bool zone_name_is_fine(const char *name)
{
    if (!isalpha((unsigned char)name[0]) || strlen(name) > ZONE_NAME_LENGTH_MAX)
        return false;
    for (const char *at = name; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at) && strchr("_+-/", *at) == NULL)
            return false;
    return true;
}

static enum status zone_no_such(const char *name, struct error *error)
{
    return error_set(error, STATUS_INVALID,
                     "there is no time zone \"%.64s\" in " ZONEINFO_FOLDER
                     "; give an IANA name, as in Europe/Berlin, and see that tzdata is installed",
                     name);
}

enum status zone_open(struct zone **zone, const char *name, struct error *error)
{
    char path[sizeof(ZONEINFO_FOLDER) + 1 + ZONE_NAME_LENGTH_MAX + 1];

    *zone = NULL;
    if (strcmp(name, "UTC") == 0) {
        *zone = calloc(1, sizeof(**zone));
        if (*zone == NULL)
            return error_set(error, STATUS_UNAVAILABLE, "no memory for a time zone");
        **zone = zone_of_utc;
        return STATUS_OK;
    }
    if (!zone_name_is_fine(name))
        return zone_no_such(name, error);
    snprintf(path, sizeof(path), ZONEINFO_FOLDER "/%.64s", name);
    FILE *file = fopen(path, "re");
    char *bytes = file != NULL ? malloc(FILE_LENGTH_MAX) : NULL;
    size_t length = bytes != NULL ? fread(bytes, 1, FILE_LENGTH_MAX, file) : 0;
    enum status status = length > 0 ? zone_read(zone, name, (struct span){bytes, length}, error)
                                    : zone_no_such(name, error);
    free(bytes);
    if (file != NULL)
        fclose(file);
    return status;
}

/* --- days as text --- */

void zone_format_day(int64_t day, char text[ZONE_DAY_TEXT_SIZE])
{
    char whole[CLOCK_TEXT_SIZE];

    clock_format_rfc3339(day * DAY_S * 1000, whole);
    memcpy(text, whole, ZONE_DAY_TEXT_SIZE - 1);
    text[ZONE_DAY_TEXT_SIZE - 1] = '\0';
}

bool zone_parse_day(struct span text, int64_t *day)
{
    char whole[32];
    int64_t wall_ms;

    if (text.length != ZONE_DAY_TEXT_SIZE - 1)
        return false;
    snprintf(whole, sizeof(whole), "%.10sT00:00:00Z", text.bytes);
    if (!clock_parse_rfc3339(span_of(whole), &wall_ms))
        return false;
    *day = wall_ms / (DAY_S * 1000);
    return true;
}
