/* table.c: tables for a terminal. */
#include "lab/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

void lab_progress_show(void *progress, size_t answered, size_t count)
{
    const struct lab_progress *at = progress;
    if (!isatty(STDERR_FILENO))
        return;
    double spent_s = (double)(clock_monotonic_ms() - at->start_ms) / 1000;
    char left[32] = "";
    if (at->run > 3)
        snprintf(left, sizeof(left), "about %.0f s left",
                 spent_s / (double)at->run * (double)(at->run_count - at->run));
    fprintf(stderr, "\r\033[K[%zu/%zu] %s: %s  %zu of %zu answered  %s", at->run, at->run_count,
            at->scenario, at->design, answered, count, left);
}

void lab_progress_clear(void)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
}

void lab_table_scenario(const struct lab_book *book, size_t scenario)
{
    const struct lab_scenario *one = book->scenarios[scenario];
    char verdict[256];
    printf("\n%s (%s)\n%s\n\n", one->title, one->name, one->words);
    printf("%-18s %6s %6s %7s %8s %8s %8s %8s %8s  %s\n", "design", "yes", "rows", "req/s",
           "p50 ms", "p99 ms", "max ms", "row p99", "cpu s/M", "what went wrong");
    for (size_t i = 0; i < book->contestant_count; i++) {
        const struct lab_result *result = &book->results[scenario][i];
        const struct lab_figures *sum = &result->sum;
        double rounds = result->rounds;
        if (result->rounds == 0)
            continue;
        lab_result_tell(result, verdict, sizeof(verdict));
        printf("%-18s %6lld %6lld %7.0f %8.1f %8.1f %8.1f %8.0f %8.0f  %s\n",
               book->contestants[i]->name, (long long)sum->yes, (long long)sum->rows,
               sum->per_second / rounds, sum->p50_ms / rounds, sum->p99_ms / rounds,
               sum->max_ms / rounds, sum->row_p99_ms / rounds,
               (sum->front_cpu + sum->redis_cpu + sum->database_cpu + sum->broker_cpu) / rounds,
               verdict);
    }
    fflush(stdout);
}

void lab_table_all(const struct lab_book *book)
{
    printf("\nAll of it: how many things went wrong; \".\" is none, blank is not run\n\n%-18s",
           "design");
    for (size_t i = 0; i < book->scenario_count; i++)
        printf(" %s", book->scenarios[i]->name);
    printf("\n");
    for (size_t j = 0; j < book->contestant_count; j++) {
        int run, right;
        lab_book_judge(book, j, &run, &right);
        printf("%-18s", book->contestants[j]->name);
        for (size_t i = 0; i < book->scenario_count; i++) {
            const struct lab_result *result = &book->results[i][j];
            int width = (int)strlen(book->scenarios[i]->name);
            long long wrong = (long long)lab_figures_wrong(&result->sum);
            if (wrong > 0)
                printf(" %*lld", width, wrong);
            else
                printf(" %*s", width, result->rounds > 0 ? "." : "");
        }
        printf("  %s\n", run == right ? "right" : "");
    }
    printf("\n%zu designs, %d round%s each", book->contestant_count, book->rounds,
           book->rounds > 1 ? "s" : "");
    if (book->seconds > 0)
        printf(", %.0f s", book->seconds);
    printf("\n");
    fflush(stdout);
}

void lab_table_json(const struct lab_contestant *contestant, const struct lab_scenario *scenario,
                    uint64_t seed, const struct lab_figures *figures)
{
    printf("{\"design\":\"%s\",\"scenario\":\"%s\",\"seed\":%llu", contestant->name, scenario->name,
           (unsigned long long)seed);
#define PRINT(field, constant, heading, words) \
    printf(",\"" #field "\":%lld", (long long)figures->field);
    LAB_ANOMALIES(PRINT)
#undef PRINT
    printf(",\"presses\":%lld,\"yes\":%lld,\"rows\":%lld,\"lost\":%lld",
           (long long)figures->presses, (long long)figures->yes, (long long)figures->rows,
           (long long)figures->lost);
#define PRINT(field) printf(",\"" #field "\":%.3f", figures->field);
    LAB_MEASURES(PRINT)
#undef PRINT
    printf("}\n");
    fflush(stdout);
}

/* The number after "name": in a line of ours. */
static double table_number(const char *line, const char *name)
{
    char key[64];
    snprintf(key, sizeof(key), "\"%s\":", name);
    const char *found = strstr(line, key);
    return found != NULL ? strtod(found + strlen(key), NULL) : 0;
}

static bool table_is(const char *line, const char *key, const char *name)
{
    char text[128];
    snprintf(text, sizeof(text), "\"%s\":\"%s\"", key, name);
    return strstr(line, text) != NULL;
}

static void table_figures(const char *line, struct lab_figures *figures)
{
#define READ(field, constant, heading, words) figures->field = (int64_t)table_number(line, #field);
    LAB_ANOMALIES(READ)
#undef READ
#define READ(field) figures->field = table_number(line, #field);
    LAB_MEASURES(READ)
#undef READ
    figures->presses = (int64_t)table_number(line, "presses");
    figures->yes = (int64_t)table_number(line, "yes");
    figures->rows = (int64_t)table_number(line, "rows");
    figures->lost = (int64_t)table_number(line, "lost");
}

static void table_add(struct lab_book *book, const char *line)
{
    struct lab_figures figures;
    table_figures(line, &figures);
    for (size_t i = 0; i < book->scenario_count; i++)
        for (size_t j = 0; j < book->contestant_count; j++) {
            struct lab_result *result = &book->results[i][j];
            if (!table_is(line, "scenario", book->scenarios[i]->name) ||
                !table_is(line, "design", book->contestants[j]->name))
                continue;
            lab_result_add(result, &figures);
            book->rounds = result->rounds > book->rounds ? result->rounds : book->rounds;
        }
}

bool lab_table_recall(struct lab_book *book, const char *name)
{
    char line[4096];
    FILE *file = fopen(name, "re");
    if (file == NULL)
        return false;
    while (fgets(line, sizeof(line), file) != NULL)
        table_add(book, line);
    return fclose(file) == 0;
}
