/* clock.c: reading the clocks and turning wall time into text and back. */
#include "base/clock.h"

#include <time.h>

#include "base/digits.h"

#define MS_PER_DAY      INT64_C(86400000)
#define SECONDS_PER_DAY INT64_C(86400)

struct civil_date {
    unsigned year;
    unsigned month; /* 1-12 */
    unsigned day;   /* 1-31 */
};

static int64_t clock_ns(clockid_t id)
{
    struct timespec now;
    ensure(clock_gettime(id, &now) == 0);
    return (int64_t)now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t clock_wall_ms(void)
{
    return clock_ns(CLOCK_REALTIME) / 1000000;
}

int64_t clock_monotonic_ms(void)
{
    return clock_ns(CLOCK_MONOTONIC) / 1000000;
}

int64_t clock_monotonic_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

void clock_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

struct timespec clock_deadline_at_ms(int64_t monotonic_ms)
{
    return (struct timespec){.tv_sec = monotonic_ms / 1000,
                             .tv_nsec = monotonic_ms % 1000 * 1000000};
}

struct timespec clock_deadline_in_ns(int64_t wait_ns)
{
    int64_t at_ns = clock_monotonic_ns() + wait_ns;
    return (struct timespec){.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};
}

struct timespec clock_deadline_in_ms(int64_t wait_ms)
{
    return clock_deadline_in_ns(wait_ms * 1000000);
}

/* The Gregorian calendar repeats every 400 years = 146097 days. Years are counted from 1 March, so
 * that the leap day is the last of its year and months follow a fixed pattern of 153 days in five
 * (Neri and Schneider; Hinnant). Days are counted from 1970-01-01 and never negative here. */
static struct civil_date date_of_day(uint32_t day)
{
    uint32_t since_era = day + 719468; /* from 0000-03-01 */
    uint32_t century_part = 4 * since_era + 3;
    uint32_t century = century_part / 146097;
    uint32_t year_part = (century_part % 146097) / 4 * 4 + 3;
    uint32_t year = 100 * century + year_part / 1461;
    uint32_t day_of_year = year_part % 1461 / 4;
    uint32_t month_part = 5 * day_of_year + 2;
    uint32_t month = month_part / 153 + 3; /* 3-14 */
    bool next_year = month > 12;
    return (struct civil_date){
        .year = year + next_year,
        .month = next_year ? month - 12 : month,
        .day = month_part % 153 / 5 + 1,
    };
}

static int64_t day_of_date(struct civil_date date)
{
    int64_t year = (int64_t)date.year - (date.month <= 2);
    int64_t month = date.month <= 2 ? date.month + 12 : date.month; /* 3-14 */
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t year_of_era = year - era * 400;
    int64_t day_of_year = (153 * (month - 3) + 2) / 5 + date.day - 1;
    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year -
           719468;
}

static unsigned days_in_month(unsigned year, unsigned month)
{
    static const unsigned char days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return month == 2 && leap ? 29 : days[month - 1];
}

static inline void put_4(char *at, unsigned number)
{
    digits_put_2(at, number / 100);
    digits_put_2(at + 2, number % 100);
}

/* The formats have room for four-digit years only. */
static inline int64_t clamp_wall_ms(int64_t wall_ms)
{
    if (wall_ms < 0)
        return 0;
    return wall_ms > CLOCK_WALL_MAX_MS ? CLOCK_WALL_MAX_MS : wall_ms;
}

void clock_format_rfc3339(int64_t wall_ms, char text[CLOCK_TEXT_SIZE])
{
    uint64_t at_ms = (uint64_t)clamp_wall_ms(wall_ms);
    struct civil_date date = date_of_day((uint32_t)(at_ms / MS_PER_DAY));
    uint32_t ms = (uint32_t)(at_ms % MS_PER_DAY);
    uint32_t second = ms / 1000;

    memcpy(text, "0000-00-00T00:00:00.000Z", CLOCK_TEXT_SIZE);
    put_4(text, date.year);
    digits_put_2(text + 5, date.month);
    digits_put_2(text + 8, date.day);
    digits_put_2(text + 11, second / 3600);
    digits_put_2(text + 14, second / 60 % 60);
    digits_put_2(text + 17, second % 60);
    digits_put_2(text + 20, ms % 1000 / 10);
    text[22] = (char)('0' + ms % 10);
}

void clock_format_http_date(int64_t wall_ms, char text[CLOCK_HTTP_DATE_SIZE])
{
    static const char weekdays[] = "ThuFriSatSunMonTueWed"; /* 1970-01-01 was a Thursday */
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

    uint64_t at_ms = (uint64_t)clamp_wall_ms(wall_ms);
    uint32_t day = (uint32_t)(at_ms / MS_PER_DAY);
    struct civil_date date = date_of_day(day);
    uint32_t second = (uint32_t)(at_ms % MS_PER_DAY) / 1000;

    memcpy(text, "Thu, 00 Jan 0000 00:00:00 GMT", CLOCK_HTTP_DATE_SIZE);
    memcpy(text, weekdays + day % 7 * 3, 3);
    digits_put_2(text + 5, date.day);
    memcpy(text + 8, months + (date.month - 1) * 3, 3);
    put_4(text + 12, date.year);
    digits_put_2(text + 17, second / 3600);
    digits_put_2(text + 20, second / 60 % 60);
    digits_put_2(text + 23, second % 60);
}

/* Reads exactly `digits` digits; false when one of them is not. */
static bool take_digits(struct span *text, size_t digits, unsigned *number)
{
    if (text->length < digits)
        return false;
    *number = 0;
    for (size_t i = 0; i < digits; i++) {
        unsigned digit = (unsigned char)text->bytes[i] - (unsigned)'0';
        if (digit > 9)
            return false;
        *number = *number * 10 + digit;
    }
    text->bytes += digits;
    text->length -= digits;
    return true;
}

static bool take_character(struct span *text, char either, char or_else)
{
    if (text->length == 0 || (text->bytes[0] != either && text->bytes[0] != or_else))
        return false;
    text->bytes++;
    text->length--;
    return true;
}

/* ".5" or ".123456789"; nothing at all is 0. */
static bool take_fraction(struct span *text, unsigned *ms)
{
    *ms = 0;
    if (!take_character(text, '.', '.'))
        return true;
    unsigned digit;
    unsigned weight = 100;
    size_t count = 0;
    while (take_digits(text, 1, &digit)) {
        *ms += digit * weight;
        weight /= 10;
        count++;
    }
    return count >= 1 && count <= 9;
}

static bool take_offset(struct span *text, int64_t *seconds_east)
{
    *seconds_east = 0;
    if (take_character(text, 'Z', 'z'))
        return true;
    int64_t sign = take_character(text, '-', '-') ? -1 : 1;
    if (sign == 1 && !take_character(text, '+', '+'))
        return false;
    unsigned hours;
    unsigned minutes;
    if (!take_digits(text, 2, &hours) || !take_character(text, ':', ':') ||
        !take_digits(text, 2, &minutes) || hours > 23 || minutes > 59)
        return false;
    *seconds_east = sign * (hours * INT64_C(3600) + minutes * INT64_C(60));
    return true;
}

bool clock_parse_rfc3339(struct span text, int64_t *wall_ms)
{
    struct civil_date date;
    unsigned hour;
    unsigned minute;
    unsigned second;
    unsigned ms;
    int64_t seconds_east;
    if (!take_digits(&text, 4, &date.year) || !take_character(&text, '-', '-') ||
        !take_digits(&text, 2, &date.month) || !take_character(&text, '-', '-') ||
        !take_digits(&text, 2, &date.day) || !take_character(&text, 'T', 't') ||
        !take_digits(&text, 2, &hour) || !take_character(&text, ':', ':') ||
        !take_digits(&text, 2, &minute) || !take_character(&text, ':', ':') ||
        !take_digits(&text, 2, &second) || !take_fraction(&text, &ms) ||
        !take_offset(&text, &seconds_east) || text.length != 0)
        return false;
    if (date.month < 1 || date.month > 12 || date.day < 1 ||
        date.day > days_in_month(date.year, date.month) || hour > 23 || minute > 59 || second > 60)
        return false;
    int64_t at_second = day_of_date(date) * SECONDS_PER_DAY + hour * INT64_C(3600) +
                        minute * INT64_C(60) + second - seconds_east;
    int64_t at_ms = at_second * 1000 + ms;
    if (at_ms < 0 || at_ms > CLOCK_WALL_MAX_MS)
        return false;
    /* Leap seconds come only at the end of a month, in UTC. */
    if (second == 60 && (at_second % SECONDS_PER_DAY != 0 ||
                         date_of_day((uint32_t)(at_second / SECONDS_PER_DAY)).day != 1))
        return false;
    *wall_ms = at_ms;
    return true;
}
