/* test_loop.c: tasks of other threads, and the graceful end. */
#include <semaphore.h>

#include "echo.h"

/* --- tasks --- */

#define POSTERS    4
#define TASKS_EACH 2000

struct counted_task {
    struct http_task task;
    struct echo *echo;
    atomic_int runs;
    pthread_t thread;
    uint64_t tick;
};

static void counted_run(struct http_task *task)
{
    struct counted_task *counted = (struct counted_task *)task;
    counted->thread = pthread_self();
    counted->tick = echo_counter(&echo_counters(counted->echo)->ticks);
    atomic_fetch_add(&counted->runs, 1);
}

static void *poster(void *argument)
{
    struct counted_task *tasks = argument;
    for (int i = 0; i < TASKS_EACH; i++)
        assert_true(http_loop_post(atomic_load(&tasks[i].echo->loop), &tasks[i].task));
    return NULL;
}

static struct counted_task *tasks_new(struct echo *echo, size_t count)
{
    struct counted_task *tasks = calloc(count, sizeof(*tasks));
    assert_non_null(tasks);
    for (size_t i = 0; i < count; i++) {
        tasks[i].task.run = counted_run;
        tasks[i].echo = echo;
    }
    return tasks;
}

static void test_loop__runs_every_task_once_on_its_thread(void **state)
{
    struct echo *echo = *state;
    pthread_t threads[POSTERS];
    struct counted_task *tasks = tasks_new(echo, (size_t)POSTERS * TASKS_EACH);
    for (int i = 0; i < POSTERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, poster, &tasks[i * TASKS_EACH]), 0);
    for (int i = 0; i < POSTERS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < POSTERS * TASKS_EACH; i++)
        echo_await(atomic_load(&tasks[i].runs) > 0);
    echo_stop(echo);
    for (int i = 0; i < POSTERS * TASKS_EACH; i++) {
        assert_int_equal(atomic_load(&tasks[i].runs), 1);
        assert_true(pthread_equal(tasks[i].thread, tasks[0].thread));
        assert_false(pthread_equal(tasks[i].thread, pthread_self()));
    }
    free(tasks);
}

struct gate_task {
    struct http_task task;
    sem_t entered;
    sem_t may_go;
};

static void gate_run(struct http_task *task)
{
    struct gate_task *gate = (struct gate_task *)task;
    sem_post(&gate->entered);
    sem_wait(&gate->may_go);
}

static void gate_shut(struct gate_task *gate, struct echo *echo)
{
    gate->task.run = gate_run;
    sem_init(&gate->entered, 0, 0);
    sem_init(&gate->may_go, 0, 0);
    assert_true(http_loop_post(atomic_load(&echo->loop), &gate->task));
    sem_wait(&gate->entered);
}

/* What a watchdog asks. */
static void test_loop__one_that_stands_still_does_not_turn(void **state)
{
    struct echo *echo = *state;
    struct gate_task gate;
    echo_await(http_server_turns(echo->server));
    echo_await(http_server_turns(echo->server));
    gate_shut(&gate, echo);
    (void)http_server_turns(echo->server);
    for (int i = 0; i < 10; i++)
        assert_false(http_server_turns(echo->server));
    sem_post(&gate.may_go);
    echo_await(http_server_turns(echo->server));
}

/* What is posted while the loop is busy is done in one later tick, in the order it came. */
static void test_loop__runs_a_burst_in_one_tick(void **state)
{
    struct echo *echo = *state;
    struct gate_task gate;
    struct counted_task *tasks = tasks_new(echo, 1000);
    gate_shut(&gate, echo);
    for (int i = 0; i < 1000; i++)
        assert_true(http_loop_post(atomic_load(&echo->loop), &tasks[i].task));
    sem_post(&gate.may_go);
    echo_await(atomic_load(&tasks[999].runs) == 1);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(tasks[i].tick, tasks[0].tick);
    echo_stop(echo);
    free(tasks);
}

static void test_loop__tells_that_it_has_ended(void **state)
{
    struct echo *echo = *state;
    struct error error;
    http_server_stop(echo->server);
    assert_int_equal(pthread_join(echo->thread, NULL), 0);
    echo->running = false;
    struct counted_task *task = tasks_new(echo, 1);
    assert_false(http_loop_post(atomic_load(&echo->loop), &task->task));
    http_server_stop(echo->server);
    assert_true(http_server_stopping(echo->server));
    http_server_close(echo->server);
    assert_int_equal(atomic_load(&task->runs), 0);
    free(task);

    /* A server that never ran can be closed too. */
    assert_int_equal(http_server_open(&echo->server, &echo->options, &error), STATUS_OK);
    http_server_close(echo->server);
}

/* --- the end --- */

static void test_loop__stop_answers_what_is_in_flight(void **state)
{
    struct echo *echo = *state;
    struct response response;
    int waiting = client_connect(echo);
    client_send(waiting,
                "GET /hold?1 HTTP/1.1\r\nHost: a\r\n\r\nGET /hold?2 HTTP/1.1\r\nHost: a\r\n"
                "\r\n");
    int idle = client_connect(echo);
    client_echo(idle);
    int silent = client_connect(echo);
    int late = client_connect(echo);
    client_send(late, "GET /echo?late HTTP/1.1\r\nHo");
    echo_settle_handled(echo, 3);
    http_server_stop(echo->server);
    client_expect_end(idle);
    client_expect_end(silent);
    /* Nobody is taken any more. */
    int refused = client_socket(echo);
    assert_int_not_equal(client_try_connect(refused, echo), 0);
    client_close(echo, refused);
    struct echo_release release;
    echo_release(echo, &release);
    client_read(waiting, &response);
    assert_string_equal(response.body, "GET /hold?1 ");
    assert_null(strstr(response.head, "Connection: close"));
    response_release(&response);
    client_read(waiting, &response);
    assert_string_equal(response.body, "GET /hold?2 ");
    assert_non_null(strstr(response.head, "\r\nConnection: close\r\n"));
    response_release(&response);
    client_expect_end(waiting);
    /* What had begun may be finished. */
    client_send(late, "st: a\r\n\r\n");
    client_read(late, &response);
    assert_string_equal(response.body, "GET /echo?late ");
    assert_non_null(strstr(response.head, "\r\nConnection: close\r\n"));
    response_release(&response);
    client_expect_end(late);
    echo_join(echo);
}

/* The loop is busy while a request arrives and the server is stopped: the request came first. */
static void test_loop__stop_reads_what_has_come(void **state)
{
    struct echo *echo = *state;
    struct gate_task gate;
    int known = client_connect(echo);
    client_echo(known);
    gate_shut(&gate, echo);
    client_get(known, "/echo?known");
    int fresh = client_connect(echo);
    client_get(fresh, "/echo?fresh");
    http_server_stop(echo->server);
    sem_post(&gate.may_go);
    client_expect(known, "GET /echo?known ");
    client_expect(fresh, "GET /echo?fresh ");
    echo_join(echo);
}

static void test_loop__stop_does_not_wait_for_ever(void **state)
{
    struct echo *echo = *state;
    echo->options.stop_timeout_ms = 100;
    echo_start(echo);
    int client = client_connect(echo);
    client_get(client, "/hold");
    int gone = client_connect(echo);
    client_get(gone, "/hold");
    echo_settle(echo);
    client_close(echo, gone);
    echo_stop(echo);
    client_expect_end(client);
    client_close(echo, client);
}

static enum status failing_open(void *server_context, struct http_loop *loop, unsigned index,
                                void **loop_context, struct error *error)
{
    if (index == 1)
        return error_set(error, STATUS_FAILED, "no second loop today");
    return echo_loop_open(server_context, loop, index, loop_context, error);
}

static void test_loop__a_loop_that_cannot_open_ends_all(void **state)
{
    (void)state;
    struct echo echo;
    struct error error;
    echo_init(&echo);
    echo.options.threads = 3;
    echo.options.callbacks.loop_open = failing_open;
    assert_int_equal(http_server_open(&echo.server, &echo.options, &error), STATUS_OK);
    assert_int_equal(http_server_run(echo.server, &error), STATUS_FAILED);
    assert_string_equal(error.text, "no second loop today");
    assert_int_equal(atomic_load(&echo.loops_open), 0);
    http_server_close(echo.server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        echo_test(test_loop__runs_every_task_once_on_its_thread),
        echo_test(test_loop__one_that_stands_still_does_not_turn),
        echo_test(test_loop__runs_a_burst_in_one_tick),
        echo_test(test_loop__tells_that_it_has_ended),
        echo_test(test_loop__stop_answers_what_is_in_flight),
        echo_test(test_loop__stop_reads_what_has_come),
        echo_test_unstarted(test_loop__stop_does_not_wait_for_ever),
        cmocka_unit_test(test_loop__a_loop_that_cannot_open_ends_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
