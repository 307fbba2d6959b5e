/* completion.c: `dibs completion`: a completion script for a shell, made from the tables. */
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

/* The names of commands that are followed by another. */
static void append_parents(struct buffer *out, const struct command *commands, const char *between)
{
    for (const struct command *command = commands; command->name != NULL; command++)
        if (command->subcommands != NULL)
            buffer_printf(out, "%s%s", between, command->name);
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
    append_parents(out, commands, "|");
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

/* --- zsh and fish, which show beside a word what it is for --- */

#define PATH_LENGTH_MAX 64

/* How a shell has it. A path is that of a command without "dibs", "" for dibs itself; behind it
 * come words, if `words` is not NULL, else flags. */
struct dialect {
    void (*begin)(struct buffer *out, const char *path, const struct command *words);
    void (*word)(struct buffer *out, const char *path, const char *name, const char *help);
    /* `value` is what stands for one, NULL for a switch; with `choices`, it is one of them. */
    void (*flag)(struct buffer *out, const char *path, const char *name, const char *value,
                 const char *const *choices, const char *help);
    void (*end)(struct buffer *out, const struct command *words);
};

/* The first sentence, in single quotes; `marked` are the characters that need a backslash. */
static void append_sentence(struct buffer *out, const char *text, const char *marked)
{
    const char *end = strstr(text, ". ");
    size_t length = end != NULL ? (size_t)(end - text) : strlen(text);
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\'')
            buffer_append_text(out, "'\\''");
        else if (text[i] == '\\')
            buffer_append_text(out, "\\\\");
        else
            buffer_printf(out, "%s%c", strchr(marked, text[i]) != NULL ? "\\" : "", text[i]);
}

static bool is_file(const char *name)
{
    size_t length = strlen(name);
    return strcmp(name, "config") == 0 || (length > 5 && strcmp(name + length - 5, "-file") == 0);
}

static void append_choices(struct buffer *out, const char *const *choices)
{
    for (size_t i = 0; choices[i] != NULL; i++)
        buffer_printf(out, "%s%s", i == 0 ? "" : " ", choices[i]);
}

/* --- the tables, told in a dialect --- */

static void tell_flags(struct buffer *out, const struct dialect *dialect, const char *path,
                       const struct command *command)
{
    const struct option *option;
    for (size_t i = 0; (option = command_option_at(command, i)) != NULL; i++)
        dialect->flag(out, path, option->name, option->value_name, NULL, option->help);
    for (size_t i = 0; command->takes_settings && i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        struct buffer name;
        if (!config_key_has_flag(key))
            continue;
        buffer_init(&name, 128);
        config_append_flag(&name, key);
        dialect->flag(out, path, name.bytes + 2, config_key_value_word(key), key->choices,
                      key->help);
        buffer_release(&name);
    }
    if (command->takes_settings)
        dialect->flag(out, path, "config", "FILE", NULL, "The file of settings");
    dialect->flag(out, path, "help", NULL, NULL, "How it is used");
}

/* Commands of which one more word names the command: behind "" and behind each group. */
static void tell_words(struct buffer *out, const struct dialect *dialect, const char *path,
                       const struct command *commands)
{
    dialect->begin(out, path, commands);
    for (const struct command *command = commands; command->name != NULL; command++)
        if (!command->hidden)
            dialect->word(out, path, command->name, command->summary);
    dialect->word(out, path, "--help", "Shows how it is used");
    dialect->end(out, commands);
}

static void tell(struct buffer *out, const struct dialect *dialect, const char *parent,
                 const struct command *commands)
{
    tell_words(out, dialect, parent, commands);
    for (const struct command *command = commands; command->name != NULL; command++) {
        char path[PATH_LENGTH_MAX];
        snprintf(path, sizeof(path), "%s%s%s", parent, parent[0] != '\0' ? " " : "", command->name);
        if (command->subcommands != NULL) {
            tell(out, dialect, path, command->subcommands);
            continue;
        }
        dialect->begin(out, path, NULL);
        tell_flags(out, dialect, path, command);
        dialect->end(out, NULL);
    }
}

/* --- fish --- */

static void fish_begin(struct buffer *out, const char *path, const struct command *words)
{
}

static void fish_word(struct buffer *out, const char *path, const char *name, const char *help)
{
    buffer_printf(out, "complete -c dibs -n '__dibs_at \"%s\"' -a %s -d '", path, name);
    append_sentence(out, help, "");
    buffer_append_text(out, "'\n");
}

static void fish_flag(struct buffer *out, const char *path, const char *name, const char *value,
                      const char *const *choices, const char *help)
{
    buffer_printf(out, "complete -c dibs -n '__dibs_at \"%s\"' -l %s%s", path, name,
                  value == NULL   ? ""
                  : is_file(name) ? " -rF"
                                  : " -x");
    if (choices != NULL) {
        buffer_append_text(out, " -a '");
        append_choices(out, choices);
        buffer_append_text(out, "'");
    }
    buffer_append_text(out, " -d '");
    append_sentence(out, help, "");
    buffer_append_text(out, "'\n");
}

static void fish_end(struct buffer *out, const struct command *words)
{
}

static void append_fish(struct buffer *out, const struct command *commands)
{
    static const struct dialect fish = {fish_begin, fish_word, fish_flag, fish_end};
    buffer_append_text(out, "# fish completion for dibs; written by `dibs completion fish`.\n"
                            "function __dibs_at\n"
                            "    set -l at ''\n"
                            "    for word in (commandline -opc)[2..]\n"
                            "        string match -q -- '-*' $word; and break\n"
                            "        contains -- \"$at\" ''");
    append_parents(out, commands, " ");
    buffer_append_text(out, "; or break\n"
                            "        set at (string trim \"$at $word\")\n"
                            "    end\n"
                            "    test \"$at\" = \"$argv[1]\"\n"
                            "end\n"
                            "complete -c dibs -f\n");
    tell(out, &fish, "", commands);
}

/* --- zsh --- */

static void zsh_begin(struct buffer *out, const char *path, const struct command *words)
{
    buffer_printf(out, "    '%s')\n", path);
    buffer_append_text(out, words != NULL ? "      known=(\n" : "");
    buffer_append_text(out, words != NULL ? "" : "      _arguments");
}

static void zsh_word(struct buffer *out, const char *path, const char *name, const char *help)
{
    buffer_printf(out, "        '%s:", name);
    append_sentence(out, help, ":");
    buffer_append_text(out, "'\n");
}

static void zsh_flag(struct buffer *out, const char *path, const char *name, const char *value,
                     const char *const *choices, const char *help)
{
    buffer_printf(out, " \\\n        '--%s%s[", name, value != NULL ? "=" : "");
    append_sentence(out, help, "]:");
    buffer_append_text(out, "]");
    if (value != NULL)
        buffer_printf(out, ":%s:", value);
    if (choices != NULL) {
        buffer_append_text(out, "(");
        append_choices(out, choices);
        buffer_append_text(out, ")");
    } else if (value != NULL && is_file(name)) {
        buffer_append_text(out, "_files");
    }
    buffer_append_text(out, "'");
}

static void zsh_end(struct buffer *out, const struct command *words)
{
    buffer_append_text(out, words != NULL
                                ? "      )\n      _describe -t commands 'command' known ;;\n"
                                : " \\\n        '*: :' ;;\n");
}

static void append_zsh(struct buffer *out, const struct command *commands)
{
    static const struct dialect zsh = {zsh_begin, zsh_word, zsh_flag, zsh_end};
    buffer_append_text(out, "#compdef dibs\n"
                            "# zsh completion for dibs; written by `dibs completion zsh`.\n"
                            "_dibs() {\n"
                            "  local at='' known=() i\n"
                            "  for ((i = 2; i < CURRENT; i++)); do\n"
                            "    [[ $words[i] == -* ]] && break\n"
                            "    case $at in\n"
                            "      ''");
    append_parents(out, commands, "|");
    buffer_append_text(out, ") at=\"${at:+$at }$words[i]\" ;;\n"
                            "    esac\n"
                            "  done\n"
                            "  case $at in\n");
    tell(out, &zsh, "", commands);
    buffer_append_text(out, "  esac\n"
                            "}\n"
                            "if [[ $funcstack[1] == _dibs ]]; then _dibs \"$@\"; "
                            "else compdef _dibs dibs; fi\n");
}

/* --- which --- */

void completion_append(struct buffer *out, const char *shell, const struct command *commands)
{
    if (strcmp(shell, "bash") == 0)
        completion_append_bash(out, commands);
    else if (strcmp(shell, "fish") == 0)
        append_fish(out, commands);
    else if (strcmp(shell, "zsh") == 0)
        append_zsh(out, commands);
}
