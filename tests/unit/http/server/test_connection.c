/* test_connection.c: strictness, timeouts, caps and ends of connections, behind real sockets. */
#include <sys/resource.h>

#include "echo.h"
#include "malformed.h"

static const int refusal_statuses[] = {400, 408, 413, 414, 431, 501, 503, 505};

static void test_connection__refuses_and_closes_properly(void **state)
{
    struct echo *echo = *state;
    for (size_t i = 0; i < MALFORMED_COUNT; i++) {
        struct response response;
        int client = client_connect(echo);
        client_send_bytes(client, malformed[i].bytes, malformed[i].length);
        client_send(client, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
        client_read(client, &response);
        if (response.status != refusal_statuses[malformed[i].refusal])
            fail_msg("%s: %d", malformed[i].name, response.status);
        assert_non_null(strstr(response.head, "\r\nConnection: close\r\n"));
        response_release(&response);
        client_expect_end(client);
        client_close(echo, client);
    }
    assert_int_equal(atomic_load(&echo->handled_count), 0);
    assert_int_equal(echo_counter(&echo_counters(echo)->refusals), MALFORMED_COUNT);
}

/* The client is still sending when it is refused: it must be able to read why, so what it sends is
 * read and dropped instead of resetting the connection. */
static void test_connection__a_refusal_arrives_while_the_client_sends(void **state)
{
    struct echo *echo = *state;
    char *body = calloc(1, 200000);
    assert_non_null(body);
    for (uint64_t i = 1; i <= 20; i++) {
        static const char head[] =
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n";
        int client = client_connect(echo);
        client_send(client, head);
        client_send_bytes(client, body, 200000);
        echo_await(echo_counter(&echo_counters(echo)->bytes_in) == i * (sizeof(head) - 1 + 200000));
        client_expect_status(client, 413);
        client_expect_end(client);
        client_close(echo, client);
    }
    free(body);
}

static void test_connection__a_refusal_waits_for_earlier_answers(void **state)
{
    struct echo *echo = *state;
    int client = client_connect(echo);
    client_send(client, "GET /hold?1 HTTP/1.1\r\nHost: a\r\n\r\nGET /hold?2 HTTP/1.1\r\nHost: a\r\n"
                        "\r\nBREW / HTTP/1.1\r\n\r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    echo_settle_handled(echo, 2);
    echo_ask(echo, "/release", "GET /release? ");
    client_expect(client, "GET /hold?1 ");
    client_expect(client, "GET /hold?2 ");
    client_expect_status(client, 501);
    client_expect_end(client);
}

static void test_connection__closes_when_asked_to(void **state)
{
    struct echo *echo = *state;
    static const char *const requests[] = {
        "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n",
        "GET /echo HTTP/1.0\r\n\r\n",
        "GET /close HTTP/1.1\r\nHost: a\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        struct response response;
        int client = client_connect(echo);
        client_send(client, requests[i]);
        client_send(client, "GET /echo?late HTTP/1.1\r\nHost: a\r\n\r\n");
        client_read(client, &response);
        assert_int_equal(response.status, 200);
        assert_non_null(strstr(response.head, "\r\nConnection: close\r\n"));
        response_release(&response);
        client_expect_end(client);
        client_close(echo, client);
    }
    assert_int_equal(atomic_load(&echo->handled_count), 4);
}

static void test_connection__http_1_0_may_stay(void **state)
{
    struct echo *echo = *state;
    int client = client_connect(echo);
    for (int i = 0; i < 3; i++) {
        struct response response;
        client_send(client, "GET /echo HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
        client_read(client, &response);
        assert_non_null(strstr(response.head, "\r\nConnection: keep-alive\r\n"));
        response_release(&response);
    }
}

static void test_connection__invites_an_acceptable_body(void **state)
{
    struct echo *echo = *state;
    char interim[64];
    int client = client_connect(echo);
    client_send(client, "POST /tiny HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                        "Content-Length: 4\r\n\r\n");
    client_read_until(client, "\r\n\r\n", interim, sizeof(interim));
    assert_string_equal(interim, "HTTP/1.1 100 Continue\r\n\r\n");
    client_send(client, "abcd");
    client_expect(client, "POST /tiny? abcd");
    /* One who does not wait is not invited. */
    client_send(client, "POST /tiny HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                        "Content-Length: 4\r\n\r\nefgh");
    client_expect(client, "POST /tiny? efgh");
    client_send(client, "POST /tiny HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                        "Content-Length: 5\r\n\r\n");
    client_expect_status(client, 413);
    client_expect_end(client);
}

static void test_connection__an_invitation_waits_for_earlier_answers(void **state)
{
    struct echo *echo = *state;
    char interim[64];
    int client = client_connect(echo);
    client_send(client, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\nPOST /tiny HTTP/1.1\r\nHost: a\r\n"
                        "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    echo_settle_handled(echo, 1);
    echo_ask(echo, "/release", "GET /release? ");
    client_expect(client, "GET /hold? ");
    client_read_until(client, "\r\n\r\n", interim, sizeof(interim));
    assert_string_equal(interim, "HTTP/1.1 100 Continue\r\n\r\n");
    client_send(client, "abcd");
    client_expect(client, "POST /tiny? abcd");
}

static void test_connection__a_half_closed_client_gets_its_answers(void **state)
{
    struct echo *echo = *state;
    int client = client_connect(echo);
    client_send(client, "GET /hold?1 HTTP/1.1\r\nHost: a\r\n\r\nGET /hold?2 HTTP/1.1\r\nHost: a\r\n"
                        "\r\nGET /half HTTP");
    assert_int_equal(shutdown(client, SHUT_WR), 0);
    echo_settle_handled(echo, 2);
    echo_ask(echo, "/gone", "0");
    echo_ask(echo, "/release", "GET /release? ");
    client_expect(client, "GET /hold?1 ");
    client_expect(client, "GET /hold?2 ");
    client_expect_end(client);
    client_close(echo, client);
    echo_await(echo_counter(&echo_counters(echo)->connections_open) == 0);
}

static void client_reset(struct echo *echo, int client)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    assert_int_equal(setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    client_close(echo, client);
}

static void test_connection__an_exchange_outlives_its_client(void **state)
{
    struct echo *echo = *state;
    int client = client_connect(echo);
    client_send(client, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\nGET /hold HTTP/1.1\r\nHost: a\r\n\r\n"
                        "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    echo_settle_handled(echo, 3);
    echo_ask(echo, "/gone", "0");
    client_reset(echo, client);
    echo_settle(echo);
    echo_ask(echo, "/gone", "2");
    echo_ask(echo, "/release", "GET /release? ");
}

/* --- time --- */

/* Sends one byte after the other until there is an answer; returns how long that took. */
static int64_t client_drip(int client, const char *bytes)
{
    int64_t started_ms = clock_monotonic_ms();
    struct pollfd ready = {.fd = client, .events = POLLIN};
    size_t length = strlen(bytes);
    for (size_t i = 0; poll(&ready, 1, 10) == 0; i++) {
        send(client, i < length ? bytes + i : "x", 1, MSG_NOSIGNAL);
        assert_true(clock_monotonic_ms() - started_ms < TIMEOUT_MS);
    }
    return clock_monotonic_ms() - started_ms;
}

static void test_connection__cuts_off_who_drips_headers(void **state)
{
    struct echo *echo = *state;
    echo->options.header_timeout_ms = 300;
    echo_start(echo);
    int client = client_connect(echo);
    assert_true(client_drip(client, "GET /echo HTTP/1.1\r\nHost: a\r\nB: ") >= 290);
    client_expect_status(client, 408);
    client_expect_end(client);
    client_close(echo, client);
    /* Also behind a good request, with the time counted anew. */
    client = client_connect(echo);
    client_echo(client);
    assert_true(client_drip(client, "\r\nGET /echo HTTP/1.1\r\nHost: a\r\nB: ") >= 290);
    client_expect_status(client, 408);
    client_expect_end(client);
    client_close(echo, client);
    assert_int_equal(echo_counter(&echo_counters(echo)->timeouts), 2);
}

static void test_connection__cuts_off_who_drips_a_body(void **state)
{
    struct echo *echo = *state;
    echo->options.body_timeout_ms = 300;
    echo_start(echo);
    int client = client_connect(echo);
    client_send(client, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 16000\r\n\r\n");
    assert_true(client_drip(client, "") >= 290);
    client_expect_status(client, 408);
    client_expect_end(client);
}

/* Slow in both parts is not twice as slow: who wasted almost all of the head's time is cut off
 * before one who began its body earlier. */
static void test_connection__limits_the_time_of_head_and_body_together(void **state)
{
    struct echo *echo = *state;
    static const char head[] = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 16000\r\n\r\n";
    echo->options.header_timeout_ms = 2000;
    echo->options.body_timeout_ms = 2000;
    echo_start(echo);
    int quick = client_connect(echo);
    client_echo(quick); /* So that its time does not count from the connect. */
    int slow = client_socket(echo);
    struct sockaddr_in other = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)};
    assert_int_equal(bind(slow, (struct sockaddr *)&other, sizeof(other)), 0);
    assert_int_equal(client_try_connect(slow, echo), 0);
    int64_t started_ms = clock_monotonic_ms();
    client_send_bytes(slow, head, 10);
    while (clock_monotonic_ms() - started_ms < 1400)
        echo_pause();
    client_send(quick, head);
    while (clock_monotonic_ms() - started_ms < 1900)
        echo_pause();
    client_send(slow, head + 10);
    client_expect_status(slow, 408);
    client_expect_status(quick, 408);
    assert_int_equal(atomic_load(&echo->refused_first), 2); /* 127.0.0.2 */
}

static void test_connection__closes_the_idle(void **state)
{
    struct echo *echo = *state;
    echo->options.idle_timeout_ms = 300;
    echo_start(echo);
    int client = client_connect(echo);
    client_echo(client);
    int64_t started_ms = clock_monotonic_ms();
    client_expect_end(client);
    assert_true(clock_monotonic_ms() - started_ms >= 290);
}

static void test_connection__closes_who_never_says_anything(void **state)
{
    struct echo *echo = *state;
    echo->options.header_timeout_ms = 300;
    echo_start(echo);
    int client = client_connect(echo);
    client_expect_end(client);
}

/* One whose answer takes long is not idle. */
static void test_connection__does_not_time_out_who_waits_for_us(void **state)
{
    struct echo *echo = *state;
    echo->options.idle_timeout_ms = 100;
    echo->options.header_timeout_ms = 100;
    echo_start(echo);
    int client = client_connect(echo);
    client_send(client,
                "GET /echo HTTP/1.1\r\nHost: a\r\n\r\nGET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    client_expect(client, "GET /echo? ");
    int idle = client_connect(echo);
    client_echo(idle);
    client_expect_end(idle); /* So at least as much time has passed. */
    client_close(echo, idle);
    echo_ask(echo, "/release", "GET /release? ");
    client_expect(client, "GET /hold? ");
}

static void test_connection__gives_up_on_who_does_not_read(void **state)
{
    struct echo *echo = *state;
    echo->options.write_timeout_ms = 300;
    echo_start(echo);
    int client = client_connect_small(echo, 4096);
    client_get(client, "/big?30000000");
    echo_await(echo_counter(&echo_counters(echo)->timeouts) == 1);
    echo_await(echo_counter(&echo_counters(echo)->connections_open) == 0);
}

/* One who reads slowly, but reads, gets everything. */
static void test_connection__is_patient_with_who_reads_slowly(void **state)
{
    struct echo *echo = *state;
    struct response response;
    echo->options.write_timeout_ms = 3000; /* This process may have to wait for the machine, too. */
    echo_start(echo);
    int client = client_connect_small(echo, 65536);
    const size_t length = 12000000;
    client_get(client, "/big?12000000");
    client_read_head(client, &response);
    char *bytes = malloc(length);
    assert_non_null(bytes);
    int64_t started_ms = clock_monotonic_ms();
    const size_t part = length / 40;
    for (size_t at = 0; at < length; at += part) {
        client_read_exactly(client, bytes + at, part);
        int64_t until_ms = started_ms + (int64_t)(at / part) * 160;
        while (clock_monotonic_ms() < until_ms)
            echo_pause();
    }
    assert_true(clock_monotonic_ms() - started_ms > 2 * echo->options.write_timeout_ms);
    free(bytes);
}

/* --- too much at a time --- */

static void test_connection__who_sends_much_keeps_nobody_waiting(void **state)
{
    struct echo *echo = *state;
    enum { MUCH = 40 };
    struct response response;
    char text[MUCH * 64] = "";
    int other = client_connect(echo);
    client_echo(other);
    int client = client_connect(echo);
    for (int i = 0; i < MUCH; i++)
        strcat(text, "GET /work HTTP/1.1\r\nHost: a\r\n\r\n");
    client_send(client, text);
    echo_await(atomic_load(&echo->handled_count) == 2);
    client_get(other, "/count");
    atomic_store(&echo->worked, true);
    client_read(other, &response);
    assert_in_range(strtol(response.body, NULL, 10), 3, MUCH / 2);
    free(response.body);
    for (int i = 0; i < MUCH; i++)
        client_expect(client, "GET /work? ");
}

/* 10 MiB, of which a second pays for 64 MB: no machine makes that shorter, and those who ask for
 * little are answered meanwhile. */
static void test_connection__large_answers_have_a_pace(void **state)
{
    struct echo *echo = *state;
    enum { LARGE = 160 };
    struct response response;
    int client = client_connect(echo);
    int other = client_connect(echo);
    int64_t began_ms = clock_monotonic_ms();
    for (int i = 0; i < LARGE; i++) {
        client_get(client, "/big?65536");
        client_read(client, &response);
        assert_int_equal(response.body_length, 65536);
        free(response.body);
        client_echo(other);
    }
    assert_true(clock_monotonic_ms() - began_ms >= 130);
}

/* No piece of it is longer than what others can wait for. */
static void test_connection__a_large_answer_leaves_piece_by_piece(void **state)
{
    struct echo *echo = *state;
    enum { PIECE = 64 * 1024, PIECES = 128 };
    struct response response;
    int client = client_connect(echo);
    client_echo(client);
    uint64_t before = echo_counter(&echo_counters(echo)->writes);
    client_get(client, "/big?8388608");
    client_read(client, &response);
    assert_int_equal(response.body_length, PIECE * PIECES);
    for (size_t i = 0; i < response.body_length; i++)
        assert_true(response.body[i] == 'b');
    free(response.body);
    client_echo(client);
    assert_true(echo_counter(&echo_counters(echo)->writes) - before >= PIECES);
}

/* Each has a part of it when the client breaks the connection, and waits for the next. */
static void test_connection__large_answers_may_be_left(void **state)
{
    struct echo *echo = *state;
    enum { LEAVERS = 16 };
    int clients[LEAVERS];
    char byte;
    for (int i = 0; i < LEAVERS; i++) {
        clients[i] = client_connect(echo);
        client_get(clients[i], "/big?4000000");
    }
    for (int i = 0; i < LEAVERS; i++) {
        assert_int_equal(recv(clients[i], &byte, 1, 0), 1);
        client_close(echo, clients[i]);
    }
    echo_await(echo_counter(&echo_counters(echo)->connections_open) == 0);
    client_echo(client_connect(echo));
}

/* A storm of new connections comes in a few at a time, between the requests of others. */
static void test_connection__a_storm_of_new_ones_takes_turns(void **state)
{
    struct echo *echo = *state;
    enum { STORM = 64 };
    int other = client_connect(echo);
    client_echo(other);
    client_get(other, "/work");
    echo_await(atomic_load(&echo->handled_count) == 2);
    int clients[STORM];
    for (int i = 0; i < STORM; i++)
        clients[i] = client_connect(echo);
    atomic_store(&echo->worked, true);
    client_expect(other, "GET /work? ");
    for (int i = 0; i < STORM; i++)
        client_echo(clients[i]);
    assert_in_range(atomic_load(&echo->accepted_most), 1, STORM / 4);
}

/* --- too many --- */

static void test_connection__tells_who_is_over_the_cap(void **state)
{
    struct echo *echo = *state;
    echo->options.connections_max = 2;
    echo_start(echo);
    int clients[2];
    for (int i = 0; i < 2; i++) {
        clients[i] = client_connect(echo);
        client_echo(clients[i]);
    }
    for (int i = 0; i < 3; i++) {
        int third = client_connect(echo);
        client_get(third, "/echo");
        client_expect_status(third, 503);
        client_expect_end(third);
        client_close(echo, third);
    }
    assert_int_equal(echo_counter(&echo_counters(echo)->connections_refused), 3);
    client_get(clients[0], "/echo");
    client_expect(clients[0], "GET /echo? ");
    client_close(echo, clients[1]);
    echo_await(echo_counter(&echo_counters(echo)->connections_open) == 1);
    int fourth = client_connect(echo);
    client_echo(fourth);
    client_close(echo, fourth);
    client_close(echo, clients[0]);
}

static void test_connection__survives_running_out_of_files(void **state)
{
    struct echo *echo = *state;
    struct rlimit before;
    int first = client_connect(echo);
    client_echo(first);
    int clients[3];
    for (int i = 0; i < 3; i++)
        clients[i] = client_socket(echo);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit none = {.rlim_cur = 3, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(client_try_connect(clients[i], echo), 0);
        client_get(clients[i], "/echo");
    }
    /* A loop that tries again without a rest would make these ticks in no time. */
    int64_t started_ms = clock_monotonic_ms();
    uint64_t ticks = echo_counter(&echo_counters(echo)->ticks);
    echo_await(echo_counter(&echo_counters(echo)->ticks) >= ticks + 6);
    assert_true(clock_monotonic_ms() - started_ms >= 400);
    client_echo(first);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (int i = 0; i < 3; i++) {
        client_expect(clients[i], "GET /echo? ");
        client_close(echo, clients[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        echo_test(test_connection__refuses_and_closes_properly),
        echo_test(test_connection__a_refusal_arrives_while_the_client_sends),
        echo_test(test_connection__a_refusal_waits_for_earlier_answers),
        echo_test(test_connection__closes_when_asked_to),
        echo_test(test_connection__http_1_0_may_stay),
        echo_test(test_connection__invites_an_acceptable_body),
        echo_test(test_connection__an_invitation_waits_for_earlier_answers),
        echo_test(test_connection__a_half_closed_client_gets_its_answers),
        echo_test(test_connection__an_exchange_outlives_its_client),
        echo_test_unstarted(test_connection__cuts_off_who_drips_headers),
        echo_test_unstarted(test_connection__cuts_off_who_drips_a_body),
        echo_test_unstarted(test_connection__limits_the_time_of_head_and_body_together),
        echo_test_unstarted(test_connection__closes_the_idle),
        echo_test_unstarted(test_connection__closes_who_never_says_anything),
        echo_test_unstarted(test_connection__does_not_time_out_who_waits_for_us),
        echo_test_unstarted(test_connection__gives_up_on_who_does_not_read),
        echo_test_unstarted(test_connection__is_patient_with_who_reads_slowly),
        echo_test(test_connection__who_sends_much_keeps_nobody_waiting),
        echo_test(test_connection__large_answers_have_a_pace),
        echo_test(test_connection__a_large_answer_leaves_piece_by_piece),
        echo_test(test_connection__large_answers_may_be_left),
        echo_test(test_connection__a_storm_of_new_ones_takes_turns),
        echo_test_unstarted(test_connection__tells_who_is_over_the_cap),
        echo_test(test_connection__survives_running_out_of_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
