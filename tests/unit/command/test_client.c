/* test_client.c: what the client takes for a URL, what it sends, and what it makes of answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "command/client.h"
#include "scripted_server.h"

static struct client client;
static struct client_answer answer;
static struct scripted_server server;
static struct error error;

static int forget(void **state)
{
    client = (struct client){.timeout_ms = 5000};
    return 0;
}

static void assert_url(const char *url, const char *host, const char *port, const char *authority,
                       const char *base)
{
    if (client_set_url(&client, url, &error) != STATUS_OK)
        fail_msg("%s: %s", url, error.text);
    assert_string_equal(client.host, host);
    assert_string_equal(client.port, port);
    assert_string_equal(client.authority, authority);
    assert_string_equal(client.base, base);
}

static void test_client__takes_urls_apart(void **state)
{
    assert_url("http://127.0.0.1:8080", "127.0.0.1", "8080", "127.0.0.1:8080", "");
    assert_url("http://shop.example", "shop.example", "80", "shop.example", "");
    assert_url("http://[::1]:8080/", "::1", "8080", "[::1]:8080", "");
    assert_url("http://[::1]", "::1", "80", "[::1]", "");
    assert_url("https://shop.example", "shop.example", "443", "shop.example", "");
    assert_url("http://h:1/coupons/", "h", "1", "h:1", "/coupons");
    assert_string_equal(client.url, "http://h:1/coupons");
}

static void test_client__refuses_what_is_not_a_url_of_a_server(void **state)
{
    const char *const wrong[] = {"",
                                 "127.0.0.1:8080",
                                 "ftp://h",
                                 "http://",
                                 "http://:80",
                                 "http://h:99999",
                                 "http://h:8o",
                                 "http://user@h",
                                 "http://user@h:80",
                                 "http://a b:80",
                                 "http://h?x=1",
                                 "http://h/#x",
                                 "http://[::1",
                                 "http://[::1]x",
                                 "http://h/a b",
                                 "http://h\r\nX: y"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (client_set_url(&client, wrong[i], &error) != STATUS_INVALID)
            fail_msg("took \"%s\"", wrong[i]);
}

static void test_client__refuses_tokens_that_would_break_the_header(void **state)
{
    assert_int_equal(client_set_token(&client, SPAN("secret\r\nX: y"), &error), STATUS_INVALID);
    assert_null(strstr(error.text, "secret"));
    assert_int_equal(client_set_token(&client, SPAN("secret word"), &error), STATUS_INVALID);
    assert_int_equal(client_set_token(&client, SPAN(""), &error), STATUS_INVALID);
    assert_int_equal(client_set_token(&client, SPAN("s3cret.Token_~"), &error), STATUS_OK);
}

/* Asks a server that answers `bytes`; the answer must be released. */
static enum status ask(const char *bytes, const struct client_request *request)
{
    scripted_start(&server, (const char *const[]){bytes, NULL});
    assert_int_equal(client_set_url(&client, server.url, &error), STATUS_OK);
    error.text[0] = '\0';
    enum status status = client_send(&client, request, &answer, &error);
    scripted_stop(&server);
    return status;
}

static enum status get(const char *bytes)
{
    return ask(bytes, &(struct client_request){.method = "GET", .path = "/healthz"});
}

static void test_client__sends_one_complete_request(void **state)
{
    assert_int_equal(client_set_token(&client, SPAN("token-0123456789"), &error), STATUS_OK);
    assert_int_equal(ask("HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}",
                         &(struct client_request){.method = "POST",
                                                  .path = "/v1/policies/42/claims",
                                                  .body = SPAN("{\"user\":\"u1\"}"),
                                                  .idempotency_key = "order-7"}),
                     STATUS_OK);
    assert_int_equal(answer.status, 201);
    client_answer_release(&answer);
    const char *request = server.requests[0];
    assert_ptr_equal(strstr(request, "POST /v1/policies/42/claims HTTP/1.1\r\nHost: 127.0.0.1:"),
                     request);
    assert_non_null(strstr(request, "\r\nAuthorization: Bearer token-0123456789\r\n"));
    assert_non_null(strstr(request, "\r\nIdempotency-Key: order-7\r\n"));
    assert_non_null(strstr(request, "\r\nContent-Type: application/json\r\n"));
    assert_non_null(strstr(request, "\r\nContent-Length: 13\r\n"));
    assert_non_null(strstr(request, "\r\n\r\n{\"user\":\"u1\"}"));
}

static void test_client__sends_nothing_it_has_not_got(void **state)
{
    assert_int_equal(get("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), STATUS_OK);
    client_answer_release(&answer);
    assert_null(strstr(server.requests[0], "Authorization"));
    assert_null(strstr(server.requests[0], "Idempotency-Key"));
    assert_null(strstr(server.requests[0], "Content-"));
}

static void test_client__reads_bodies_of_every_framing(void **state)
{
    const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and what is not ours",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    };
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        assert_int_equal(get(answers[i]), STATUS_OK);
        assert_int_equal(answer.status, 200);
        assert_int_equal(answer.body.length, 5);
        assert_string_equal(answer.body.bytes, "hello");
        client_answer_release(&answer);
    }
}

static void test_client__hands_refusals_over_like_all_answers(void **state)
{
    assert_int_equal(get("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}"),
                     STATUS_OK);
    assert_int_equal(answer.status, 503);
    client_answer_release(&answer);
}

static void test_client__calls_half_an_answer_unknown(void **state)
{
    const char *const answers[] = {
        "",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n",
    };
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        assert_int_equal(get(answers[i]), STATUS_UNKNOWN);
        assert_non_null(strstr(error.text, "closed the connection without an answer"));
        client_answer_release(&answer);
    }
}

static void test_client__calls_silence_unknown(void **state)
{
    server.silent = true;
    client.timeout_ms = 50;
    assert_int_equal(get("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"), STATUS_UNKNOWN);
    assert_non_null(strstr(error.text, "did not answer in 50ms"));
    client_answer_release(&answer);
    server.silent = false;
}

static void test_client__refuses_what_is_not_http(void **state)
{
    assert_int_equal(get("SSH-2.0-OpenSSH_9.2\r\n"), STATUS_FAILED);
    assert_non_null(strstr(error.text, "does not speak HTTP"));
    client_answer_release(&answer);
}

static void test_client__says_when_nobody_is_there(void **state)
{
    /* A port that was ours a moment ago and is closed now. */
    scripted_start(&server, (const char *const[]){NULL});
    scripted_stop(&server);
    assert_int_equal(client_set_url(&client, server.url, &error), STATUS_OK);
    assert_int_equal(client_send(&client, &(struct client_request){.method = "GET", .path = "/"},
                                 &answer, &error),
                     STATUS_UNAVAILABLE);
    assert_non_null(strstr(error.text, "nothing answers at http://127.0.0.1:"));
    assert_non_null(strstr(error.text, "is `dibs serve` running?"));
    client_answer_release(&answer);
}

static void test_client__bounds_what_it_keeps(void **state)
{
    char bytes[256];
    snprintf(bytes, sizeof(bytes), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\nx",
             CLIENT_ANSWER_MAX + 2);
    /* The announcement alone costs nothing; only what comes is kept. */
    assert_int_equal(get(bytes), STATUS_UNKNOWN);
    assert_true(answer.body.capacity < 1024 * 1024);
    client_answer_release(&answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_client__takes_urls_apart, forget),
        cmocka_unit_test_setup(test_client__refuses_what_is_not_a_url_of_a_server, forget),
        cmocka_unit_test_setup(test_client__refuses_tokens_that_would_break_the_header, forget),
        cmocka_unit_test_setup(test_client__sends_one_complete_request, forget),
        cmocka_unit_test_setup(test_client__sends_nothing_it_has_not_got, forget),
        cmocka_unit_test_setup(test_client__reads_bodies_of_every_framing, forget),
        cmocka_unit_test_setup(test_client__hands_refusals_over_like_all_answers, forget),
        cmocka_unit_test_setup(test_client__calls_half_an_answer_unknown, forget),
        cmocka_unit_test_setup(test_client__calls_silence_unknown, forget),
        cmocka_unit_test_setup(test_client__refuses_what_is_not_http, forget),
        cmocka_unit_test_setup(test_client__says_when_nobody_is_there, forget),
        cmocka_unit_test_setup(test_client__bounds_what_it_keeps, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
