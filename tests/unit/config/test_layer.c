/* test_layer.c: what flags, the environment and the settings file may say, and how each complains.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/layer.h"

static struct config_layer layer;
static struct error error;

static int release(void **state)
{
    config_layer_release(&layer);
    error.text[0] = '\0';
    return 0;
}

static const char *said(const char *name)
{
    return layer.values[config_key_find(name) - config_keys];
}

static int line_of(const char *name)
{
    return layer.lines[config_key_find(name) - config_keys];
}

static enum status read_text(const char *text)
{
    config_layer_release(&layer);
    return config_layer_read_text(&layer, "dibs.conf", span_of(text), &error);
}

static void assert_text_refused(const char *text, const char *words)
{
    assert_int_equal(read_text(text), STATUS_INVALID);
    assert_string_equal(error.text, words);
}

static enum status read_flags(const char *const *flags)
{
    char *argv[8] = {0};
    int argc = 0;
    while (flags[argc] != NULL) {
        argv[argc] = strdup(flags[argc]);
        argc++;
    }
    config_layer_release(&layer);
    enum status status = config_layer_read_flags(&layer, argc, argv, &error);
    while (argc > 0)
        free(argv[--argc]);
    return status;
}

static void assert_flags_refused(const char *const *flags, const char *words)
{
    assert_int_equal(read_flags(flags), STATUS_INVALID);
    assert_string_equal(error.text, words);
}

static enum status read_variable(const char *variable)
{
    char *copy = strdup(variable);
    char *environment[] = {(char[]){"PATH=/bin"}, copy, NULL};
    config_layer_release(&layer);
    enum status status = config_layer_read_environment(&layer, environment, &error);
    free(copy);
    return status;
}

static void test_layer__reads_a_file_and_remembers_the_lines(void **state)
{
    assert_int_equal(read_text("# the shop\n"
                               "\n"
                               "listen = 127.0.0.1:9000 ; not 8080\r\n"
                               "ack_timeout: 2s\n"
                               "  ; indented comments are no values\n"
                               "user_audience =\n"
                               "threads=4"),
                     STATUS_OK);
    assert_string_equal(said("listen"), "127.0.0.1:9000");
    assert_int_equal(line_of("listen"), 3);
    assert_string_equal(said("ack_timeout"), "2s");
    assert_int_equal(line_of("ack_timeout"), 4);
    assert_string_equal(said("user_audience"), "");
    assert_string_equal(said("threads"), "4");
    assert_int_equal(line_of("threads"), 7);
    assert_null(said("gate"));
}

static void test_layer__lets_a_list_go_on_in_indented_lines(void **state)
{
    assert_int_equal(read_text("cors_origin = https://a\n  https://b\n\thttps://c\nthreads = 1\n"),
                     STATUS_OK);
    assert_string_equal(said("cors_origin"), "https://a, https://b, https://c");
    assert_int_equal(line_of("cors_origin"), 1);
    assert_text_refused("listen = 127.0.0.1:1\n  threads = 4\n",
                        "dibs.conf:2: an indented line goes on with the one before, and listen is "
                        "not a list");
}

static void test_layer__complains_with_the_line(void **state)
{
    assert_text_refused("\nlisten = 127.0.0.1:1\nlistn = x\n",
                        "dibs.conf:3: unknown key \"listn\"; did you mean listen?");
    assert_text_refused("colour = red\n",
                        "dibs.conf:1: unknown key \"colour\"; `dibs config` lists all settings");
    assert_text_refused("[server]\nlisten = 127.0.0.1:1\n",
                        "dibs.conf:2: there are no sections: write the keys without [server]");
    assert_text_refused("threads = 1\nthreads = 2\n",
                        "dibs.conf:2: threads: is said twice; it is on line 1 too");
    assert_text_refused("threads = 1\nwhat is this\n",
                        "dibs.conf:2: is not a setting, as in `listen = 127.0.0.1:8080`, nor a "
                        "comment that begins with # or ;");
    assert_text_refused("admin_token = 0123456789abcdef\n",
                        "dibs.conf:1: admin_token: a secret does not belong in this file; put it "
                        "into a file of its own and name that in admin_token_file");
}

static void test_layer__reports_the_first_error_only(void **state)
{
    assert_text_refused("threads = 1\nfoo = 1\nlistn = x\n",
                        "dibs.conf:2: unknown key \"foo\"; `dibs config` lists all settings");
    assert_text_refused("threads = 1\nwhat is this\nlistn = x\n",
                        "dibs.conf:2: is not a setting, as in `listen = 127.0.0.1:8080`, nor a "
                        "comment that begins with # or ;");
}

static void test_layer__refuses_lines_that_would_be_cut_in_two(void **state)
{
    char text[400] = "\nuser_audience = ";
    memset(text + strlen(text), 'a', 300);
    assert_int_equal(read_text(text), STATUS_INVALID);
    assert_non_null(strstr(error.text, "dibs.conf:2: the line is longer than "));
}

static void test_layer__refuses_files_that_are_not_text(void **state)
{
    const struct span bytes = SPAN("threads = 1\0listen = x\n");
    assert_int_equal(config_layer_read_text(&layer, "dibs.conf", bytes, &error), STATUS_INVALID);
    assert_string_equal(error.text, "dibs.conf: contains a NUL byte; it is not a text file");
}

static void test_layer__reads_flags_in_both_spellings(void **state)
{
    assert_int_equal(
        read_flags((const char *const[]){"--listen", "127.0.0.1:1", "--ack-timeout=2s", "--config",
                                         "x.conf", "--listen=[::1]:2", NULL}),
        STATUS_OK);
    assert_string_equal(said("listen"), "[::1]:2");
    assert_string_equal(said("ack_timeout"), "2s");
    assert_string_equal(layer.file, "x.conf");
}

static void test_layer__complains_about_flags(void **state)
{
    assert_flags_refused((const char *const[]){"--listne", "x", NULL},
                         "unknown flag --listne; did you mean --listen?");
    assert_flags_refused((const char *const[]){"--ack_timeout=2s", NULL},
                         "unknown flag --ack_timeout; did you mean --ack-timeout?");
    assert_flags_refused((const char *const[]){"--konfig", "x", NULL},
                         "unknown flag --konfig; did you mean --config?");
    assert_flags_refused((const char *const[]){"-listen", "x", NULL},
                         "unknown flag -listen; did you mean --listen?");
    assert_flags_refused((const char *const[]){"--threads", NULL},
                         "--threads: needs a value, as in --threads 4");
    assert_int_equal(read_flags((const char *const[]){"--demo", "--threads", "4", NULL}),
                     STATUS_OK);
    assert_string_equal(said("demo"), "on");
    assert_string_equal(said("threads"), "4");
    assert_int_equal(read_flags((const char *const[]){"--demo=off", NULL}), STATUS_OK);
    assert_string_equal(said("demo"), "off");
    assert_flags_refused((const char *const[]){"8080", NULL},
                         "unexpected \"8080\"; settings are flags, as in --listen ADDRESS");
    assert_flags_refused((const char *const[]){"--admin-token", "hunter2hunter2hunter2", NULL},
                         "--admin-token: a secret on a command line can be seen by everyone on the "
                         "machine; use --admin-token-file FILE");
}

static void test_layer__reads_variables(void **state)
{
    assert_int_equal(read_variable("DIBS_ACK_TIMEOUT=2s"), STATUS_OK);
    assert_string_equal(said("ack_timeout"), "2s");
    assert_int_equal(read_variable("DIBS_ADMIN_TOKEN=a=b"), STATUS_OK);
    assert_string_equal(said("admin_token"), "a=b");
    assert_int_equal(read_variable("DIBS_CONFIG=x.conf"), STATUS_OK);
    assert_string_equal(layer.file, "x.conf");
    assert_int_equal(read_variable("DIBS_ACK_TIMEOT=2s"), STATUS_INVALID);
    assert_string_equal(error.text,
                        "unknown variable DIBS_ACK_TIMEOT; did you mean DIBS_ACK_TIMEOUT?");
    assert_int_equal(read_variable("DIBS_COLOUR=red"), STATUS_INVALID);
    assert_string_equal(error.text,
                        "unknown variable DIBS_COLOUR; `dibs config` lists all settings");
}

static void test_layer__leaves_variables_of_others_alone(void **state)
{
    const char *const foreign[] = {"DIBSY=1",
                                   "dibs_listen=1",
                                   "DIBS_URL=http://127.0.0.1:1",
                                   "DIBS_FAULT=a:1:kill",
                                   "DIBS_BINARY=x",
                                   "DIBS_BUILD_DIR=x",
                                   "DIBS_TEST_ROOT=x",
                                   "DIBS_SERVICE_HOST=10.0.0.1",
                                   "DIBS_SERVICE_PORT=8080",
                                   "DIBS_SERVICE_PORT_HTTP=8080",
                                   "DIBS_PORT=tcp://10.0.0.1:8080",
                                   "DIBS_PORT_8080_TCP_ADDR=10.0.0.1"};
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        assert_int_equal(read_variable(foreign[i]), STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_layer__reads_a_file_and_remembers_the_lines, release),
        cmocka_unit_test_teardown(test_layer__lets_a_list_go_on_in_indented_lines, release),
        cmocka_unit_test_teardown(test_layer__complains_with_the_line, release),
        cmocka_unit_test_teardown(test_layer__reports_the_first_error_only, release),
        cmocka_unit_test_teardown(test_layer__refuses_lines_that_would_be_cut_in_two, release),
        cmocka_unit_test_teardown(test_layer__refuses_files_that_are_not_text, release),
        cmocka_unit_test_teardown(test_layer__reads_flags_in_both_spellings, release),
        cmocka_unit_test_teardown(test_layer__complains_about_flags, release),
        cmocka_unit_test_teardown(test_layer__reads_variables, release),
        cmocka_unit_test_teardown(test_layer__leaves_variables_of_others_alone, release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
