/* ask.h: one request on its way through a handler, and the checks that handlers share.
 *
 * A parameter of the query that the call does not know, or that comes twice, is refused: a mistyped
 * name would otherwise be a silent default.
 *
 * Each check answers the problem itself when it fails; the handler then only returns.
 *
 * Threads: the exchange's loop, during the handler's call.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/json.h"
#include "http/api/context.h"
#include "http/api/router.h"
#include "http/server/server.h"

/* --- the query, and the cursors that page through lists --- */

#define QUERY_VALUE_SIZE 96
#define QUERY_NAME_SIZE  64 /* what an offender's name is cut to, with its NUL */

struct query_param {
    const char *name;
    bool present;
    size_t length;
    char value[QUERY_VALUE_SIZE]; /* decoded; longer ones are refused */
};

/* Fills the parameters that are there. STATUS_INVALID with words; `field` gets the name. */
enum status query_read(struct span query, struct query_param *params, size_t count,
                       char field[QUERY_NAME_SIZE], struct error *error) MUST_CHECK;

/* A whole number in minimum ... maximum; `fallback` when it is absent. */
enum status query_integer(const struct query_param *param, int64_t minimum, int64_t maximum,
                          int64_t fallback, int64_t *number, struct error *error) MUST_CHECK;

/* A cursor is opaque to clients: base64url of a kind and one or two numbers. */
#define CURSOR_SIZE 64
void cursor_write(char text[CURSOR_SIZE], char kind, int64_t first, int64_t second);
/* False unless it is a cursor of this kind, as cursor_write() made it. */
bool cursor_read(struct span text, char kind, int64_t *first, int64_t *second);

/* --- one request --- */

/* ?limit= and ?after=. */
struct page {
    size_t limit;
    int64_t after_first;
    int64_t after_second;
};
#define PAGE_LIMIT_DEFAULT 100
#define PAGE_LIMIT_MAX     1000
#define PAGE_ITEM_BYTES    512 /* what one item may have as JSON, about */

struct ask {
    struct api_loop *loop;
    struct http_exchange *exchange;
    const struct http_request *request;
    struct route_match match;
    const struct route *route; /* NULL: the path does not take the method */
    struct caller caller;      /* filled by ask_identify() */

    /* From the path, where its pattern has them. */
    int64_t policy_id;
    struct id id; /* {user}, {order} or {product} */

    struct page page; /* filled by ask_page() */
};

/* What the route's row says: who may call, the path's parameters, no query. */
bool ask_keeps_rules(struct ask *ask);

/* 400 about a field. */
void ask_refuse(struct ask *ask, const char *detail, const char *field);

/* Where it comes from, past trusted proxies. */
struct address ask_address(const struct ask *ask);

/* Who calls, which also decides in which queue for the pool threads they wait: a handler that does
 * not ask leaves them among the strangers. False only after answering 429 to someone who guesses
 * tokens. */
bool ask_identify(struct ask *ask);
/* Whether the caller is at least a viewer, for what is answered to all and says more to admins. */
bool ask_is_admin(struct ask *ask);
/* 401 unless the caller has that role, or a higher one; identifies first. */
bool ask_role(struct ask *ask, enum access_role role);
/* 401 unless the caller may see this user's claims; identifies first. */
bool ask_may_see(struct ask *ask, const struct id *user);

/* Only these parameters in the query, or none at all. */
bool ask_query(struct ask *ask, struct query_param *params, size_t count);
bool ask_no_query(struct ask *ask);
/* A parameter that is a number from `minimum` to `maximum`; `fallback` where it is not there. */
bool ask_number(struct ask *ask, const struct query_param *param, int64_t minimum, int64_t maximum,
                int64_t fallback, int64_t *number);
/* ?limit= and ?after=, with a cursor of this kind, into ask->page; and one more parameter, unless
 * it is NULL, which may be there. */
bool ask_page(struct ask *ask, char cursor_kind, struct query_param *extra);

/* The JSON body. ASK_BODY_OPTIONAL also takes no body at all, of whatever type. */
enum ask_body { ASK_BODY_REQUIRED, ASK_BODY_OPTIONAL };
bool ask_body(struct ask *ask, enum ask_body presence, const struct json_field *fields,
              size_t field_count);
/* The same in two steps, where fields have rules beside those of their table: ask_body_read() is
 * false only for what is no JSON object, ask_note() notes one more mistake, and ask_is_right() is
 * false after answering 400 with all of them. */
bool ask_body_read(struct ask *ask, enum ask_body presence, const struct json_field *fields,
                   size_t field_count);
void ask_note(struct ask *ask, const char *field, const char *message);
bool ask_has_mistakes(const struct ask *ask);
bool ask_is_right(struct ask *ask);

/* --- guessing codes and tokens ---
 *
 * One limiter for both: so many wrong ones per address, and so many in all. Who has used them up
 * gets 429, and the connection is closed. A right token always counts, whoever else has guessed
 * from the same address. A code is much shorter, so nobody's code is looked at where an address has
 * used up its tries, nor, once those of all are used up, where it has made any of them lately.
 *
 * Every wrong one is counted and, as far as it was allowed, logged; that some are not is an alarm,
 * once a minute.
 */

enum status guesses_init(struct guesses *guesses, struct error *error) MUST_CHECK;
void guesses_release(struct guesses *guesses);

/* A code was sent: whether what came of it may be told. False after answering 429. */
bool guess_may_try_code(struct ask *ask);

/* A code or a token was wrong. False after answering 429; true: it is for the caller to refuse. */
bool guess_was_wrong(const struct ask *ask, enum guess_kind kind);

/* The same where whoever asks is answered in any case: counts it, and answers nothing. */
void guess_note_wrong(const struct ask *ask, enum guess_kind kind);
