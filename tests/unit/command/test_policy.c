/* test_policy.c: flags of the client commands become requests, and answers become words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "capture.h"
#include "command/exchange.h"
#include "scripted_server.h"

#define POLICY                                                                                     \
    "{\"id\":42,\"name\":\"Launch\",\"discount\":{\"type\":\"percent\",\"value\":20},"             \
    "\"total\":1000,\"per_user_limit\":1,\"opens_at\":null,\"closes_at\":null,\"state\":\"OPEN\"," \
    "\"remaining\":998,\"pending\":1,\"issued\":1}"
#define PROBLEM                                                               \
    "{\"type\":\"/problems/SOLD_OUT\",\"title\":\"Sold out\",\"status\":409," \
    "\"code\":\"SOLD_OUT\",\"detail\":\"Every coupon \\u001b[31mis gone.\"}"

static const struct option create_options[] = {
    {"id", "N", ""},           {"name", "TEXT", ""},           {"discount", "D", ""},
    {"total", "N", ""},        {"per-user-limit", "N", ""},    {"opens-at", "TIME", ""},
    {"closes-at", "TIME", ""}, {"coupon-valid-days", "N", ""}, {"coupon-expires-at", "TIME", ""},
    {"currency", "CODE", ""},  {"reserve", "N", ""},           {NULL, NULL, NULL}};
static const struct option list_options[] = {
    {"limit", "N", ""}, {"after", "CURSOR", ""}, {NULL, NULL, NULL}};
static const struct option claim_options[] = {{"key", "KEY", ""}, {NULL, NULL, NULL}};
static const struct option status_options[] = {
    {"wait", "SECONDS", ""}, {"ready", NULL, ""}, {NULL, NULL, NULL}};
static const struct command commands[] = {
    {.name = "create",
     .options = create_options,
     .shared_options = exchange_options,
     .run = command_policy_create},
    {.name = "update",
     .words = "POLICY",
     .arguments_min = 1,
     .arguments_max = 1,
     .options = create_options,
     .shared_options = exchange_options,
     .run = command_policy_update},
    {.name = "pause",
     .words = "POLICY",
     .arguments_min = 1,
     .arguments_max = 1,
     .shared_options = exchange_options,
     .run = command_policy_pause},
    {.name = "close",
     .words = "POLICY",
     .arguments_min = 1,
     .arguments_max = 1,
     .shared_options = exchange_options,
     .run = command_policy_close},
    {.name = "list",
     .options = list_options,
     .shared_options = exchange_options,
     .run = command_policy_list},
    {.name = "claim",
     .words = "POLICY USER",
     .arguments_min = 2,
     .arguments_max = 2,
     .options = claim_options,
     .shared_options = exchange_options,
     .run = command_claim},
    {.name = "status",
     .words = "[POLICY USER]",
     .arguments_max = 2,
     .options = status_options,
     .shared_options = exchange_options,
     .run = command_status},
    {.name = NULL},
};

static struct scripted_server server;
static struct capture capture;

/* Runs a line, whose words are separated by '|', against a server with these answers. */
static int run(const char *line, const char *const *answers)
{
    char words[512];
    char *argv[24] = {(char[]){"dibs"}};
    int argc = 1;
    snprintf(words, sizeof(words), "%s", line);
    for (char *word = strtok(words, "|"); word != NULL; word = strtok(NULL, "|"))
        argv[argc++] = word;
    scripted_start(&server, answers);
    setenv("DIBS_URL", server.url, 1);
    capture_begin(&capture);
    int code = command_main(commands, argc, argv);
    capture_end(&capture);
    scripted_stop(&server);
    return code;
}

static int run_for_policy(const char *line)
{
    return run(line, (const char *const[]){SCRIPTED_JSON("200 OK", POLICY), NULL});
}

static const char *body(void)
{
    const char *end = strstr(server.requests[0], "\r\n\r\n");
    return end != NULL ? end + 4 : "";
}

static void assert_asked(const char *method_and_path)
{
    char line[256];
    snprintf(line, sizeof(line), "%s HTTP/1.1\r\n", method_and_path);
    if (strncmp(server.requests[0], line, strlen(line)) != 0)
        fail_msg("asked: %s", server.requests[0]);
}

static void assert_unasked(const char *line, const char *words)
{
    assert_int_equal(run_for_policy(line), COMMAND_USAGE);
    assert_string_equal(server.requests[0], "");
    if (strstr(capture.err, words) == NULL)
        fail_msg("said: %s", capture.err);
}

static int clean_environment(void **state)
{
    unsetenv("DIBS_ADMIN_TOKEN");
    unsetenv("DIBS_ADMIN_TOKEN_FILE");
    unsetenv("DIBS_SERVICE_TOKEN");
    unsetenv("DIBS_SERVICE_TOKEN_FILE");
    return 0;
}

static void test_policy__create_sends_what_the_flags_say(void **state)
{
    assert_int_equal(run_for_policy("create|--id|42|--name|Say \"hi\"|--discount|20%|--total|1000|"
                                    "--per-user-limit|2|--opens-at|2026-11-15T12:00:00+09:00|"
                                    "--closes-at|2026-11-15T13:00:00+09:00|--coupon-valid-days|7|"
                                    "--reserve|10"),
                     COMMAND_FINE);
    assert_asked("POST /v1/policies");
    assert_string_equal(body(),
                        "{\"id\":42,\"name\":\"Say \\\"hi\\\"\",\"discount\":{\"type\":\"percent\","
                        "\"value\":20},\"total\":1000,\"per_user_limit\":2,"
                        "\"opens_at\":\"2026-11-15T12:00:00+09:00\","
                        "\"closes_at\":\"2026-11-15T13:00:00+09:00\","
                        "\"coupon_valid_days\":7,\"reserve\":10}");
    assert_int_equal(run_for_policy("create|--name|x|--discount|5000|--total|1"), COMMAND_FINE);
    assert_string_equal(body(), "{\"name\":\"x\",\"discount\":{\"type\":\"fixed\",\"value\":5000},"
                                "\"total\":1}");
}

static void test_policy__create_asks_for_what_is_missing(void **state)
{
    assert_unasked("create|--discount|5|--total|1", "--name is missing");
    assert_unasked("create|--name|x|--total|1", "--discount is missing");
    assert_unasked("create|--name|x|--discount|5", "--total is missing");
}

static void test_policy__create_refuses_what_cannot_be_meant(void **state)
{
    assert_unasked("create|--name|x|--discount|5%%|--total|1", "is neither a percentage");
    assert_unasked("create|--name|x|--discount|%|--total|1", "is neither a percentage");
    assert_unasked("create|--name|x|--discount|-5|--total|1", "is neither a percentage");
    assert_unasked("create|--name|x|--discount|5|--total|1k", "--total: \"1k\" is not a whole");
    assert_unasked("create|--name|x|--discount|5|--total|1|--opens-at|noon",
                   "--opens-at: \"noon\" is not a time with its offset");
    assert_unasked("create|--name|x|--discount|5|--total|1|--opens-at|2026-11-15T12:00:00",
                   "is not a time with its offset");
}

static void test_policy__update_sends_only_what_changes(void **state)
{
    assert_int_equal(run_for_policy("update|42|--total|1500"), COMMAND_FINE);
    assert_asked("PATCH /v1/policies/42");
    assert_string_equal(body(), "{\"total\":1500}");
    assert_int_equal(run_for_policy("update|42|--closes-at|none"), COMMAND_FINE);
    assert_string_equal(body(), "{\"closes_at\":null}");
    assert_int_equal(run_for_policy("update|42|--reserve|0"), COMMAND_FINE);
    assert_string_equal(body(), "{\"reserve\":0}");
    assert_unasked("update|42", "nothing to change");
    assert_unasked("update|0|--total|5", "\"0\" is not a policy's id");
    assert_unasked("update|../x|--total|5", "is not a policy's id");
    assert_unasked("update|9007199254740992|--total|5", "is not a policy's id");
}

static void test_policy__pause_and_close_say_so(void **state)
{
    assert_int_equal(run_for_policy("pause|42"), COMMAND_FINE);
    assert_asked("PATCH /v1/policies/42");
    assert_string_equal(body(), "{\"paused\":true}");
    assert_int_equal(run_for_policy("close|42"), COMMAND_FINE);
    assert_asked("DELETE /v1/policies/42");
    assert_string_equal(body(), "");
    assert_non_null(strstr(capture.out, "state           OPEN\ndiscount        20%\n"));
    assert_null(strstr(capture.out, "opens at"));
}

static void test_policy__list_follows_the_pages(void **state)
{
    const char *const pages[] = {
        SCRIPTED_JSON("200 OK", "{\"items\":[" POLICY "],\"next\":\"a b&c\"}"),
        SCRIPTED_JSON("200 OK", "{\"items\":[" POLICY "],\"next\":null}"), NULL};
    assert_int_equal(run("list", pages), COMMAND_FINE);
    assert_asked("GET /v1/policies?limit=1000");
    assert_non_null(
        strstr(server.requests[1], "GET /v1/policies?limit=1000&after=a%20b%26c HTTP/1.1\r\n"));
    assert_string_equal(capture.out,
                        "ID  STATE  TOTAL  REMAINING  PENDING  ISSUED  DISCOUNT  NAME\n"
                        "42  OPEN    1000        998        1       1       20%  Launch\n"
                        "42  OPEN    1000        998        1       1       20%  Launch\n");
}

static void test_policy__list_says_that_there_are_none(void **state)
{
    const char *const page[] = {SCRIPTED_JSON("200 OK", "{\"items\":[],\"next\":null}"), NULL};
    assert_int_equal(run("list", page), COMMAND_FINE);
    assert_string_equal(capture.out, "");
    assert_non_null(strstr(capture.err, "There are no policies yet"));
}

static void test_policy__json_is_the_servers_own(void **state)
{
    const char *const page[] = {SCRIPTED_JSON("200 OK", "{ \"items\" : [],\"next\":null}"), NULL};
    assert_int_equal(run("list|--json|--limit|5|--after|x", page), COMMAND_FINE);
    assert_asked("GET /v1/policies?limit=5&after=x");
    assert_string_equal(capture.out, "{ \"items\" : [],\"next\":null}\n");
    assert_string_equal(capture.err, "");
}

static void test_policy__a_refusal_exits_1_in_the_servers_words(void **state)
{
    const char *const refusal[] = {SCRIPTED_JSON("409 Conflict", PROBLEM), NULL};
    assert_int_equal(run("claim|42|u1", refusal), COMMAND_FAILED);
    assert_string_equal(capture.err, "dibs claim: Sold out: Every coupon \\u001b[31mis gone.\n");
    assert_string_equal(capture.out, "");
    assert_int_equal(run("claim|42|u1|--json", refusal), COMMAND_FAILED);
    assert_string_equal(capture.out, PROBLEM "\n");
    assert_string_equal(capture.err, "");
}

static void test_policy__a_strange_answer_is_not_taken_for_one_of_ours(void **state)
{
    const char *const strange[] = {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<html>hi!", NULL};
    assert_int_equal(run("claim|42|u1", strange), COMMAND_FAILED);
    assert_non_null(strstr(capture.err, "answered 200, but not as a dibs server does"));
    assert_int_equal(run("claim|42|u1", (const char *const[]){"", NULL}), COMMAND_FAILED);
    assert_non_null(strstr(capture.err, "it may have been done all the same"));
    assert_int_equal(run("status|42|u1", (const char *const[]){"", NULL}), COMMAND_FAILED);
    assert_null(strstr(capture.err, "it may have been done"));
}

static void test_policy__claim_sends_user_and_key(void **state)
{
    assert_int_equal(run_for_policy("claim|42|a.b:c@d-e_F|--key|k-1"), COMMAND_FINE);
    assert_asked("POST /v1/policies/42/claims");
    assert_string_equal(body(), "{\"user\":\"a.b:c@d-e_F\"}");
    assert_non_null(strstr(server.requests[0], "\r\nIdempotency-Key: k-1\r\n"));
    assert_unasked("claim|42|a ", "is not a user's id");
    assert_unasked("claim|42|..", "is not a user's id");
    assert_unasked("claim|x|u1", "is not a policy's id");
    assert_unasked("claim|42|u1|--key|a b", "--key: must be 1 to 128");
}

static void test_policy__status_asks_about_a_claim_or_the_server(void **state)
{
    assert_int_equal(run_for_policy("status|42|u1|--wait|10"), COMMAND_FINE);
    assert_asked("GET /v1/policies/42/claims/u1?wait=10");
    assert_int_equal(run_for_policy("status|42"), COMMAND_FINE);
    assert_asked("GET /v1/policies/42");
    assert_unasked("status|42|--wait|5", "--wait: is for the claim");
    assert_unasked("status|--wait|5", "--wait: is for the claim");
    assert_unasked("status|42|u1|--wait|61", "is not a whole number from 0 to 60");
    assert_unasked("status|42|u1|--wait|1s", "is not a whole number from 0 to 60");
    const char *const server_answers[] = {
        SCRIPTED_JSON("503 Service Unavailable",
                      "{\"ready\":false,\"parts\":[{\"name\":\"ledger\",\"kind\":\"sqlite\","
                      "\"ready\":false,\"detail\":\"disk full\"}]}"),
        SCRIPTED_JSON("200 OK", "{\"items\":[" POLICY "],\"next\":null}"), NULL};
    assert_int_equal(run("status", server_answers), COMMAND_FAILED);
    assert_asked("GET /readyz");
    assert_non_null(strstr(capture.out, "ledger  not ready  sqlite  disk full\n"));
    assert_non_null(strstr(capture.out, "\n\nID  STATE"));
    /* Who only wants to know whether it can serve asks for nothing that takes a token. */
    assert_int_equal(run("status|--ready", server_answers), COMMAND_FAILED);
    assert_null(strstr(capture.out, "ID  STATE"));
    assert_unasked("status|42|--ready", "is about the server");
    assert_int_equal(run("status|--json", server_answers), COMMAND_FAILED);
    assert_ptr_equal(strstr(capture.out, "{\"readiness\":{\"ready\":false,"), capture.out);
    assert_non_null(strstr(capture.out, ",\"policies\":{\"items\":["));
}

static void test_policy__tokens_come_from_the_environment(void **state)
{
    setenv("DIBS_ADMIN_TOKEN", "admin-0123456789", 1);
    setenv("DIBS_SERVICE_TOKEN", "service-0123456789", 1);
    assert_int_equal(run_for_policy("pause|42"), COMMAND_FINE);
    assert_non_null(strstr(server.requests[0], "Bearer admin-0123456789\r\n"));
    assert_int_equal(run_for_policy("claim|42|u1"), COMMAND_FINE);
    assert_non_null(strstr(server.requests[0], "Bearer service-0123456789\r\n"));
    unsetenv("DIBS_SERVICE_TOKEN");
    assert_int_equal(run_for_policy("claim|42|u1"), COMMAND_FINE);
    assert_non_null(strstr(server.requests[0], "Bearer admin-0123456789\r\n"));
    assert_int_equal(run_for_policy("pause|42|--token-file|no-such-file"), COMMAND_FAILED);
    assert_string_equal(server.requests[0], "");
    assert_non_null(strstr(capture.err, "--token-file: no-such-file: cannot be opened"));
    setenv("DIBS_ADMIN_TOKEN", "bad token", 1);
    assert_int_equal(run_for_policy("pause|42"), COMMAND_FAILED);
    assert_null(strstr(capture.err, "bad token"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy__create_sends_what_the_flags_say),
        cmocka_unit_test(test_policy__create_asks_for_what_is_missing),
        cmocka_unit_test(test_policy__create_refuses_what_cannot_be_meant),
        cmocka_unit_test(test_policy__update_sends_only_what_changes),
        cmocka_unit_test(test_policy__pause_and_close_say_so),
        cmocka_unit_test(test_policy__list_follows_the_pages),
        cmocka_unit_test(test_policy__list_says_that_there_are_none),
        cmocka_unit_test(test_policy__json_is_the_servers_own),
        cmocka_unit_test(test_policy__a_refusal_exits_1_in_the_servers_words),
        cmocka_unit_test(test_policy__a_strange_answer_is_not_taken_for_one_of_ours),
        cmocka_unit_test(test_policy__claim_sends_user_and_key),
        cmocka_unit_test(test_policy__status_asks_about_a_claim_or_the_server),
        cmocka_unit_test(test_policy__tokens_come_from_the_environment),
    };
    return cmocka_run_group_tests(tests, clean_environment, NULL);
}
