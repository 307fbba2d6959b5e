/* book.c: adds runs up, and says what they come to. */
#include <stdio.h>
#include <string.h>

#include "lab/report.h"

static const char *const dibs_why[LAB_FAULTS] = {
    [LAB_REDIS_KILLED] =
        "ack=gate rests on Redis's file, and says at the start that appendfsync everysec can lose "
        "up to two seconds of 202s; ack=ledger and appendfsync always lose nothing.",
    [LAB_POISON] = "ack=gate tells the win before the row, as 202: what the database refuses for "
                   "good becomes VOID with its reason, and its unit is for whoever asks next.",
};

void lab_result_add(struct lab_result *result, const struct lab_figures *figures)
{
    struct lab_figures *sum = &result->sum;
    result->rounds++;
    result->right += lab_figures_wrong(figures) == 0;
#define ADD(field, constant, heading, words) sum->field += figures->field;
    LAB_ANOMALIES(ADD)
#undef ADD
    sum->presses += figures->presses;
    sum->yes += figures->yes;
    sum->rows += figures->rows;
    sum->lost += figures->lost;
#define ADD(field) sum->field += figures->field;
    LAB_MEASURES(ADD)
#undef ADD
}

void lab_result_tell(const struct lab_result *result, char *text, size_t size)
{
    size_t length = 0;
    snprintf(text, size, "right");
    for (int i = 0; i < LAB_WRONGS && length < size; i++) {
        long long count = (long long)lab_figures_of(&result->sum, (enum lab_wrong)i);
        if (count > 0)
            length += (size_t)snprintf(text + length, size - length, "%s%s %lld",
                                       length > 0 ? ", " : "", lab_wrong_headings[i], count);
    }
}

void lab_book_judge(const struct lab_book *book, size_t contestant, int *run, int *right)
{
    *run = *right = 0;
    for (size_t i = 0; i < book->scenario_count; i++) {
        const struct lab_result *result = &book->results[i][contestant];
        *run += result->rounds > 0;
        *right += result->rounds > 0 && result->right == result->rounds;
    }
}

const char *lab_book_why(const struct lab_book *book, size_t scenario, size_t contestant,
                         enum lab_wrong kind)
{
    const struct lab_contestant *one = book->contestants[contestant];
    enum lab_fault fault = book->settings[scenario].fault;
    if (one->strategy == NULL)
        return dibs_why[fault];
    if (book->scenarios[scenario]->why != NULL)
        return book->scenarios[scenario]->why;
    return one->strategy->why_of[fault] != NULL ? one->strategy->why_of[fault]
                                                : one->strategy->why[kind];
}
