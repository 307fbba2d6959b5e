/* help.c: what `--help` says, examples first, from the tables of commands and settings; and
 * `dibs version`. */
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "command/command.h"
#include "config/config.h"
#include "version.h"

#define HELP_LENGTH_MAX (256 * 1024)
#define HELP_WIDTH      80
#define HELP_INDENT     6

/* Breaks the text between words; every line begins with `indent` blanks. */
static void append_wrapped(struct buffer *out, const char *text, size_t indent)
{
    size_t column = 0;
    for (const char *at = text + strspn(text, " "); *at != '\0'; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        if (column > 0 && column + 1 + length > HELP_WIDTH) {
            buffer_append_text(out, "\n");
            column = 0;
        }
        if (column == 0) {
            buffer_printf(out, "%*s", (int)indent, "");
            column = indent;
        } else {
            buffer_append_text(out, " ");
            column++;
        }
        buffer_append(out, at, length);
        column += length;
        at += length;
    }
    buffer_append_text(out, "\n");
}

static void append_examples(struct buffer *out, const char *const *examples)
{
    buffer_append_text(out, "Examples:\n");
    for (const char *const *example = examples; example != NULL && *example != NULL; example++)
        buffer_printf(out, "  %s\n", *example);
}

static void append_usage(struct buffer *out, const struct command *command, const char *path)
{
    buffer_printf(out, "\nUsage: %s", path);
    if (command->subcommands != NULL)
        buffer_append_text(out, " COMMAND");
    if (command->words != NULL)
        buffer_printf(out, " %s", command->words);
    if (command->takes_settings || command_option_at(command, 0) != NULL)
        buffer_append_text(out, " [FLAGS]");
    buffer_append_text(out, "\n");
}

static void append_options(struct buffer *out, const struct command *command)
{
    const struct option *option;
    if (command_option_at(command, 0) != NULL)
        buffer_append_text(out, "\nFlags:\n");
    for (size_t i = 0; (option = command_option_at(command, i)) != NULL; i++) {
        const char *value_name = option->value_name;
        buffer_printf(out, "  --%s%s%s\n", option->name, value_name != NULL ? " " : "",
                      value_name != NULL ? value_name : "");
        append_wrapped(out, option->help, HELP_INDENT);
    }
}

static void append_setting(struct buffer *out, const struct config_key *key)
{
    struct buffer words;
    buffer_init(&words, 4096);
    buffer_append_text(&words, key->help);
    if (key->fallback[0] != '\0')
        buffer_printf(&words, " [%s]", key->fallback);
    buffer_append_text(out, "  ");
    if (config_key_has_flag(key)) {
        config_append_flag(out, key);
        buffer_printf(out, " %s\n", config_key_value_word(key));
    } else {
        config_append_variable(out, key);
        buffer_append_text(out, " (environment only)\n");
    }
    append_wrapped(out, words.bytes, HELP_INDENT);
    buffer_release(&words);
}

static void append_settings(struct buffer *out)
{
    const char *group = "";
    for (size_t i = 0; i < config_key_count; i++) {
        if (strcmp(group, config_keys[i].group) != 0) {
            group = config_keys[i].group;
            buffer_printf(out, "\n%s:\n", group);
        }
        append_setting(out, &config_keys[i]);
    }
    buffer_append_text(out, "\nSettings file:\n  --config FILE\n");
    append_wrapped(
        out,
        "A file with lines such as `ack_timeout = 2s`; ./dibs.conf is read when there is "
        "one and nothing else is named. Every setting has a variable too: "
        "DIBS_ACK_TIMEOUT=2s. A flag beats the variable, which beats the file.",
        HELP_INDENT);
}

static void append_commands(struct buffer *out, const struct command *commands)
{
    buffer_append_text(out, "\nCommands:\n");
    for (const struct command *command = commands; command->name != NULL; command++)
        if (!command->hidden)
            buffer_printf(out, "  %-12s%s\n", command->name, command->summary);
}

static void help_append_command(struct buffer *out, const struct command *command, const char *path)
{
    append_examples(out, command->examples);
    append_usage(out, command, path);
    buffer_append_text(out, "\n");
    buffer_printf(out, "%s.\n", command->summary);
    if (command->description != NULL)
        append_wrapped(out, command->description, 0);
    if (command->subcommands != NULL)
        append_commands(out, command->subcommands);
    append_options(out, command);
    if (command->takes_settings)
        append_settings(out);
}

static void help_append_overview(struct buffer *out, const struct command *commands)
{
    static const char *const examples[] = {
        "dibs serve",
        "dibs policy create --id 42 --name \"Launch day\" --discount 20% --total 1000",
        "dibs claim 42 u1",
        "dibs status",
        NULL,
    };
    append_examples(out, examples);
    buffer_append_text(out, "\nUsage: dibs COMMAND [FLAGS]\n\n"
                            "Hands out a limited number of coupons, first come, first served, "
                            "exactly.\n");
    append_commands(out, commands);
    buffer_append_text(out, "\n`dibs COMMAND --help` shows the flags of a command.\n"
                            "Exit codes: 0 fine, 1 failed, 2 usage, 3 a guarantee is broken, "
                            "4 a target was missed.\n");
}

int help_print(FILE *stream, const struct command_call *call, const struct command *command,
               const char *path)
{
    struct buffer text;
    buffer_init(&text, HELP_LENGTH_MAX);
    if (command != NULL)
        help_append_command(&text, command, path);
    else
        help_append_overview(&text, call->commands);
    fwrite(text.bytes, 1, text.length, stream);
    buffer_release(&text);
    return stream == stdout ? COMMAND_FINE : COMMAND_USAGE;
}

int command_help(const struct command_call *call)
{
    char path[128] = "dibs";
    const struct command *command = NULL;
    const struct command *list = call->commands;
    for (int i = 0; i < call->word_count; i++) {
        command = list != NULL ? command_find(list, call->words[i]) : NULL;
        if (command == NULL) {
            return command_usage(call, "there is no command \"%s%s%s\"", path + strlen("dibs"),
                                 i > 0 ? " " : "", call->words[i]);
        }
        snprintf(path + strlen(path), sizeof(path) - strlen(path), " %s", command->name);
        list = command->subcommands;
    }
    return help_print(stdout, call, command, path);
}

int command_version(const struct command_call *call)
{
    if (command_option(call, "json") != NULL)
        printf("{\"version\":\"%s\",\"revision\":\"%s\"}\n", DIBS_VERSION, DIBS_REVISION);
    else
        printf("dibs %s (%s)\n", DIBS_VERSION, DIBS_REVISION);
    return COMMAND_FINE;
}
