/* count.c: adds up what people were told and what the database has. */
#include "lab/count.h"

#include <libpq-fe.h>
#include <stdlib.h>
#include <string.h>

/* What is known of one user. */
struct count_user {
    uint32_t rows;
    bool was_told_yes;
    bool was_told_no;
    bool was_told_already;
    bool was_lost; /* an answer did not come: nothing can be held against it */
    int64_t row_at_ms;
    int64_t yes_at_ms;
};

int64_t lab_figures_wrong(const struct lab_figures *figures)
{
    int64_t sum = 0;
#define ADD(field, json, heading, words) sum += figures->field;
    LAB_ANOMALIES(ADD)
#undef ADD
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

static void count_told(struct lab_figures *figures, struct count_user *users,
                       const struct lab_storm *storm, double *latencies)
{
    size_t answered = 0;
    for (size_t i = 0; i < storm->press_count; i++) {
        const struct storm_press *press = &storm->presses[i];
        struct count_user *user = &users[press->user];
        bool is_yes = press->outcome == STORM_WON || press->outcome == STORM_HELD;
        if (is_yes && !user->was_told_yes)
            user->yes_at_ms = storm->started_wall_ms + press->answered_ns / 1000000;
        user->was_told_yes |= is_yes;
        user->was_told_no |= press->outcome == STORM_SOLD_OUT;
        user->was_told_already |= press->outcome == STORM_ALREADY;
        user->was_lost |= press->outcome == STORM_LOST || press->outcome == STORM_FAILED;
        figures->sent_away += press->outcome == STORM_BUSY;
        figures->lost += press->outcome == STORM_LOST || press->outcome == STORM_FAILED;
        if (press->outcome != STORM_LOST)
            latencies[answered++] = (double)(press->answered_ns - press->sent_ns) / 1e6;
    }
    figures->presses = (int64_t)storm->press_count;
    figures->seconds = (double)storm->elapsed_ns / 1e9;
    figures->p50_ms = count_quantile(latencies, answered, 0.5);
    figures->p99_ms = count_quantile(latencies, answered, 0.99);
    figures->max_ms = answered > 0 ? latencies[answered - 1] : 0;
}

/* Losers who were answered before the last winner asked. */
static int64_t count_overtaken(const struct lab_storm *storm)
{
    int64_t last_winner_ns = 0, count = 0;
    for (size_t i = 0; i < storm->press_count; i++)
        if (storm->presses[i].outcome == STORM_WON && storm->presses[i].sent_ns > last_winner_ns)
            last_winner_ns = storm->presses[i].sent_ns;
    for (size_t i = 0; i < storm->press_count; i++)
        count += storm->presses[i].outcome == STORM_SOLD_OUT &&
                 storm->presses[i].answered_ns < last_winner_ns;
    return count;
}

static void count_users(struct lab_figures *figures, const struct count_user *users, uint32_t count,
                        double *delays)
{
    size_t delayed = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct count_user *user = &users[i];
        figures->yes += user->was_told_yes;
        figures->rows += user->rows;
        figures->won_twice += user->rows > 1;
        figures->yes_without_row += user->was_told_yes && user->rows == 0;
        figures->row_without_yes +=
            user->rows > 0 && user->was_told_no && !user->was_told_yes && !user->was_lost;
        figures->already_with_nothing +=
            user->was_told_already && !user->was_told_yes && user->rows == 0 && !user->was_lost;
        if (user->was_told_yes && user->rows > 0) {
            double delay = (double)(user->row_at_ms - user->yes_at_ms);
            delays[delayed++] = delay > 0 ? delay : 0;
        }
    }
    figures->row_p50_ms = count_quantile(delays, delayed, 0.5);
    figures->row_p99_ms = count_quantile(delays, delayed, 0.99);
    figures->row_last_ms = delayed > 0 ? delays[delayed - 1] : 0;
}

static enum status count_rows(struct count_user *users, const struct storm_shape *shape,
                              const char *database, const char *statement, struct error *error)
{
    PGconn *db = PQconnectdb(database);
    PGresult *result = PQexec(db, statement);
    enum status status = STATUS_OK;
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        status = error_set(error, STATUS_UNAVAILABLE, "the rows cannot be read: %.200s",
                           PQerrorMessage(db));
    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
        const char *name = PQgetvalue(result, i, 0);
        unsigned long number =
            strcmp(name, "poison") == 0 ? shape->users / 7 : strtoul(name + 2, NULL, 10);
        if (number < shape->users) {
            users[number].rows++;
            users[number].row_at_ms = strtoll(PQgetvalue(result, i, 1), NULL, 10);
        }
    }
    PQclear(result);
    PQfinish(db);
    return status;
}

enum status lab_count(struct lab_figures *figures, const struct lab_storm *storm,
                      const struct storm_shape *shape, int64_t total, const char *database,
                      const char *statement, struct error *error)
{
    struct count_user *users = calloc(shape->users, sizeof(*users));
    double *values = calloc(storm->press_count + shape->users, sizeof(*values));
    if (users == NULL || values == NULL) {
        free(users);
        free(values);
        return error_set(error, STATUS_UNAVAILABLE, "no memory for %u users", shape->users);
    }
    enum status status = count_rows(users, shape, database, statement, error);
    count_told(figures, users, storm, values);
    count_users(figures, users, shape->users, values);
    figures->overtaken = count_overtaken(storm);
    figures->oversold = figures->rows > total ? figures->rows - total : 0;
    figures->overtold = figures->yes > total ? figures->yes - total : 0;
    if (figures->rows < total && shape->users > total)
        figures->unsold = total - figures->rows;
    free(users);
    free(values);
    return status;
}
