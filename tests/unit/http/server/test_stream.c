/* test_stream.c: answers without a known end, and how they end. */
#include "echo.h"

static void client_expect_bytes(int client, const char *text)
{
    char bytes[256];
    size_t length = strlen(text);
    assert_true(length < sizeof(bytes));
    client_read_exactly(client, bytes, length);
    bytes[length] = '\0';
    assert_string_equal(bytes, text);
}

static int client_stream(struct echo *echo, struct response *response)
{
    int client = client_connect(echo);
    client_get(client, "/stream");
    client_read_head(client, response);
    assert_int_equal(response->status, 200);
    return client;
}

static void test_stream__sends_pieces_as_they_come(void **state)
{
    struct echo *echo = *state;
    struct response response;
    int client = client_stream(echo, &response);
    assert_non_null(strstr(response.head, "\r\nTransfer-Encoding: chunked\r\n"));
    assert_null(strstr(response.head, "Content-Length"));
    for (int i = 0; i < 3; i++) {
        echo_ask(echo, "/push", "done");
        client_expect_bytes(client, "5\r\npiece\r\n");
    }
    echo_ask(echo, "/finish", "done");
    client_expect_bytes(client, "0\r\n\r\n");
    client_expect_end(client);
    client_close(echo, client);
    assert_int_equal(atomic_load(&echo->gone_count), 0);
}

static void test_stream__has_no_chunks_in_http_1_0(void **state)
{
    struct echo *echo = *state;
    struct response response;
    int client = client_connect(echo);
    client_send(client, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    client_read_head(client, &response);
    assert_null(strstr(response.head, "chunked"));
    assert_non_null(strstr(response.head, "\r\nConnection: close\r\n"));
    echo_ask(echo, "/push", "done");
    client_expect_bytes(client, "piece");
    echo_ask(echo, "/finish", "done");
    client_expect_end(client);
}

static void test_stream__head_is_over_at_once(void **state)
{
    struct echo *echo = *state;
    struct response response;
    int client = client_connect(echo);
    client_send(client, "HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    client_read_head(client, &response);
    client_expect_end(client);
    client_close(echo, client);
    echo_await(atomic_load(&echo->gone_count) == 1);
}

static void test_stream__tells_once_when_the_client_goes(void **state)
{
    struct echo *echo = *state;
    struct response response;
    int client = client_stream(echo, &response);
    client_close(echo, client);
    echo_await(atomic_load(&echo->gone_count) == 1);
    echo_settle(echo);
    assert_int_equal(atomic_load(&echo->gone_count), 1);
    echo_stop(echo);
    assert_int_equal(atomic_load(&echo->gone_count), 1);
}

static void test_stream__ends_with_who_does_not_read(void **state)
{
    struct echo *echo = *state;
    struct response response;
    int client = client_connect_small(echo, 4096);
    client_get(client, "/stream");
    client_read_head(client, &response);
    int other = client_connect(echo);
    /* The kernel takes a few megabytes, we a quarter of one. */
    for (int i = 0; i < 250 && atomic_load(&echo->gone_count) == 0; i++) {
        client_get(other, "/flood");
        client_expect(other, "done");
    }
    assert_int_equal(atomic_load(&echo->gone_count), 1);
}

static void test_stream__waits_for_its_turn(void **state)
{
    struct echo *echo = *state;
    struct response response;
    int client = client_connect(echo);
    client_get(client, "/hold");
    client_get(client, "/stream");
    echo_settle_handled(echo, 2);
    echo_ask(echo, "/push", "done");
    echo_ask(echo, "/push", "done");
    echo_ask(echo, "/release", "GET /release? ");
    client_expect(client, "GET /hold? ");
    client_read_head(client, &response);
    client_expect_bytes(client, "5\r\npiece\r\n5\r\npiece\r\n");
    echo_ask(echo, "/push", "done");
    client_expect_bytes(client, "5\r\npiece\r\n");
    echo_ask(echo, "/finish", "done");
    client_expect_bytes(client, "0\r\n\r\n");
    client_expect_end(client);
}

static void test_stream__may_end_before_its_turn(void **state)
{
    struct echo *echo = *state;
    struct response response;
    int client = client_connect(echo);
    client_get(client, "/hold");
    client_get(client, "/stream");
    echo_settle_handled(echo, 2);
    echo_ask(echo, "/push", "done");
    echo_ask(echo, "/finish", "done");
    echo_ask(echo, "/release", "GET /release? ");
    client_expect(client, "GET /hold? ");
    client_read_head(client, &response);
    client_expect_bytes(client, "5\r\npiece\r\n0\r\n\r\n");
    client_expect_end(client);
    client_close(echo, client);
    echo_stop(echo);
    assert_int_equal(atomic_load(&echo->gone_count), 0);
}

static void test_stream__ends_when_the_server_stops(void **state)
{
    struct echo *echo = *state;
    struct response response;
    int client = client_stream(echo, &response);
    http_server_stop(echo->server);
    client_expect_bytes(client, "0\r\n\r\n");
    client_expect_end(client);
    client_close(echo, client);
    echo_join(echo);
    assert_int_equal(atomic_load(&echo->gone_count), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        echo_test(test_stream__sends_pieces_as_they_come),
        echo_test(test_stream__has_no_chunks_in_http_1_0),
        echo_test(test_stream__head_is_over_at_once),
        echo_test(test_stream__tells_once_when_the_client_goes),
        echo_test(test_stream__ends_with_who_does_not_read),
        echo_test(test_stream__waits_for_its_turn),
        echo_test(test_stream__may_end_before_its_turn),
        echo_test(test_stream__ends_when_the_server_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
