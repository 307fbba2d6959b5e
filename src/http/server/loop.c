/* loop.c: the ticks of one event loop: tasks, batches, writes, deadlines, and the graceful end. */
#include "http/server/loop.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How often deadlines are looked at, also while stopping. */
#define DEADLINE_SCAN_MS          250
#define DEADLINE_SCAN_STOPPING_MS 20
/* What a tick may take before connections with more than one request have to wait for the next;
 * what it will cost to write the answers counts by their bytes. */
#define TICK_SPENT_NS     INT64_C(125000)
#define WRITE_NS_PER_BYTE 2
/* After a tick that was spent they wait nine times as long as it took, but for this at most. */
#define TICK_PAUSES    9
#define TICK_PAUSE_MAX INT64_C(20000000)
/* How many bytes of large answers are paid for by a second, and how many may be owed. */
#define LARGE_PER_SECOND INT64_C(64000000)
#define LARGE_OWED_MAX   INT64_C(64000)
#define PACE_MS          1

static void loop_on_timer(uv_timer_t *timer);
static void loop_on_idle(uv_idle_t *idle);
static void loop_on_pace(uv_timer_t *timer);

/* --- the clock --- */

void http_loop_read_clocks(struct http_loop *loop)
{
    loop->in_tick = true;
    loop->answered_bytes = 0;
    int64_t before_ns = loop->now_ns;
    loop->now_ns = clock_monotonic_ns();
    if (loop->large_bytes > 0)
        loop->large_bytes -= (loop->now_ns - before_ns) / 1000 * LARGE_PER_SECOND / 1000000;
    loop->now_ms = loop->now_ns / 1000000;
    loop->wall_ms = clock_wall_ms();
    int64_t second = loop->wall_ms / 1000;
    if (second != loop->date_s) {
        memcpy(loop->date, "Date: ", 6);
        clock_format_http_date(loop->wall_ms, loop->date + 6);
        memcpy(loop->date + HTTP_DATE_LENGTH - 2, "\r\n", 2);
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
    if (!uv_is_active((uv_handle_t *)&loop->deadline_timer))
        loop_scan_every(loop, DEADLINE_SCAN_MS);
}

/* --- tasks of other threads --- */

bool http_loop_post(struct http_loop *loop, struct http_task *task)
{
    pthread_mutex_lock(&loop->tasks_lock);
    bool open = !loop->tasks_closed;
    if (open) {
        bool first = STAILQ_EMPTY(&loop->tasks);
        STAILQ_INSERT_TAIL(&loop->tasks, task, link);
        atomic_store(&loop->tasks_waiting, true);
        /* One wake-up is enough for all that come until the loop looks. It comes last: a loop that
         * is woken and does not see the task yet would go back to sleep on it. */
        if (first)
            uv_async_send(&loop->wakeup);
    }
    pthread_mutex_unlock(&loop->tasks_lock);
    return open;
}

static void loop_run_tasks(struct http_loop *loop)
{
    if (!atomic_load(&loop->tasks_waiting))
        return;
    struct http_tasks tasks = STAILQ_HEAD_INITIALIZER(tasks);
    pthread_mutex_lock(&loop->tasks_lock);
    STAILQ_CONCAT(&tasks, &loop->tasks);
    atomic_store(&loop->tasks_waiting, false);
    pthread_mutex_unlock(&loop->tasks_lock);
    while (!STAILQ_EMPTY(&tasks)) {
        struct http_task *task = STAILQ_FIRST(&tasks);
        STAILQ_REMOVE_HEAD(&tasks, link);
        task->run(task);
    }
}

/* --- ticks --- */

void http_loop_resume_later(struct http_loop *loop, struct http_connection *connection)
{
    if (!connection->resuming) {
        connection->resuming = true;
        STAILQ_INSERT_TAIL(&loop->resumed, connection, resumed_link);
        uv_idle_start(&loop->idle, loop_on_idle);
    }
}

static void loop_start_pace(struct http_loop *loop)
{
    if (!uv_is_active((uv_handle_t *)&loop->pace_timer))
        uv_timer_start(&loop->pace_timer, loop_on_pace, PACE_MS, 0);
}

void http_loop_queue(struct http_loop *loop, struct http_connection *connection)
{
    connection->queued = true;
    STAILQ_INSERT_TAIL(&loop->queued, connection, queued_link);
}

static struct http_connection *loop_next_resumed(struct http_connections *resumed)
{
    struct http_connection *connection = STAILQ_FIRST(resumed);
    STAILQ_REMOVE_HEAD(resumed, resumed_link);
    connection->resuming = false;
    return connection;
}

bool http_loop_is_spent(struct http_loop *loop)
{
    int64_t writes_ns = (int64_t)loop->answered_bytes * WRITE_NS_PER_BYTE;
    loop->is_spent = loop->is_spent || loop->now_ns < loop->spent_until_ns ||
                     clock_monotonic_ns() - loop->now_ns + writes_ns > TICK_SPENT_NS;
    return loop->is_spent;
}

static void loop_end_tick(struct http_loop *loop)
{
    if (loop->is_spent && loop->now_ns >= loop->spent_until_ns) {
        int64_t now_ns = clock_monotonic_ns();
        int64_t pause_ns = TICK_PAUSES * (now_ns - loop->now_ns);
        loop->spent_until_ns = now_ns + (pause_ns < TICK_PAUSE_MAX ? pause_ns : TICK_PAUSE_MAX);
    }
    loop->is_spent = false;
    loop->in_tick = false;
}

/* Each once, and one of them in any case; those who find the time spent wait for the timer. */
static void loop_resume(struct http_loop *loop)
{
    struct http_connections waiting = STAILQ_HEAD_INITIALIZER(waiting);
    STAILQ_CONCAT(&waiting, &loop->resumed);
    bool must_wait = loop->now_ns < loop->spent_until_ns;
    while (!STAILQ_EMPTY(&waiting) && !must_wait) {
        struct http_connection *connection = loop_next_resumed(&waiting);
        http_connection_resume(connection);
        http_connection_free_when_done(connection);
        must_wait = http_loop_is_spent(loop);
    }
    bool are_left = !STAILQ_EMPTY(&waiting);
    /* Those that came meanwhile queue up behind them. */
    STAILQ_CONCAT(&waiting, &loop->resumed);
    STAILQ_CONCAT(&loop->resumed, &waiting);
    if (are_left)
        loop_start_pace(loop);
    if (are_left || STAILQ_EMPTY(&loop->resumed))
        uv_idle_stop(&loop->idle);
}

static struct http_connection *loop_next_queued(struct http_loop *loop)
{
    struct http_connection *connection = STAILQ_FIRST(&loop->queued);
    STAILQ_REMOVE_HEAD(&loop->queued, queued_link);
    connection->queued = false;
    return connection;
}

/* The loop has ended. */
static void loop_forget_resumed(struct http_loop *loop)
{
    while (!STAILQ_EMPTY(&loop->resumed))
        http_connection_free_when_done(loop_next_resumed(&loop->resumed));
    while (!STAILQ_EMPTY(&loop->queued))
        http_connection_free_when_done(loop_next_queued(loop));
}

/* False when there is nothing more to write for now. */
static bool loop_flush_next(struct http_loop *loop)
{
    struct http_connection *connection;
    if (!STAILQ_EMPTY(&loop->dirty)) {
        connection = STAILQ_FIRST(&loop->dirty);
        STAILQ_REMOVE_HEAD(&loop->dirty, dirty_link);
        connection->dirty = false;
        http_connection_flush(connection);
    } else if (!STAILQ_EMPTY(&loop->queued) && loop->large_bytes <= LARGE_OWED_MAX) {
        connection = loop_next_queued(loop);
        int64_t bytes = (int64_t)http_connection_write_piece(connection);
        loop->large_bytes = (loop->large_bytes > 0 ? loop->large_bytes : 0) + bytes;
    } else {
        return false;
    }
    http_connection_free_when_done(connection);
    return true;
}

static void loop_flush(struct http_loop *loop)
{
    while (loop_flush_next(loop)) {
    }
    if (!STAILQ_EMPTY(&loop->queued))
        loop_start_pace(loop);
}

static void loop_tell_gone(struct http_loop *loop)
{
    while (loop->gone_first != NULL) {
        struct http_exchange *exchange = loop->gone_first;
        loop->gone_first = exchange->next;
        if (exchange->on_gone != NULL)
            exchange->on_gone(exchange->on_gone_context);
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
    for (size_t i = 0; i < loop->connection_count; i++)
        http_line_end_stream(loop->connections[i]);
    /* The next tick has to come at once: it reads what clients sent before they could know. */
    uv_async_send(&loop->wakeup);
}

static void loop_check_stop(struct http_loop *loop)
{
    switch (loop->stop_phase) {
    case HTTP_STOP_NOT:
        if (http_server_stopping(loop->server))
            loop_close_listener(loop);
        return;
    case HTTP_STOP_LISTENER_CLOSED:
        loop->stop_phase = HTTP_STOP_WINDING_UP;
        for (size_t i = 0; i < loop->connection_count; i++)
            http_connection_wind_up(loop->connections[i]);
        return;
    case HTTP_STOP_WINDING_UP: {
        bool late = loop->now_ms >= loop->stop_deadline_ms;
        if (late)
            for (size_t i = 0; i < loop->connection_count; i++)
                http_connection_close(loop->connections[i]);
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
    counter_add(&loop->counters.ticks, 1);
    loop_end_tick(loop);
}

/* Timers and closed handles come after the writes of one tick and before the wait of the next:
 * what they answered must not wait with it. */
static void loop_on_prepare(uv_prepare_t *prepare)
{
    struct http_loop *loop = prepare->data;
    if (!STAILQ_EMPTY(&loop->dirty) || loop->gone_first != NULL) {
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

/* Those who waited may try again, in the next tick. */
static void loop_on_pace(uv_timer_t *timer)
{
    struct http_loop *loop = timer->data;
    uv_idle_start(&loop->idle, loop_on_idle);
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
    for (size_t i = 0; i < loop->connection_count; i++)
        if (loop->deadlines_ms[i] <= loop->now_ms)
            http_connection_expire(loop->connections[i], loop->now_ms);
    if (loop->connection_count == 0 && loop->accepting && loop->stop_phase == HTTP_STOP_NOT)
        uv_timer_stop(timer);
}

/* --- life --- */

enum status http_loop_init(struct http_loop *loop, struct http_server *server, int listen_fd,
                           struct error *error)
{
    int failed = uv_loop_init(&loop->uv);
    if (failed != 0)
        return error_set(error, STATUS_FAILED, "event loop: %s", uv_strerror(failed));
    loop->server = server;
    loop->options = &server->options;
    loop->index = server->loop_count;
    loop->listen_fd = listen_fd;
    STAILQ_INIT(&loop->dirty);
    STAILQ_INIT(&loop->resumed);
    STAILQ_INIT(&loop->queued);
    STAILQ_INIT(&loop->tasks);
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
    uv_timer_init(&loop->uv, &loop->pace_timer);
    loop->prepare.data = loop;
    loop->check.data = loop;
    loop->idle.data = loop;
    loop->deadline_timer.data = loop;
    loop->pace_timer.data = loop;
    loop->wakeup.data = loop;
    return STATUS_OK;
}

static void loop_close_handle(uv_handle_t *handle, void *unused)
{
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* From here on nobody can reach the loop any more. */
static void loop_shut(struct http_loop *loop)
{
    pthread_mutex_lock(&loop->tasks_lock);
    bool shut = loop->tasks_closed;
    loop->tasks_closed = true;
    pthread_mutex_unlock(&loop->tasks_lock);
    if (shut)
        return;
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
    http_exchanges_abandon(loop);
    return status;
}

void http_loop_release(struct http_loop *loop)
{
    loop_shut(loop);
    http_exchanges_release(loop);
    free(loop->connections);
    free(loop->deadlines_ms);
    pthread_mutex_destroy(&loop->tasks_lock);
}

void http_loop_wake(struct http_loop *loop)
{
    pthread_mutex_lock(&loop->tasks_lock);
    if (!loop->tasks_closed)
        uv_async_send(&loop->wakeup);
    pthread_mutex_unlock(&loop->tasks_lock);
}

uv_loop_t *http_loop_uv(struct http_loop *loop)
{
    return &loop->uv;
}
