/* test_command.c: command lines become calls, or usage errors that help. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "capture.h"
#include "command/command.h"
#include "config/config.h"

static struct command_call seen;
static int runs;
static char seen_settings[256];

static int run_and_remember(const struct command_call *call)
{
    seen = *call;
    runs++;
    seen_settings[0] = '\0';
    for (int i = 0; i < call->setting_count; i++) {
        strcat(seen_settings, call->settings[i]);
        strcat(seen_settings, "|");
    }
    return COMMAND_FINE;
}

static int run_and_fail(const struct command_call *call)
{
    return command_fail(call, "no %s", "luck");
}

static int run_and_print(const struct command_call *call)
{
    puts("data");
    return COMMAND_FINE;
}

static const char *const examples[] = {"dibs claim 42 u1", NULL};
static const struct option claim_options[] = {
    {"key", "KEY", "Names the attempt."}, {"loud", NULL, "A switch."}, {NULL, NULL, NULL}};
static const struct option shared_options[] = {{"url", "URL", "Where."}, {NULL, NULL, NULL}};
static const struct command policy_commands[] = {
    {.name = "show",
     .summary = "Shows one",
     .words = "POLICY",
     .arguments_min = 1,
     .arguments_max = 1,
     .run = run_and_remember},
    {.name = "list", .summary = "Lists all", .run = run_and_remember},
    {.name = NULL},
};
static const struct command commands[] = {
    {.name = "claim",
     .summary = "Claims one",
     .words = "POLICY USER",
     .arguments_min = 2,
     .arguments_max = 2,
     .examples = examples,
     .options = claim_options,
     .shared_options = shared_options,
     .run = run_and_remember},
    {.name = "policy", .summary = "About policies", .subcommands = policy_commands},
    {.name = "config",
     .summary = "Shows settings",
     .options = claim_options,
     .takes_settings = true,
     .run = run_and_remember},
    {.name = "print", .summary = "Prints", .run = run_and_print},
    {.name = "fail", .summary = "Fails", .run = run_and_fail},
    {.name = "secret", .summary = "Is not listed", .hidden = true, .run = run_and_remember},
    {.name = "version", .summary = "Says which", .run = run_and_remember},
    {.name = NULL},
};

static struct capture capture;

/* Runs "dibs" with these words, up to NULL. */
static int run(const char *first, ...)
{
    char *argv[16] = {strdup("dibs")};
    int argc = 1;
    va_list words;
    va_start(words, first);
    for (const char *word = first; word != NULL; word = va_arg(words, const char *))
        argv[argc++] = strdup(word);
    va_end(words);
    runs = 0;
    memset(&seen, 0, sizeof(seen));
    capture_begin(&capture);
    int code = command_main(commands, argc, argv);
    capture_end(&capture);
    /* The words stay: the call that was seen points to them. */
    static char *last[16];
    for (int i = 0; i < 16; i++) {
        free(last[i]);
        last[i] = argv[i];
    }
    return code;
}

static void assert_says(const char *words)
{
    if (strstr(capture.err, words) == NULL)
        fail_msg("said: %s", capture.err);
}

static void test_command__reads_words_and_flags_in_any_order(void **state)
{
    assert_int_equal(run("claim", "42", "--key", "k", "u1", "--url=http://h", "--loud", NULL), 0);
    assert_int_equal(runs, 1);
    assert_int_equal(seen.word_count, 2);
    assert_string_equal(seen.words[0], "42");
    assert_string_equal(seen.words[1], "u1");
    assert_string_equal(command_option(&seen, "key"), "k");
    assert_string_equal(command_option(&seen, "url"), "http://h");
    assert_string_equal(command_option(&seen, "loud"), "");
    assert_string_equal(seen.command->name, "claim");
    assert_int_equal(run("claim", "42", "--", "--u1", NULL), 0);
    assert_string_equal(seen.words[1], "--u1");
    assert_null(command_option(&seen, "key"));
    assert_null(command_option(&seen, "loud"));
}

static void test_command__finds_subcommands(void **state)
{
    assert_int_equal(run("policy", "show", "42", NULL), 0);
    assert_string_equal(seen.command->name, "show");
    assert_string_equal(seen.words[0], "42");
    assert_int_equal(run("policy", "list", NULL), 0);
    assert_string_equal(seen.command->name, "list");
}

static void test_command__refuses_wrong_counts_of_words(void **state)
{
    assert_int_equal(run("claim", "42", NULL), COMMAND_USAGE);
    assert_says("dibs claim: wants POLICY USER\n`dibs claim --help` shows");
    assert_int_equal(run("claim", NULL), COMMAND_USAGE);
    assert_int_equal(run("claim", "42", "u1", "u2", NULL), COMMAND_USAGE);
    assert_says("dibs claim: unexpected \"u2\"");
    assert_int_equal(run("policy", "list", "42", NULL), COMMAND_USAGE);
    assert_says("dibs policy list: unexpected \"42\"");
    assert_int_equal(runs, 0);
    assert_string_equal(capture.out, "");
}

static void test_command__refuses_flags_it_does_not_know(void **state)
{
    assert_int_equal(run("claim", "42", "u1", "--kye", "x", NULL), COMMAND_USAGE);
    assert_says("unknown flag --kye; did you mean --key?");
    assert_int_equal(run("claim", "42", "u1", "--ulr=http://secret", NULL), COMMAND_USAGE);
    assert_says("unknown flag --ulr; did you mean --url?");
    assert_null(strstr(capture.err, "secret"));
    assert_int_equal(run("claim", "42", "u1", "--colour", NULL), COMMAND_USAGE);
    assert_says("unknown flag --colour\n");
    assert_int_equal(run("claim", "42", "u1", "-key", "x", NULL), COMMAND_USAGE);
    assert_int_equal(run("claim", "42", "u1", "--key", NULL), COMMAND_USAGE);
    assert_says("--key: needs a value: --key KEY");
    assert_int_equal(run("claim", "42", "u1", "--loud=yes", NULL), COMMAND_USAGE);
    assert_says("--loud: takes no value");
    assert_int_equal(runs, 0);
}

static void test_command__refuses_commands_it_does_not_know(void **state)
{
    assert_int_equal(run("clam", NULL), COMMAND_USAGE);
    assert_says("dibs: unknown command \"clam\"; did you mean claim?");
    assert_int_equal(run("policy", "shwo", "42", NULL), COMMAND_USAGE);
    assert_says("dibs policy: unknown command \"shwo\"; did you mean show?");
    assert_int_equal(run("secrte", NULL), COMMAND_USAGE);
    assert_null(strstr(capture.err, "did you mean"));
    assert_int_equal(run("--colour", NULL), COMMAND_USAGE);
    assert_int_equal(run("policy", "--colour", NULL), COMMAND_USAGE);
}

static void test_command__shows_help_and_runs_nothing(void **state)
{
    assert_int_equal(run("claim", "--help", NULL), 0);
    assert_int_equal(strncmp(capture.out, "Examples:\n  dibs claim 42 u1\n", 29), 0);
    assert_non_null(strstr(capture.out, "Usage: dibs claim POLICY USER [FLAGS]"));
    assert_non_null(strstr(capture.out, "--url URL"));
    assert_int_equal(run("claim", "42", "-h", NULL), 0);
    assert_int_equal(run("policy", "--help", NULL), 0);
    assert_non_null(strstr(capture.out, "show"));
    assert_int_equal(run("--help", NULL), 0);
    assert_non_null(strstr(capture.out, "Claims one"));
    assert_null(strstr(capture.out, "Is not listed"));
    assert_string_equal(capture.err, "");
    assert_int_equal(runs, 0);
    assert_int_equal(run("claim", "42", "--", "--help", NULL), 0);
    assert_int_equal(runs, 1);
}

static void test_command__without_a_command_is_a_usage_error(void **state)
{
    assert_int_equal(run(NULL), COMMAND_USAGE);
    assert_string_equal(capture.out, "");
    assert_says("Commands:");
    assert_int_equal(run("policy", NULL), COMMAND_USAGE);
    assert_string_equal(capture.out, "");
    assert_says("Usage: dibs policy COMMAND");
}

static void test_command__knows_the_usual_flags_for_the_version(void **state)
{
    assert_int_equal(run("--version", NULL), 0);
    assert_string_equal(seen.command->name, "version");
    assert_int_equal(run("-V", NULL), 0);
    assert_string_equal(seen.command->name, "version");
}

static void test_command__leaves_settings_for_the_one_who_knows_them(void **state)
{
    assert_int_equal(
        run("config", "--listen", "127.0.0.1:1", "--loud", "--threads=4", "--key", "k", NULL), 0);
    assert_string_equal(seen_settings, "--listen|127.0.0.1:1|--threads=4|");
    assert_string_equal(command_option(&seen, "loud"), "");
    assert_string_equal(command_option(&seen, "key"), "k");
}

static void test_command__passes_the_exit_code_on(void **state)
{
    assert_int_equal(run("fail", NULL), COMMAND_FAILED);
    assert_string_equal(capture.err, "dibs fail: no luck\n");
}

static void test_command__fails_when_stdout_is_full(void **state)
{
    char *argv[] = {(char[]){"dibs"}, (char[]){"print"}, NULL};
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(kept >= 0 && full >= 0);
    dup2(full, STDOUT_FILENO);
    int code = command_main(commands, 2, argv);
    dup2(kept, STDOUT_FILENO);
    clearerr(stdout);
    close(full);
    close(kept);
    assert_int_equal(code, COMMAND_FAILED);
}

static void test_command__writes_the_completion_and_the_man_page_from_the_same_table(void **state)
{
    struct buffer out;
    buffer_init(&out, 1024 * 1024);
    completion_append_bash(&out, commands);
    assert_non_null(strstr(out.bytes, "'claim') words='--key --loud --url --help'"));
    assert_non_null(strstr(out.bytes, "'policy show')"));
    assert_non_null(strstr(out.bytes, "--help|--version|--loud) ;;"));
    buffer_clear(&out);
    manual_append_page(&out, commands);
    assert_non_null(strstr(out.bytes, "\n.SS dibs claim POLICY USER\n"));
    assert_non_null(strstr(out.bytes, "\n.SS dibs policy show POLICY\n"));
    assert_non_null(strstr(out.bytes, "\\fB\\-\\-key\\fR \\fIKEY\\fR\nNames the attempt.\n"));
    assert_null(strstr(out.bytes, "Is not listed"));
    for (size_t i = 0; i < config_key_count; i++)
        assert_non_null(strstr(out.bytes, config_keys[i].group));
    buffer_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_command__reads_words_and_flags_in_any_order),
        cmocka_unit_test(test_command__finds_subcommands),
        cmocka_unit_test(test_command__refuses_wrong_counts_of_words),
        cmocka_unit_test(test_command__refuses_flags_it_does_not_know),
        cmocka_unit_test(test_command__refuses_commands_it_does_not_know),
        cmocka_unit_test(test_command__shows_help_and_runs_nothing),
        cmocka_unit_test(test_command__without_a_command_is_a_usage_error),
        cmocka_unit_test(test_command__knows_the_usual_flags_for_the_version),
        cmocka_unit_test(test_command__leaves_settings_for_the_one_who_knows_them),
        cmocka_unit_test(test_command__passes_the_exit_code_on),
        cmocka_unit_test(test_command__fails_when_stdout_is_full),
        cmocka_unit_test(test_command__writes_the_completion_and_the_man_page_from_the_same_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
