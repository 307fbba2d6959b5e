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
    buffer_append_text(out, "{\"file\":");
    if (config->file[0] != '\0') {
        json_append_text(out, span_of(config->file));
    } else {
        buffer_append_text(out, "null");
    }
    buffer_append_text(out, ",\"settings\":{");
    for (size_t i = 0; i < config_key_count; i++) {
        buffer_printf(out, "%s\"%s\":{\"value\":", i == 0 ? "" : ",", config_keys[i].name);
        buffer_clear(&words);
        config_append_value(&words, config, &config_keys[i]);
        json_append_text(out, (struct span){words.bytes, words.length});
        buffer_append_text(out, ",\"origin\":");
        buffer_clear(&words);
        config_append_origin(&words, config, &config_keys[i]);
        json_append_text(out, (struct span){words.bytes, words.length});
        buffer_append_text(out, "}");
    }
    buffer_append_text(out, "}}\n");
    buffer_release(&words);
}

static void append_table(struct buffer *out, const struct config *config)
{
    static const struct table_column columns[] = {
        {"SETTING", TABLE_LEFT}, {"VALUE", TABLE_LEFT}, {"FROM", TABLE_LEFT}};
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

int command_load_settings(const struct command_call *call, struct config *config)
{
    struct error error;
    switch (config_load(config, call->setting_count, call->settings, environ, &error)) {
    case STATUS_OK:
        return COMMAND_FINE;
    case STATUS_INVALID:
        return command_usage(call, "%s", error.text);
    default:
        return command_fail(call, "%s", error.text);
    }
}

int command_config(const struct command_call *call)
{
    struct config config;
    struct error error;
    int loaded = command_load_settings(call, &config);
    if (loaded != COMMAND_FINE) {
        return loaded;
    }
    struct buffer out;
    buffer_init(&out, OUTPUT_MAX);
    if (command_option(call, "json") != NULL) {
        append_json(&out, &config);
    } else {
        append_table(&out, &config);
    }
    fwrite(out.bytes, 1, out.length, stdout);
    buffer_release(&out);
    fflush(stdout);
    for (size_t i = 0; i < config.warnings.count; i++) {
        fprintf(stderr, "%s: warning: %s\n", call->path, config.warnings.items[i]);
    }
    int code = COMMAND_FINE;
    if (config_check(&config, &error) != STATUS_OK) {
        code = command_fail(call, "`dibs serve` would refuse this: %s", error.text);
    }
    config_release(&config);
    return code;
}
