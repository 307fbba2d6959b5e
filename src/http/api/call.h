/* call.h: a request that blocks: it goes to a pool thread and comes back to its loop.
 *
 * A handler embeds `struct call` as the first member of its own struct, fills in what was asked
 * and submits it. `work` runs on the pool thread, asks the service and writes the whole answer into
 * the call (so that long lists are rendered off the loop); `answer` then sends it on the loop.
 *
 * Threads: before call_submit() and from `answer` on, the loop's; in `work`, the pool thread's. A
 * loop that closes first leaves the call to the pool thread, which frees it.
 */
#pragma once

#include <stddef.h>

#include "claim/service.h"
#include "http/api/ask.h"
#include "http/api/problem.h"
#include "http/server/header.h"

/* Room for "/v1/policies/…/claims/" and an id with all of its bytes escaped. */
#define CALL_LOCATION_SIZE (64 + 3 * ID_LENGTH_MAX)

struct call {
    struct pool_task task;
    struct http_task posted;
    struct api_loop *loop;
    struct http_exchange *exchange;
    void (*work)(struct call *call, struct service *service);
    void (*answer)(struct call *call);
    void (*abandon)(struct call *call); /* NULL, or: the loop closes before it came back */
    char request_id[REQUEST_ID_MAX];    /* for logs */
    size_t request_id_length;
    const char *token;     /* for logs: what the caller may do rests on this */
    struct address client; /* for logs */

    /* What the path and the query said, as in struct ask. */
    int64_t policy_id;
    struct id id;
    struct page page;

    /* The answer, written by `work`. */
    int status;
    bool is_problem;
    enum problem problem;
    struct buffer body;
    char location[CALL_LOCATION_SIZE]; /* "": none */

    struct call *together; /* handed over and given back along with this one */

    /* The loop's list of calls that are out. */
    struct call *next;
    struct call **place;
    bool came_back; /* guarded by the loop's lock */
};

/* A zeroed call of `size` bytes whose first member is a struct call, or NULL after answering 503.
 * `answer` is call_answer() unless the handler has its own. */
typedef void call_work(struct call *call, struct service *service);
void *call_new(const struct ask *ask, size_t size, call_work *work);
void call_free(struct call *call);

/* Hands it to a pool thread. False when too many wait: then it is still the caller's. */
bool call_submit(struct call *call);

/* The same, and answers 503 and frees it when no pool thread takes it. */
void call_submit_or_refuse(struct call *call);

/* A call of which nothing more has to be said, handed to a pool thread. */
void call_start(const struct ask *ask, call_work *work);

/* The same with more to say: the members of a struct that begins with a struct call. */
#define call_start_with(ask, work, type, ...) \
    call_start_copy(ask, work, &(type){__VA_ARGS__}.call, sizeof(type))
void call_start_copy(const struct ask *ask, call_work *work, const struct call *like, size_t size);

/* For short reads that many ask for at once: keeps it until the end of the tick, when those that
 * were kept go to one pool thread and come back together; one at a time, each waits longer for the
 * locks between loop and pool threads than for its answer. Where reading asks another process it is
 * handed over at once, so that nobody waits behind somebody else's answer; and so is an operator's,
 * which does not wait where others do. */
void call_gather(struct call *call);

/* At the end of a tick. Whom no pool thread takes is answered 503. */
void call_hand_over(struct api_loop *loop);

/* Sends what `work` wrote and frees the call. */
void call_answer(struct call *call);

/* Before the first call of a loop. */
void call_loop_init(struct api_loop *loop);

/* When a loop closes: tells `abandon`, frees what came back and lets the pool threads free the
 * rest. */
void call_abandon_all(struct api_loop *loop);

/* --- for `work` --- */

/* An emptied body to render JSON into, to be sent with `status`. */
struct buffer *call_json(struct call *call, int status);

/* Makes what was written into the body the answer's Location, and empties the body. */
void call_move_location(struct call *call, struct buffer *body);

/* A problem with its own detail; `field` may be NULL. */
void call_problem(struct call *call, enum problem problem, const char *detail, const char *field);

/* True when the service did it; else the answer is what a failed operation becomes, `missing` for
 * NOT_FOUND. */
bool call_is_done(struct call *call, enum status status, const struct error *error,
                  enum problem missing);

/* A list that is read page by page: {"items":[…],"next":CURSOR or null}. */
struct call_rows {
    size_t row_size;
    char cursor_kind;
    /* Up to `max` rows behind the place where the page begins. */
    enum status (*read)(const struct call *call, struct service *service, void *rows, size_t max,
                        size_t *count, struct error *error);
    void (*render)(struct buffer *out, const struct service *service, const void *row);
    /* Where the page behind this row begins. */
    void (*place)(const void *row, int64_t *first, int64_t *second);
};
void call_list(struct call *call, struct service *service, const struct call_rows *list);

/* Logs a change at info, with the request's id and who made it. */
#define call_log(call, event, ...)                                              \
    do {                                                                        \
        char call_address_[ADDRESS_TEXT_SIZE];                                  \
        struct span call_id_ = {(call)->request_id, (call)->request_id_length}; \
        address_format(&(call)->client, call_address_);                         \
        log_event(LOG_INFO, event, LOG_FIELD("request_id", LOG_SPAN(call_id_)), \
                  LOG_FIELD("address", LOG_TEXT(call_address_)),                \
                  LOG_FIELD("token", LOG_TEXT((call)->token)), __VA_ARGS__);    \
    } while (0)

/* --- what operators did, kept in the ledger --- */

/* Keeps it for GET /v1/actions: after the change, which it does not undo when it cannot be kept.
 * `was` and `became` are JSON; NULL: nothing to tell. */
void action_note(const struct call *call, struct service *service, const char *what,
                 const char *target, const struct buffer *was, const struct buffer *became);

/* Of a policy what operators change. */
void action_write_policy(struct buffer *out, const struct policy *policy);
