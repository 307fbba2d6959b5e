/* arguments.c: cuts flags into name and value, and finds what a mistyped word was meant to be. */
#include "config/arguments.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void arguments_begin(struct arguments *arguments, int argc, char *const *argv)
{
    *arguments = (struct arguments){.argv = argv, .argc = argc};
}

bool arguments_next(struct arguments *arguments, struct argument *argument)
{
    if (arguments->next >= arguments->argc)
        return false;
    const char *text = arguments->argv[arguments->next++];
    if (!arguments->positional_only && strcmp(text, "--") == 0) {
        arguments->positional_only = true;
        return arguments_next(arguments, argument);
    }
    *argument = (struct argument){.text = text, .text_length = (int)strlen(text)};
    if (arguments->positional_only || text[0] != '-' || text[1] == '\0')
        return true;
    argument->is_flag = true;
    const char *name = text + (text[1] == '-' ? 2 : 1);
    const char *equals = strchr(name, '=');
    argument->text_length = (int)strcspn(text, "=");
    size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);
    snprintf(argument->name, sizeof(argument->name), "%.*s", (int)length, name);
    argument->value = equals != NULL ? equals + 1 : NULL;
    return true;
}

const char *arguments_value(struct arguments *arguments, const struct argument *argument)
{
    if (argument->value != NULL)
        return argument->value;
    if (arguments->next >= arguments->argc)
        return NULL;
    const char *text = arguments->argv[arguments->next];
    if (strncmp(text, "--", 2) == 0)
        return NULL;
    arguments->next++;
    return text;
}

/* --- what was meant --- */

static int suggest_fold(char character)
{
    return character == '-' ? '_' : tolower((unsigned char)character);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Optimal string alignment; three rows suffice because a swap looks back two. */
static size_t suggest_distance(const char *a, const char *b)
{
    size_t rows[3][SUGGEST_LENGTH_MAX + 1];
    size_t a_length = strlen(a);
    size_t b_length = strlen(b);
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i - 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            int a_now = suggest_fold(a[i - 1]);
            int b_now = suggest_fold(b[j - 1]);
            size_t changed = above[j - 1] + (a_now != b_now);
            row[j] = least(changed, least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a_now == suggest_fold(b[j - 2]) &&
                suggest_fold(a[i - 2]) == b_now)
                row[j] = least(row[j], rows[(i - 2) % 3][j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

void suggestion_begin(struct suggestion *suggestion, const char *word)
{
    *suggestion = (struct suggestion){.word = word, .best_distance = SIZE_MAX};
}

void suggestion_offer(struct suggestion *suggestion, const char *known)
{
    if (strlen(suggestion->word) > SUGGEST_LENGTH_MAX || strlen(known) > SUGGEST_LENGTH_MAX)
        return;
    size_t distance = suggest_distance(suggestion->word, known);
    if (distance < suggestion->best_distance) {
        suggestion->best = known;
        suggestion->best_distance = distance;
    }
}

const char *suggestion_hint(struct suggestion *suggestion, const char *prefix,
                            const char *otherwise)
{
    size_t allowed = strlen(suggestion->word) / 3;
    if (suggestion->best_distance > (allowed < 1 ? 1 : allowed))
        return otherwise;
    snprintf(suggestion->hint, sizeof(suggestion->hint), "; did you mean %s%s?", prefix,
             suggestion->best);
    return suggestion->hint;
}
