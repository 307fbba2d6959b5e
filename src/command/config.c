/* config.c: `dibs config`: every setting in effect and where it came from. */
#include "config/config.h"

#include <stdio.h>
#include <unistd.h>

#include "base/json.h"
#include "command/command.h"
#include "command/terminal.h"

#define OUTPUT_MAX (1024 * 1024)

static void append_json(struct buffer *out, const struct config *config)
{
    struct buffer words;
    buffer_init(&words, OUTPUT_MAX);
    buffer_append_literal(out, "{");
    json_put(out, "file", config->file[0] != '\0' ? config->file : NULL);
    buffer_append_literal(out, ",\"settings\":{");
    for (size_t i = 0; i < config_key_count; i++) {
        buffer_printf(out, "%s\"%s\":{", i == 0 ? "" : ",", config_keys[i].name);
        buffer_clear(&words);
        config_append_value(&words, config, &config_keys[i]);
        json_put(out, "value", buffer_span(&words));
        buffer_clear(&words);
        config_append_origin(&words, config, &config_keys[i]);
        json_put(out, "origin", buffer_span(&words));
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "}}\n");
    buffer_release(&words);
}

static void append_table(struct buffer *out, const struct config *config)
{
    static const struct table_column columns[] = {FACT("SETTING", NULL), FACT("VALUE", NULL),
                                                  FACT("FROM", NULL)};
    struct buffer words;
    struct table table;
    buffer_init(&words, OUTPUT_MAX);
    table_init(&table, columns, 3);
    for (size_t i = 0; i < config_key_count; i++) {
        table_add(&table, config_keys[i].name);
        buffer_clear(&words);
        config_append_value(&words, config, &config_keys[i]);
        table_add(&table, words.length > 0 ? words.bytes : "-");
        buffer_clear(&words);
        config_append_origin(&words, config, &config_keys[i]);
        table_add(&table, words.bytes);
    }
    table_append(out, &table, terminal_wants_colour(stdout));
    table_release(&table);
    buffer_release(&words);
}

enum status command_read_settings(const struct command_call *call, struct config *config,
                                  struct error *error)
{
    return config_load(config, call->setting_count, call->settings, environ, error);
}

int command_load_settings(const struct command_call *call, struct config *config)
{
    struct error error;
    return command_result(call, command_read_settings(call, config, &error), &error);
}

int command_config(const struct command_call *call)
{
    struct config config;
    struct error error;
    int loaded = command_load_settings(call, &config);
    if (loaded != COMMAND_FINE)
        return loaded;
    struct buffer out;
    buffer_init(&out, OUTPUT_MAX);
    if (command_option(call, "json") != NULL)
        append_json(&out, &config);
    else
        append_table(&out, &config);
    command_print(&out);
    fflush(stdout);
    for (size_t i = 0; i < config.warnings.count; i++)
        fprintf(stderr, "%s: warning: %s\n", call->path, config.warnings.items[i]);
    int code = COMMAND_FINE;
    if (config_check(&config, &error) != STATUS_OK)
        code = command_fail(call, "`dibs serve` would refuse this: %s", error.text);
    config_release(&config);
    return code;
}
