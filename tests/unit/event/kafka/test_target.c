/* test_kafka_target.c: the URLs of Kafka. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include <librdkafka/rdkafka.h>
#include <string.h>

#include "event/kafka/kafka.h"

static struct error error;
static const struct kafka_setting none;

static void assert_refused(const char *url, const char *password, const char *words)
{
    struct kafka_target target;

    assert_int_equal(kafka_target_init(&target, url, password, &error), STATUS_INVALID);
    if (strstr(error.text, words) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\"", url, error.text, words);
}

static void assert_property(const rd_kafka_conf_t *conf, const char *name, const char *expected)
{
    char value[256] = "";
    size_t size = sizeof(value);

    assert_int_equal(rd_kafka_conf_get(conf, name, value, &size), RD_KAFKA_CONF_OK);
    assert_string_equal(value, expected);
}

static void test_kafka_target__names_brokers_and_topics(void **state)
{
    struct kafka_target target;

    (void)state;
    assert_int_equal(kafka_target_init(&target, "kafka://", NULL, &error), STATUS_OK);
    assert_string_equal(target.brokers, "127.0.0.1:9092");
    assert_string_equal(target.security, "plaintext");
    assert_null(target.mechanism);
    assert_string_equal(target.topics[KAFKA_COUPON_PENDED], "coupon-pended");
    assert_string_equal(target.topics[KAFKA_COUPON_PENDED_DLQ], "coupon-pended-dlq");
    assert_string_equal(target.issuer_group, "dibs-issuer");
    kafka_target_release(&target);

    assert_int_equal(
        kafka_target_init(&target, "kafka://a.example:1,[::1]:2,c?prefix=t1-", NULL, &error),
        STATUS_OK);
    assert_string_equal(target.brokers, "a.example:1,[::1]:2,c:9092");
    assert_string_equal(target.topics[KAFKA_COUPON_ISSUED], "t1-coupon-issued");
    assert_string_equal(target.issuer_group, "t1-dibs-issuer");
    kafka_target_release(&target);
}

static void test_kafka_target__says_how_claims_go(void **state)
{
    struct kafka_target target;

    (void)state;
    assert_int_equal(kafka_target_init(&target, "kafka://h", NULL, &error), STATUS_OK);
    assert_false(target.claims_are_direct);
    assert_int_equal(target.session_ms, 6000);
    kafka_target_release(&target);
    assert_int_equal(kafka_target_init(&target, "kafka://h?claims=kafka", NULL, &error), STATUS_OK);
    assert_false(target.claims_are_direct);
    kafka_target_release(&target);
    assert_int_equal(
        kafka_target_init(&target, "kafka://h?claims=direct&session_timeout_ms=1500", NULL, &error),
        STATUS_OK);
    assert_true(target.claims_are_direct);
    assert_int_equal(target.session_ms, 1500);
    kafka_target_release(&target);
}

static void test_kafka_target__secures_the_connection(void **state)
{
    struct kafka_target target;
    rd_kafka_conf_t *conf = NULL;

    (void)state;
    assert_int_equal(kafka_target_init(&target,
                                       "kafka://shop@h?security=sasl_ssl&ssl_ca=/etc/hosts",
                                       "secret", &error),
                     STATUS_OK);
    assert_int_equal(kafka_client_configure(&target, &none, NULL, &conf, &error), STATUS_OK);
    assert_property(conf, "security.protocol", "sasl_ssl");
    assert_property(conf, "sasl.mechanisms", "SCRAM-SHA-512");
    assert_property(conf, "sasl.username", "shop");
    assert_property(conf, "sasl.password", "secret");
    assert_property(conf, "ssl.ca.location", "/etc/hosts");
    assert_property(conf, "ssl.endpoint.identification.algorithm", "https");
    assert_property(conf, "enable.ssl.certificate.verification", "true");
    rd_kafka_conf_destroy(conf);
    kafka_target_release(&target);

    assert_int_equal(
        kafka_target_init(&target, "kafka://u:p@h?ssl_verify=none&sasl=PLAIN", NULL, &error),
        STATUS_OK);
    assert_int_equal(kafka_client_configure(&target, &none, NULL, &conf, &error), STATUS_OK);
    assert_property(conf, "security.protocol", "sasl_ssl"); /* TLS and a user are both said */
    assert_property(conf, "sasl.mechanisms", "PLAIN");
    assert_property(conf, "sasl.password", "p");
    assert_property(conf, "enable.ssl.certificate.verification", "false");
    rd_kafka_conf_destroy(conf);
    kafka_target_release(&target);
}

static void test_kafka_target__refuses_what_is_wrong(void **state)
{
    struct kafka_target target;
    rd_kafka_conf_t *conf = NULL;

    (void)state;
    assert_refused("pigeon://h", NULL, "unknown kind of URL");
    assert_refused("kafka://h/topic", NULL, "nothing follows");
    assert_refused("kafka://h?tls=yes", NULL, "unknown parameter \"tls\"; known: claims");
    assert_refused("kafka://h?security=none", NULL, "security is plaintext");
    assert_refused("kafka://h?security=plaintext&ssl_ca=/x", NULL, "needs security=ssl");
    assert_refused("kafka://h?ssl_verify=maybe", NULL, "ssl_verify is full, ca or none");
    assert_refused("kafka://h?ssl_cert=/x", NULL, "ssl_cert and ssl_key");
    assert_refused("kafka://u@h?sasl=GSSAPI", "p", "sasl is PLAIN");
    assert_refused("kafka://u@h", NULL, "relay_password_file");
    assert_refused("kafka://h?security=sasl_ssl", "p", "SASL needs a user");
    assert_refused("kafka://h", "hunter2", "needs security=sasl_ssl");
    assert_null(strstr(error.text, "hunter2"));
    assert_refused("kafka://h?claims=ledger", NULL, "claims is kafka (they go through");
    assert_refused("kafka://h?claims=", NULL, "or direct (straight into the ledger)");
    assert_refused("kafka://h?session_timeout_ms=6s", NULL, "is a number from 1000 to 600000");
    assert_refused("kafka://h?session_timeout_ms=999", NULL, "is a number from 1000 to 600000");
    assert_refused("kafka://h?session_timeout_ms=", NULL, "is a number from 1000 to 600000");
    assert_refused("kafka://h?prefix=a/b", NULL, "prefix has up to");
    assert_refused("kafka://%2Frun%2Fkafka", NULL, "no unix sockets");

    assert_int_equal(kafka_target_init(&target, "kafka://h?ssl_ca=/no/such/file", NULL, &error),
                     STATUS_OK);
    assert_int_equal(kafka_client_configure(&target, &none, NULL, &conf, &error), STATUS_INVALID);
    assert_non_null(strstr(error.text, "ssl_ca: /no/such/file cannot be read"));
    kafka_target_release(&target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kafka_target__names_brokers_and_topics),
        cmocka_unit_test(test_kafka_target__says_how_claims_go),
        cmocka_unit_test(test_kafka_target__secures_the_connection),
        cmocka_unit_test(test_kafka_target__refuses_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
