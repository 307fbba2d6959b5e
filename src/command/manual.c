/* manual.c: `dibs manual`: dibs(1) in roff, and docs/configuration.md, made from the tables. */
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "command/command.h"
#include "config/config.h"
#include "version.h"

#define OUTPUT_MAX (256 * 1024)

/* Text as roff takes it: no control lines, no escapes, dashes that can be copied. */
static void append_roff(struct buffer *out, const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        bool line_start = out->length == 0 || out->bytes[out->length - 1] == '\n';
        if (line_start && (*at == '.' || *at == '\''))
            buffer_append_text(out, "\\&");
        switch (*at) {
        case '\\':
            buffer_append_text(out, "\\e");
            break;
        case '-':
            buffer_append_text(out, "\\-");
            break;
        case '`':
            buffer_append_text(out, "\\(ga");
            break;
        default:
            buffer_append(out, at, 1);
        }
    }
}

/* .TP, a bold term with its value_name in italics, and what it means. */
static void append_term(struct buffer *out, const char *term, const char *value_name,
                        const char *help)
{
    buffer_append_text(out, ".TP\n\\fB");
    append_roff(out, term);
    buffer_append_text(out, "\\fR");
    if (value_name != NULL) {
        buffer_append_text(out, " \\fI");
        append_roff(out, value_name);
        buffer_append_text(out, "\\fR");
    }
    buffer_append_text(out, "\n");
    append_roff(out, help);
    buffer_append_text(out, "\n");
}

static void append_options(struct buffer *out, const struct option *options)
{
    for (const struct option *option = options; option != NULL && option->name != NULL; option++) {
        char flag[64];
        snprintf(flag, sizeof(flag), "--%s", option->name);
        append_term(out, flag, option->value_name, option->help);
    }
}

static void append_command(struct buffer *out, const struct command *command, const char *parent)
{
    char path[128];
    snprintf(path, sizeof(path), "%s %s", parent, command->name);
    if (command->subcommands != NULL) {
        for (const struct command *sub = command->subcommands; sub->name != NULL; sub++)
            append_command(out, sub, path);
        return;
    }
    buffer_append_text(out, ".SS ");
    append_roff(out, path);
    if (command->words != NULL) {
        buffer_append_text(out, " ");
        append_roff(out, command->words);
    }
    buffer_append_text(out, "\n");
    append_roff(out, command->summary);
    buffer_append_text(out, ".\n");
    if (command->description != NULL) {
        append_roff(out, command->description);
        buffer_append_text(out, "\n");
    }
    buffer_append_text(out, ".PP\n.nf\n");
    for (const char *const *example = command->examples; example != NULL && *example != NULL;
         example++) {
        append_roff(out, *example);
        buffer_append_text(out, "\n");
    }
    buffer_append_text(out, ".fi\n");
    append_options(out, command->options);
}

static const struct option *find_shared(const struct command *commands)
{
    for (const struct command *command = commands; command->name != NULL; command++)
        if (command->shared_options != NULL)
            return command->shared_options;
    return NULL;
}

static void append_settings(struct buffer *out)
{
    buffer_append_text(out, ".SH SETTINGS\n");
    append_roff(
        out,
        "Flags of serve, migrate and config. Each is also an environment variable and a key of "
        "the settings file: --ack-timeout 2s, DIBS_ACK_TIMEOUT=2s, ack_timeout = 2s. "
        "A flag beats the variable, which beats the file.");
    buffer_append_text(out, "\n");
    const char *group = "";
    for (size_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        struct buffer name;
        struct buffer help;
        buffer_init(&name, 128);
        buffer_init(&help, 4096);
        if (strcmp(group, key->group) != 0) {
            group = key->group;
            buffer_printf(out, ".SS %s\n", group);
        }
        (config_key_has_flag(key) ? config_append_flag : config_append_variable)(&name, key);
        buffer_append_text(&help, key->help);
        if (key->fallback[0] != '\0')
            buffer_printf(&help, " Default: %s.", key->fallback);
        append_term(out, name.bytes, config_key_has_flag(key) ? config_key_value_word(key) : NULL,
                    help.bytes);
        buffer_release(&name);
        buffer_release(&help);
    }
}

static void append_ending(struct buffer *out)
{
    buffer_append_text(out, ".SH FILES\n");
    append_term(out, "dibs.conf", NULL,
                "The settings file, in the working folder, unless --config or DIBS_CONFIG names "
                "another one.");
    buffer_append_text(out, ".SH EXIT STATUS\n");
    static const char *const codes[][2] = {
        {"0", "Fine."},
        {"1", "Failed, or the server said no."},
        {"2", "The command line or a setting is wrong."},
        {"3", "A guarantee is broken."},
        {"4", "A target was missed."},
    };
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        append_term(out, codes[i][0], NULL, codes[i][1]);
}

void manual_append_page(struct buffer *out, const struct command *commands)
{
    buffer_printf(out, ".TH DIBS 1 \"\" \"dibs %s\" \"User Commands\"\n", DIBS_VERSION);
    buffer_append_text(out, ".SH NAME\ndibs \\- hands out a limited number of coupons, first come, "
                            "first served, exactly\n"
                            ".SH SYNOPSIS\n\\fBdibs\\fR \\fICOMMAND\\fR [\\fIFLAGS\\fR]\n"
                            ".SH COMMANDS\n");
    for (const struct command *command = commands; command->name != NULL; command++)
        if (!command->hidden)
            append_command(out, command, "dibs");
    buffer_append_text(out, ".SH FLAGS OF COMMANDS THAT TALK TO A SERVER\n");
    append_options(out, find_shared(commands));
    append_settings(out);
    append_ending(out);
}

int command_manual(const struct command_call *call)
{
    struct buffer out;
    buffer_init(&out, OUTPUT_MAX);
    if (call->word_count == 0) {
        manual_append_page(&out, call->commands);
    } else if (strcmp(call->words[0], "configuration") == 0) {
        config_append_reference(&out);
    } else {
        return command_usage(call, "\"%s\" is not a page it knows; known: configuration",
                             call->words[0]);
    }
    command_print(&out);
    return COMMAND_FINE;
}
