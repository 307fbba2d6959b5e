/* metrics_page.c: one thread that makes the text, and the loops that wait for it. */
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "http/api/handlers.h"
#include "http/api/reply.h"

#define NANOSECONDS_PER_MS 1000000
/* What the first text is taken for until it is there: that of some hundred policies. */
#define FIRST_LENGTH ((size_t)64 * 1024)

/* Held by the page and by each loop that is sending it. */
struct metrics_text {
    int64_t begun_ns;
    unsigned holders; /* under the page's lock */
    struct buffer body;
};

struct metrics_page {
    struct api *api;
    pthread_t thread;
    bool is_running;
    pthread_mutex_t lock;
    pthread_cond_t wanted;
    struct metrics_text *text;    /* NULL: none yet, or no memory for it */
    int64_t failed_ns;            /* when there was none */
    int64_t wanted_ns;            /* somebody waits for one that was begun at this time or later */
    struct api_loop *loops_first; /* those that wait */
    bool stopping;
};

struct metrics_waiter {
    struct http_exchange *exchange;
    int64_t wanted_ns;
    struct metrics_waiter *next;
};

/* --- the text --- */

static void text_free(struct metrics_text *text)
{
    if (text != NULL) {
        buffer_release(&text->body);
        free(text);
    }
}

/* Under the lock; gives what has to be freed behind it. */
static struct metrics_text *text_let_go(struct metrics_text *text)
{
    return text != NULL && --text->holders == 0 ? text : NULL;
}

/* NULL: no memory. */
static struct metrics_text *text_make(struct metrics_page *page)
{
    struct metrics_text *text = calloc(1, sizeof(*text));
    if (text == NULL)
        return NULL;
    text->begun_ns = clock_monotonic_ns();
    text->holders = 1;
    buffer_init(&text->body, ANSWER_LENGTH_MAX);
    health_write_metrics(&text->body, page->api);
    return text;
}

/* Under the lock. */
static void post_task(struct api_loop *loop)
{
    if (!loop->metrics_posted)
        loop->metrics_posted = http_loop_post(loop->http, &loop->metrics_task);
}

/* Under the lock. One task of a loop is enough for all who wait there when it runs. */
static void wake_loops(struct metrics_page *page)
{
    while (page->loops_first != NULL) {
        struct api_loop *loop = page->loops_first;
        page->loops_first = loop->metrics_next;
        loop->metrics_waits = false;
        post_task(loop);
    }
}

static void *page_main(void *context)
{
    struct metrics_page *page = context;
    pthread_setname_np(pthread_self(), "metrics");
    pthread_mutex_lock(&page->lock);
    while (!page->stopping) {
        if (page->loops_first == NULL) {
            pthread_cond_wait(&page->wanted, &page->lock);
            continue;
        }
        struct metrics_text *before = NULL;
        if (page->text == NULL || page->text->begun_ns < page->wanted_ns) {
            pthread_mutex_unlock(&page->lock);
            struct metrics_text *made = text_make(page);
            pthread_mutex_lock(&page->lock);
            before = text_let_go(page->text);
            page->text = made;
            page->failed_ns = made == NULL ? clock_monotonic_ns() : 0;
        }
        wake_loops(page);
        text_free(before);
    }
    pthread_mutex_unlock(&page->lock);
    return NULL;
}

enum status metrics_page_open(struct metrics_page **page, struct api *api, struct error *error)
{
    struct metrics_page *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return error_set(error, STATUS_FAILED, "no memory for the API");
    opened->api = api;
    pthread_mutex_init(&opened->lock, NULL);
    pthread_cond_init(&opened->wanted, NULL);
    opened->is_running = pthread_create(&opened->thread, NULL, page_main, opened) == 0;
    *page = opened;
    return opened->is_running ? STATUS_OK
                              : error_set(error, STATUS_UNAVAILABLE, "cannot start a thread");
}

void metrics_page_stop(struct metrics_page *page)
{
    if (page == NULL || !page->is_running)
        return;
    pthread_mutex_lock(&page->lock);
    page->stopping = true;
    pthread_cond_signal(&page->wanted);
    pthread_mutex_unlock(&page->lock);
    pthread_join(page->thread, NULL);
    page->is_running = false;
}

void metrics_page_free(struct metrics_page *page)
{
    if (page == NULL)
        return;
    metrics_page_stop(page);
    text_free(page->text);
    pthread_cond_destroy(&page->wanted);
    pthread_mutex_destroy(&page->lock);
    free(page);
}

/* --- on a loop --- */

/* Under the lock. */
static void want(struct metrics_page *page, struct api_loop *loop, int64_t wanted_ns)
{
    if (wanted_ns > page->wanted_ns)
        page->wanted_ns = wanted_ns;
    if (!loop->metrics_waits) {
        loop->metrics_waits = true;
        loop->metrics_next = page->loops_first;
        page->loops_first = loop;
    }
    pthread_cond_signal(&page->wanted);
}

static void send_text(struct metrics_page *page, struct api_loop *loop,
                      struct http_exchange *exchange, struct metrics_text *text)
{
    if (text == NULL || text->body.overflowed) {
        reply_problem(loop, exchange, PROBLEM_UNAVAILABLE);
    } else {
        reply_begin(loop, exchange, 200, SPAN("text/plain; version=0.0.4; charset=utf-8"));
        http_answer_end(exchange, (struct span){text->body.bytes, text->body.length});
    }
    pthread_mutex_lock(&page->lock);
    struct metrics_text *last = text_let_go(text);
    pthread_mutex_unlock(&page->lock);
    text_free(last);
}

/* Answers with a text that was begun at that time or later. False: there is none, and the loop is
 * told when there is. */
static bool answer(struct metrics_page *page, struct api_loop *loop, struct http_exchange *exchange,
                   int64_t wanted_ns)
{
    pthread_mutex_lock(&page->lock);
    struct metrics_text *text = page->text;
    bool is_there = text != NULL ? text->begun_ns >= wanted_ns
                                 : page->failed_ns != 0 && page->failed_ns >= wanted_ns;
    size_t length = text != NULL ? text->body.length : FIRST_LENGTH;
    if (!is_there)
        want(page, loop, wanted_ns);
    else if (text != NULL)
        text->holders++;
    pthread_mutex_unlock(&page->lock);
    if (is_there) {
        send_text(page, loop, exchange, text);
    } else {
        /* As if it were unsent already: a connection does not ask for many at once. */
        http_exchange_expect(exchange, length);
    }
    return is_there;
}

/* There is a new text: whom it is too old for waits for the next one. It is long, so that each tick
 * answers only one of those who waited. */
static void run_task(struct http_task *task)
{
    struct api_loop *loop =
        (struct api_loop *)(void *)((char *)task - offsetof(struct api_loop, metrics_task));
    struct metrics_page *page = loop->api->metrics;
    pthread_mutex_lock(&page->lock);
    loop->metrics_posted = false;
    pthread_mutex_unlock(&page->lock);
    struct metrics_waiter **place = &loop->metrics_waiters;
    while (*place != NULL && !answer(page, loop, (*place)->exchange, (*place)->wanted_ns))
        place = &(*place)->next;
    struct metrics_waiter *answered = *place;
    if (answered == NULL)
        return;
    *place = answered->next;
    free(answered);
    pthread_mutex_lock(&page->lock);
    post_task(loop);
    pthread_mutex_unlock(&page->lock);
}

void metrics_page_send(struct metrics_page *page, struct api_loop *loop,
                       struct http_exchange *exchange, int64_t age_max_ms)
{
    int64_t wanted_ns = clock_monotonic_ns() - age_max_ms * NANOSECONDS_PER_MS;
    loop->metrics_task.run = run_task;
    struct metrics_waiter *waiter = calloc(1, sizeof(*waiter));
    if (waiter == NULL) {
        reply_problem(loop, exchange, PROBLEM_UNAVAILABLE);
        return;
    }
    if (answer(page, loop, exchange, wanted_ns)) {
        free(waiter);
        return;
    }
    *waiter = (struct metrics_waiter){
        .exchange = exchange, .wanted_ns = wanted_ns, .next = loop->metrics_waiters};
    loop->metrics_waiters = waiter;
}

void metrics_page_loop_close(struct metrics_page *page, struct api_loop *loop)
{
    pthread_mutex_lock(&page->lock);
    struct api_loop **place = &page->loops_first;
    while (*place != NULL && *place != loop)
        place = &(*place)->metrics_next;
    if (*place != NULL)
        *place = loop->metrics_next;
    loop->metrics_waits = false;
    pthread_mutex_unlock(&page->lock);
    while (loop->metrics_waiters != NULL) {
        struct metrics_waiter *next = loop->metrics_waiters->next;
        free(loop->metrics_waiters);
        loop->metrics_waiters = next;
    }
}
