/* tls.c: OpenSSL's answers as those of a socket. */
#include "rush/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>

enum status rush_tls_open(struct rush_tls *tls, const char *host, struct error *error)
{
    unsigned char address[sizeof(struct in6_addr)];

    snprintf(tls->host, sizeof(tls->host), "%s", host);
    tls->is_address =
        inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
    tls->context = SSL_CTX_new(TLS_client_method());
    if (tls->context == NULL || SSL_CTX_set_default_verify_paths(tls->context) != 1)
        return error_set(error, STATUS_UNAVAILABLE, "TLS cannot be set up");
    SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION);
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    /* A write that goes on may come from another place, and may take a part. */
    SSL_CTX_set_mode(tls->context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return STATUS_OK;
}

void rush_tls_close(struct rush_tls *tls)
{
    SSL_CTX_free(tls->context);
    tls->context = NULL;
}

SSL *rush_tls_begin(struct rush_tls *tls, int fd)
{
    SSL *connection = SSL_new(tls->context);

    if (connection == NULL)
        return NULL;
    bool is_named = tls->is_address
                        ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(connection), tls->host) == 1
                        : SSL_set1_host(connection, tls->host) == 1 &&
                              SSL_set_tlsext_host_name(connection, tls->host) == 1;
    if (!is_named || SSL_set_fd(connection, fd) != 1) {
        SSL_free(connection);
        return NULL;
    }
    SSL_set_connect_state(connection);
    return connection;
}

int rush_tls_shake(SSL *connection, char text[160])
{
    ERR_clear_error();
    int done = SSL_do_handshake(connection);
    int why = SSL_get_error(connection, done);

    if (done == 1)
        return 1;
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
        return 0;
    long verified = SSL_get_verify_result(connection);
    if (verified != X509_V_OK)
        snprintf(text, 160,
                 "the server's certificate: %s; name the certificate of its authority in "
                 "SSL_CERT_FILE",
                 X509_verify_cert_error_string(verified));
    else
        snprintf(text, 160, "TLS: %s",
                 why == SSL_ERROR_SSL ? ERR_reason_error_string(ERR_peek_error())
                                      : "the connection broke");
    return -1;
}

/* What a call that came to no bytes means. */
static ssize_t rush_tls_judge(SSL *connection, int result)
{
    int why = SSL_get_error(connection, result);

    if (why == SSL_ERROR_ZERO_RETURN)
        return 0;
    errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
    return -1;
}

ssize_t rush_tls_send(SSL *connection, const char *bytes, size_t length)
{
    size_t sent = 0;

    ERR_clear_error();
    int result = SSL_write_ex(connection, bytes, length, &sent);
    return result == 1 ? (ssize_t)sent : rush_tls_judge(connection, result);
}

ssize_t rush_tls_receive(SSL *connection, char *bytes, size_t room)
{
    size_t got = 0;

    ERR_clear_error();
    int result = SSL_read_ex(connection, bytes, room, &got);
    return result == 1 ? (ssize_t)got : rush_tls_judge(connection, result);
}
