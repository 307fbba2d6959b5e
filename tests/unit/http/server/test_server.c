/* test_server.c: answers: their form, their order, one write for all of a tick; back-pressure. */
#include "echo.h"

static void test_server__answers_what_was_asked(void **state)
{
    struct echo *echo = *state;
    struct response response;
    int client = client_connect(echo);
    client_send(client, "POST /echo?a=b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    client_read(client, &response);
    assert_int_equal(response.status, 200);
    assert_string_equal(response.body, "POST /echo?a=b hello");
    assert_ptr_equal(strstr(response.head, "HTTP/1.1 200 OK\r\nDate: "), response.head);
    assert_non_null(strstr(response.head, " GMT\r\n"));
    assert_non_null(strstr(response.head, "\r\nContent-Type: text/plain\r\n"));
    assert_non_null(strstr(response.head, "\r\nContent-Length: 20\r\n"));
    assert_null(strstr(response.head, "\r\nConnection:"));
    assert_null(strstr(response.head, "\r\nServer:"));
    response_release(&response);
}

static void test_server__head_has_the_length_and_no_body(void **state)
{
    struct echo *echo = *state;
    struct response response;
    int client = client_connect(echo);
    client_send(client,
                "HEAD /echo HTTP/1.1\r\nHost: a\r\n\r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    client_read_head(client, &response);
    assert_int_equal(response.status, 200);
    assert_non_null(strstr(response.head, "\r\nContent-Length: 12\r\n"));
    client_expect(client, "GET /echo? ");
}

static void test_server__no_content_has_neither(void **state)
{
    struct echo *echo = *state;
    struct response response;
    int client = client_connect(echo);
    client_get(client, "/none");
    client_get(client, "/echo");
    client_read(client, &response);
    assert_int_equal(response.status, 204);
    assert_null(strstr(response.head, "Content-Length"));
    assert_null(strstr(response.head, "Content-Type"));
    response_release(&response);
    client_expect(client, "GET /echo? ");
}

static void test_server__a_value_cannot_forge_a_header(void **state)
{
    struct echo *echo = *state;
    struct response response;
    int client = client_connect(echo);
    client_get(client, "/forge");
    client_read(client, &response);
    assert_non_null(strstr(response.head, "\r\nLocation: a??Forged: b\r\n"));
    assert_non_null(strstr(response.head, "\r\nLink: a longer one?\r\n"));
    response_release(&response);
}

static void test_server__answers_in_order_whatever_was_ready_first(void **state)
{
    struct echo *echo = *state;
    int client = client_connect(echo);
    client_send(client, "GET /hold?1 HTTP/1.1\r\nHost: a\r\n\r\n"
                        "GET /echo?2 HTTP/1.1\r\nHost: a\r\n\r\n"
                        "GET /hold?3 HTTP/1.1\r\nHost: a\r\n\r\n"
                        "GET /tick?4 HTTP/1.1\r\nHost: a\r\n\r\n"
                        "GET /hold?5 HTTP/1.1\r\nHost: a\r\n\r\n");
    echo_settle_handled(echo, 5);
    echo_ask(echo, "/release", "GET /release? ");
    client_expect(client, "GET /hold?1 ");
    client_expect(client, "GET /echo?2 ");
    client_expect(client, "GET /hold?3 ");
    client_expect(client, "GET /tick?4 ");
    client_expect(client, "GET /hold?5 ");
}

/* On a slow machine they are answered over several ticks. */
static void test_server__writes_all_answers_of_a_tick_at_once(void **state)
{
    struct echo *echo = *state;
    char requests[4096] = "";
    int client = client_connect(echo);
    for (int i = 0; i < 40; i++) {
        size_t length = strlen(requests);
        snprintf(requests + length, sizeof(requests) - length,
                 "GET /%s?%d HTTP/1.1\r\nHost: a\r\n\r\n", i % 2 == 0 ? "tick" : "echo", i);
    }
    uint64_t ticks = echo_counter(&echo_counters(echo)->ticks);
    client_send(client, requests);
    for (int i = 0; i < 40; i++) {
        char body[32];
        snprintf(body, sizeof(body), "GET /%s?%d ", i % 2 == 0 ? "tick" : "echo", i);
        client_expect(client, body);
    }
    /* The last of them is counted when it is over. */
    ticks = echo_counter(&echo_counters(echo)->ticks) + 1 - ticks;
    assert_in_range(echo_counter(&echo_counters(echo)->writes), 1, ticks);
    assert_int_equal(echo_counter(&echo_counters(echo)->requests), 40);
}

static void test_server__takes_more_pipelined_requests_than_may_wait(void **state)
{
    struct echo *echo = *state;
    int client = client_connect(echo);
    const int count = 40 * HTTP_PIPELINE_MAX;
    size_t size = (size_t)count * 64;
    char *requests = malloc(size);
    assert_non_null(requests);
    size_t length = 0;
    for (int i = 0; i < count; i++) {
        length += (size_t)snprintf(requests + length, size - length,
                                   "GET /tick?%d HTTP/1.1\r\nHost: a\r\n\r\n", i);
    }
    client_send_bytes(client, requests, length);
    for (int i = 0; i < count; i++) {
        char body[32];
        snprintf(body, sizeof(body), "GET /tick?%d ", i);
        client_expect(client, body);
    }
    free(requests);
}

static void test_server__stops_reading_while_too_many_wait(void **state)
{
    struct echo *echo = *state;
    int client = client_connect(echo);
    for (int i = 0; i < 3 * HTTP_PIPELINE_MAX; i++)
        client_get(client, "/hold");
    echo_settle_handled(echo, HTTP_PIPELINE_MAX);
    /* Its own four and no more than may wait, however often the loop looks again. */
    for (int i = 0; i < 10; i++) {
        assert_int_equal(atomic_load(&echo->handled_count), HTTP_PIPELINE_MAX + 4);
        poll(NULL, 0, 1);
    }
    int other = client_connect(echo);
    for (int answered = 0; answered < 3 * HTTP_PIPELINE_MAX;) {
        client_get(other, "/release");
        client_expect(other, "GET /release? ");
        while (answered < 3 * HTTP_PIPELINE_MAX) {
            struct pollfd ready = {.fd = client, .events = POLLIN};
            if (poll(&ready, 1, 10) == 0)
                break;
            client_expect(client, "GET /hold? ");
            answered++;
        }
    }
}

static void test_server__stops_reading_while_too_much_is_unsent(void **state)
{
    struct echo *echo = *state;
    int client = client_connect_small(echo, 4096);
    const int count = 300;
    for (int i = 0; i < count; i++)
        client_get(client, "/big?100000");
    echo_settle(echo);
    /* The kernel takes a few megabytes, we a quarter of one. */
    assert_true(atomic_load(&echo->handled_count) < count / 2);
    for (int i = 0; i < count; i++) {
        struct response response;
        client_read(client, &response);
        assert_int_equal(response.body_length, 100000);
        response_release(&response);
    }
}

static void test_server__serves_many_connections_on_several_loops(void **state)
{
    struct echo *echo = *state;
    int clients[64];
    echo->options.threads = 3;
    echo_start(echo);
    for (int i = 0; i < 64; i++)
        clients[i] = client_connect(echo);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 64; i++)
            client_get(clients[i], i % 2 == 0 ? "/echo?1" : "/tick?2");
        for (int i = 0; i < 64; i++)
            client_expect(clients[i], i % 2 == 0 ? "GET /echo?1 " : "GET /tick?2 ");
    }
    uint64_t requests = 0;
    for (unsigned i = 0; i < http_server_loop_count(echo->server); i++)
        requests += echo_counter(&http_server_counters(echo->server, i)->requests);
    assert_int_equal(requests, 64 * 20);
    for (int i = 0; i < 64; i++)
        client_close(echo, clients[i]);
}

static void assert_taken(const char *address, unsigned threads)
{
    struct echo second;
    struct error error = {""};
    echo_init(&second);
    second.options.listen = address;
    second.options.threads = threads;
    assert_int_equal(http_server_open(&second.server, &second.options, &error), STATUS_UNAVAILABLE);
    assert_non_null(strstr(error.text, address));
    assert_null(second.server);
}

static void test_server__does_not_share_its_address(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct echo echo;
        echo_init(&echo);
        echo.options.threads = threads;
        echo_start(&echo);
        assert_taken(http_server_address(echo.server), 1);
        assert_taken(http_server_address(echo.server), 2);
        echo_stop(&echo);
    }
}

static void test_server__understands_addresses(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",         "8080",      ":8080",      "127.0.0.1", "[::1]",
        "::1:8080", "[::1:8080", "127.0.0.1:", "1.2.3:x",   "127.0.0.1:65536x"};
    struct echo echo;
    struct error error;
    echo_init(&echo);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        echo.options.listen = bad[i];
        assert_int_equal(http_server_open(&echo.server, &echo.options, &error), STATUS_INVALID);
    }
    echo.options.listen = "[::1]:0";
    enum status status = http_server_open(&echo.server, &echo.options, &error);
    if (status == STATUS_OK) { /* A machine may have no IPv6. */
        assert_ptr_equal(strstr(http_server_address(echo.server), "[::1]:"),
                         http_server_address(echo.server));
        http_server_close(echo.server);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        echo_test(test_server__answers_what_was_asked),
        echo_test(test_server__head_has_the_length_and_no_body),
        echo_test(test_server__no_content_has_neither),
        echo_test(test_server__a_value_cannot_forge_a_header),
        echo_test(test_server__answers_in_order_whatever_was_ready_first),
        echo_test(test_server__writes_all_answers_of_a_tick_at_once),
        echo_test(test_server__takes_more_pipelined_requests_than_may_wait),
        echo_test(test_server__stops_reading_while_too_many_wait),
        echo_test(test_server__stops_reading_while_too_much_is_unsent),
        echo_test_unstarted(test_server__serves_many_connections_on_several_loops),
        cmocka_unit_test(test_server__does_not_share_its_address),
        cmocka_unit_test(test_server__understands_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
