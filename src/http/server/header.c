/* header.c: names of headers, Host, target and version of a head; the small grammars of values. */
#include "http/server/header.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <strings.h>

/* No name of a header that is known has more letters than this, less one. */
#define NAME_SIZE 32

/* --- heads --- */

/* Classes of characters. */
enum { CLASS_TOKEN = 1, CLASS_REG_NAME = 2, CLASS_ADDRESS = 4 };

/* Letters and digits may be anywhere; the rest is RFC 9110 5.6.2 (token) and RFC 3986 3.2.2
 * (reg-name: unreserved, sub-delims and '%'). */
static const uint8_t classes[256] = {
    ['0' ... '9'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_ADDRESS,
    ['A' ... 'F'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_ADDRESS,
    ['a' ... 'f'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_ADDRESS,
    ['G' ... 'Z'] = CLASS_TOKEN | CLASS_REG_NAME,
    ['g' ... 'z'] = CLASS_TOKEN | CLASS_REG_NAME,
    ['!'] = CLASS_TOKEN | CLASS_REG_NAME,
    ['#'] = CLASS_TOKEN,
    ['$' ... '\''] = CLASS_TOKEN | CLASS_REG_NAME,
    ['(' ... ')'] = CLASS_REG_NAME,
    ['*' ... '+'] = CLASS_TOKEN | CLASS_REG_NAME,
    [','] = CLASS_REG_NAME,
    ['-'] = CLASS_TOKEN | CLASS_REG_NAME,
    ['.'] = CLASS_TOKEN | CLASS_REG_NAME | CLASS_ADDRESS,
    [':'] = CLASS_ADDRESS,
    [';'] = CLASS_REG_NAME,
    ['='] = CLASS_REG_NAME,
    ['^'] = CLASS_TOKEN,
    ['_'] = CLASS_TOKEN | CLASS_REG_NAME,
    ['`'] = CLASS_TOKEN,
    ['|'] = CLASS_TOKEN,
    ['~'] = CLASS_TOKEN | CLASS_REG_NAME,
};

/* Length of the run of characters of `wanted` from `at` on. */
static size_t run_length(struct span text, size_t at, uint8_t wanted)
{
    size_t end = at;
    while (end < text.length && (classes[(uint8_t)text.bytes[end]] & wanted) != 0)
        end++;
    return end - at;
}

static inline uint64_t load_u64(const char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

static inline uint32_t load_u32(const char *bytes)
{
    uint32_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

/* Setting this bit makes no two token characters equal but the cases of a letter, as far as the
 * names of headers are concerned. */
#define SMALL UINT64_C(0x2020202020202020)

/* Compares without regard to case, a word at a time; the last word may overlap the one before.
 * `length` is at least 4. */
static inline bool name_is(const char *name, const char *lower, size_t length)
{
    if (length < 8) {
        return (load_u32(name) | (uint32_t)SMALL) == load_u32(lower) &&
               (load_u32(name + length - 4) | (uint32_t)SMALL) == load_u32(lower + length - 4);
    }
    for (size_t i = 0; i + 8 < length; i += 8)
        if ((load_u64(name + i) | SMALL) != load_u64(lower + i))
            return false;
    return (load_u64(name + length - 8) | SMALL) == load_u64(lower + length - 8);
}

#define HEADER_NAME(LENGTH, WORD, FIELD, NAME, TIMES) [HTTP_HEADER_##WORD] = NAME,
#define HAS_LENGTH(LENGTH, WORD, FIELD, NAME, TIMES) \
    | (sizeof(NAME) - 1 == (LENGTH)) << HTTP_HEADER_##WORD
#define OF_LENGTH(LENGTH) [LENGTH] = 0U HTTP_HEADERS(HAS_LENGTH, LENGTH)

enum http_header http_header_of(const char *name, size_t length)
{
    static const char names[][NAME_SIZE] = {HTTP_HEADERS(HEADER_NAME, 0)};
    /* A bit for each header whose name has so many letters. */
    static const uint32_t of_length[NAME_SIZE] = {
        OF_LENGTH(4),  OF_LENGTH(5),  OF_LENGTH(6),  OF_LENGTH(7),  OF_LENGTH(8),  OF_LENGTH(9),
        OF_LENGTH(10), OF_LENGTH(11), OF_LENGTH(12), OF_LENGTH(13), OF_LENGTH(14), OF_LENGTH(15),
        OF_LENGTH(16), OF_LENGTH(17), OF_LENGTH(18), OF_LENGTH(19), OF_LENGTH(20), OF_LENGTH(21),
        OF_LENGTH(22), OF_LENGTH(23), OF_LENGTH(24), OF_LENGTH(25), OF_LENGTH(26), OF_LENGTH(27),
        OF_LENGTH(28), OF_LENGTH(29), OF_LENGTH(30), OF_LENGTH(31),
    };
    uint32_t left = length < NAME_SIZE ? of_length[length] : 0;
    for (; left != 0; left &= left - 1) {
        unsigned header = (unsigned)__builtin_ctz(left);
        if (name_is(name, names[header], length))
            return (enum http_header)header;
    }
    /* The family of X-Forwarded-For. */
    bool is_forwarded = length > 12 && name_is(name, "x-forwarded-", 12);
    bool is_via = length == 3 && strncasecmp(name, "via", 3) == 0;
    return is_forwarded || is_via ? HTTP_HEADER_OF_PROXY : HTTP_HEADER_UNKNOWN;
}

bool http_host_is_valid(struct span host)
{
    size_t end;
    if (host.length > 0 && host.bytes[0] == '[') {
        size_t inside = run_length(host, 1, CLASS_ADDRESS);
        if (inside < 2 || 1 + inside >= host.length || host.bytes[1 + inside] != ']')
            return false;
        end = inside + 2;
    } else {
        end = run_length(host, 0, CLASS_REG_NAME);
        if (end == 0)
            return false;
    }
    if (end == host.length)
        return true;
    if (host.bytes[end] != ':' || host.length - end - 1 > 5)
        return false;
    for (size_t i = end + 1; i < host.length; i++)
        if (host.bytes[i] < '0' || host.bytes[i] > '9')
            return false;
    return true;
}

/* True when all eight bytes are surely visible ASCII and none of them is '#'. */
static inline bool word_is_plain(uint64_t word)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t tops = ones * 0x80;
    uint64_t number_sign = word ^ (ones * '#');
    /* Each of these sets a byte's top bit when the byte is what it must not be; a borrow from a
     * neighbour can only set it needlessly, and then the slow way decides. */
    uint64_t not_visible = (word - ones * 0x21) | (word + ones);
    uint64_t is_number_sign = (number_sign - ones) & ~number_sign;
    return ((word | not_visible | is_number_sign) & tops) == 0;
}

static bool path_is_valid(struct span target)
{
    size_t at = 0;
    while (at + 8 <= target.length && word_is_plain(load_u64(target.bytes + at)))
        at += 8;
    if (at > 0 && at + 8 > target.length &&
        word_is_plain(load_u64(target.bytes + target.length - 8)))
        return true; /* The last word overlaps the one before. */
    while (at < target.length && target.bytes[at] > ' ' && target.bytes[at] <= '~' &&
           target.bytes[at] != '#')
        at++;
    return at == target.length;
}

/* The length of "http://" or "https://" at the start, else 0. */
static size_t scheme_length(struct span url)
{
    static const struct span schemes[] = {SPAN("http://"), SPAN("https://")};
    for (size_t index = 0; index < sizeof(schemes) / sizeof(schemes[0]); index++)
        if (url.length > schemes[index].length &&
            strncasecmp(url.bytes, schemes[index].bytes, schemes[index].length) == 0)
            return schemes[index].length;
    return 0;
}

bool http_target_split(struct span target, struct span *authority, struct span *path)
{
    *authority = (struct span){NULL, 0};
    *path = target;
    if (target.length > 0 && target.bytes[0] == '/')
        return path_is_valid(target);
    size_t start = scheme_length(target);
    if (start == 0)
        return false;
    const char *slash = memchr(target.bytes + start, '/', target.length - start);
    size_t end = slash != NULL ? (size_t)(slash - target.bytes) : target.length;
    *authority = (struct span){target.bytes + start, end - start};
    /* Nothing is the root, for which the scheme's last character stands. */
    *path = slash != NULL ? (struct span){slash, target.length - end}
                          : (struct span){target.bytes + start - 1, 1};
    return http_host_is_valid(*authority) && path_is_valid(*path);
}

enum http_version http_version_of(struct span rest)
{
    static const char prefix[] = " HTTP/";
    const size_t prefix_length = sizeof(prefix) - 1;
    if (rest.length != prefix_length + 3 || memcmp(rest.bytes, prefix, prefix_length) != 0)
        return HTTP_VERSION_MALFORMED;
    const char *digits = rest.bytes + prefix_length;
    if (digits[0] < '0' || digits[0] > '9' || digits[1] != '.' || digits[2] < '0' ||
        digits[2] > '9')
        return HTTP_VERSION_MALFORMED;
    if (digits[0] != '1' || digits[2] > '1')
        return HTTP_VERSION_OTHER;
    return digits[2] == '1' ? HTTP_VERSION_1_1 : HTTP_VERSION_1_0;
}

bool http_method_is_token(struct span line)
{
    size_t length = run_length(line, 0, CLASS_TOKEN);
    return length > 0 && (length == line.length || line.bytes[length] == ' ');
}

/* --- values --- */

static bool same_letters(struct span a, struct span b)
{
    return a.length == b.length && strncasecmp(a.bytes, b.bytes, a.length) == 0;
}

static bool starts_with(struct span text, struct span start)
{
    return text.length >= start.length && strncasecmp(text.bytes, start.bytes, start.length) == 0;
}

static struct span skip(struct span text, size_t count)
{
    return (struct span){text.bytes + count, text.length - count};
}

static struct span skip_blanks(struct span text)
{
    while (text.length > 0 && (text.bytes[0] == ' ' || text.bytes[0] == '\t'))
        text = skip(text, 1);
    return text;
}

bool header_is_visible(struct span value, size_t length_max)
{
    if (value.length == 0 || value.length > length_max)
        return false;
    for (size_t at = 0; at < value.length; at++)
        if (value.bytes[at] < '!' || value.bytes[at] > '~')
            return false;
    return true;
}

bool header_idempotency_key(struct span value, char bytes[IDEMPOTENCY_KEY_MAX], struct span *key)
{
    if (value.length == 0 || value.bytes[0] != '"') {
        *key = value;
        return header_is_visible(value, IDEMPOTENCY_KEY_MAX);
    }
    size_t length = 0;
    for (size_t at = 1; at < value.length; at++) {
        char byte = value.bytes[at];
        if (byte == '"') {
            *key = (struct span){bytes, length};
            return at + 1 == value.length && header_is_visible(*key, IDEMPOTENCY_KEY_MAX);
        }
        if (byte == '\\') {
            at++;
            byte = at < value.length ? value.bytes[at] : '\0';
            if (byte != '"' && byte != '\\')
                return false;
        }
        if (length == IDEMPOTENCY_KEY_MAX)
            return false;
        bytes[length++] = byte;
    }
    return false;
}

/* Cuts what comes before the next `end` off `text`, without the blanks around it. */
static struct span cut(struct span *text, char end)
{
    const char *found = text->bytes != NULL ? memchr(text->bytes, end, text->length) : NULL;
    size_t length = found != NULL ? (size_t)(found - text->bytes) : text->length;
    struct span piece = skip_blanks((struct span){text->bytes, length});
    while (piece.length > 0 &&
           (piece.bytes[piece.length - 1] == ' ' || piece.bytes[piece.length - 1] == '\t'))
        piece.length--;
    *text = skip(*text, found != NULL ? length + 1 : length);
    return piece;
}

/* RFC 9110 12.4.2: 0 or 1, and at most three decimals. */
static int read_weight(struct span text)
{
    static const int worth[] = {1000, 0, 100, 10, 1};
    int weight = 0;
    if (text.length == 0 || text.length > sizeof(worth) / sizeof(worth[0]))
        return 0;
    for (size_t at = 0; at < text.length; at++) {
        if (at == 1) {
            if (text.bytes[at] != '.')
                return 0;
            continue;
        }
        if (text.bytes[at] < '0' || text.bytes[at] > '9')
            return 0;
        weight += (text.bytes[at] - '0') * worth[at];
    }
    return weight <= 1000 ? weight : 0;
}

int header_quality(struct span list, struct span name)
{
    while (list.length > 0) {
        struct span item = cut(&list, ',');
        if (item.length == 0 || !same_letters(cut(&item, ';'), name))
            continue;
        while (item.length > 0) {
            struct span parameter = cut(&item, ';');
            if (starts_with(parameter, SPAN("q=")))
                return read_weight(skip(parameter, 2));
        }
        return 1000;
    }
    return -1;
}

bool header_knows_etag(struct span if_none_match, struct span etag)
{
    if (if_none_match.bytes != NULL && span_equal(if_none_match, SPAN("*")))
        return true;
    while (if_none_match.length > 0) {
        struct span tag = cut(&if_none_match, ',');
        if (tag.length > 2 && tag.bytes[0] == 'W' && tag.bytes[1] == '/')
            tag = skip(tag, 2);
        if (span_equal(tag, etag))
            return true;
    }
    return false;
}

bool header_is_json(struct span content_type)
{
    const struct span type = SPAN("application/json");
    if (content_type.bytes == NULL || !starts_with(content_type, type))
        return false;
    struct span rest = skip_blanks(skip(content_type, type.length));
    if (rest.length == 0)
        return true;
    if (rest.bytes[0] != ';')
        return false;
    rest = skip_blanks(skip(rest, 1));
    return rest.length == 0 || same_letters(rest, SPAN("charset=utf-8")) ||
           same_letters(rest, SPAN("charset=\"utf-8\""));
}

bool header_bearer(struct span authorization, struct span *token)
{
    const struct span scheme = SPAN("Bearer ");
    if (authorization.bytes == NULL || !starts_with(authorization, scheme))
        return false;
    *token = skip_blanks(skip(authorization, scheme.length));
    return token->length > 0;
}

/* "127.0.0.1:8080" without its port; the brackets of an IPv6 address stay. */
static struct span without_port(struct span host)
{
    for (size_t at = host.length; at > 0; at--) {
        char byte = host.bytes[at - 1];
        if (byte == ':')
            return (struct span){host.bytes, at - 1};
        if (byte < '0' || byte > '9')
            break;
    }
    return host;
}

bool header_host_is_loopback(struct span host)
{
    if (host.bytes == NULL)
        return false;
    struct span name = without_port(host);
    char text[INET_ADDRSTRLEN];
    struct in_addr address;
    if (same_letters(name, SPAN("localhost")) || same_letters(name, SPAN("[::1]")))
        return true;
    if (name.length >= sizeof(text))
        return false;
    memcpy(text, name.bytes, name.length);
    text[name.length] = '\0';
    return inet_pton(AF_INET, text, &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

bool header_origin_is_host(struct span origin, struct span host)
{
    size_t start = scheme_length(origin);
    return start > 0 && host.bytes != NULL && same_letters(skip(origin, start), host);
}

bool header_is_own_page(struct span sec_fetch_site, struct span origin, struct span host)
{
    return sec_fetch_site.bytes != NULL ? span_equal(sec_fetch_site, SPAN("same-origin"))
                                        : header_origin_is_host(origin, host);
}
