/* ask.h: one request on its way through a handler, and the checks that handlers share.
 *
 * Each check answers the problem itself when it fails; the handler then only returns.
 *
 * Threads: the exchange's loop, during the handler's call.
 */
#ifndef HTTP_ASK_H
#define HTTP_ASK_H

#include <stdbool.h>

#include "base/json.h"
#include "http/context.h"
#include "http/query.h"
#include "http/router.h"
#include "http/server.h"

struct ask {
    struct api_loop *loop;
    struct http_exchange *exchange;
    const struct http_request *request;
    struct route_match match;
    struct caller caller; /* filled by ask_identify() */
};

/* 400 about a field. */
void ask_refuse(struct ask *ask, const char *detail, const char *field);

/* The path's parameters. */
bool ask_policy_id(struct ask *ask, size_t param, int64_t *policy_id);
bool ask_user(struct ask *ask, size_t param, struct user_id *user);

/* The id of something else in the path, whose `name` the refusal gives: "order_id". */
bool ask_id(struct ask *ask, size_t param, const char *name, struct user_id *id);

/* Where it comes from, past trusted proxies. */
struct address ask_address(const struct ask *ask);

/* Who calls, which also decides in which queue for the clerks they wait: a handler that does not
 * ask leaves them among the strangers. False only after answering 429 to someone who guesses
 * tokens. */
bool ask_identify(struct ask *ask);
/* Whether the caller is an admin, for what is answered to all and says more to admins. */
bool ask_is_admin(struct ask *ask);
/* 401 unless the caller is an admin; identifies first. */
bool ask_admin(struct ask *ask);
/* 401 unless the caller may see this user's claims; identifies first. */
bool ask_may_see(struct ask *ask, const struct user_id *user);

/* No query at all, or only these parameters. */
bool ask_no_query(struct ask *ask);
bool ask_query(struct ask *ask, struct query_param *params, size_t count);
/* ?limit= and ?after=, with a cursor of this kind. */
struct page {
    size_t limit;
    int64_t after_first;
    int64_t after_second;
};
#define PAGE_LIMIT_DEFAULT 100
#define PAGE_LIMIT_MAX     1000
#define PAGE_ITEM_BYTES    512 /* what one item may have as JSON, about */
bool ask_page(struct ask *ask, char cursor_kind, struct page *page);
/* And one more parameter, which may be there. */
bool ask_page_with(struct ask *ask, char cursor_kind, struct page *page, struct query_param *extra);

/* The JSON body. ASK_BODY_OPTIONAL also takes no body at all, of whatever type. */
enum ask_body { ASK_BODY_REQUIRED, ASK_BODY_OPTIONAL };
bool ask_body(struct ask *ask, enum ask_body presence, const struct json_field *fields,
              size_t field_count);

#endif
