/* test_tls.c: whom a storm sends its presses to, and whom it does not, by the certificate. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "rush/tls.h"

#define DAY_S  86400
#define NAMED  "DNS:shop.test,IP:127.0.0.1"
#define SHOP   "shop.test"
#define LOCAL  "127.0.0.1"
#define FOLDER "/tmp/dibs-tls-XXXXXX"

/* --- certificates --- */

struct signer {
    EVP_PKEY *key;
    X509 *certificate;
};

static void extend(X509 *certificate, int name, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, name, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

/* Of that name until so many seconds from now; by itself without an issuer. */
static struct signer sign(const char *name, const struct signer *issuer, long until_s)
{
    struct signer made = {EVP_EC_gen("P-256"), X509_new()};
    const struct signer *by = issuer != NULL ? issuer : &made;
    assert_non_null(made.key);
    X509_set_version(made.certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.certificate), issuer != NULL ? 2 : 1);
    X509_gmtime_adj(X509_getm_notBefore(made.certificate), -2 * DAY_S);
    X509_gmtime_adj(X509_getm_notAfter(made.certificate), until_s);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made.certificate), "CN", MBSTRING_ASC,
                               (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(made.certificate, X509_get_subject_name(by->certificate));
    X509_set_pubkey(made.certificate, made.key);
    if (issuer == NULL)
        extend(made.certificate, NID_basic_constraints, "critical,CA:TRUE");
    else
        extend(made.certificate, NID_subject_alt_name, NAMED);
    assert_true(X509_sign(made.certificate, by->key, EVP_sha256()) > 0);
    return made;
}

static void signer_free(struct signer *signer)
{
    EVP_PKEY_free(signer->key);
    X509_free(signer->certificate);
}

/* SSL_CERT_FILE names the authority. */
struct trusted {
    char folder[sizeof(FOLDER)];
    char path[sizeof(FOLDER) + 8];
    struct signer authority;
};

static int trust(void **state)
{
    struct trusted *trusted = calloc(1, sizeof(*trusted));
    assert_non_null(trusted);
    strcpy(trusted->folder, FOLDER);
    assert_non_null(mkdtemp(trusted->folder));
    snprintf(trusted->path, sizeof(trusted->path), "%s/ca.pem", trusted->folder);
    trusted->authority = sign("authority", NULL, DAY_S);
    FILE *file = fopen(trusted->path, "w");
    assert_non_null(file);
    assert_int_equal(PEM_write_X509(file, trusted->authority.certificate), 1);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(setenv("SSL_CERT_FILE", trusted->path, 1), 0);
    *state = trusted;
    return 0;
}

static int distrust(void **state)
{
    struct trusted *trusted = *state;
    signer_free(&trusted->authority);
    unlink(trusted->path);
    rmdir(trusted->folder);
    unsetenv("SSL_CERT_FILE");
    free(trusted);
    return 0;
}

/* --- a server at the other end of a socket --- */

struct meeting {
    struct rush_tls tls;
    SSL_CTX *served;
    SSL *server;
    SSL *client;
    int ends[2];
    int shaken; /* by the client */
    char words[160];
};

static void meet(struct meeting *meeting, const char *host, const struct signer *shown)
{
    struct error error;
    memset(meeting, 0, sizeof(*meeting));
    assert_int_equal(rush_tls_open(&meeting->tls, host, &error), STATUS_OK);
    assert_int_equal(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, meeting->ends), 0);
    meeting->served = SSL_CTX_new(TLS_server_method());
    assert_int_equal(SSL_CTX_use_certificate(meeting->served, shown->certificate), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(meeting->served, shown->key), 1);
    meeting->server = SSL_new(meeting->served);
    assert_int_equal(SSL_set_fd(meeting->server, meeting->ends[0]), 1);
    SSL_set_accept_state(meeting->server);
    meeting->client = rush_tls_begin(&meeting->tls, meeting->ends[1]);
    assert_non_null(meeting->client);
    bool is_ready = false;
    while (meeting->shaken == 0 || (meeting->shaken == 1 && !is_ready)) {
        if (meeting->shaken == 0)
            meeting->shaken = rush_tls_shake(meeting->client, meeting->words);
        is_ready = is_ready || SSL_do_handshake(meeting->server) == 1;
    }
}

static void part(struct meeting *meeting)
{
    SSL_free(meeting->client);
    SSL_free(meeting->server);
    SSL_CTX_free(meeting->served);
    rush_tls_close(&meeting->tls);
    close(meeting->ends[0]);
    close(meeting->ends[1]);
}

static void expect_refused(const char *host, const struct signer *shown, const char *words)
{
    struct meeting meeting;
    meet(&meeting, host, shown);
    assert_int_equal(meeting.shaken, -1);
    if (strstr(meeting.words, words) == NULL)
        fail_msg("%s: %s", host, meeting.words);
    part(&meeting);
}

/* --- tests --- */

static void test_tls__presses_go_to_whom_the_certificate_names(void **state)
{
    struct trusted *trusted = *state;
    struct signer shop = sign(SHOP, &trusted->authority, DAY_S);
    static const char *const hosts[] = {SHOP, LOCAL};
    for (size_t i = 0; i < 2; i++) {
        struct meeting meeting;
        char bytes[16];
        size_t length = 0;
        meet(&meeting, hosts[i], &shop);
        assert_int_equal(meeting.shaken, 1);
        assert_int_equal(rush_tls_receive(meeting.client, bytes, sizeof(bytes)), -1);
        assert_int_equal(errno, EAGAIN);
        assert_int_equal(rush_tls_send(meeting.client, "press", 5), 5);
        assert_int_equal(SSL_read_ex(meeting.server, bytes, sizeof(bytes), &length), 1);
        assert_int_equal(length, 5);
        assert_memory_equal(bytes, "press", 5);
        part(&meeting);
    }
    signer_free(&shop);
}

static void test_tls__not_to_another_host(void **state)
{
    struct trusted *trusted = *state;
    struct signer shop = sign(SHOP, &trusted->authority, DAY_S);
    expect_refused("other.test", &shop, "hostname mismatch");
    expect_refused("127.0.0.2", &shop, "IP address mismatch");
    signer_free(&shop);
}

static void test_tls__not_to_whom_nobody_trusted_has_signed(void **state)
{
    (void)state;
    struct signer stranger = sign("stranger", NULL, DAY_S);
    struct signer shop = sign(SHOP, &stranger, DAY_S);
    expect_refused(SHOP, &shop, "unable to get local issuer certificate");
    signer_free(&shop);
    signer_free(&stranger);
}

static void test_tls__not_after_the_certificates_end(void **state)
{
    struct trusted *trusted = *state;
    struct signer shop = sign(SHOP, &trusted->authority, -DAY_S);
    expect_refused(SHOP, &shop, "certificate has expired");
    signer_free(&shop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_tls__presses_go_to_whom_the_certificate_names, trust,
                                        distrust),
        cmocka_unit_test_setup_teardown(test_tls__not_to_another_host, trust, distrust),
        cmocka_unit_test_setup_teardown(test_tls__not_to_whom_nobody_trusted_has_signed, trust,
                                        distrust),
        cmocka_unit_test_setup_teardown(test_tls__not_after_the_certificates_end, trust, distrust),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
