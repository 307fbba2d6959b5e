/* tls.h: TLS over a socket that does not block, for a storm's connections.
 *
 * Threads: one thread.
 */
#pragma once

#include <openssl/ssl.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

/* What all connections to a server share; its certificate has to be of that host, and signed by
 * whom the system trusts or SSL_CERT_FILE names. */
struct rush_tls {
    SSL_CTX *context;
    char host[256];
    bool is_address;
};

enum status rush_tls_open(struct rush_tls *tls, const char *host, struct error *error) MUST_CHECK;
/* Zeros are fine. */
void rush_tls_close(struct rush_tls *tls);

/* A connection on the socket, which stays the caller's; NULL: there is no memory. */
SSL *rush_tls_begin(struct rush_tls *tls, int fd);

/* 1: done; 0: when more has come or gone; -1: it failed, and the words say why. */
int rush_tls_shake(SSL *connection, char text[160]);

/* As send() and recv(): EAGAIN where the socket is to be waited for. */
ssize_t rush_tls_send(SSL *connection, const char *bytes, size_t length);
ssize_t rush_tls_receive(SSL *connection, char *bytes, size_t room);
