/* suggest.h: finds the known word that a mistyped one was probably meant to be.
 *
 * Distance counts inserted, dropped, changed and swapped characters; "-" and "_" are the same, so
 * that a key's name finds its flag. Only a word that is near (one change per three characters, at
 * least one) is ever suggested.
 *
 * Threads: one search belongs to one thread.
 */
#ifndef CONFIG_SUGGEST_H
#define CONFIG_SUGGEST_H

#include <stddef.h>

/* Longer words are not compared. */
#define SUGGEST_LENGTH_MAX 48

struct suggestion {
    const char *word;
    const char *best;
    size_t best_distance;
};

/* Begins a search; `word` is borrowed until the search is over. */
void suggestion_begin(struct suggestion *suggestion, const char *word);

/* Compares one known word; it must outlive the search. */
void suggestion_offer(struct suggestion *suggestion, const char *known);

/* The nearest word offered so far, or NULL when none is near. The first of equals wins. */
const char *suggestion_best(const struct suggestion *suggestion);

#endif
