/* test_error.c: the words that reach the operator. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"

static void test_error__set_writes_words_and_returns_the_status(void **state)
{
    struct error error = {"old"};
    assert_int_equal(error_set(&error, STATUS_CONFLICT, "%s: %d", "total", 7), STATUS_CONFLICT);
    assert_string_equal(error.text, "total: 7");
}

static void test_error__set_without_an_error_only_returns_the_status(void **state)
{
    assert_int_equal(error_set(NULL, STATUS_FAILED, "%d", 1), STATUS_FAILED);
}

static void test_error__set_may_quote_the_old_words(void **state)
{
    struct error error = {"disk full"};
    assert_int_equal(error_set(&error, STATUS_FAILED, "cannot commit (%s)", error.text),
                     STATUS_FAILED);
    assert_string_equal(error.text, "cannot commit (disk full)");
}

static void test_error__long_words_are_cut(void **state)
{
    char words[1000];
    memset(words, 'x', sizeof(words) - 1);
    words[sizeof(words) - 1] = '\0';
    struct error error;
    (void)error_set(&error, STATUS_FAILED, "%s", words);
    assert_int_equal(strlen(error.text), sizeof(error.text) - 1);

    error_prefix(&error, "sqlite");
    assert_int_equal(strlen(error.text), sizeof(error.text) - 1);
    assert_memory_equal(error.text, "sqlite: xxx", 11);

    error_prefix(&error, "%s", words);
    assert_int_equal(strlen(error.text), sizeof(error.text) - 1);
    assert_null(strchr(error.text, ':'));
}

static void test_error__prefix_goes_in_front(void **state)
{
    struct error error = {"is locked"};
    error_prefix(&error, "ledger %s", "dibs.db");
    assert_string_equal(error.text, "ledger dibs.db: is locked");
    error_prefix(NULL, "ledger %s", "dibs.db");
}

static void test_error__every_status_has_a_name(void **state)
{
    assert_string_equal(status_name(STATUS_OK), "ok");
    assert_string_equal(status_name(STATUS_INVALID), "invalid");
    assert_string_equal(status_name(STATUS_NOT_FOUND), "not_found");
    assert_string_equal(status_name(STATUS_CONFLICT), "conflict");
    assert_string_equal(status_name(STATUS_UNAVAILABLE), "unavailable");
    assert_string_equal(status_name(STATUS_UNKNOWN), "unknown");
    assert_string_equal(status_name(STATUS_FAILED), "failed");
}

static void test_error__ensure_says_what_and_aborts(void **state)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        ensure(1 + 1 == 2);
        ensure(1 + 1 == 3);
        _exit(0);
    }
    close(ends[1]);
    char words[512] = "";
    ssize_t count = read(ends[0], words, sizeof(words) - 1);
    assert_true(count > 0);
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(words, "1 + 1 == 3"));
    assert_non_null(strstr(words, "test_error.c"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error__set_writes_words_and_returns_the_status),
        cmocka_unit_test(test_error__set_without_an_error_only_returns_the_status),
        cmocka_unit_test(test_error__set_may_quote_the_old_words),
        cmocka_unit_test(test_error__long_words_are_cut),
        cmocka_unit_test(test_error__prefix_goes_in_front),
        cmocka_unit_test(test_error__every_status_has_a_name),
        cmocka_unit_test(test_error__ensure_says_what_and_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
