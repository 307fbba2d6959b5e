/* command.c: finds the command, reads its flags and words, runs it. */
#include "command/command.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/digits.h"
#include "config/arguments.h"
#include "config/value.h"

#define PATH_SIZE 128

const struct command *command_find(const struct command *commands, const char *name)
{
    ensure(commands != NULL);
    for (const struct command *command = commands; command->name != NULL; command++)
        if (strcmp(command->name, name) == 0)
            return command;
    return NULL;
}

const struct option *command_option_at(const struct command *command, size_t index)
{
    const struct option *lists[] = {command->options, command->shared_options};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        for (const struct option *option = lists[i]; option != NULL && option->name != NULL;
             option++)
            if (index-- == 0)
                return option;
    }
    return NULL;
}

/* The place of an option among those of its command, or -1. */
static int option_place(const struct command *command, const char *name)
{
    const struct option *option;
    for (size_t i = 0; (option = command_option_at(command, i)) != NULL; i++) {
        if (strcmp(option->name, name) == 0) {
            ensure(i < COMMAND_OPTIONS_MAX);
            return (int)i;
        }
    }
    return -1;
}

/* The place of what a flag names: --connections, or -c where that is the command's initial. */
static int flag_place(const struct command *command, const struct argument *argument)
{
    if (argument->text[1] == '-')
        return option_place(command, argument->name);
    bool is_initial = command->initial != NULL && argument->name[0] == command->initial[0] &&
                      argument->name[1] == '\0';
    return is_initial ? option_place(command, command->initial) : -1;
}

const char *command_option(const struct command_call *call, const char *name)
{
    int place = option_place(call->command, name);
    ensure(place >= 0);
    return call->values[place];
}

int command_number(const struct command_call *call, const char *name, int64_t minimum,
                   int64_t maximum, int64_t *number)
{
    const char *text = command_option(call, name);
    if (text == NULL)
        return COMMAND_FINE;
    uint64_t value;
    if (!digits_read(span_of(text), (uint64_t)maximum, &value) || value < (uint64_t)minimum) {
        return command_usage(call,
                             "--%s: \"%s\" is not a whole number from %" PRId64 " to %" PRId64,
                             name, text, minimum, maximum);
    }
    *number = (int64_t)value;
    return COMMAND_FINE;
}

int command_duration(const struct command_call *call, const char *name, int64_t minimum_ms,
                     int64_t *duration_ms)
{
    const char *text = command_option(call, name);
    if (text == NULL || (config_parse_duration(text, duration_ms) && *duration_ms >= minimum_ms))
        return COMMAND_FINE;
    return command_usage(call,
                         "--%s: \"%s\" is not a duration of %" PRId64 "ms or more, as in 500ms or "
                         "30s",
                         name, text, minimum_ms);
}

void command_print(struct buffer *out)
{
    if (out->length > 0)
        fwrite(out->bytes, 1, out->length, stdout);
    buffer_release(out);
}

static void say(const char *path, const char *format, va_list arguments) PRINTF_LIKE(2, 0);

static void say(const char *path, const char *format, va_list arguments)
{
    fprintf(stderr, "%s: ", path);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

int command_usage(const struct command_call *call, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(call->path, format, arguments);
    va_end(arguments);
    fprintf(stderr, "`%s --help` shows how it is used.\n", call->path);
    return COMMAND_USAGE;
}

int command_fail(const struct command_call *call, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(call->path, format, arguments);
    va_end(arguments);
    return COMMAND_FAILED;
}

int command_result(const struct command_call *call, enum status status, const struct error *error)
{
    if (status == STATUS_OK)
        return COMMAND_FINE;
    return status == STATUS_INVALID ? command_usage(call, "%s", error->text)
                                    : command_fail(call, "%s", error->text);
}

static int refuse_option(const struct command_call *call, const struct argument *argument)
{
    struct suggestion suggestion;
    const struct option *option;
    suggestion_begin(&suggestion, argument->name);
    for (size_t i = 0; (option = command_option_at(call->command, i)) != NULL; i++)
        suggestion_offer(&suggestion, option->name);
    suggestion_offer(&suggestion, "help");
    return command_usage(call, "unknown flag %.*s%s", argument->text_length, argument->text,
                         suggestion_hint(&suggestion, "--", ""));
}

/* Takes one flag of the command's own; an exit code, or COMMAND_FINE to go on. */
static int take_option(struct command_call *call, struct arguments *arguments,
                       const struct argument *argument)
{
    int place = flag_place(call->command, argument);
    if (place < 0)
        return refuse_option(call, argument);
    const struct option *option = command_option_at(call->command, (size_t)place);
    if (option->value_name == NULL) {
        if (argument->value != NULL)
            return command_usage(call, "--%s: takes no value", option->name);
        call->values[place] = "";
        return COMMAND_FINE;
    }
    call->values[place] = arguments_value(arguments, argument);
    if (call->values[place] == NULL) {
        return command_usage(call, "--%s: needs a value: --%s %s", option->name, option->name,
                             option->value_name);
    }
    return COMMAND_FINE;
}

static int check_argument_count(const struct command_call *call)
{
    const struct command *command = call->command;
    if (call->word_count >= command->arguments_min && call->word_count <= command->arguments_max)
        return COMMAND_FINE;
    if (command->words == NULL)
        return command_usage(call, "unexpected \"%s\"", call->words[0]);
    return command_usage(call, "wants %s", command->words);
}

/* Reads flags and words into the call. With settings, what is not the command's own is left for
 * config_load(), which knows them. */
static int read_line(struct command_call *call, int argc, char **argv)
{
    struct arguments arguments;
    struct argument argument;
    arguments_begin(&arguments, argc, argv);
    int at = 0;
    while (at = arguments.next, arguments_next(&arguments, &argument)) {
        bool own = argument.is_flag && option_place(call->command, argument.name) >= 0;
        /* What follows a setting's flag may be its value, so words come before settings. */
        bool is_word = !argument.is_flag && call->setting_count == 0 &&
                       call->word_count < call->command->arguments_max;
        if (call->command->takes_settings && !own && !is_word) {
            while (at < arguments.next)
                call->settings[call->setting_count++] = argv[at++];
            continue;
        }
        int code = COMMAND_FINE;
        if (argument.is_flag)
            code = take_option(call, &arguments, &argument);
        else if (call->word_count == call->command->arguments_max ||
                 call->word_count == COMMAND_WORDS_MAX)
            code = command_usage(call, "unexpected \"%s\"", argument.text);
        else
            call->words[call->word_count++] = argument.text;
        if (code != COMMAND_FINE)
            return code;
    }
    return check_argument_count(call);
}

static bool wants_help(int argc, char **argv)
{
    struct arguments arguments;
    struct argument argument;
    arguments_begin(&arguments, argc, argv);
    while (arguments_next(&arguments, &argument))
        if (argument.is_flag &&
            (strcmp(argument.text, "--help") == 0 || strcmp(argument.text, "-h") == 0))
            return true;
    return false;
}

static int refuse_command(const struct command_call *call, const struct command *list,
                          const char *name)
{
    struct suggestion suggestion;
    suggestion_begin(&suggestion, name);
    for (const struct command *command = list; command->name != NULL; command++)
        if (!command->hidden)
            suggestion_offer(&suggestion, command->name);
    return command_usage(call, "unknown command \"%s\"%s", name,
                         suggestion_hint(&suggestion, "", ""));
}

static int run_command(struct command_call *call, int argc, char **argv)
{
    if (wants_help(argc, argv))
        return help_print(stdout, call, call->command, call->path);
    call->settings = calloc((size_t)argc + 1, sizeof(char *));
    ensure(call->settings != NULL);
    int code = read_line(call, argc, argv);
    if (code == COMMAND_FINE)
        code = call->command->run(call);
    free(call->settings);
    /* A full disk or a closed pipe must not look like success to a script. */
    if (fflush(stdout) != 0 || ferror(stdout))
        code = code == COMMAND_FINE ? command_fail(call, "stdout cannot be written") : code;
    return code;
}

/* Where standard output or error is closed, the next file that is opened would take its place, and
 * messages would be written into it. What takes it instead cannot be written, which is noticed. */
static void open_standard_descriptors(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDONLY);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

int command_main(const struct command *commands, int argc, char **argv)
{
    open_standard_descriptors();
    /* A file that may not grow any more is an error like a full disk, not the end of the process.
     */
    signal(SIGXFSZ, SIG_IGN);
    char path[PATH_SIZE] = "dibs";
    struct command_call call = {.commands = commands, .path = path};
    const struct command *list = commands;
    int at = 1;
    while (at < argc && list != NULL && argv[at][0] != '-') {
        const struct command *found = command_find(list, argv[at]);
        if (found == NULL)
            return refuse_command(&call, list, argv[at]);
        call.command = found;
        snprintf(path + strlen(path), sizeof(path) - strlen(path), " %s", found->name);
        list = found->subcommands;
        at++;
    }
    if (call.command != NULL && call.command->run != NULL)
        return run_command(&call, argc - at, argv + at);
    if (at >= argc)
        return help_print(stderr, &call, call.command, path);
    if (wants_help(argc - at, argv + at))
        return help_print(stdout, &call, call.command, path);
    if (call.command == NULL &&
        (strcmp(argv[at], "--version") == 0 || strcmp(argv[at], "-V") == 0)) {
        call.command = command_find(commands, "version");
        return run_command(&call, argc - at - 1, argv + at + 1);
    }
    return command_usage(&call, "unknown flag %.*s", (int)strcspn(argv[at], "="), argv[at]);
}
