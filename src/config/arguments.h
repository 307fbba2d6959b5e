/* arguments.h: walks a command line as flags and words.
 *
 * A flag is "--name", "--name=value" or "-n"; everything after "--" is a word, and so is "-".
 * Which flags take a value is the caller's knowledge, so the caller takes it.
 *
 * Threads: a walk belongs to one thread; the strings belong to whoever owns argv.
 */
#ifndef CONFIG_ARGUMENTS_H
#define CONFIG_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>

#define ARGUMENT_NAME_SIZE 64

struct arguments {
    char *const *argv;
    int argc;
    int next;
    bool words_only; /* "--" has been passed */
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

#endif
