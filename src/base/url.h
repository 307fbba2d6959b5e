/* url.h: the URLs that name backends, read strictly:
 *
 *     scheme://user:password@host1:1,host2:2/path?name=value&name=value
 *
 * Everything after the scheme may be left out. Parts are percent-decoded; a character that means
 * something in a URL must be written %XX where it does not, so a password with a raw "/", "?", "#"
 * or "@" is refused and never taken for a host. An IPv6 address stands in brackets. A host that
 * begins with "/" (written %2F) is the path of a unix socket, and `?socket=PATH` is another way to
 * write that.
 *
 * No function here prints a part of a URL in its words, because a part that was misread may be a
 * password; they say at which character something is wrong instead.
 *
 * Threads: a url belongs to one owner; once parsed it is only read.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"

#define URL_LENGTH_MAX     4096
#define URL_HOSTS_MAX      16
#define URL_PARAMETERS_MAX 32

struct url_host {
    const char *name; /* "": not said; begins with "/": a unix socket; IPv6 without its brackets */
    int port;         /* 0: not said */
};

struct url_parameter {
    const char *name; /* not empty, and no other parameter's */
    const char *value;
};

/* All texts are decoded, NUL-terminated and live as long as the url. */
struct url {
    const char *scheme;   /* lower case */
    const char *user;     /* NULL: not said */
    const char *password; /* NULL: not said */
    struct url_host hosts[URL_HOSTS_MAX];
    size_t host_count; /* at least 1; its name is "" when no host is said */
    const char *path;  /* without the "/" in front; "" when there is none */
    struct url_parameter parameters[URL_PARAMETERS_MAX];
    size_t parameter_count; /* without `socket`, which became the host */

    char *storage;
    size_t storage_size;
};

/* Reads `text`, which is copied. INVALID with what is wrong and where; nothing to release then. */
enum status url_parse(struct url *url, const char *text, struct error *error) MUST_CHECK;

/* Wipes and frees all of it. */
void url_release(struct url *url);

/* The value of the parameter of that name, or NULL. */
const char *url_parameter(const struct url *url, const char *name);

/* True when it carries a password: that of the user, or a parameter with "password" in its name. */
bool url_has_password(const struct url *url);

/* Appends a word of a path or query, percent-encoded but for letters, digits and - . _ ~ : @ */
void url_append_word(struct buffer *out, struct span word);

/* Appends `text` with "***" for every password in it. Of a text that url_parse() refuses, only what
 * cannot belong to a password is shown. */
void url_mask(struct buffer *out, const char *text);
