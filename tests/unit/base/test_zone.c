/* test_zone.c: which day it is, in zones that change their clocks in every way there is. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "base/clock.h"
#include "base/zone.h"

#define FOLDER  "/usr/share/zoneinfo"
#define HOUR_MS INT64_C(3600000)
#define DAY_MS  (24 * HOUR_MS)

static struct zone *open_zone(const char *name)
{
    struct zone *zone = NULL;
    struct error error;

    if (zone_open(&zone, name, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    assert_string_equal(zone_name(zone), name);
    return zone;
}

static int64_t at(const char *text)
{
    int64_t wall_ms = 0;
    assert_true(clock_parse_rfc3339(span_of(text), &wall_ms));
    return wall_ms;
}

static int64_t day_of(const char *text)
{
    int64_t day = 0;
    assert_true(zone_parse_day(span_of(text), &day));
    return day;
}

/* A day of the zone begins then: the millisecond before belongs to an earlier one. */
static void assert_starts(const struct zone *zone, const char *day, const char *instant)
{
    char text[CLOCK_TEXT_SIZE];

    clock_format_rfc3339(zone_day_start_ms(zone, day_of(day)), text);
    assert_string_equal(text, instant);
    assert_int_equal(zone_day(zone, at(instant)), day_of(day));
    assert_true(zone_day(zone, at(instant) - 1) < day_of(day));
}

static void assert_hours(const struct zone *zone, const char *day, double hours)
{
    int64_t number = day_of(day);
    assert_int_equal(zone_day_start_ms(zone, number + 1) - zone_day_start_ms(zone, number),
                     (int64_t)(hours * (double)HOUR_MS));
}

static void test_zone__utc_needs_no_files(void **state)
{
    struct zone *zone = open_zone("UTC");

    (void)state;
    assert_starts(zone, "2026-11-15", "2026-11-15T00:00:00.000Z");
    assert_starts(zone_utc(), "1970-01-02", "1970-01-02T00:00:00.000Z");
    assert_int_equal(zone_day(zone, 0), 0);
    assert_int_equal(zone_day(zone, DAY_MS - 1), 0);
    assert_int_equal(zone_day(zone, -1), -1);
    assert_string_equal(zone_name(zone_utc()), "UTC");
    zone_free(zone);
    zone_free(NULL);
}

static void test_zone__berlin(void **state)
{
    struct zone *zone = open_zone("Europe/Berlin");

    (void)state;
    assert_starts(zone, "2026-01-15", "2026-01-14T23:00:00.000Z");
    assert_starts(zone, "2026-07-15", "2026-07-14T22:00:00.000Z");
    assert_hours(zone, "2026-03-28", 24);
    assert_hours(zone, "2026-03-29", 23);
    assert_hours(zone, "2026-10-25", 25);
    assert_hours(zone, "2026-10-26", 24);
    /* Far behind the table: the rule goes on for ever. */
    assert_hours(zone, "2399-03-28", 23);
    assert_hours(zone, "2399-10-31", 25);
    assert_starts(zone, "2100-07-01", "2100-06-30T22:00:00.000Z");
    assert_int_equal(zone_offset_s(zone, at("2026-03-29T00:59:59.999Z")), 3600);
    assert_int_equal(zone_offset_s(zone, at("2026-03-29T01:00:00Z")), 7200);
    zone_free(zone);
}

static void test_zone__new_york(void **state)
{
    struct zone *zone = open_zone("America/New_York");

    (void)state;
    assert_hours(zone, "2024-03-10", 23);
    assert_hours(zone, "2024-11-03", 25);
    assert_starts(zone, "2024-11-03", "2024-11-03T04:00:00.000Z");
    assert_starts(zone, "2024-11-04", "2024-11-04T05:00:00.000Z");
    assert_starts(zone, "2025-01-01", "2025-01-01T05:00:00.000Z");
    zone_free(zone);
}

static void test_zone__seoul_leap_days_and_year_ends(void **state)
{
    struct zone *zone = open_zone("Asia/Seoul");

    (void)state;
    assert_starts(zone, "2026-01-01", "2025-12-31T15:00:00.000Z");
    assert_starts(zone, "2024-02-29", "2024-02-28T15:00:00.000Z");
    assert_starts(zone, "2024-03-01", "2024-02-29T15:00:00.000Z");
    assert_int_equal(day_of("2024-03-01") - day_of("2024-02-28"), 2);
    assert_int_equal(day_of("2023-03-01") - day_of("2023-02-28"), 1);
    assert_int_equal(day_of("2000-03-01") - day_of("2000-02-28"), 2);
    assert_int_equal(day_of("2100-03-01") - day_of("2100-02-28"), 1);
    assert_hours(zone, "1988-05-08", 23); /* the last year with summer time */
    assert_hours(zone, "2026-05-10", 24);
    zone_free(zone);
}

/* Half an hour, and in the southern half of the year. */
static void test_zone__lord_howe(void **state)
{
    struct zone *zone = open_zone("Australia/Lord_Howe");

    (void)state;
    assert_hours(zone, "2025-04-06", 24.5);
    assert_hours(zone, "2025-10-05", 23.5);
    assert_hours(zone, "2060-04-04", 24.5);
    assert_starts(zone, "2026-01-01", "2025-12-31T13:00:00.000Z");
    assert_starts(zone, "2026-07-01", "2026-06-30T13:30:00.000Z");
    zone_free(zone);
}

/* Samoa went over the date line: no sale was ever made on 2011-12-30. */
static void test_zone__apia_left_a_day_out(void **state)
{
    struct zone *zone = open_zone("Pacific/Apia");
    int64_t missing = day_of("2011-12-30");

    (void)state;
    assert_starts(zone, "2011-12-29", "2011-12-29T10:00:00.000Z");
    assert_starts(zone, "2011-12-31", "2011-12-30T10:00:00.000Z");
    assert_int_equal(zone_day_start_ms(zone, missing), zone_day_start_ms(zone, missing + 1));
    assert_int_equal(zone_day(zone, at("2011-12-30T09:59:59.999Z")), missing - 1);
    assert_int_equal(zone_day(zone, at("2011-12-30T10:00:00Z")), missing + 1);
    zone_free(zone);
}

/* A day that begins at one o'clock, for there was no midnight. */
static void test_zone__days_without_midnight(void **state)
{
    struct zone *zone = open_zone("America/Sao_Paulo");

    (void)state;
    assert_starts(zone, "2018-11-04", "2018-11-04T03:00:00.000Z");
    assert_hours(zone, "2018-11-04", 23);
    assert_hours(zone, "2018-02-17", 25);
    zone_free(zone);
}

/* One minute past midnight the clocks went back: the first minute of the day came, then the last
 * hour of the day before again. */
static void test_zone__midnight_that_came_twice(void **state)
{
    struct zone *zone = open_zone("America/St_Johns");
    int64_t day = day_of("2010-11-07");

    (void)state;
    assert_starts(zone, "2010-11-07", "2010-11-07T02:30:00.000Z");
    assert_int_equal(zone_day(zone, at("2010-11-07T02:30:59.999Z")), day);
    assert_int_equal(zone_day(zone, at("2010-11-07T02:31:00Z")), day - 1);
    assert_int_equal(zone_day(zone, at("2010-11-07T03:29:59.999Z")), day - 1);
    assert_int_equal(zone_day(zone, at("2010-11-07T03:30:00Z")), day);
    zone_free(zone);
}

/* The C library reads the same files in its own way: all zones, at times around every change. */
static void assert_as_libc(const char *name)
{
    static const int64_t years[] = {1970, 1975, 1987, 2007, 2011, 2024, 2025, 2026, 2037, 2061};
    struct zone *zone = open_zone(name);

    setenv("TZ", name, 1);
    tzset();
    for (size_t i = 0; i < sizeof(years) / sizeof(years[0]); i++) {
        int64_t start_s = (years[i] - 1970) * 31556952;
        for (int64_t at_s = start_s; at_s < start_s + 366 * 86400; at_s += 31 * 1800 + 1) {
            struct tm local;
            time_t time = (time_t)at_s;
            localtime_r(&time, &local);
            if (zone_offset_s(zone, at_s * 1000) != local.tm_gmtoff)
                fail_msg("%s at %lld: %lld, not %ld", name, (long long)at_s,
                         (long long)zone_offset_s(zone, at_s * 1000), local.tm_gmtoff);
        }
    }
    zone_free(zone);
}

static int walk_zones(const char *folder)
{
    char path[512];
    int count = 0;
    DIR *listing = opendir(folder[0] != '\0' ? folder : FOLDER);

    if (listing == NULL)
        return 0;
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        struct stat what;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] < 'A' || entry->d_name[0] > 'Z' || stat(path, &what) != 0)
            continue;
        if (S_ISDIR(what.st_mode)) {
            count += walk_zones(path);
        } else if (strchr(entry->d_name, '.') == NULL) {
            assert_as_libc(path + strlen(FOLDER "/"));
            count++;
        }
    }
    closedir(listing);
    return count;
}

static void test_zone__all_zones_as_the_c_library_has_them(void **state)
{
    char path[512];
    static const char *const folders[] = {"Africa",   "America",   "Antarctica", "Asia",
                                          "Atlantic", "Australia", "Etc",        "Europe",
                                          "Indian",   "Pacific"};
    int count = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), FOLDER "/%s", folders[i]);
        count += walk_zones(path);
    }
    unsetenv("TZ");
    tzset();
    assert_true(count > 300);
}

/* Every day of twenty years begins where the one before ends, and has at least one instant. */
static void test_zone__days_follow_each_other(void **state)
{
    static const char *const names[] = {"Europe/Berlin",       "America/New_York",  "Asia/Seoul",
                                        "Australia/Lord_Howe", "Africa/Casablanca", "Europe/Dublin",
                                        "America/Nuuk",        "Asia/Gaza",         "Asia/Tehran"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct zone *zone = open_zone(names[i]);
        for (int64_t day = day_of("2015-01-01"); day < day_of("2035-01-01"); day++) {
            int64_t start_ms = zone_day_start_ms(zone, day);
            int64_t next_ms = zone_day_start_ms(zone, day + 1);
            assert_int_equal(zone_day(zone, start_ms), day);
            assert_int_equal(zone_day(zone, next_ms - 1), day);
            assert_int_equal(zone_day(zone, start_ms - 1), day - 1);
            assert_in_range(next_ms - start_ms, 22 * HOUR_MS, 26 * HOUR_MS);
        }
        zone_free(zone);
    }
}

static void test_zone__names_that_are_none(void **state)
{
    static const char *const names[] = {
        "",
        "Mars/Base",
        "../../etc/passwd",
        "/etc/passwd",
        "Europe",
        "tzdata.zi",
        "Europe/Berlin ",
        "posixrules.x",
        "Aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    struct zone *zone = NULL;
    struct error error;

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(zone_open(&zone, names[i], &error), STATUS_INVALID);
        assert_null(zone);
        assert_non_null(strstr(error.text, "tzdata"));
    }
}

/* A file that is cut anywhere, or has a wrong letter anywhere, is refused or read, and nothing
 * else. */
static void test_zone__damaged_files(void **state)
{
    char whole[8192];
    FILE *file = fopen(FOLDER "/Europe/Berlin", "re");
    size_t length = 0;
    struct zone *zone = NULL;
    struct error error;

    (void)state;
    assert_non_null(file);
    length = fread(whole, 1, sizeof(whole), file);
    fclose(file);
    for (size_t cut = 0; cut < length; cut++) {
        char *bytes = malloc(cut + 1); /* so that a sanitizer sees a read too far */
        memcpy(bytes, whole, cut);
        assert_int_equal(zone_read(&zone, "X", (struct span){bytes, cut}, &error), STATUS_INVALID);
        assert_null(zone);
        free(bytes);
    }
    for (size_t i = 0; i < length; i++) {
        char *bytes = malloc(length);
        memcpy(bytes, whole, length);
        bytes[i] = (char)(bytes[i] ^ 0x55);
        if (zone_read(&zone, "X", (struct span){bytes, length}, &error) == STATUS_OK)
            (void)zone_day(zone, at("2026-11-15T00:00:00Z"));
        zone_free(zone);
        free(bytes);
    }
}

/* A file with no changes and this footer. */
static enum status read_footer(const char *footer, struct zone **zone)
{
    char bytes[512] = {0};
    struct error error;
    size_t length = 0;

    for (int block = 0; block < 2; block++) {
        memcpy(bytes + length, "TZif2", 5);
        bytes[length + 39] = 1; /* one type */
        bytes[length + 43] = 1; /* one letter */
        length += 44 + 6 + 1;
    }
    length += (size_t)snprintf(bytes + length, sizeof(bytes) - length, "\n%s\n", footer);
    return zone_read(zone, "X", (struct span){bytes, length}, &error);
}

static void test_zone__footers(void **state)
{
    static const char *const wrong[] = {"X1",
                                        "CET",
                                        "CET-1CEST",
                                        "CET-1CEST,M3.5.0",
                                        "CET-25",
                                        "CET-1CEST,M13.5.0,M10.5.0/3",
                                        "CET-1CEST,M3.6.0,M10.5.0/3",
                                        "CET-1CEST,M3.5.7,M10.5.0/3",
                                        "CET-1CEST,J0,J365",
                                        "CET-1CEST,M3.5.0,M10.5.0/168",
                                        "CET-1CEST,M3.5.0,M10.5.0/3,",
                                        "<CET-1",
                                        "CET-1 ",
                                        "CET-1:60",
                                        "CET-1CEST,366,J1",
                                        "CET--1"};
    struct zone *zone = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (read_footer(wrong[i], &zone) != STATUS_INVALID)
            fail_msg("%s was taken", wrong[i]);
    /* Summer time that is behind, as in Dublin. */
    assert_int_equal(read_footer("IST-1GMT0,M10.5.0,M3.5.0/1", &zone), STATUS_OK);
    assert_hours(zone, "2030-03-31", 23);
    assert_hours(zone, "2030-10-27", 25);
    assert_int_equal(zone_offset_s(zone, at("2030-01-01T00:00:00Z")), 0);
    zone_free(zone);
    /* Times before the day and long after it, as in Greenland and Gaza. */
    assert_int_equal(read_footer("<-02>2<-01>,M3.5.0/-1,M10.5.0/0", &zone), STATUS_OK);
    assert_hours(zone, "2030-03-30", 23);
    zone_free(zone);
    assert_int_equal(read_footer("EET-2EEST,M3.4.4/50,M10.4.4/50", &zone), STATUS_OK);
    assert_hours(zone, "2030-03-30", 23);
    zone_free(zone);
    /* Summer time all the year. */
    assert_int_equal(read_footer("XXX3EDT4,0/0,J365/23", &zone), STATUS_OK);
    for (int64_t day = day_of("2030-01-01"); day < day_of("2033-01-02"); day++)
        assert_int_equal(zone_offset_s(zone, day * DAY_MS), -4 * 3600);
    zone_free(zone);
    /* Days by number: 29 February counts, or does not. */
    assert_int_equal(read_footer("AAA0BBB,59/0,J200/0", &zone), STATUS_OK);
    assert_int_equal(zone_offset_s(zone, at("2027-02-28T23:59:59Z")), 0);
    assert_int_equal(zone_offset_s(zone, at("2027-03-01T00:00:00Z")), 3600);
    assert_int_equal(zone_offset_s(zone, at("2028-02-28T23:59:59Z")), 0);
    assert_int_equal(zone_offset_s(zone, at("2028-02-29T00:00:00Z")), 3600);
    zone_free(zone);
    assert_int_equal(read_footer("AAA0BBB,J60/0,J200/0", &zone), STATUS_OK);
    assert_int_equal(zone_offset_s(zone, at("2028-02-29T23:59:59Z")), 0);
    assert_int_equal(zone_offset_s(zone, at("2028-03-01T00:00:00Z")), 3600);
    zone_free(zone);
    assert_int_equal(read_footer("", &zone), STATUS_OK);
    assert_int_equal(zone_offset_s(zone, at("2028-02-28T23:59:59Z")), 0);
    zone_free(zone);
}

static void test_zone__days_as_text(void **state)
{
    static const char *const wrong[] = {"2026-02-29",  "2026-13-01", "2026-1-1",   "20261115",
                                        "2026-11-15T", "",           "2026-11-1x", "-026-11-15"};
    char text[ZONE_DAY_TEXT_SIZE];
    int64_t day = 0;

    (void)state;
    zone_format_day(0, text);
    assert_string_equal(text, "1970-01-01");
    zone_format_day(day_of("2024-02-29"), text);
    assert_string_equal(text, "2024-02-29");
    zone_format_day(day_of("9999-12-31"), text);
    assert_string_equal(text, "9999-12-31");
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(zone_parse_day(span_of(wrong[i]), &day));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zone__utc_needs_no_files),
        cmocka_unit_test(test_zone__berlin),
        cmocka_unit_test(test_zone__new_york),
        cmocka_unit_test(test_zone__seoul_leap_days_and_year_ends),
        cmocka_unit_test(test_zone__lord_howe),
        cmocka_unit_test(test_zone__apia_left_a_day_out),
        cmocka_unit_test(test_zone__days_without_midnight),
        cmocka_unit_test(test_zone__midnight_that_came_twice),
        cmocka_unit_test(test_zone__all_zones_as_the_c_library_has_them),
        cmocka_unit_test(test_zone__days_follow_each_other),
        cmocka_unit_test(test_zone__names_that_are_none),
        cmocka_unit_test(test_zone__damaged_files),
        cmocka_unit_test(test_zone__footers),
        cmocka_unit_test(test_zone__days_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
