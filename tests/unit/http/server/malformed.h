/* malformed.h: requests that must never be taken for good ones, and how each is refused.
 *
 * Shared by the tests of the parser alone and of the server behind sockets.
 */
#pragma once

#include <stddef.h>

#include "http/server/server.h"

struct malformed {
    const char *name;
    const char *bytes;
    size_t length;
    enum http_refusal refusal;
};

#define BAD(name, bytes)            {name, bytes, sizeof(bytes) - 1, HTTP_REFUSE_BAD_REQUEST}
#define WORSE(name, bytes, refusal) {name, bytes, sizeof(bytes) - 1, HTTP_REFUSE_##refusal}
#define HOST                        "Host: a\r\n"

static const struct malformed malformed[] = {
    /* Line ends. */
    BAD("bare LF after the request line", "GET / HTTP/1.1\n" HOST "\r\n"),
    BAD("bare LF after a header", "GET / HTTP/1.1\r\nHost: a\n\r\n"),
    BAD("bare LF as the empty line", "GET / HTTP/1.1\r\n" HOST "\n"),
    BAD("bare LF everywhere", "GET / HTTP/1.1\nHost: a\n\n"),
    BAD("bare LF after Content-Length", "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\n\r\nhello"),
    BAD("bare CR after the request line", "GET / HTTP/1.1\r" HOST "\r\n"),
    BAD("bare CR after a header", "GET / HTTP/1.1\r\nHost: a\rB: c\r\n\r\n"),
    BAD("bare CR within a value", "GET / HTTP/1.1\r\nHost: a\r\nB: c\rd\r\n\r\n"),
    BAD("CR CR LF", "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n"),
    BAD("bare LF in front", "\nGET / HTTP/1.1\r\n" HOST "\r\n"),
    BAD("bare CR in front", "\rGET / HTTP/1.1\r\n" HOST "\r\n"),
    BAD("two empty lines in front", "\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n"),
    BAD("folded header", "GET / HTTP/1.1\r\nHost: a\r\nB: c\r\n d\r\n\r\n"),
    BAD("folded with a tab", "GET / HTTP/1.1\r\nHost: a\r\nB: c\r\n\td\r\n\r\n"),
    BAD("folded empty value", "GET / HTTP/1.1\r\nHost: a\r\nB:\r\n d\r\n\r\n"),
    BAD("folded Content-Length", "POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n 5\r\n\r\nhello"),
    BAD("blank before the first header", "GET / HTTP/1.1\r\n " HOST "\r\n"),
    /* Names and values. */
    BAD("space before the colon", "GET / HTTP/1.1\r\nHost : a\r\n\r\n"),
    BAD("tab before the colon", "GET / HTTP/1.1\r\nHost\t: a\r\n\r\n"),
    BAD("space in a name", "GET / HTTP/1.1\r\n" HOST "B c: d\r\n\r\n"),
    BAD("no colon", "GET / HTTP/1.1\r\n" HOST "B\r\n\r\n"),
    BAD("empty name", "GET / HTTP/1.1\r\n" HOST ": b\r\n\r\n"),
    BAD("NUL in a name", "GET / HTTP/1.1\r\n" HOST "B\0c: d\r\n\r\n"),
    BAD("NUL in a value", "GET / HTTP/1.1\r\n" HOST "B: c\0d\r\n\r\n"),
    BAD("control character in a value", "GET / HTTP/1.1\r\n" HOST "B: c\001d\r\n\r\n"),
    BAD("DEL in a value", "GET / HTTP/1.1\r\n" HOST "B: c\177d\r\n\r\n"),
    BAD("non-ASCII name", "GET / HTTP/1.1\r\n" HOST "B\303\244: d\r\n\r\n"),
    BAD("brackets in a name", "GET / HTTP/1.1\r\n" HOST "B[c]: d\r\n\r\n"),
    /* Host. */
    BAD("no Host", "GET / HTTP/1.1\r\n\r\n"),
    BAD("no Host among others", "GET / HTTP/1.1\r\nAccept: b\r\n\r\n"),
    BAD("two Hosts", "GET / HTTP/1.1\r\n" HOST "Host: b\r\n\r\n"),
    BAD("two equal Hosts", "GET / HTTP/1.1\r\n" HOST HOST "\r\n"),
    BAD("empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n"),
    BAD("blank Host", "GET / HTTP/1.1\r\nHost:  \r\n\r\n"),
    BAD("Host with a space", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    BAD("Host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    BAD("Host with a user", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"),
    BAD("Host list", "GET / HTTP/1.1\r\nHost: a, b:1:2\r\n\r\n"),
    BAD("Host with a bad port", "GET / HTTP/1.1\r\nHost: a:8o\r\n\r\n"),
    BAD("Host with a long port", "GET / HTTP/1.1\r\nHost: a:123456\r\n\r\n"),
    BAD("Host with an open bracket", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n"),
    BAD("Host with a name in brackets", "GET / HTTP/1.1\r\nHost: [host]\r\n\r\n"),
    BAD("Host behind brackets", "GET / HTTP/1.1\r\nHost: [::1]a\r\n\r\n"),
    BAD("non-ASCII Host", "GET / HTTP/1.1\r\nHost: \377\r\n\r\n"),
    BAD("two Hosts in HTTP/1.0", "GET / HTTP/1.0\r\n" HOST HOST "\r\n"),
    /* Request line. */
    BAD("two spaces before the target", "GET  / HTTP/1.1\r\n" HOST "\r\n"),
    BAD("two spaces after the target", "GET /  HTTP/1.1\r\n" HOST "\r\n"),
    BAD("space after the version", "GET / HTTP/1.1 \r\n" HOST "\r\n"),
    BAD("tab after the method", "GET\t/ HTTP/1.1\r\n" HOST "\r\n"),
    BAD("space in front", " GET / HTTP/1.1\r\n" HOST "\r\n"),
    BAD("no target", "GET HTTP/1.1\r\n" HOST "\r\n"),
    BAD("no version", "GET /\r\n" HOST "\r\n"),
    BAD("small http", "GET / http/1.1\r\n" HOST "\r\n"),
    BAD("another protocol", "GET / RTSP/1.0\r\n" HOST "\r\n"),
    BAD("no minor version", "GET / HTTP/1\r\n" HOST "\r\n"),
    BAD("long version", "GET / HTTP/1.10\r\n" HOST "\r\n"),
    BAD("two digits", "GET / HTTP/11.1\r\n" HOST "\r\n"),
    BAD("absolute form with a user", "GET http://u@a/b HTTP/1.1\r\n" HOST "\r\n"),
    BAD("absolute form without a host", "GET http:///b HTTP/1.1\r\n" HOST "\r\n"),
    BAD("absolute form with a bad host", "GET http://a:b/ HTTP/1.1\r\n" HOST "\r\n"),
    BAD("absolute form with a query alone", "GET http://a?b HTTP/1.1\r\n" HOST "\r\n"),
    BAD("absolute form without Host", "GET http://a/b HTTP/1.1\r\n\r\n"),
    BAD("absolute form of another scheme", "GET ftp://a/b HTTP/1.1\r\n" HOST "\r\n"),
    BAD("authority form", "GET a:80 HTTP/1.1\r\n" HOST "\r\n"),
    BAD("asterisk form", "OPTIONS * HTTP/1.1\r\n" HOST "\r\n"),
    BAD("relative target", "GET a/b HTTP/1.1\r\n" HOST "\r\n"),
    BAD("fragment", "GET /a#b HTTP/1.1\r\n" HOST "\r\n"),
    BAD("fragment far behind", "GET /v1/policies#claims HTTP/1.1\r\n" HOST "\r\n"),
    BAD("fragment at the very end", "GET /v1/policies/4# HTTP/1.1\r\n" HOST "\r\n"),
    BAD("control character in the target", "GET /a\001b HTTP/1.1\r\n" HOST "\r\n"),
    BAD("NUL in the target", "GET /a\0b HTTP/1.1\r\n" HOST "\r\n"),
    BAD("tab in the target", "GET /a\tb HTTP/1.1\r\n" HOST "\r\n"),
    BAD("DEL in the target", "GET /a\177b HTTP/1.1\r\n" HOST "\r\n"),
    BAD("non-ASCII target", "GET /\303\244 HTTP/1.1\r\n" HOST "\r\n"),
    BAD("non-ASCII query", "GET /?a=\377 HTTP/1.1\r\n" HOST "\r\n"),
    BAD("space in the target", "GET /a b HTTP/1.1\r\n" HOST "\r\n"),
    BAD("NUL first", "\0GET / HTTP/1.1\r\n" HOST "\r\n"),
    BAD("a TLS greeting", "\026\003\001\002\000\001\000\001\374\003\003"),
    BAD("an answer", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    /* Length. */
    BAD("two Content-Lengths",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
    BAD("two equal Content-Lengths",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
    BAD("Content-Length list", "POST / HTTP/1.1\r\n" HOST "Content-Length: 5,5\r\n\r\nhello"),
    BAD("Content-Length with blanks",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: 1 0\r\n\r\nhello"),
    BAD("Content-Length with a sign", "POST / HTTP/1.1\r\n" HOST "Content-Length: +5\r\n\r\nhello"),
    BAD("negative Content-Length", "POST / HTTP/1.1\r\n" HOST "Content-Length: -5\r\n\r\nhello"),
    BAD("hexadecimal Content-Length",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: 0x5\r\n\r\nhello"),
    BAD("quoted Content-Length", "POST / HTTP/1.1\r\n" HOST "Content-Length: \"5\"\r\n\r\nhello"),
    BAD("Content-Length with a fraction",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: 5.0\r\n\r\nhello"),
    BAD("empty Content-Length", "POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\nhello"),
    BAD("Content-Length without end",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999\r\n\r\nhello"),
    WORSE("huge Content-Length",
          "POST / HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551615\r\n\r\nhello",
          TOO_LARGE),
    WORSE("Content-Length over the limit",
          "POST / HTTP/1.1\r\n" HOST "Content-Length: 16385\r\n\r\nhello", TOO_LARGE),
    /* Transfer-Encoding. */
    WORSE("chunked", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
          NOT_IMPLEMENTED),
    WORSE("identity", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: identity\r\n\r\n",
          NOT_IMPLEMENTED),
    WORSE("empty Transfer-Encoding", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding:\r\n\r\n",
          NOT_IMPLEMENTED),
    WORSE("Transfer-Encoding in capitals",
          "POST / HTTP/1.1\r\n" HOST "TRANSFER-ENCODING: xchunked\r\n\r\n", NOT_IMPLEMENTED),
    WORSE("Content-Length, then Transfer-Encoding",
          "POST / HTTP/1.1\r\n" HOST
          "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
          NOT_IMPLEMENTED),
    WORSE("Transfer-Encoding, then Content-Length",
          "POST / HTTP/1.1\r\n" HOST
          "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
          NOT_IMPLEMENTED),
    WORSE("Transfer-Encoding in HTTP/1.0",
          "POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
          NOT_IMPLEMENTED),
    BAD("Transfer-Encoding with a space before the colon",
        "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    /* Methods and versions. */
    WORSE("unknown method", "FOO / HTTP/1.1\r\n" HOST "\r\n", NOT_IMPLEMENTED),
    WORSE("small method", "get / HTTP/1.1\r\n" HOST "\r\n", NOT_IMPLEMENTED),
    WORSE("longer method", "GETX / HTTP/1.1\r\n" HOST "\r\n", NOT_IMPLEMENTED),
    WORSE("WebDAV", "PROPFIND / HTTP/1.1\r\n" HOST "\r\n", NOT_IMPLEMENTED),
    WORSE("CONNECT", "CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n", NOT_IMPLEMENTED),
    WORSE("CONNECT in origin form", "CONNECT / HTTP/1.1\r\n" HOST "\r\n", NOT_IMPLEMENTED),
    WORSE("HTTP/0.9 by name", "GET / HTTP/0.9\r\n" HOST "\r\n", VERSION),
    WORSE("HTTP/1.2", "GET / HTTP/1.2\r\n" HOST "\r\n", VERSION),
    WORSE("HTTP/2.0", "GET / HTTP/2.0\r\n" HOST "\r\n", VERSION),
    WORSE("HTTP/9.9", "GET / HTTP/9.9\r\n" HOST "\r\n", VERSION),
    WORSE("HTTP/2's preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", VERSION),
    /* Repeated headers. */
    BAD("two Authorizations",
        "GET / HTTP/1.1\r\n" HOST "Authorization: a\r\nauthorization: a\r\n\r\n"),
    BAD("two Idempotency-Keys",
        "GET / HTTP/1.1\r\n" HOST "Idempotency-Key: a\r\nIdempotency-Key: b\r\n\r\n"),
    BAD("two Content-Types",
        "GET / HTTP/1.1\r\n" HOST "Content-Type: a\r\nContent-Type: a\r\n\r\n"),
    BAD("two X-Request-Ids",
        "GET / HTTP/1.1\r\n" HOST "X-Request-Id: a\r\nX-Request-ID: b\r\n\r\n"),
    BAD("two empty Content-Types",
        "GET / HTTP/1.1\r\n" HOST "Content-Type:\r\nContent-Type:\r\n\r\n"),
    BAD("unknown Expect",
        "POST / HTTP/1.1\r\n" HOST "Expect: 200-ok\r\nContent-Length: 1\r\n\r\na"),
    BAD("two Expects",
        "POST / HTTP/1.1\r\n" HOST
        "Expect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na"),
};

#define MALFORMED_COUNT (sizeof(malformed) / sizeof(malformed[0]))
