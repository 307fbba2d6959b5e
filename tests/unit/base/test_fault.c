/* test_fault.c: points that kill or stop the process when, and only when, they are told to. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"

/* A child that passes `a.one` and `b.two` in turn, five times each, and exits with `code`. The
 * orders are read once per process, so every case gets a process of its own. */
static pid_t start_child(const char *orders, int code)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0)
        return child;
    signal(SIGABRT, SIG_DFL);
    if (orders == NULL) {
        unsetenv("DIBS_FAULT");
    } else {
        setenv("DIBS_FAULT", orders, 1);
        close(STDERR_FILENO);
    }
    for (int i = 0; i < 5; i++) {
        FAULT_POINT("a.one");
        FAULT_POINT("b.two");
    }
    _exit(code);
}

static int wait_for(pid_t child, int options)
{
    int status;
    assert_int_equal(waitpid(child, &status, options), child);
    return status;
}

static void assert_passes(const char *orders)
{
    int status = wait_for(start_child(orders, 23), 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 23);
}

static void test_fault__without_orders_points_do_nothing(void **state)
{
    assert_passes(NULL);
}

#if defined(DIBS_FAULT_POINTS) && DIBS_FAULT_POINTS

static void assert_dies(const char *orders, int signal_number)
{
    int status = wait_for(start_child(orders, 23), 0);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), signal_number);
}

static void test_fault__kills_at_the_counted_pass(void **state)
{
    assert_dies("a.one:1:kill", SIGKILL);
    assert_dies("a.one:5:kill", SIGKILL);
    assert_passes("a.one:6:kill");
}

static void test_fault__names_match_whole(void **state)
{
    assert_passes("a.on:1:kill");
    assert_passes("a.one.more:1:kill");
    assert_passes("");
}

static void test_fault__takes_several_orders(void **state)
{
    assert_dies("a.other:1:kill,b.two:3:kill", SIGKILL);
    assert_passes("a.other:1:kill,b.two:6:kill");
}

static void test_fault__stops_once_and_goes_on(void **state)
{
    /* The kill comes later than the stop: the order of events is the order of the passes. */
    pid_t child = start_child("a.one:2:stop,b.two:4:kill", 23);
    int status = wait_for(child, WUNTRACED);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(WSTOPSIG(status), SIGSTOP);
    assert_int_equal(kill(child, SIGCONT), 0);
    status = wait_for(child, WUNTRACED);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

static void test_fault__misspelt_orders_abort(void **state)
{
    static const char *const orders[] = {
        "a.one",
        "a.one:1",
        "a.one:1:",
        "a.one:1:die",
        "a.one:0:kill",
        "a.one::kill",
        "a.one:-1:kill",
        "a.one: 1:kill",
        ":1:kill",
        "a.one:1:kill,",
        "a.one:1:kill ",
        "a.one:1x:kill",
        ",",
    };
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
        assert_dies(orders[i], SIGABRT);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fault__without_orders_points_do_nothing),
#if defined(DIBS_FAULT_POINTS) && DIBS_FAULT_POINTS
        cmocka_unit_test(test_fault__kills_at_the_counted_pass),
        cmocka_unit_test(test_fault__names_match_whole),
        cmocka_unit_test(test_fault__takes_several_orders),
        cmocka_unit_test(test_fault__stops_once_and_goes_on),
        cmocka_unit_test(test_fault__misspelt_orders_abort),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
