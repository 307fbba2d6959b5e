/* loop.c: the ticks of one event loop: tasks, batches, writes, deadlines, and the graceful end. */
#include "http/loop.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How often deadlines are looked at, also while stopping. */
#define DEADLINE_SCAN_MS          250
#define DEADLINE_SCAN_STOPPING_MS 20
/* What a tick may take before connections with more than one request have to wait for the next, in
 * time and in bytes, which cost their time when they are written. */
#define TICK_SPENT_NS    INT64_C(1000000)
#define TICK_SPENT_BYTES ((size_t)256 * 1024)

static void loop_on_timer(uv_timer_t *timer);
static void loop_on_idle(uv_idle_t *idle);

/* --- the clock --- */

void http_loop_read_clocks(struct http_loop *loop)
{
    loop->in_tick = true;
    loop->answered_bytes = 0;
    loop->now_ns = clock_monotonic_ns();
    loop->now_ms = loop->now_ns / 1000000;
    loop->wall_ms = clock_wall_ms();
    int64_t second = loop->wall_ms / 1000;
    if (second != loop->date_s) {
        static const char name[] = "Date: ";
        size_t length = sizeof(name) - 1;
        memcpy(loop->date, name, length);
        clock_format_http_date(loop->wall_ms, loop->date + length);
        length += CLOCK_HTTP_DATE_SIZE - 1;
        memcpy(loop->date + length, "\r\n", 2);
        loop->date_length = length + 2;
        loop->date_s = second;
    }
}

int64_t http_loop_wall_ms(struct http_loop *loop)
{
    http_loop_begin_tick(loop);
    return loop->wall_ms;
}

/* --- connections --- */

static void loop_scan_every(struct http_loop *loop, uint64_t interval_ms)
{
    uv_timer_start(&loop->deadline_timer, loop_on_timer, interval_ms, interval_ms);
}

void http_loop_scan(struct http_loop *loop)
{
    if (!uv_is_active((uv_handle_t *)&loop->deadline_timer)) {
        loop_scan_every(loop, DEADLINE_SCAN_MS);
    }
}

bool http_loop_add(struct http_loop *loop, struct http_connection *connection)
{
    if (loop->connection_count == loop->connection_capacity) {
        uint32_t capacity = loop->connection_capacity > 0 ? loop->connection_capacity * 2 : 64;
        void *connections = realloc(loop->connections, capacity * sizeof(*loop->connections));
        if (connections == NULL) {
            return false;
        }
        loop->connections = connections;
        void *deadlines = realloc(loop->deadlines_ms, capacity * sizeof(*loop->deadlines_ms));
        if (deadlines == NULL) {
            return false;
        }
        loop->deadlines_ms = deadlines;
        loop->connection_capacity = capacity;
    }
    http_loop_scan(loop);
    connection->index = loop->connection_count++;
    loop->connections[connection->index] = connection;
    loop->deadlines_ms[connection->index] = INT64_MAX;
    http_count(&loop->counters.connections_open, 1);
    return true;
}

void http_loop_remove(struct http_loop *loop, struct http_connection *connection)
{
    uint32_t last = --loop->connection_count;
    uint32_t index = connection->index;
    loop->connections[index] = loop->connections[last];
    loop->connections[index]->index = index;
    loop->deadlines_ms[index] = loop->deadlines_ms[last];
    http_uncount(&loop->counters.connections_open);
    if (connection->over_cap) {
        loop->over_cap_count--;
    } else {
        http_server_discharge(loop->server, &connection->peer.any);
    }
}

/* --- tasks of other threads --- */

bool http_loop_post(struct http_loop *loop, struct http_task *task)
{
    task->next = NULL;
    pthread_mutex_lock(&loop->tasks_lock);
    bool open = !loop->tasks_closed;
    if (open) {
        bool first = loop->tasks_first == NULL;
        *loop->tasks_last = task;
        loop->tasks_last = &task->next;
        atomic_store(&loop->tasks_waiting, true);
        /* One wake-up is enough for all that come until the loop looks. It comes last: a loop that
         * is woken and does not see the task yet would go back to sleep on it. */
        if (first) {
            uv_async_send(&loop->wakeup);
        }
    }
    pthread_mutex_unlock(&loop->tasks_lock);
    return open;
}

static void loop_run_tasks(struct http_loop *loop)
{
    if (!atomic_load(&loop->tasks_waiting)) {
        return;
    }
    pthread_mutex_lock(&loop->tasks_lock);
    struct http_task *task = loop->tasks_first;
    loop->tasks_first = NULL;
    loop->tasks_last = &loop->tasks_first;
    atomic_store(&loop->tasks_waiting, false);
    pthread_mutex_unlock(&loop->tasks_lock);
    while (task != NULL) {
        struct http_task *next = task->next;
        task->run(task);
        task = next;
    }
}

/* --- ticks --- */

void http_loop_resume_later(struct http_loop *loop, struct http_connection *connection)
{
    if (!connection->resuming) {
        connection->resuming = true;
        connection->next_resumed = NULL;
        *loop->resumed_last = connection;
        loop->resumed_last = &connection->next_resumed;
        uv_idle_start(&loop->idle, loop_on_idle);
    }
}

static struct http_connection *loop_next_resumed(struct http_loop *loop)
{
    struct http_connection *connection = loop->resumed_first;
    loop->resumed_first = connection->next_resumed;
    if (loop->resumed_first == NULL) {
        loop->resumed_last = &loop->resumed_first;
    }
    connection->resuming = false;
    return connection;
}

bool http_loop_is_spent(const struct http_loop *loop)
{
    return loop->answered_bytes > TICK_SPENT_BYTES ||
           clock_monotonic_ns() - loop->now_ns > TICK_SPENT_NS;
}

/* One of them in any case; each once. */
static void loop_resume(struct http_loop *loop)
{
    if (loop->resumed_first == NULL) {
        return;
    }
    struct http_connection **end = loop->resumed_last;
    bool was_last;
    do {
        struct http_connection *connection = loop_next_resumed(loop);
        was_last = end == &connection->next_resumed;
        http_connection_resume(connection);
        http_connection_free_when_done(connection);
    } while (!was_last && !http_loop_is_spent(loop));
    if (loop->resumed_first == NULL) {
        uv_idle_stop(&loop->idle);
    }
}

/* The loop has ended. */
static void loop_forget_resumed(struct http_loop *loop)
{
    while (loop->resumed_first != NULL) {
        http_connection_free_when_done(loop_next_resumed(loop));
    }
}

static void loop_flush(struct http_loop *loop)
{
    while (loop->dirty_first != NULL) {
        struct http_connection *connection = loop->dirty_first;
        loop->dirty_first = connection->next_dirty;
        if (loop->dirty_first == NULL) {
            loop->dirty_last = &loop->dirty_first;
        }
        connection->dirty = false;
        http_connection_flush(connection);
        http_connection_free_when_done(connection);
    }
}

void http_loop_tell_gone(struct http_loop *loop, struct http_exchange *exchange)
{
    exchange->next = loop->gone_first;
    loop->gone_first = exchange;
}

static void loop_tell_gone(struct http_loop *loop)
{
    while (loop->gone_first != NULL) {
        struct http_exchange *exchange = loop->gone_first;
        loop->gone_first = exchange->next;
        if (exchange->on_gone != NULL) {
            exchange->on_gone(exchange->on_gone_context);
        }
        http_exchange_free(exchange);
    }
}

/* --- the end --- */

static void loop_close_listener(struct http_loop *loop)
{
    http_listener_stop(loop);
    loop->stop_phase = HTTP_STOP_LISTENER_CLOSED;
    loop->stop_deadline_ms = loop->now_ms + loop->options->stop_timeout_ms;
    loop_scan_every(loop, DEADLINE_SCAN_STOPPING_MS);
    for (uint32_t i = 0; i < loop->connection_count; i++) {
        http_connection_end_stream(loop->connections[i]);
    }
    /* The next tick has to come at once: it reads what clients sent before they could know. */
    uv_async_send(&loop->wakeup);
}

static void loop_check_stop(struct http_loop *loop)
{
    switch (loop->stop_phase) {
    case HTTP_STOP_NOT:
        if (http_server_stopping(loop->server)) {
            loop_close_listener(loop);
        }
        return;
    case HTTP_STOP_LISTENER_CLOSED:
        loop->stop_phase = HTTP_STOP_WINDING_UP;
        for (uint32_t i = 0; i < loop->connection_count; i++) {
            http_connection_wind_up(loop->connections[i]);
        }
        return;
    case HTTP_STOP_WINDING_UP: {
        bool late = loop->now_ms >= loop->stop_deadline_ms;
        if (late) {
            for (uint32_t i = 0; i < loop->connection_count; i++) {
                http_connection_close(loop->connections[i]);
            }
        }
        if (loop->connection_count == 0 && (late || loop->live_exchange_count == 0)) {
            loop->stop_phase = HTTP_STOP_ENDED;
            uv_stop(&loop->uv);
        }
        return;
    }
    case HTTP_STOP_ENDED:
        return;
    }
}

/* --- what libuv calls --- */

static void loop_on_check(uv_check_t *check)
{
    struct http_loop *loop = check->data;
    http_loop_begin_tick(loop);
    loop_run_tasks(loop);
    loop_resume(loop);
    loop->options->callbacks.on_tick(loop->context, loop->wall_ms);
    loop_flush(loop);
    loop_tell_gone(loop);
    loop_check_stop(loop);
    http_count(&loop->counters.ticks, 1);
    loop->in_tick = false;
}

/* Timers and closed handles come after the writes of one tick and before the wait of the next:
 * what they answered must not wait with it. */
static void loop_on_prepare(uv_prepare_t *prepare)
{
    struct http_loop *loop = prepare->data;
    if (loop->dirty_first != NULL || loop->gone_first != NULL) {
        http_loop_begin_tick(loop);
        loop_flush(loop);
        loop_tell_gone(loop);
        loop_flush(loop);
    }
    loop->in_tick = false;
}

static void loop_on_idle(uv_idle_t *idle)
{
    (void)idle; /* Active only so that the loop does not wait. */
}

static void loop_on_wakeup(uv_async_t *wakeup)
{
    (void)wakeup; /* The check of this tick does the work, behind the reads. */
}

static void loop_on_timer(uv_timer_t *timer)
{
    struct http_loop *loop = timer->data;
    http_loop_begin_tick(loop);
    http_listener_retry(loop);
    for (uint32_t i = 0; i < loop->connection_count; i++) {
        if (loop->deadlines_ms[i] <= loop->now_ms) {
            http_connection_expire(loop->connections[i], loop->now_ms);
        }
    }
    if (loop->connection_count == 0 && loop->accepting && loop->stop_phase == HTTP_STOP_NOT) {
        uv_timer_stop(timer);
    }
}

/* --- life --- */

enum status http_loop_init(struct http_loop *loop, struct http_server *server,
                           const struct http_options *options, unsigned index, int listen_fd,
                           struct error *error)
{
    int failed = uv_loop_init(&loop->uv);
    if (failed != 0) {
        return error_set(error, STATUS_FAILED, "event loop: %s", uv_strerror(failed));
    }
    loop->server = server;
    loop->options = options;
    loop->index = index;
    loop->listen_fd = listen_fd;
    loop->dirty_last = &loop->dirty_first;
    loop->resumed_last = &loop->resumed_first;
    loop->tasks_last = &loop->tasks_first;
    loop->date_s = -1;
    loop->uv.data = loop;
    pthread_mutex_init(&loop->tasks_lock, NULL);
    failed = uv_async_init(&loop->uv, &loop->wakeup, loop_on_wakeup);
    if (failed != 0) {
        pthread_mutex_destroy(&loop->tasks_lock);
        ensure(uv_loop_close(&loop->uv) == 0);
        return error_set(error, STATUS_FAILED, "event loop: %s", uv_strerror(failed));
    }
    uv_prepare_init(&loop->uv, &loop->prepare);
    uv_check_init(&loop->uv, &loop->check);
    uv_idle_init(&loop->uv, &loop->idle);
    uv_timer_init(&loop->uv, &loop->deadline_timer);
    loop->prepare.data = loop;
    loop->check.data = loop;
    loop->idle.data = loop;
    loop->deadline_timer.data = loop;
    loop->wakeup.data = loop;
    return STATUS_OK;
}

static void loop_close_handle(uv_handle_t *handle, void *unused)
{
    (void)unused;
    if (!uv_is_closing(handle)) {
        uv_close(handle, NULL);
    }
}

/* From here on nobody can reach the loop any more. */
static void loop_shut(struct http_loop *loop)
{
    pthread_mutex_lock(&loop->tasks_lock);
    bool shut = loop->tasks_closed;
    loop->tasks_closed = true;
    pthread_mutex_unlock(&loop->tasks_lock);
    if (shut) {
        return;
    }
    if (loop->listen_fd >= 0) {
        close(loop->listen_fd);
        loop->listen_fd = -1;
    }
    uv_walk(&loop->uv, loop_close_handle, NULL);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    ensure(uv_loop_close(&loop->uv) == 0);
}

enum status http_loop_run(struct http_loop *loop, struct error *error)
{
    const struct http_callbacks *callbacks = &loop->options->callbacks;
    http_loop_read_clocks(loop);
    enum status status = callbacks->loop_open(loop->options->server_context, loop, loop->index,
                                              &loop->context, error);
    if (status == STATUS_OK) {
        loop->rules =
            (struct http_parser_rules){.body_max = callbacks->body_max, .context = loop->context};
        uv_prepare_start(&loop->prepare, loop_on_prepare);
        uv_check_start(&loop->check, loop_on_check);
        http_listener_start(loop);
        uv_run(&loop->uv, UV_RUN_DEFAULT);
        loop_run_tasks(loop);
        loop_tell_gone(loop);
        callbacks->loop_close(loop->context);
    }
    loop_forget_resumed(loop);
    loop_shut(loop);
    http_loop_abandon_exchanges(loop);
    return status;
}

void http_loop_release(struct http_loop *loop)
{
    loop_shut(loop);
    http_loop_free_spares(loop);
    free(loop->connections);
    free(loop->deadlines_ms);
    pthread_mutex_destroy(&loop->tasks_lock);
}

void http_loop_wake(struct http_loop *loop)
{
    pthread_mutex_lock(&loop->tasks_lock);
    if (!loop->tasks_closed) {
        uv_async_send(&loop->wakeup);
    }
    pthread_mutex_unlock(&loop->tasks_lock);
}

uv_loop_t *http_loop_uv(struct http_loop *loop)
{
    return &loop->uv;
}
