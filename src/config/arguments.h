/* arguments.h: walks a command line as flags and words, and finds the known word that a mistyped
 * one was probably meant to be.
 *
 * A flag is "--name", "--name=value" or "-n"; everything after "--" is a word, and so is "-".
 * Which flags take a value is the caller's knowledge, so the caller takes it.
 *
 * Threads: a walk belongs to one thread; the strings belong to whoever owns argv.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define ARGUMENT_NAME_SIZE 64

struct arguments {
    char *const *argv;
    int argc;
    int next;
    bool positional_only; /* "--" has been passed */
};

struct argument {
    bool is_flag;
    const char *text;              /* as it was typed */
    int text_length;               /* of a flag: without its value, which may be a secret */
    char name[ARGUMENT_NAME_SIZE]; /* a flag without its dashes and value, cut when too long */
    const char *value;             /* of a flag: what follows "=", or NULL */
};

/* Begins before argv[0]. */
void arguments_begin(struct arguments *arguments, int argc, char *const *argv);

/* The next flag or word; false at the end. */
bool arguments_next(struct arguments *arguments, struct argument *argument);

/* The value of the flag just returned: what followed "=", else the next argument, which is then
 * used up. NULL when there is none; the next argument is none when it starts with "--". */
const char *arguments_value(struct arguments *arguments, const struct argument *argument);

/* --- what was meant ---
 *
 * Distance counts inserted, dropped, changed and swapped characters; "-" and "_" are the same, so
 * that a key's name finds its flag. */

/* Longer words are not compared. */
#define SUGGEST_LENGTH_MAX 48

struct suggestion {
    const char *word;
    const char *best;
    size_t best_distance;
    char hint[128];
};

/* Begins a search; `word` is borrowed until the search is over. */
void suggestion_begin(struct suggestion *suggestion, const char *word);

/* Compares one known word; it must outlive the search. */
void suggestion_offer(struct suggestion *suggestion, const char *known);

/* "; did you mean --total?" with the nearest word offered, the first of equals, behind `prefix`.
 * `otherwise` when none is near: more than one change per three characters, and than one. Valid as
 * long as the search. */
const char *suggestion_hint(struct suggestion *suggestion, const char *prefix,
                            const char *otherwise);
