/* storm.c: many connections on one loop; each sends the next press that is due, and reads its
 * answer.
 *
 * A connection that breaks leaves its press LOST and connects again for the next.
 */
#include "lab/storm.h"

#include <arpa/inet.h>
#include <llhttp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/clock.h"

#define AGAIN_MS 50 /* before a connection is tried again */
#define TICK_MS  1
#define RETRY_NS INT64_C(200000000)

struct storm_run;

struct storm_connection {
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    llhttp_t parser;
    struct storm_run *run;
    struct sockaddr_in address;
    struct storm_press *press; /* under way; NULL: none */
    bool is_open;
    bool is_closing;
    int64_t again_ms;
    char request[512];
    char body[128];
    size_t body_length;
};

struct storm_run {
    uv_loop_t loop;
    uv_timer_t timer;
    llhttp_settings_t settings;
    const struct storm_shape *shape;
    struct lab_storm *storm;
    struct storm_connection *connections;
    size_t next;
    /* Those who try again, in the order in which they do; each is in it once at most. */
    struct storm_press **retries;
    size_t retry_first, retry_count;
    size_t answered;
    int64_t start_ns;
    int64_t told_ms;
    void (*on_progress)(void *context, size_t answered);
    void *context;
    char read[16384];
};

uint32_t storm_poisoned(const struct storm_shape *shape)
{
    return shape->users / 7;
}

void storm_user_name(char name[STORM_NAME_SIZE], const struct storm_shape *shape, uint32_t user)
{
    if (shape->has_poison && user == storm_poisoned(shape))
        snprintf(name, STORM_NAME_SIZE, STORM_POISON);
    else
        snprintf(name, STORM_NAME_SIZE, "u-%u", user);
}

static int64_t storm_now_ns(const struct storm_run *run)
{
    return clock_monotonic_ns() - run->start_ns;
}

static void storm_settle(struct storm_connection *connection, enum storm_outcome outcome)
{
    struct storm_press *press = connection->press;
    if (press == NULL)
        return;
    struct storm_run *run = connection->run;
    press->outcome = outcome;
    press->answered_ns = storm_now_ns(run);
    connection->press = NULL;
    if ((outcome == STORM_BUSY || outcome == STORM_FAILED || outcome == STORM_LOST) &&
        press->tries <= run->shape->retries) {
        press->due_ns = press->answered_ns + RETRY_NS;
        run->retries[(run->retry_first + run->retry_count++) % run->storm->press_count] = press;
    } else {
        run->answered++;
    }
}

static void storm_closed(uv_handle_t *handle)
{
    struct storm_connection *connection = handle->data;
    connection->is_open = connection->is_closing = false;
    connection->again_ms = clock_monotonic_ms() + AGAIN_MS;
}

static void storm_break(struct storm_connection *connection)
{
    storm_settle(connection, STORM_LOST);
    if (!connection->is_closing) {
        connection->is_closing = true;
        uv_close((uv_handle_t *)&connection->tcp, storm_closed);
    }
}

static void storm_written(uv_write_t *write, int result)
{
    struct storm_connection *connection = write->data;
    if (result != 0 && result != UV_ECANCELED)
        storm_break(connection);
}

static void storm_send(struct storm_connection *connection, struct storm_press *press)
{
    char name[STORM_NAME_SIZE];
    storm_user_name(name, connection->run->shape, press->user);
    int length = snprintf(connection->request, sizeof(connection->request),
                          "POST /v1/policies/%d/claims HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                          "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n"
                          "{\"user\":\"%s\"}",
                          press->policy, strlen(name) + 11, name);
    uv_buf_t bytes = uv_buf_init(connection->request, (unsigned)length);

    connection->press = press;
    connection->body_length = 0;
    if (press->tries++ == 0)
        press->sent_ns = storm_now_ns(connection->run);
    connection->write.data = connection;
    if (uv_write(&connection->write, (uv_stream_t *)&connection->tcp, &bytes, 1, storm_written) !=
        0)
        storm_break(connection);
}

static void storm_next(struct storm_connection *connection)
{
    struct storm_run *run = connection->run;
    struct lab_storm *storm = run->storm;
    int64_t now_ns = storm_now_ns(run);
    if (!connection->is_open || connection->is_closing || connection->press != NULL)
        return;
    struct storm_press *again = run->retry_count > 0 ? run->retries[run->retry_first] : NULL;
    if (again != NULL && again->due_ns <= now_ns) {
        run->retry_first = (run->retry_first + 1) % storm->press_count;
        run->retry_count--;
        storm_send(connection, again);
    } else if (run->next < storm->press_count && storm->presses[run->next].due_ns <= now_ns) {
        storm_send(connection, &storm->presses[run->next++]);
    }
}

static int storm_body(llhttp_t *parser, const char *at, size_t length)
{
    struct storm_connection *connection = parser->data;
    size_t room = sizeof(connection->body) - 1 - connection->body_length;
    size_t taken = length < room ? length : room;
    memcpy(connection->body + connection->body_length, at, taken);
    connection->body_length += taken;
    connection->body[connection->body_length] = '\0';
    return 0;
}

static enum storm_outcome storm_outcome_of(int status, const char *body)
{
    if (status == 201 || status == 202)
        return STORM_WON;
    if (status == 200)
        return STORM_HELD;
    if (status == 409)
        return strstr(body, "SOLD_OUT") != NULL ? STORM_SOLD_OUT : STORM_ALREADY;
    return status == 503 ? STORM_BUSY : STORM_FAILED;
}

static int storm_complete(llhttp_t *parser)
{
    struct storm_connection *connection = parser->data;
    storm_settle(connection, storm_outcome_of(parser->status_code, connection->body));
    return 0;
}

static void storm_allocate(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct storm_connection *connection = handle->data;
    (void)suggested;
    *buffer = uv_buf_init(connection->run->read, sizeof(connection->run->read));
}

static void storm_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer)
{
    struct storm_connection *connection = stream->data;
    if (length < 0 || llhttp_execute(&connection->parser, buffer->base, (size_t)length) != HPE_OK) {
        storm_break(connection);
        return;
    }
    storm_next(connection);
}

static void storm_connected(uv_connect_t *connect, int result)
{
    struct storm_connection *connection = connect->data;
    if (result != 0) {
        storm_break(connection);
        return;
    }
    connection->is_open = true;
    uv_tcp_nodelay(&connection->tcp, 1);
    llhttp_init(&connection->parser, HTTP_RESPONSE, &connection->run->settings);
    connection->parser.data = connection;
    uv_read_start((uv_stream_t *)&connection->tcp, storm_allocate, storm_read);
    storm_next(connection);
}

static void storm_connect(struct storm_connection *connection)
{
    uv_tcp_init(&connection->run->loop, &connection->tcp);
    connection->tcp.data = connection;
    connection->connect.data = connection;
    connection->again_ms = INT64_MAX;
    connection->body[0] = '\0';
    if (uv_tcp_connect(&connection->connect, &connection->tcp,
                       (const struct sockaddr *)&connection->address, storm_connected) != 0)
        storm_break(connection);
}

static void storm_tick(uv_timer_t *timer)
{
    struct storm_run *run = timer->data;
    int64_t now_ms = clock_monotonic_ms();
    bool is_over = run->answered == run->storm->press_count;

    for (size_t i = 0; i < run->shape->connections; i++) {
        struct storm_connection *connection = &run->connections[i];
        if (is_over && (connection->is_open || connection->again_ms == INT64_MAX))
            storm_break(connection);
        else if (!is_over && now_ms >= connection->again_ms)
            storm_connect(connection);
        else
            storm_next(connection);
    }
    if (run->on_progress != NULL && now_ms - run->told_ms >= 20) {
        run->told_ms = now_ms;
        run->on_progress(run->context, run->answered);
    }
    if (is_over)
        uv_timer_stop(timer);
}

/* An order that the seed decides. */
static void storm_shuffle(struct storm_press *presses, size_t count, uint64_t seed)
{
    uint64_t state = seed * 2862933555777941757ULL + 3037000493ULL;
    for (size_t i = count - 1; count > 0 && i > 0; i--) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        size_t other = (size_t)((state >> 33) % (i + 1));
        struct storm_press press = presses[i];
        presses[i] = presses[other];
        presses[other] = press;
    }
}

/* Puts the poisoned one in front of all others. */
static void storm_let_first(struct storm_press *presses, size_t count, uint32_t user)
{
    size_t at = 0;
    while (at + 1 < count && presses[at].user != user)
        at++;
    struct storm_press press = presses[at];
    presses[at] = presses[0];
    presses[0] = press;
}

/* Everybody once for each policy, some twice. */
static enum status storm_plan(struct lab_storm *storm, const struct storm_shape *shape,
                              struct error *error)
{
    size_t once = (size_t)shape->users * (size_t)shape->policies;
    size_t twice = once * shape->duplicates / 100;

    storm->press_count = once + twice;
    storm->presses = calloc(storm->press_count, sizeof(*storm->presses));
    if (storm->presses == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for %zu presses",
                         storm->press_count);
    for (size_t i = 0; i < storm->press_count; i++) {
        storm->presses[i].user = (uint32_t)(i % once % shape->users);
        storm->presses[i].policy = 1 + (int)(i % once / shape->users);
    }
    size_t mixed = shape->again_ms > 0 ? once : storm->press_count;
    storm_shuffle(storm->presses, mixed, shape->seed);
    storm_shuffle(storm->presses + mixed, storm->press_count - mixed, shape->seed);
    if (shape->has_poison)
        storm_let_first(storm->presses, mixed, storm_poisoned(shape));
    for (size_t i = 0; i < storm->press_count && shape->burst > 0; i++)
        storm->presses[i].due_ns = (int64_t)(i / shape->burst) * shape->every_ms * 1000000;
    for (size_t i = mixed; i < storm->press_count; i++)
        storm->presses[i].due_ns += (int64_t)shape->again_ms * 1000000;
    return STATUS_OK;
}

static void storm_open(struct storm_run *run, const struct storm_fronts *fronts)
{
    llhttp_settings_init(&run->settings);
    run->settings.on_body = storm_body;
    run->settings.on_message_complete = storm_complete;
    uv_loop_init(&run->loop);
    uv_timer_init(&run->loop, &run->timer);
    run->timer.data = run;
    for (size_t i = 0; i < run->shape->connections; i++) {
        struct storm_connection *connection = &run->connections[i];
        const char *address = fronts->addresses[i % fronts->count];
        const char *colon = strrchr(address, ':');
        connection->run = run;
        uv_ip4_addr("127.0.0.1", atoi(colon + 1), &connection->address);
        storm_connect(connection);
    }
}

enum status lab_storm_run(struct lab_storm *storm, const struct storm_shape *shape,
                          const struct storm_fronts *fronts,
                          void (*on_progress)(void *context, size_t answered), void *context,
                          struct error *error)
{
    *storm = (struct lab_storm){.started_wall_ms = clock_wall_ms()};
    enum status status = storm_plan(storm, shape, error);
    if (status != STATUS_OK)
        return status;
    struct storm_run *run = calloc(1, sizeof(*run));
    struct storm_connection *connections = calloc(shape->connections, sizeof(*connections));
    struct storm_press **retries = calloc(storm->press_count, sizeof(struct storm_press *));
    if (run == NULL || connections == NULL || retries == NULL) {
        free(run);
        free(connections);
        free(retries);
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the connections");
    }
    run->shape = shape;
    run->storm = storm;
    run->connections = connections;
    run->retries = retries;
    run->on_progress = on_progress;
    run->context = context;
    run->start_ns = clock_monotonic_ns();
    storm_open(run, fronts);
    uv_timer_start(&run->timer, storm_tick, TICK_MS, TICK_MS);
    uv_run(&run->loop, UV_RUN_DEFAULT);
    storm->elapsed_ns = storm_now_ns(run);
    uv_close((uv_handle_t *)&run->timer, NULL);
    uv_run(&run->loop, UV_RUN_DEFAULT);
    uv_loop_close(&run->loop);
    free(connections);
    free(retries);
    free(run);
    return STATUS_OK;
}

void lab_storm_release(struct lab_storm *storm)
{
    free(storm->presses);
    *storm = (struct lab_storm){0};
}
