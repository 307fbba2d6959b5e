/* url.c: reads and masks the URLs that name backends.
 *
 * A URL is cut in place: every separator in a copy becomes a NUL, and decoding never makes a part
 * longer, so all parts live in one block, which is wiped as a whole.
 */
#include "base/url.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/digits.h"

#define URL_PORT_MAX 65535
#define URL_MASK     "***"

/* One walk through a URL. `at` and all parts point into the url's storage. */
struct url_reader {
    struct url *url;
    char *at;
    struct error *error;
};

/* Bytes of the storage; `end` is not a part of it. */
struct url_part {
    char *begin;
    char *end;
};

static enum status url_refuse(const struct url_reader *reader, const char *where, const char *text)
{
    return error_set(reader->error, STATUS_INVALID, "at character %zu: %s",
                     (size_t)(where - reader->url->storage) + 1, text);
}

/* Decodes a part in place and ends it with a NUL, which takes the place of the separator. */
static enum status url_decode(struct url_reader *reader, struct url_part part, const char **text)
{
    char *to = part.begin;
    for (char *from = part.begin; from < part.end; from++) {
        if (*from != '%') {
            *to++ = *from;
            continue;
        }
        int high = part.end - from > 2 ? hex_digit(from[1]) : -1;
        int low = high >= 0 ? hex_digit(from[2]) : -1;
        if (low < 0) {
            return url_refuse(reader, from,
                              "after % come two hexadecimal digits; % itself is written %25");
        }
        if (high == 0 && low == 0)
            return url_refuse(reader, from, "%00 cannot be a part of anything");
        *to++ = (char)(high << 4 | low);
        from += 2;
    }
    *to = '\0';
    *text = part.begin;
    return STATUS_OK;
}

/* Up to the first of `separators` or the end; the separator itself is left for the caller. */
static struct url_part url_until(char *begin, const char *separators)
{
    return (struct url_part){begin, begin + strcspn(begin, separators)};
}

static enum status url_read_scheme(struct url_reader *reader)
{
    char *begin = reader->at;
    char *end = begin;
    while (islower((unsigned char)*end) || (end > begin && isdigit((unsigned char)*end)) ||
           (end > begin && (*end == '+' || *end == '.' || *end == '-')))
        end++;
    if (end == begin || strncmp(end, "://", 3) != 0) {
        return url_refuse(reader, end,
                          "it must begin with a scheme in lower case and ://, as in "
                          "scheme://user@host:port/path");
    }
    *end = '\0';
    reader->url->scheme = begin;
    reader->at = end + 3;
    return STATUS_OK;
}

/* Only visible ASCII may stand in a URL; "#" would begin a fragment, which means nothing here. */
static enum status url_check_characters(struct url_reader *reader)
{
    for (char *at = reader->at; *at != '\0'; at++) {
        if (*at <= ' ' || *at > '~') {
            return url_refuse(reader, at,
                              "blanks, control characters and letters beyond ASCII are written "
                              "percent-encoded, as in %20");
        }
        if (*at == '#')
            return url_refuse(reader, at, "# has no meaning here; within a part it is written %23");
    }
    return STATUS_OK;
}

static enum status url_read_user(struct url_reader *reader, struct url_part part)
{
    struct url *url = reader->url;
    char *colon = memchr(part.begin, ':', (size_t)(part.end - part.begin));
    if (part.begin == part.end)
        return url_refuse(reader, part.begin, "the user's name is missing in front of the @");
    if (colon != NULL) {
        enum status status =
            url_decode(reader, (struct url_part){colon + 1, part.end}, &url->password);
        if (status != STATUS_OK)
            return status;
    }
    return url_decode(reader, (struct url_part){part.begin, colon != NULL ? colon : part.end},
                      &url->user);
}

static bool url_is_address_6(const char *name)
{
    char address[INET6_ADDRSTRLEN];
    struct in6_addr ignored;
    size_t length = strcspn(name, "%"); /* a zone may follow */
    if (length >= sizeof(address))
        return false;
    memcpy(address, name, length);
    address[length] = '\0';
    return inet_pton(AF_INET6, address, &ignored) == 1;
}

static bool url_is_host_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789.-_";
    return name[0] == '/' || name[strspn(name, allowed)] == '\0';
}

/* `part` is what follows the host's name: nothing, or ":" and the port. */
static enum status url_read_port(struct url_reader *reader, struct url_part part, int *port)
{
    uint64_t number = 0;
    struct span digits = {part.begin + 1, (size_t)(part.end - part.begin) - 1};
    if (part.begin != part.end &&
        (*part.begin != ':' || !digits_read(digits, URL_PORT_MAX, &number) || number == 0)) {
        return url_refuse(reader, part.begin,
                          "behind a host comes nothing or : and its port, 1 to 65535; a password "
                          "comes in front of the host, as in user:password@host");
    }
    *port = (int)number;
    return STATUS_OK;
}

static enum status url_read_host(struct url_reader *reader, struct url_part part)
{
    struct url *url = reader->url;
    size_t length = (size_t)(part.end - part.begin);
    if (url->host_count == URL_HOSTS_MAX)
        return url_refuse(reader, part.begin, "there are more hosts than the 16 that are allowed");
    struct url_host *host = &url->hosts[url->host_count++];
    struct url_part name = part;
    bool is_address_6 = length > 0 && *part.begin == '[';
    char *name_end = memchr(part.begin, is_address_6 ? ']' : ':', length);
    if (is_address_6 && name_end == NULL)
        return url_refuse(reader, part.begin, "the bracket of an IPv6 address is not closed");
    char *rest = name_end == NULL ? part.end : name_end + is_address_6;
    name.begin += is_address_6;
    name.end = name_end != NULL ? name_end : part.end;
    /* The port first: decoding the name ends it with a NUL where the port's colon is. */
    enum status status = url_read_port(reader, (struct url_part){rest, part.end}, &host->port);
    if (status == STATUS_OK)
        status = url_decode(reader, name, &host->name);
    if (status != STATUS_OK)
        return status;
    if (is_address_6 ? !url_is_address_6(host->name) : !url_is_host_name(host->name)) {
        return url_refuse(reader, part.begin,
                          "this is no host: that is a name, an address, an IPv6 address in "
                          "brackets, or the path of a unix socket with / written %2F");
    }
    return STATUS_OK;
}

static enum status url_read_hosts(struct url_reader *reader, struct url_part part)
{
    bool is_list = memchr(part.begin, ',', (size_t)(part.end - part.begin)) != NULL;
    for (char *at = part.begin;; at++) {
        char *comma = memchr(at, ',', (size_t)(part.end - at));
        struct url_part one = {at, comma != NULL ? comma : part.end};
        if (is_list && (one.begin == one.end || *one.begin == ':'))
            return url_refuse(reader, at, "a host is missing in the list");
        enum status status = url_read_host(reader, one);
        if (status != STATUS_OK || comma == NULL)
            return status;
        at = comma;
    }
}

/* user:password@hosts */
static enum status url_read_authority(struct url_reader *reader, struct url_part part)
{
    char *at_sign = memchr(part.begin, '@', (size_t)(part.end - part.begin));
    enum status status = STATUS_OK;
    if (at_sign != NULL) {
        status = url_read_user(reader, (struct url_part){part.begin, at_sign});
        part.begin = at_sign + 1;
    }
    return status == STATUS_OK ? url_read_hosts(reader, part) : status;
}

static enum status url_read_parameter(struct url_reader *reader, struct url_part part)
{
    struct url *url = reader->url;
    char *equals = memchr(part.begin, '=', (size_t)(part.end - part.begin));
    if (url->parameter_count == URL_PARAMETERS_MAX) {
        return url_refuse(reader, part.begin,
                          "there are more parameters than the 32 that are allowed");
    }
    if (equals == NULL || equals == part.begin) {
        return url_refuse(reader, part.begin,
                          "a parameter is name=value; within it, & is written "
                          "%26");
    }
    struct url_parameter *parameter = &url->parameters[url->parameter_count];
    enum status status =
        url_decode(reader, (struct url_part){equals + 1, part.end}, &parameter->value);
    if (status == STATUS_OK)
        status = url_decode(reader, (struct url_part){part.begin, equals}, &parameter->name);
    if (status == STATUS_OK && url_parameter(url, parameter->name) != NULL)
        return url_refuse(reader, part.begin, "this parameter is said twice");
    url->parameter_count += status == STATUS_OK;
    return status;
}

static enum status url_read_parameters(struct url_reader *reader, struct url_part part)
{
    for (char *at = part.begin; at <= part.end; at++) {
        char *ampersand = memchr(at, '&', (size_t)(part.end - at));
        char *end = ampersand != NULL ? ampersand : part.end;
        enum status status = url_read_parameter(reader, (struct url_part){at, end});
        if (status != STATUS_OK)
            return status;
        at = end;
    }
    return STATUS_OK;
}

/* Makes `socket` the host, so that there is one place to look for it. */
static enum status url_take_socket(struct url *url, struct error *error)
{
    for (size_t i = 0; i < url->parameter_count; i++) {
        if (strcmp(url->parameters[i].name, "socket") != 0)
            continue;
        const char *path = url->parameters[i].value;
        const char *host = url->hosts[0].name;
        if (path[0] != '/')
            return error_set(error, STATUS_INVALID, "the socket must be a path that begins with /");
        if (url->host_count > 1 || url->hosts[0].port != 0 ||
            (host[0] != '\0' && strcmp(host, "localhost") != 0)) {
            return error_set(error, STATUS_INVALID,
                             "it names a socket and a host; one of them is enough");
        }
        url->hosts[0].name = path;
        array_remove(url->parameters, i, url->parameter_count);
        return STATUS_OK;
    }
    return STATUS_OK;
}

/* Finds where the parts begin and end before any of them is decoded, because decoding writes over
 * what separates them. */
static enum status url_read(struct url_reader *reader)
{
    struct url *url = reader->url;
    enum status status = url_check_characters(reader);
    if (status == STATUS_OK)
        status = url_read_scheme(reader);
    if (status != STATUS_OK)
        return status;
    struct url_part authority = url_until(reader->at, "/?");
    bool has_path = *authority.end == '/';
    struct url_part path = url_until(authority.end + has_path, "?");
    struct url_part query = {path.end, url->storage + url->storage_size - 1};
    bool has_query = *query.begin == '?';
    query.begin += has_query;
    char *at_sign = strrchr(reader->at, '@');
    if (at_sign != NULL && at_sign != strchr(reader->at, '@'))
        return url_refuse(reader, at_sign, "a second @; within a part it is written %40");
    if (at_sign != NULL && at_sign > authority.end) {
        return url_refuse(reader, at_sign,
                          "@ stands between the password and the host; in a password / is written "
                          "%2F and ? %3F, elsewhere @ is written %40");
    }
    status = url_read_authority(reader, authority);
    if (status == STATUS_OK && has_path)
        status = url_decode(reader, path, &url->path);
    if (status == STATUS_OK && has_query)
        status = url_read_parameters(reader, query);
    return status == STATUS_OK ? url_take_socket(url, reader->error) : status;
}

enum status url_parse(struct url *url, const char *text, struct error *error)
{
    *url = (struct url){.path = "", .storage_size = strlen(text) + 1};
    if (url->storage_size > URL_LENGTH_MAX + 1)
        return error_set(error, STATUS_INVALID, "it is longer than %d characters", URL_LENGTH_MAX);
    url->storage = malloc(url->storage_size);
    ensure(url->storage != NULL);
    memcpy(url->storage, text, url->storage_size);
    enum status status = url_read(&(struct url_reader){url, url->storage, error});
    if (status != STATUS_OK)
        url_release(url);
    return status;
}

void url_release(struct url *url)
{
    if (url->storage != NULL)
        explicit_bzero(url->storage, url->storage_size);
    free(url->storage);
    *url = (struct url){0};
}

const char *url_parameter(const struct url *url, const char *name)
{
    for (size_t i = 0; i < url->parameter_count; i++)
        if (strcmp(url->parameters[i].name, name) == 0)
            return url->parameters[i].value;
    return NULL;
}

static bool url_names_password(const char *name)
{
    return strcasestr(name, "password") != NULL;
}

bool url_has_password(const struct url *url)
{
    bool has = url->password != NULL;
    for (size_t i = 0; i < url->parameter_count && !has; i++)
        has = url_names_password(url->parameters[i].name);
    return has;
}

/* Appends `text` from `from` up to the secret part, and the mask in its place; where to go on. A
 * part begins in the storage where it begins in the text. */
static size_t url_mask_part(struct buffer *out, const struct url *url, const char *text,
                            size_t from, const char *part, const char *separators)
{
    size_t begin = (size_t)(part - url->storage);
    buffer_append(out, text + from, begin - from);
    buffer_append_literal(out, URL_MASK);
    return begin + strcspn(text + begin, separators);
}

void url_mask(struct buffer *out, const char *text)
{
    struct url url;
    if (url_parse(&url, text, NULL) != STATUS_OK) {
        /* It cannot be parsed: nothing behind the first colon or parameter is shown. */
        const char *scheme_end = strstr(text, "://");
        size_t shown = scheme_end != NULL ? (size_t)(scheme_end - text) + 3 : 0;
        shown += strcspn(text + shown, ":?#");
        buffer_append(out, text, shown + (text[shown] != '\0'));
        if (text[shown] != '\0')
            buffer_append_literal(out, URL_MASK);
        return;
    }
    size_t from = 0;
    if (url.password != NULL)
        from = url_mask_part(out, &url, text, from, url.password, "@");
    for (size_t i = 0; i < url.parameter_count; i++)
        if (url_names_password(url.parameters[i].name))
            from = url_mask_part(out, &url, text, from, url.parameters[i].value, "&");
    buffer_append_text(out, text + from);
    url_release(&url);
}

void url_append_word(struct buffer *out, struct span word)
{
    static const char digits[] = "0123456789ABCDEF";

    for (size_t at = 0; at < word.length; at++) {
        unsigned char byte = (unsigned char)word.bytes[at];
        char escape[3] = {'%', digits[byte >> 4], digits[byte & 15]};
        bool is_plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                        (byte >= '0' && byte <= '9') || strchr("-._~:@", byte) != NULL;
        if (is_plain && byte != '\0')
            buffer_append(out, word.bytes + at, 1);
        else
            buffer_append(out, escape, sizeof(escape));
    }
}
