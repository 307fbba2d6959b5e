/* places.c: reads the coupons of users whose places do not fit, and sets them. */
#include "ledger/repair/repair.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/rows.h"

#define REASON_KEPT "kept above the limit by a repair"
#define NAME_SHOWN  64

struct placed_coupon {
    struct id user;
    int64_t seq;
    int32_t nth;
    int32_t slot; /* 0: none */
    int32_t place;
    bool is_kept; /* by an earlier repair */
    bool is_above;
};

/* By user, and then by rising seqs. */
struct places {
    struct placed_coupon *coupons;
    size_t count;
};

static enum status places_read(void *coupon, const struct sql_value *columns, struct error *error)
{
    *(struct placed_coupon *)coupon = (struct placed_coupon){.user = rows_read_user(&columns[0]),
                                                             .seq = columns[1].number,
                                                             .nth = (int32_t)columns[2].number,
                                                             .slot = (int32_t)columns[3].number,
                                                             .is_kept = columns[4].number != 0};
    return STATUS_OK;
}

/* The earliest coupon with a number keeps it; the others get the lowest that are free. The newest
 * are above the limit. */
static enum status places_choose(struct placed_coupon *coupons, size_t count, int32_t limit,
                                 struct error *error)
{
    bool is_taken[PER_USER_LIMIT_MAX + 1] = {true};
    size_t counted = 0;

    if (count > PER_USER_LIMIT_MAX)
        return error_set(error, STATUS_CONFLICT, "a user has %zu coupons, and the most is %d",
                         count, PER_USER_LIMIT_MAX);
    for (size_t i = 0; i < count; i++) {
        int32_t nth = coupons[i].nth;
        if (nth >= 1 && nth <= PER_USER_LIMIT_MAX && !is_taken[nth]) {
            is_taken[nth] = true;
            coupons[i].place = nth;
        }
        counted += !coupons[i].is_kept;
        coupons[i].is_above = !coupons[i].is_kept && counted > (size_t)limit;
    }
    for (size_t i = 0, place = 1; i < count; i++) {
        if (coupons[i].place != 0)
            continue;
        while (is_taken[place])
            place++;
        is_taken[place] = true;
        coupons[i].place = (int32_t)place;
    }
    return STATUS_OK;
}

static enum status places_choose_all(struct places *places, int32_t limit, struct error *error)
{
    enum status status = STATUS_OK;
    size_t next;

    for (size_t at = 0; at < places->count && status == STATUS_OK; at = next) {
        next = at + 1;
        while (next < places->count &&
               id_equal(&places->coupons[next].user, &places->coupons[at].user))
            next++;
        status = places_choose(&places->coupons[at], next - at, limit, error);
    }
    return status;
}

static bool places_moves(const struct placed_coupon *coupon)
{
    return coupon->slot != coupon->place || coupon->nth != coupon->place;
}

/* "42-17 of ann, 42-18 of bob", as far as there is room. */
static void places_name(struct ledger_fix *fix, const struct placed_coupon *coupon)
{
    size_t length = strlen(fix->kept);
    int shown = coupon->user.length < NAME_SHOWN ? coupon->user.length : NAME_SHOWN;

    fix->kept_count++;
    if (sizeof(fix->kept) - length > NAME_SHOWN + 64)
        snprintf(fix->kept + length, sizeof(fix->kept) - length,
                 "%s%" PRId64 "-%" PRId64 " of %.*s", length > 0 ? ", " : "", fix->policy_id,
                 coupon->seq, shown, coupon->user.bytes);
}

/* What is moved leaves its place first, which another one may get. */
static enum status places_write(struct sql *sql, const struct places *places,
                                struct ledger_fix *fix, struct error *error)
{
    struct sql_value id = sql_i64(fix->policy_id);
    enum status status = SQL_WRITE(sql, STATEMENT_coupon_free_slots, error, id);

    for (size_t i = 0; i < places->count && status == STATUS_OK; i++)
        if (places_moves(&places->coupons[i]))
            status = SQL_WRITE(sql, STATEMENT_coupon_unplace, error, id,
                               sql_i64(places->coupons[i].seq));
    for (size_t i = 0; i < places->count && status == STATUS_OK; i++) {
        const struct placed_coupon *coupon = &places->coupons[i];
        if (places_moves(coupon))
            status = SQL_WRITE(sql, STATEMENT_coupon_place, error, id, sql_i64(coupon->seq),
                               sql_i64(coupon->place));
        if (status == STATUS_OK && coupon->is_above)
            status = SQL_WRITE(sql, STATEMENT_coupon_keep, error, id, sql_i64(coupon->seq),
                               sql_text(span_of(REASON_KEPT)));
        fix->is_renumbered = fix->is_renumbered || coupon->nth != coupon->place;
        if (coupon->is_above)
            places_name(fix, coupon);
    }
    return status;
}

enum status places_set(struct sql *sql, struct ledger_fix *fix, struct error *error)
{
    struct rows_list list = {.read = places_read, .row_size = sizeof(struct placed_coupon)};
    struct places places;
    struct policy policy;
    enum status status = rows_policy_by_id(sql, fix->policy_id, ROWS_LOOK, &policy, error);

    fix->is_renumbered = false;
    fix->kept_count = 0;
    fix->kept[0] = '\0';
    if (status == STATUS_OK)
        status = SQL_RUN(sql, STATEMENT_coupon_crowded, rows_gather, &list, error,
                         sql_i64(fix->policy_id), sql_i64(policy.per_user_limit));
    places =
        (struct places){.coupons = (struct placed_coupon *)(void *)list.rows, .count = list.count};
    if (status == STATUS_OK)
        status = places_choose_all(&places, policy.per_user_limit, error);
    if (status == STATUS_OK)
        status = places_write(sql, &places, fix, error);
    free(list.rows);
    return status;
}
