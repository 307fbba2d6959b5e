/* command.h: what a subcommand is, and how a command line becomes a call of one.
 *
 * main.c has the one table of commands. Parsing, `--help`, the completion and the man page are
 * made from it, so a command's code only reads values that are known to be there.
 *
 * Exit codes are the contract's: 0 fine, 1 failed, 2 usage, 3 a guarantee is broken, 4 a target
 * was missed. Data goes to stdout, messages to stderr.
 *
 * Threads: the main thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/error.h"

enum command_exit {
    COMMAND_FINE = 0,
    COMMAND_FAILED = 1,
    COMMAND_USAGE = 2,
    COMMAND_GUARANTEE_BROKEN = 3,
    COMMAND_TARGET_MISSED = 4,
};

#define COMMAND_WORDS_MAX   4
#define COMMAND_OPTIONS_MAX 32

/* One flag of a command. A list of them ends with a NULL name. */
struct option {
    const char *name;       /* "opens-at" for --opens-at */
    const char *value_name; /* "TIME"; NULL: a switch without a value */
    const char *help;
};

struct command_call;

/* One row of the table. A list of them ends with a NULL name. */
struct command {
    const char *name;
    const char *summary; /* one line, no full stop */
    const char *words;   /* "POLICY USER", "[POLICY USER]", or NULL */
    int arguments_min;
    int arguments_max;
    const char *const *examples; /* end with NULL */
    const char *description;     /* what the summary leaves open, or NULL */
    const struct option *options;
    const struct option *shared_options; /* those of every client command, or NULL */
    const char *initial;                 /* the option that its first letter stands for, or NULL */
    bool takes_settings;                 /* every setting of config.h is a flag too */
    bool hidden;                         /* not listed in `dibs help` */
    const struct command *subcommands;   /* then `run` is NULL */
    int (*run)(const struct command_call *call);
};

/* A command line, understood. Borrowed for the run. */
struct command_call {
    const struct command *commands; /* the whole table */
    const struct command *command;
    const char *path; /* "dibs policy create" */

    const char *words[COMMAND_WORDS_MAX];
    int word_count;

    /* For a command that takes settings: what config_load() reads. */
    char **settings;
    int setting_count;

    const char *values[COMMAND_OPTIONS_MAX]; /* by command_option() */
};

/* Runs what the command line says; the process's exit code. */
int command_main(const struct command *commands, int argc, char **argv);

/* The value of --name, "" for a switch that is on, NULL when it was not given. The name must be in
 * the command's lists. */
const char *command_option(const struct command_call *call, const char *name);

/* The value of --name as a whole number or a duration; what is there stays when it was not given.
 * COMMAND_FINE, or COMMAND_USAGE in words. */
int command_number(const struct command_call *call, const char *name, int64_t minimum,
                   int64_t maximum, int64_t *number);
int command_duration(const struct command_call *call, const char *name, int64_t minimum_ms,
                     int64_t *duration_ms);

/* Every option of a command in turn; NULL after the last. */
const struct option *command_option_at(const struct command *command, size_t index);

/* The command of that name in a list, or NULL. */
const struct command *command_find(const struct command *commands, const char *name);

/* Says "dibs policy create: …" and where the help is, on stderr; returns COMMAND_USAGE. */
int command_usage(const struct command_call *call, const char *format, ...) PRINTF_LIKE(2, 3);

/* Says "dibs policy create: …" on stderr; returns COMMAND_FAILED. */
int command_fail(const struct command_call *call, const char *format, ...) PRINTF_LIKE(2, 3);

/* COMMAND_FINE, or one of the two with the error's words: INVALID is a matter of usage. */
int command_result(const struct command_call *call, enum status status, const struct error *error);

/* Writes it on stdout and releases it. */
void command_print(struct buffer *out);

struct config;

/* For a command that takes settings: config_load() with the words said. COMMAND_FINE, or the code
 * to exit with; then there is nothing to release. */
int command_load_settings(const struct command_call *call, struct config *config);

/* The same once more, without a word. */
enum status command_read_settings(const struct command_call *call, struct config *config,
                                  struct error *error) MUST_CHECK;

/* --- the commands --- */

int command_serve(const struct command_call *call);
int command_worker(const struct command_call *call);
int command_policy_create(const struct command_call *call);
int command_policy_list(const struct command_call *call);
int command_policy_show(const struct command_call *call);
int command_policy_update(const struct command_call *call);
int command_policy_pending(const struct command_call *call);
int command_policy_pause(const struct command_call *call);
int command_policy_resume(const struct command_call *call);
int command_policy_close(const struct command_call *call);
int command_claim(const struct command_call *call);
int command_status(const struct command_call *call);
int command_product_import(const struct command_call *call);
int command_product_top(const struct command_call *call);
int command_product_rank(const struct command_call *call);
int command_actions(const struct command_call *call);
int command_backup(const struct command_call *call);
int command_restore(const struct command_call *call);
int command_webhook_show(const struct command_call *call);
int command_webhook_test(const struct command_call *call);
int command_webhook_enable(const struct command_call *call);
int command_webhook_redeliver(const struct command_call *call);
int command_coupon_show(const struct command_call *call);
int command_coupon_cancel(const struct command_call *call);
int command_coupon_redeem(const struct command_call *call);
int command_coupon_reissue(const struct command_call *call);
int command_user_block(const struct command_call *call);
int command_user_unblock(const struct command_call *call);
int command_user_erase(const struct command_call *call);
int command_dead_list(const struct command_call *call);
int command_dead_retry(const struct command_call *call);
int command_dead_drop(const struct command_call *call);
int command_rush(const struct command_call *call);
int command_top(const struct command_call *call);
int command_audit(const struct command_call *call);
int command_config(const struct command_call *call);
int command_migrate(const struct command_call *call);
int command_version(const struct command_call *call);
int command_help(const struct command_call *call);
int command_completion(const struct command_call *call);
int command_manual(const struct command_call *call);

/* --- what is printed about them --- */

/* `dibs COMMAND --help`, or of all (NULL): `dibs --help`. COMMAND_FINE on stdout, else
 * COMMAND_USAGE. */
int help_print(FILE *stream, const struct command_call *call, const struct command *command,
               const char *path);

/* The script that bash reads, and dibs(1) in roff. */
void completion_append_bash(struct buffer *out, const struct command *commands);
/* Nothing for a shell that it does not know. */
void completion_append(struct buffer *out, const char *shell, const struct command *commands);
void manual_append_page(struct buffer *out, const struct command *commands);
