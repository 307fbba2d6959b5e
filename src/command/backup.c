/* backup.c: `dibs backup` and `dibs restore`: a copy of a SQLite ledger, taken while it is in use.
 */
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "command/command.h"
#include "config/config.h"
#include "ledger/backup.h"

#define OUTPUT_MAX 8192

static void print_copy(const struct command_call *call, const char *verb, const char *file,
                       const struct ledger_copy *copy)
{
    struct buffer out;

    buffer_init(&out, OUTPUT_MAX);
    if (command_option(call, "json") != NULL) {
        json_begin(&out, '{');
        json_put(&out, "file", file);
        json_put(&out, "bytes", copy->bytes);
        json_put(&out, "schema", copy->schema);
        json_put(&out, "policies", copy->policies);
        json_put(&out, "coupons", copy->coupons);
        if (copy->aside[0] != '\0')
            json_put(&out, "moved_aside", (const char *)copy->aside);
        buffer_append_literal(&out, "}\n");
    } else {
        buffer_printf(&out, "%s %s: %lld policies, %lld coupons, %lld bytes, verified\n", verb,
                      file, (long long)copy->policies, (long long)copy->coupons,
                      (long long)copy->bytes);
        if (copy->aside[0] != '\0')
            buffer_printf(&out, "what was there is %s now\n", copy->aside);
    }
    command_print(&out);
}

static int backup(const struct command_call *call, const struct config *config)
{
    struct ledger_copy copy;
    struct error error;
    enum status status = ledger_backup(config->ledger, call->words[0], &copy, &error);

    if (status != STATUS_OK)
        return command_result(call, status, &error);
    print_copy(call, "wrote", call->words[0], &copy);
    return COMMAND_FINE;
}

static int restore(const struct command_call *call, const struct config *config)
{
    enum ledger_restore how =
        command_option(call, "yes") != NULL ? LEDGER_RESTORE_OVER : LEDGER_RESTORE_NEW;
    struct ledger_copy copy;
    struct error error;
    enum status status = ledger_restore(config->ledger, call->words[0], how, &copy, &error);

    if (status != STATUS_OK)
        return command_result(call, status, &error);
    print_copy(call, "restored", call->words[0], &copy);
    return COMMAND_FINE;
}

static int with_settings(const struct command_call *call,
                         int (*run)(const struct command_call *call, const struct config *config))
{
    struct config config;
    struct error error;
    int code = command_load_settings(call, &config);

    if (code != COMMAND_FINE)
        return code;
    log_configure(config.log_level, config.log_format, STDERR_FILENO);
    if (config_check_backends(&config, &error) != STATUS_OK)
        code = command_usage(call, "%s", error.text);
    else
        code = run(call, &config);
    config_release(&config);
    return code;
}

int command_backup(const struct command_call *call)
{
    return with_settings(call, backup);
}

int command_restore(const struct command_call *call)
{
    return with_settings(call, restore);
}
