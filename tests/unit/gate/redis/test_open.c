/* test_open.c: which Redis the gate takes, how it gets there, and what it says when it does
 * not (trap 14). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "base/clock.h"
#include "gate/shared.h"
#include "gate_hand.h"
#include "redis_certificates.h"
#include "redis_fixture.h"
#include "redis_impostor.h"

static struct redis_server server;
static struct error error;

static int tear_down(void **state)
{
    (void)state;
    redis_server_release(&server);
    return 0;
}

/* The gate does not open: that status, and all of these words in what it says. */
static void assert_refuses(const char *url, const char *password, enum status status,
                           const char *const *words)
{
    struct gate *gate = NULL;
    enum status actual =
        try_open_gate(url, (struct gate_options){.password = password}, &gate, &error);

    if (actual != status)
        fail_msg("%s, not %s: %s", status_name(actual), status_name(status),
                 actual == STATUS_OK ? "opened" : error.text);
    for (size_t i = 0; words[i] != NULL; i++)
        if (strstr(error.text, words[i]) == NULL)
            fail_msg("it does not say \"%s\": %s", words[i], error.text);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* The gate opens, and somebody wins through it, each time in another policy. */
static void assert_serves(const char *url, const char *password)
{
    static int64_t policy_id;
    struct gate *gate = open_gate(url, (struct gate_options){.password = password});
    struct wish wish = wish_for(++policy_id, "a");
    struct wish *wishes[] = {&wish};
    struct gate_pending *pending = malloc(sizeof(*pending));
    struct gate_hand hand;

    gate_hand_open(&hand, gate);
    make_policy(gate, policy_id, 5, 1);
    gate_hand_claim(&hand, policy_id, wishes, 1);
    assert_int_equal(wish.verdict, VERDICT_WON);
    if (gate_pending(gate_shared(gate), policy_id, 0, pending, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    assert_int_equal(pending->claim_count, 1);
    await(gate_is_ready(gate_shared(gate), &error));
    gate_hand_close(&hand);
    gate_close(gate);
    free(pending);
}

/* --- trap 14 --- */

static void test_redis_open__refuses_one_that_evicts(void **state)
{
    (void)state;
    redis_server_start(&server, WORDS("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"));
    assert_refuses(server.url, NULL, STATUS_FAILED,
                   WORDS("allkeys-lru", "maxmemory-policy noeviction", "127.0.0.1"));
}

static void test_redis_open__refuses_an_old_one(void **state)
{
    struct redis_impostor impostor;

    (void)state;
    redis_impostor_start(&impostor);
    snprintf(impostor.version, sizeof(impostor.version), "6.2.14");
    assert_refuses(impostor.url, NULL, STATUS_FAILED, WORDS("6.2.14", "7.0"));
    redis_impostor_stop(&impostor);
}

static void test_redis_open__says_who_is_not_there(void **state)
{
    char url[64];
    char words[64];
    int port = free_port();

    (void)state;
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", port);
    snprintf(words, sizeof(words), "127.0.0.1:%d", port);
    assert_refuses(url, NULL, STATUS_UNAVAILABLE, WORDS(words, "refused"));
    assert_refuses("redis:///0?socket=/nonexistent/socket", NULL, STATUS_UNAVAILABLE,
                   WORDS("/nonexistent/socket", "No such file"));
    snprintf(url, sizeof(url), "redis+cluster://127.0.0.1:%d", port);
    assert_refuses(url, NULL, STATUS_UNAVAILABLE, WORDS(words, "refused"));
}

/* --- the library --- */

static void load_version(const char *version)
{
    redisContext *link = redis_server_connect(&server);
    char text[200];

    snprintf(text, sizeof(text),
             "#!lua name=dibs\nredis.register_function{function_name='dibs_version',"
             "callback=function() return %s end, flags={'no-writes'}}",
             version);
    const char *words[] = {"FUNCTION", "LOAD", "REPLACE", text};
    redisReply *reply = redisCommandArgv(link, 4, words, NULL);
    assert_int_not_equal(reply->type, REDIS_REPLY_ERROR);
    freeReplyObject(reply);
    redisFree(link);
}

static void test_redis_open__library_of_another_version(void **state)
{
    (void)state;
    redis_server_start(&server, NULL);
    load_version("0");
    assert_serves(server.url, NULL); /* An older one is replaced. */
    load_version("1000");
    assert_refuses(server.url, NULL, STATUS_FAILED, WORDS("newer dibs", "1000"));
}

/* --- who may --- */

static void test_redis_open__password(void **state)
{
    char url[128];

    (void)state;
    redis_server_start(&server, WORDS("--requirepass", "hunter2"));
    assert_refuses(server.url, NULL, STATUS_FAILED, WORDS("127.0.0.1", "NOAUTH"));
    assert_refuses(server.url, "wrong", STATUS_FAILED, WORDS("AUTH is refused", "WRONGPASS"));
    assert_serves(server.url, "hunter2");
    snprintf(url, sizeof(url), "redis://:hunter2@127.0.0.1:%d", server.port);
    assert_serves(url, NULL);
    snprintf(url, sizeof(url), "redis://:wrong@127.0.0.1:%d", server.port);
    assert_refuses(url, NULL, STATUS_FAILED, WORDS("WRONGPASS"));
    assert_null(strstr(error.text, "wrong@"));
    assert_serves(url, "hunter2"); /* The option wins over the URL. */
}

/* What a user must be allowed to do, and no more. */
static void test_redis_open__user_with_the_rights_it_takes(void **state)
{
    char url[128];

    (void)state;
    redis_server_start(&server, NULL);
    redisContext *link = redis_server_connect(&server);
    order(link, "ACL SETUSER shop on >secret ~COUPON:POLICY:* +@read +@write +@scripting +time "
                "+info +client|setname +wait -keys -flushall -flushdb");
    snprintf(url, sizeof(url), "redis://shop:secret@127.0.0.1:%d", server.port);
    assert_serves(url, NULL);
    order(link, "ACL SETUSER poor on >secret ~COUPON:POLICY:* +@read +@write +info "
                "+client|setname");
    snprintf(url, sizeof(url), "redis://poor:secret@127.0.0.1:%d", server.port);
    assert_refuses(url, NULL, STATUS_FAILED, WORDS("library", "NOPERM"));
    order(link, "ACL SETUSER blind on >secret ~COUPON:POLICY:* +@read +@write +@scripting "
                "+client|setname -info");
    snprintf(url, sizeof(url), "redis://blind:secret@127.0.0.1:%d", server.port);
    assert_refuses(url, NULL, STATUS_FAILED, WORDS("INFO", "NOPERM"));
    snprintf(url, sizeof(url), "redis://nobody:secret@127.0.0.1:%d", server.port);
    assert_refuses(url, NULL, STATUS_FAILED, WORDS("AUTH is refused", "WRONGPASS"));
    redisFree(link);
}

/* --- ways there --- */

static void test_redis_open__unix_socket(void **state)
{
    char url[160];

    (void)state;
    redis_server_start(&server, NULL);
    snprintf(url, sizeof(url), "redis:///?socket=%s", server.socket);
    assert_serves(url, NULL);
    snprintf(url, sizeof(url), "redis:///2?socket=%s", server.socket);
    assert_serves(url, NULL);
}

static void test_redis_open__database(void **state)
{
    char url[80];

    (void)state;
    redis_server_start(&server, NULL);
    redisContext *link = redis_server_connect(&server);
    snprintf(url, sizeof(url), "%s/5", server.url);
    assert_serves(url, NULL);
    assert_int_equal(ask_number(link, "DBSIZE"), 0);
    order(link, "SELECT 5");
    assert_true(ask_number(link, "DBSIZE") > 0);
    snprintf(url, sizeof(url), "%s/99", server.url);
    assert_refuses(url, NULL, STATUS_FAILED, WORDS("SELECT is refused", "out of range"));
    redisFree(link);
}

/* --- TLS --- */

static char tls_folder[64];
static char tls_paths[6][128];

/* A server on a TLS port only, with a certificate for that name. */
static void start_tls(const char *alternative, const char *wants_clients)
{
    static char port[16];
    const char *const names[] = {"ca", "server", "client"};

    snprintf(tls_folder, sizeof(tls_folder), "/tmp/dibs-tls-XXXXXX");
    assert_non_null(mkdtemp(tls_folder));
    make_certificate(tls_folder, "ca", NULL, NULL);
    make_certificate(tls_folder, "other", NULL, NULL);
    make_certificate(tls_folder, "server", "ca", alternative);
    make_certificate(tls_folder, "client", "ca", NULL);
    for (size_t i = 0; i < 3; i++) {
        snprintf(tls_paths[2 * i], sizeof(tls_paths[0]), "%s/%s.crt", tls_folder, names[i]);
        snprintf(tls_paths[2 * i + 1], sizeof(tls_paths[0]), "%s/%s.key", tls_folder, names[i]);
    }
    snprintf(port, sizeof(port), "%d", free_port());
    redis_server_start(&server, WORDS("--tls-port", port, "--tls-cert-file", tls_paths[2],
                                      "--tls-key-file", tls_paths[3], "--tls-ca-cert-file",
                                      tls_paths[0], "--tls-auth-clients", wants_clients));
    server.port = atoi(port);
}

static int tear_down_tls(void **state)
{
    const char *const names[] = {"ca", "other", "server", "client"};
    char path[128];

    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s/%s.crt", tls_folder, names[i]);
        unlink(path);
        snprintf(path, sizeof(path), "%s/%s.key", tls_folder, names[i]);
        unlink(path);
    }
    rmdir(tls_folder);
    return tear_down(state);
}

static const char *tls_url(const char *host, const char *parameters)
{
    static char url[512];
    snprintf(url, sizeof(url), "rediss://%s:%d?%s", host, server.port, parameters);
    return url;
}

static const char *with_ca(const char *name, const char *more)
{
    static char parameters[400];
    snprintf(parameters, sizeof(parameters), "ssl_ca=%s/%s.crt%s", tls_folder, name, more);
    return parameters;
}

static void test_redis_open__tls(void **state)
{
    (void)state;
    start_tls("IP:127.0.0.1", "no");
    assert_serves(tls_url("127.0.0.1", with_ca("ca", "")), NULL);
    assert_refuses(tls_url("127.0.0.1", with_ca("other", "")), NULL, STATUS_FAILED,
                   WORDS("TLS", "certificate"));
    /* Without an authority of one's own the system's are asked, which do not know this one. */
    assert_refuses(tls_url("127.0.0.1", "ssl_verify=full"), NULL, STATUS_FAILED,
                   WORDS("TLS", "certificate"));
    assert_refuses(tls_url("127.0.0.1", with_ca("missing", "")), NULL, STATUS_INVALID,
                   WORDS("ssl_ca", "missing.crt"));
    /* Without TLS nobody understands it. */
    char url[64];
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", server.port);
    assert_refuses(url, NULL, STATUS_UNAVAILABLE, WORDS("127.0.0.1"));
}

static void test_redis_open__tls_by_name(void **state)
{
    (void)state;
    start_tls("DNS:redis.example,DNS:localhost", "no");
    assert_refuses(tls_url("127.0.0.1", with_ca("ca", "")), NULL, STATUS_FAILED,
                   WORDS("TLS", "address mismatch"));
    assert_serves(tls_url("localhost", with_ca("ca", "")), NULL);
}

static void test_redis_open__tls_with_less_care(void **state)
{
    (void)state;
    start_tls("DNS:redis.example", "no");
    assert_refuses(tls_url("localhost", with_ca("ca", "")), NULL, STATUS_FAILED,
                   WORDS("TLS", "mismatch"));
    assert_refuses(tls_url("127.0.0.1", with_ca("other", "&ssl_verify=ca")), NULL, STATUS_FAILED,
                   WORDS("TLS", "certificate"));
    assert_serves(tls_url("127.0.0.1", with_ca("ca", "&ssl_verify=ca")), NULL);
}

static void test_redis_open__tls_unverified(void **state)
{
    (void)state;
    start_tls("DNS:redis.example", "no");
    assert_serves(tls_url("127.0.0.1", with_ca("other", "&ssl_verify=none")), NULL);
}

static void test_redis_open__tls_with_a_certificate_of_ours(void **state)
{
    char more[300];

    (void)state;
    start_tls("IP:127.0.0.1", "yes");
    assert_refuses(tls_url("127.0.0.1", with_ca("ca", "")), NULL, STATUS_UNAVAILABLE,
                   WORDS("127.0.0.1"));
    snprintf(more, sizeof(more), "&ssl_cert=%s&ssl_key=%s", tls_paths[4], tls_paths[5]);
    assert_serves(tls_url("127.0.0.1", with_ca("ca", more)), NULL);
}

int main(void)
{
#define OPEN_TEST(name) cmocka_unit_test_teardown(test_redis_open__##name, tear_down)
#define TLS_TEST(name)  cmocka_unit_test_teardown(test_redis_open__##name, tear_down_tls)
    const struct CMUnitTest tests[] = {
        OPEN_TEST(refuses_one_that_evicts),
        OPEN_TEST(refuses_an_old_one),
        OPEN_TEST(says_who_is_not_there),
        OPEN_TEST(library_of_another_version),
        OPEN_TEST(password),
        OPEN_TEST(user_with_the_rights_it_takes),
        OPEN_TEST(unix_socket),
        OPEN_TEST(database),
        TLS_TEST(tls),
        TLS_TEST(tls_by_name),
        TLS_TEST(tls_with_less_care),
        TLS_TEST(tls_unverified),
        TLS_TEST(tls_with_a_certificate_of_ours),
    };
    return cmocka_run_group_tests_name("redis_open", tests, NULL, NULL);
}
