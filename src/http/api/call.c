/* call.c: to a pool thread and back. */
#include "http/api/call.h"

#include <stdlib.h>

#include "base/log.h"
#include "http/api/ask.h"
#include "http/api/reply.h"

/* Enough that a pool thread's coming and going does not count, few enough that the last is not
 * late. */
#define TOGETHER_MAX 64

static struct call *call_of_posted(struct http_task *task)
{
    return (struct call *)(void *)((char *)task - offsetof(struct call, posted));
}

void *call_new(const struct ask *ask, size_t size, call_work *work)
{
    struct api_loop *loop = ask->loop;
    struct http_exchange *exchange = ask->exchange;
    struct call *call = calloc(1, size);
    if (call == NULL) {
        reply_problem(loop, exchange, PROBLEM_UNAVAILABLE);
        return NULL;
    }
    struct span request_id = reply_request_id(exchange);
    call->loop = loop;
    call->exchange = exchange;
    call->work = work;
    call->answer = call_answer;
    call->request_id_length = request_id.length;
    memcpy(call->request_id, request_id.bytes, request_id.length);
    const struct http_exchange_notes *notes = http_exchange_notes(exchange);
    call->token = notes->token != NULL ? notes->token : "none";
    call->client = notes->token != NULL ? notes->client : *http_exchange_peer(exchange);
    call->task.queue = (enum pool_queue)notes->queue;
    call->policy_id = ask->policy_id;
    call->id = ask->id;
    call->page = ask->page;
    buffer_init(&call->body, ANSWER_LENGTH_MAX);
    return call;
}

void call_free(struct call *call)
{
    buffer_release(&call->body);
    free(call);
}

static void list_add(struct call *call)
{
    call->next = call->loop->calls;
    call->place = &call->loop->calls;
    if (call->next != NULL)
        call->next->place = &call->next;
    call->loop->calls = call;
}

static void list_remove(struct call *call)
{
    *call->place = call->next;
    if (call->next != NULL)
        call->next->place = call->place;
}

/* The loop's lock is held. */
static void list_add_together(struct call *first)
{
    for (struct call *call = first; call != NULL; call = call->together) {
        call->came_back = false;
        list_add(call);
    }
}

static void list_remove_together(struct call *first)
{
    for (struct call *call = first; call != NULL; call = call->together)
        list_remove(call);
}

static void come_back(struct http_task *task)
{
    struct call *first = call_of_posted(task);
    pthread_mutex_lock(&first->loop->lock);
    list_remove_together(first);
    pthread_mutex_unlock(&first->loop->lock);
    struct call *next;
    for (struct call *call = first; call != NULL; call = next) {
        next = call->together;
        call->together = NULL;
        call->answer(call);
    }
}

static void free_together(struct call *first)
{
    struct call *next;
    for (struct call *call = first; call != NULL; call = next) {
        next = call->together;
        call_free(call);
    }
}

/* On a pool thread. */
static void work_and_post(struct pool_task *task, struct service *service)
{
    struct call *first = (struct call *)(void *)task;
    struct api_loop *loop = first->loop;
    for (struct call *call = first; call != NULL; call = call->together)
        call->work(call, service);
    pthread_mutex_lock(&loop->lock);
    bool orphaned = loop->closed;
    if (!orphaned) {
        /* A loop that takes no more tasks is about to close, and frees what came back. */
        for (struct call *call = first; call != NULL; call = call->together)
            call->came_back = true;
        (void)http_loop_post(loop->http, &first->posted);
    }
    pthread_mutex_unlock(&loop->lock);
    if (orphaned)
        free_together(first);
}

bool call_submit(struct call *call)
{
    struct api_loop *loop = call->loop;
    call->task.work = work_and_post;
    call->posted.run = come_back;
    pthread_mutex_lock(&loop->lock);
    list_add_together(call);
    pthread_mutex_unlock(&loop->lock);
    if (service_submit(loop->api->service, &call->task))
        return true;
    pthread_mutex_lock(&loop->lock);
    list_remove_together(call);
    pthread_mutex_unlock(&loop->lock);
    return false;
}

static void refuse(struct call *call)
{
    reply_problem(call->loop, call->exchange, PROBLEM_UNAVAILABLE);
    call_free(call);
}

void call_submit_or_refuse(struct call *call)
{
    if (!call_submit(call))
        refuse(call);
}

void call_start(const struct ask *ask, call_work *work)
{
    call_start_copy(ask, work, NULL, sizeof(struct call));
}

void call_start_copy(const struct ask *ask, call_work *work, const struct call *like, size_t size)
{
    struct call *call = call_new(ask, size, work);
    if (call == NULL)
        return;
    if (like != NULL)
        memcpy(call + 1, like + 1, size - sizeof(*call));
    call_submit_or_refuse(call);
}

static void gathered_clear(struct api_loop *loop)
{
    loop->gathered = NULL;
    loop->gathered_end = &loop->gathered;
    loop->gathered_count = 0;
}

void call_loop_init(struct api_loop *loop)
{
    loop->gathers = service_reads_at_home(loop->api->service);
    gathered_clear(loop);
}

void call_gather(struct call *call)
{
    struct api_loop *loop = call->loop;
    if (!loop->gathers || call->task.queue != POOL_KNOWN) {
        call_submit_or_refuse(call);
        return;
    }
    *loop->gathered_end = call;
    loop->gathered_end = &call->together;
    if (++loop->gathered_count == TOGETHER_MAX)
        call_hand_over(loop);
}

void call_hand_over(struct api_loop *loop)
{
    struct call *first = loop->gathered;
    gathered_clear(loop);
    if (first == NULL || call_submit(first))
        return;
    struct call *next;
    for (struct call *call = first; call != NULL; call = next) {
        next = call->together;
        refuse(call);
    }
}

void call_answer(struct call *call)
{
    struct api_loop *loop = call->loop;
    struct span body = {call->body.bytes, call->body.length};
    if (call->body.overflowed) {
        reply_problem(loop, call->exchange, PROBLEM_UNAVAILABLE);
    } else if (call->is_problem) {
        reply_problem_body(loop, call->exchange, call->problem, body);
    } else {
        reply_begin(loop, call->exchange, call->status, JSON_CONTENT_TYPE);
        if (call->location[0] != '\0')
            http_answer_header(call->exchange, SPAN("Location"), span_of(call->location));
        http_answer_end(call->exchange, body);
    }
    call_free(call);
}

void call_abandon_all(struct api_loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    loop->closed = true;
    struct call *next;
    for (struct call *call = loop->calls; call != NULL; call = next) {
        next = call->next;
        if (call->abandon != NULL)
            call->abandon(call);
        if (call->came_back)
            call_free(call);
    }
    loop->calls = NULL;
    pthread_mutex_unlock(&loop->lock);
    free_together(loop->gathered);
    gathered_clear(loop);
}

struct buffer *call_json(struct call *call, int status)
{
    call->is_problem = false;
    call->status = status;
    buffer_clear(&call->body);
    return &call->body;
}

void call_move_location(struct call *call, struct buffer *body)
{
    if (!body->overflowed && body->length < sizeof(call->location))
        memcpy(call->location, body->bytes, body->length + 1);
    buffer_clear(body);
}

void call_problem(struct call *call, enum problem problem, const char *detail, const char *field)
{
    call->is_problem = true;
    call->problem = problem;
    buffer_clear(&call->body);
    problem_begin(&call->body, problem, span_of(detail));
    if (field != NULL && field[0] != '\0')
        json_put(&call->body, "field", field);
    buffer_append_literal(&call->body, "}");
}

bool call_is_done(struct call *call, enum status status, const struct error *error,
                  enum problem missing)
{
    switch (status) {
    case STATUS_OK:
        return true;
    case STATUS_INVALID:
        call_problem(call, PROBLEM_INVALID_REQUEST, error->text, NULL);
        return false;
    case STATUS_CONFLICT:
        call_problem(call, PROBLEM_CONFLICT, error->text, NULL);
        return false;
    case STATUS_NOT_FOUND:
        break;
    default:
        /* The words are the operator's; the client only learns that asking again is right. */
        log_event(LOG_WARN, "request_failed",
                  LOG_FIELD("request_id",
                            LOG_SPAN(((struct span){call->request_id, call->request_id_length}))),
                  LOG_FIELD("status", LOG_TEXT(status_name(status))),
                  LOG_FIELD("error", LOG_TEXT(error->text)));
        missing = PROBLEM_UNAVAILABLE;
    }
    call->is_problem = true;
    call->problem = missing;
    buffer_clear(&call->body);
    buffer_append_span(&call->body, problem_body(missing));
    return false;
}

static void call_render_list(struct call *call, struct service *service, const char *rows,
                             size_t count, const struct call_rows *list)
{
    char cursor[CURSOR_SIZE];
    size_t shown = count < call->page.limit ? count : call->page.limit;
    struct buffer *out = call_json(call, 200);
    buffer_append_literal(out, "{\"items\":[");
    for (size_t index = 0; index < shown; index++)
        list->render(out, service, rows + index * list->row_size);
    buffer_append_literal(out, "]");
    if (count > shown) {
        int64_t first = 0;
        int64_t second = 0;
        list->place(rows + (shown - 1) * list->row_size, &first, &second);
        cursor_write(cursor, list->cursor_kind, first, second);
    }
    json_put(out, "next", count > shown ? cursor : NULL);
    buffer_append_literal(out, "}");
}

void call_list(struct call *call, struct service *service, const struct call_rows *list)
{
    /* One more than asked for says whether there is a next page. */
    size_t max = call->page.limit + 1;
    struct error error = {.text = "out of memory"};
    void *rows = malloc(max * list->row_size);
    size_t count = 0;
    enum status status = STATUS_UNAVAILABLE;
    if (rows != NULL)
        status = list->read(call, service, rows, max, &count, &error);
    if (call_is_done(call, status, &error,
                     call->policy_id != 0 ? PROBLEM_POLICY_NOT_FOUND : PROBLEM_NOT_FOUND))
        call_render_list(call, service, rows, count, list);
    free(rows);
}
