/* completion.c: `dibs completion`: a completion script for a shell, made from the tables; bash's.
 */
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "command/command.h"
#include "config/config.h"

#define OUTPUT_MAX (256 * 1024)

static void append_names(struct buffer *out, const struct command *commands)
{
    for (const struct command *command = commands; command->name != NULL; command++)
        if (!command->hidden)
            buffer_printf(out, "%s%s", command == commands ? "" : " ", command->name);
}

static void append_flags(struct buffer *out, const struct command *command)
{
    const struct option *option;
    for (size_t i = 0; (option = command_option_at(command, i)) != NULL; i++)
        buffer_printf(out, "--%s ", option->name);
    for (size_t i = 0; command->takes_settings && i < config_key_count; i++) {
        if (config_key_has_flag(&config_keys[i])) {
            config_append_flag(out, &config_keys[i]);
            buffer_append_text(out, " ");
        }
    }
    buffer_append_text(out, command->takes_settings ? "--config --help" : "--help");
}

/* One line per command: which words may follow it. The key is its path without "dibs". */
static void append_case(struct buffer *out, const struct command *commands,
                        const struct command *command, const char *parent)
{
    buffer_printf(out, "    '%s%s%s') words='", parent, parent[0] != '\0' ? " " : "",
                  command->name);
    if (command->subcommands != NULL) {
        append_names(out, command->subcommands);
        buffer_append_text(out, " --help");
    } else if (command->run == command_help) {
        append_names(out, commands);
    } else {
        append_flags(out, command);
    }
    buffer_append_text(out, "' ;;\n");
}

/* What may follow a flag: its choices, or files. Flags of the same name mean the same. */
static void append_values(struct buffer *out)
{
    for (size_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        if (key->choices == NULL || !config_key_has_flag(key))
            continue;
        buffer_append_text(out, "    ");
        config_append_flag(out, key);
        buffer_append_text(out, ") words='");
        for (size_t j = 0; key->choices[j] != NULL; j++)
            buffer_printf(out, "%s%s", j == 0 ? "" : " ", key->choices[j]);
        buffer_append_text(out, "' ;;\n");
    }
    buffer_append_text(
        out, "    --config|--*-file) mapfile -t COMPREPLY < <(compgen -f -- \"$current\"); "
             "return ;;\n");
}

/* Switches, after which everything goes on as before; all other flags want a value. */
static void append_switches(struct buffer *out, const struct command *commands)
{
    for (const struct command *command = commands; command->name != NULL; command++) {
        const struct option *option;
        for (size_t i = 0; (option = command_option_at(command, i)) != NULL; i++) {
            char pattern[64];
            snprintf(pattern, sizeof(pattern), "|--%s", option->name);
            if (option->value_name == NULL && strstr(out->bytes, pattern) == NULL)
                buffer_append_text(out, pattern);
        }
        if (command->subcommands != NULL)
            append_switches(out, command->subcommands);
    }
}

/* Commands of which one more word names the command. */
static void append_parents(struct buffer *out, const struct command *commands)
{
    for (const struct command *command = commands; command->name != NULL; command++)
        if (command->subcommands != NULL)
            buffer_printf(out, "|%s", command->name);
}

void completion_append_bash(struct buffer *out, const struct command *commands)
{
    buffer_append_text(out, "# bash completion for dibs; written by `dibs completion bash`.\n"
                            "_dibs() {\n"
                            "  local current=\"${COMP_WORDS[COMP_CWORD]}\"\n"
                            "  local previous=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
                            "  local path='' words='' i\n"
                            "  # Bash cuts --flag=value at the equals sign.\n"
                            "  [[ $current == '=' ]] && current=''\n"
                            "  [[ $previous == '=' ]] && previous=\"${COMP_WORDS[COMP_CWORD-2]}\"\n"
                            "  case \"$previous\" in\n"
                            "    --help|--version");
    append_switches(out, commands);
    buffer_append_text(out, ") ;;\n");
    append_values(out);
    buffer_append_text(out, "    --?*) return ;;\n"
                            "  esac\n"
                            "  if [[ -n $words ]]; then\n"
                            "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
                            "    return\n"
                            "  fi\n"
                            "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
                            "    [[ ${COMP_WORDS[i]} == -* ]] && break\n"
                            "    case \"$path\" in\n"
                            "      ''");
    append_parents(out, commands);
    buffer_append_text(out, ") path=\"${path:+$path }${COMP_WORDS[i]}\" ;;\n"
                            "    esac\n"
                            "  done\n"
                            "  case \"$path\" in\n"
                            "    '') words='");
    append_names(out, commands);
    buffer_append_text(out, " --help --version' ;;\n");
    for (const struct command *command = commands; command->name != NULL; command++) {
        append_case(out, commands, command, "");
        for (const struct command *sub = command->subcommands; sub != NULL && sub->name != NULL;
             sub++)
            append_case(out, commands, sub, command->name);
    }
    buffer_append_text(out, "  esac\n"
                            "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
                            "}\n"
                            "complete -F _dibs dibs\n");
}

int command_completion(const struct command_call *call)
{
    struct buffer out;
    buffer_init(&out, OUTPUT_MAX);
    completion_append(&out, call->words[0], call->commands);
    if (out.length == 0) {
        return command_usage(call, "\"%s\" is not a shell it knows; known: bash, fish, zsh",
                             call->words[0]);
    }
    command_print(&out);
    return COMMAND_FINE;
}
