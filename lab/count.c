/* count.c: adds up what people were told and what the database has. */
#include "lab/count.h"

#include <libpq-fe.h>
#include <stdlib.h>
#include <string.h>

/* What is known of one user of one policy. */
struct count_user {
    uint32_t rows;
    uint32_t wins; /* how often they were told that they have just won */
    bool was_told_yes;
    bool was_told_no;
    bool was_told_already;
    bool was_taken_back;
    bool was_sent_away; /* with an error or a 503, or without an answer */
    bool was_lost;      /* an answer did not come: nothing can be held against it */
    int64_t row_at_ms;
    int64_t yes_at_ms;
};

/* One count at a time. */
struct count {
    struct lab_figures *figures;
    const struct lab_storm *storm;
    const struct storm_shape *shape;
    struct count_user *users; /* of all policies */
    double *values;
    int64_t total;
};

const char *const lab_wrong_headings[LAB_WRONGS] = {
#define HEADING(field, constant, heading, words) heading,
    LAB_ANOMALIES(HEADING)
#undef HEADING
};

const char *const lab_wrong_words[LAB_WRONGS] = {
#define WORDS(field, constant, heading, words) words,
    LAB_ANOMALIES(WORDS)
#undef WORDS
};

int64_t lab_figures_of(const struct lab_figures *figures, enum lab_wrong kind)
{
    const int64_t all[] = {
#define FIGURE(field, constant, heading, words) figures->field,
        LAB_ANOMALIES(FIGURE)
#undef FIGURE
    };
    return all[kind];
}

int64_t lab_figures_wrong(const struct lab_figures *figures)
{
    int64_t sum = 0;
    for (int i = 0; i < LAB_WRONGS; i++)
        sum += lab_figures_of(figures, (enum lab_wrong)i);
    return sum;
}

static int count_compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double count_quantile(double *values, size_t count, double quantile)
{
    if (count == 0)
        return 0;
    qsort(values, count, sizeof(*values), count_compare);
    size_t at = (size_t)(quantile * (double)count);
    return values[at < count ? at : count - 1];
}

static struct count_user *count_user_of(const struct count *count, int policy, uint32_t user)
{
    return &count->users[(size_t)(policy - 1) * count->shape->users + user];
}

static void count_told(struct count *count)
{
    const struct lab_storm *storm = count->storm;
    struct lab_figures *figures = count->figures;
    size_t answered = 0;
    for (size_t i = 0; i < storm->press_count; i++) {
        const struct storm_press *press = &storm->presses[i];
        struct count_user *user = count_user_of(count, press->policy, press->user);
        bool is_yes = press->outcome == STORM_WON || press->outcome == STORM_HELD;
        if (is_yes && !user->was_told_yes)
            user->yes_at_ms = storm->started_wall_ms + press->answered_ns / 1000000;
        user->wins += press->outcome == STORM_WON;
        user->was_told_yes |= is_yes;
        user->was_told_no |= press->outcome == STORM_SOLD_OUT;
        user->was_told_already |= press->outcome == STORM_ALREADY;
        user->was_lost |= press->outcome == STORM_LOST || press->outcome == STORM_FAILED;
        user->was_sent_away |= press->outcome == STORM_BUSY || press->outcome == STORM_FAILED ||
                               press->outcome == STORM_LOST;
        figures->lost += press->outcome == STORM_LOST || press->outcome == STORM_FAILED;
        if (press->outcome != STORM_LOST)
            count->values[answered++] = (double)(press->answered_ns - press->sent_ns) / 1e6;
    }
    figures->presses = (int64_t)storm->press_count;
    figures->seconds = (double)storm->elapsed_ns / 1e9;
    figures->per_second = (double)storm->press_count / figures->seconds;
    figures->p50_ms = count_quantile(count->values, answered, 0.5);
    figures->p99_ms = count_quantile(count->values, answered, 0.99);
    figures->max_ms = answered > 0 ? count->values[answered - 1] : 0;
}

/* To one whom the database refuses there is nothing to say but no. */
static bool count_is_refused(const struct count *count, uint32_t user)
{
    return count->shape->has_poison && user == storm_poisoned(count->shape);
}

static bool count_is_no(const struct count *count, const struct storm_press *press)
{
    return (press->outcome == STORM_SOLD_OUT || press->outcome == STORM_BUSY) &&
           !count_is_refused(count, press->user);
}

/* Losers who were answered before the last winner of their policy asked. */
static int64_t count_overtaken(const struct count *count)
{
    const struct lab_storm *storm = count->storm;
    int64_t sum = 0;
    for (int policy = 1; policy <= count->shape->policies; policy++) {
        int64_t last_winner_ns = 0;
        for (size_t i = 0; i < storm->press_count; i++) {
            const struct storm_press *press = &storm->presses[i];
            if (press->policy == policy && press->outcome == STORM_WON &&
                press->sent_ns > last_winner_ns)
                last_winner_ns = press->sent_ns;
        }
        for (size_t i = 0; i < storm->press_count; i++) {
            const struct storm_press *press = &storm->presses[i];
            sum += press->policy == policy && count_is_no(count, press) &&
                   press->answered_ns < last_winner_ns &&
                   !count_user_of(count, policy, press->user)->was_told_yes;
        }
    }
    return sum;
}

static void count_policy(struct count *count, int policy, double *delays, size_t *delayed)
{
    struct lab_figures *figures = count->figures;
    int64_t yes = 0, rows = 0;
    for (uint32_t i = 0; i < count->shape->users; i++) {
        const struct count_user *user = count_user_of(count, policy, i);
        yes += user->was_told_yes;
        rows += user->rows;
        figures->won_twice += user->rows > 1 || user->wins > 1;
        figures->sent_away += user->was_sent_away && !user->was_told_yes && !user->was_told_no &&
                              !user->was_told_already && !count_is_refused(count, i);
        figures->taken_back += user->was_told_yes && user->rows == 0 && user->was_taken_back;
        figures->yes_without_row += user->was_told_yes && user->rows == 0 && !user->was_taken_back;
        figures->row_without_yes +=
            user->rows > 0 && user->was_told_no && !user->was_told_yes && !user->was_lost;
        figures->already_with_nothing +=
            user->was_told_already && !user->was_told_yes && user->rows == 0 && !user->was_lost;
        if (user->was_told_yes && user->rows > 0) {
            double delay = (double)(user->row_at_ms - user->yes_at_ms);
            delays[(*delayed)++] = delay > 0 ? delay : 0;
        }
    }
    figures->yes += yes;
    figures->rows += rows;
    figures->oversold += rows > count->total ? rows - count->total : 0;
    figures->overtold += yes > count->total ? yes - count->total : 0;
    if (rows < count->total && count->shape->users > count->total)
        figures->unsold += count->total - rows;
}

static void count_users(struct count *count)
{
    struct lab_figures *figures = count->figures;
    size_t delayed = 0;
    for (int policy = 1; policy <= count->shape->policies; policy++)
        count_policy(count, policy, count->values, &delayed);
    figures->row_p50_ms = count_quantile(count->values, delayed, 0.5);
    figures->row_p99_ms = count_quantile(count->values, delayed, 0.99);
    figures->row_last_ms = delayed > 0 ? count->values[delayed - 1] : 0;
}

/* Calls for each record of a statement. */
static enum status count_read(const struct count *count, const char *database,
                              const char *statement, bool is_taken_back, struct error *error)
{
    PGconn *db = PQconnectdb(database);
    PGresult *result = PQexec(db, statement);
    enum status status = STATUS_OK;
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        status = error_set(error, STATUS_UNAVAILABLE, "the rows cannot be read: %.200s",
                           PQerrorMessage(db));
    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
        int policy = atoi(PQgetvalue(result, i, 0));
        const char *name = PQgetvalue(result, i, 1);
        uint32_t number = strcmp(name, STORM_POISON) == 0 ? storm_poisoned(count->shape)
                                                          : (uint32_t)strtoul(name + 2, NULL, 10);
        if (number >= count->shape->users || policy < 1 || policy > count->shape->policies)
            continue;
        struct count_user *user = count_user_of(count, policy, number);
        user->was_taken_back |= is_taken_back;
        if (!is_taken_back) {
            user->rows++;
            user->row_at_ms = strtoll(PQgetvalue(result, i, 2), NULL, 10);
        }
    }
    PQclear(result);
    PQfinish(db);
    return status;
}

enum status lab_count(struct lab_figures *figures, const struct lab_storm *storm,
                      const struct storm_shape *shape, int64_t total, int64_t burnt,
                      const struct lab_records *records, struct error *error)
{
    size_t user_count = (size_t)shape->users * (size_t)shape->policies;
    struct count count = {.figures = figures, .storm = storm, .shape = shape, .total = total};
    count.users = calloc(user_count, sizeof(*count.users));
    count.values = calloc(storm->press_count + user_count, sizeof(*count.values));
    if (count.users == NULL || count.values == NULL) {
        free(count.users);
        free(count.values);
        return error_set(error, STATUS_UNAVAILABLE, "no memory for %u users", shape->users);
    }
    enum status status = count_read(&count, records->database, records->rows, false, error);
    if (status == STATUS_OK && records->taken_back != NULL)
        status = count_read(&count, records->database, records->taken_back, true, error);
    count_told(&count);
    count_users(&count);
    figures->overtaken = count_overtaken(&count);
    figures->burnt = burnt < figures->unsold ? burnt : figures->unsold;
    figures->unsold -= figures->burnt;
    free(count.users);
    free(count.values);
    return status;
}
