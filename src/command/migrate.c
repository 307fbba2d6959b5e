/* migrate.c: `dibs migrate`: brings the ledger's schema up to date, or shows what that takes. */
#include <stdio.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "command/command.h"
#include "config/config.h"
#include "ledger/ledger.h"

#define MIGRATIONS_MAX 64
#define OUTPUT_MAX     (4 * 1024 * 1024)

/* What the database lacked, in order. The texts live as long as the program. */
struct missing {
    struct {
        int number;
        const char *name;
        const char *text;
    } migrations[MIGRATIONS_MAX];
    size_t count;
};

static void note_missing(void *context, int number, const char *name, const char *text)
{
    struct missing *missing = context;
    ensure(missing->count < MIGRATIONS_MAX);
    missing->migrations[missing->count].number = number;
    missing->migrations[missing->count].name = name;
    missing->migrations[missing->count++].text = text;
}

static void append_json(struct buffer *out, const struct missing *missing,
                        enum ledger_migration mode, int schema)
{
    bool shows = mode == LEDGER_MIGRATION_SHOW;
    buffer_append_literal(out, "{");
    json_put(out, "schema", schema);
    json_put_flag(out, "dry_run", shows);
    buffer_append_literal(out, ",\"migrations\":[");
    for (size_t i = 0; i < missing->count; i++) {
        json_begin(out, '{');
        json_put(out, "number", missing->migrations[i].number);
        json_put(out, "name", missing->migrations[i].name);
        if (shows)
            json_put(out, "sql", missing->migrations[i].text);
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "]}\n");
}

static void append_words(struct buffer *out, const struct missing *missing,
                         enum ledger_migration mode, int schema)
{
    if (missing->count == 0) {
        buffer_printf(out, "nothing to do, schema %d\n", schema);
        return;
    }
    for (size_t i = 0; i < missing->count; i++) {
        if (mode == LEDGER_MIGRATION_SHOW) {
            buffer_printf(out, "%s-- %s\n%s", i == 0 ? "" : "\n", missing->migrations[i].name,
                          missing->migrations[i].text);
        } else {
            buffer_printf(out, "applied %s\n", missing->migrations[i].name);
        }
    }
    if (mode == LEDGER_MIGRATION_APPLY)
        buffer_printf(out, "schema %d\n", schema);
}

static int migrate(const struct command_call *call, const struct config *config)
{
    struct ledger_options options = {
        .url = config->ledger,
        .password = config->ledger_password.bytes,
        .use = LEDGER_SHARE,
        .timeout_ms = config->ledger_timeout_ms,
    };
    enum ledger_migration mode =
        command_option(call, "dry-run") != NULL ? LEDGER_MIGRATION_SHOW : LEDGER_MIGRATION_APPLY;
    struct missing missing = {.count = 0};
    struct error error;
    enum status status = ledger_migrate(&options, mode, note_missing, &missing, &error);
    if (status != STATUS_OK)
        return command_result(call, status, &error);
    struct buffer out;
    buffer_init(&out, OUTPUT_MAX);
    bool in_json = command_option(call, "json") != NULL;
    (in_json ? append_json : append_words)(&out, &missing, mode, ledger_schema(config->ledger));
    command_print(&out);
    return COMMAND_FINE;
}

int command_migrate(const struct command_call *call)
{
    struct config config;
    struct error error;
    int code = command_load_settings(call, &config);
    if (code != COMMAND_FINE)
        return code;
    /* What was applied is said on stdout; the log repeats it for who asks for details. */
    enum log_level level = config.log_level == LOG_INFO ? LOG_WARN : config.log_level;
    log_configure(level, config.log_format, STDERR_FILENO);
    for (size_t i = 0; i < config.warnings.count; i++)
        fprintf(stderr, "%s: warning: %s\n", call->path, config.warnings.items[i]);
    if (config_check_backends(&config, &error) != STATUS_OK)
        code = command_usage(call, "%s", error.text);
    else
        code = migrate(call, &config);
    config_release(&config);
    return code;
}
