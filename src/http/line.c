/* line.c: the line in which a connection's exchanges wait for their turn to be written. */
#include "http/connection.h"
#include "http/loop.h"
#include "http/per_address.h"

struct http_exchange *http_line_join(struct http_connection *connection)
{
    struct http_exchange *exchange = http_loop_take_exchange(connection->loop);
    if (exchange == NULL) {
        return NULL;
    }
    exchange->next = NULL;
    exchange->connection = connection;
    exchange->target = NULL;
    exchange->state = HTTP_EXCHANGE_WAITING;
    exchange->in_use = true;
    exchange->in_line = true;
    exchange->no_body = false;
    exchange->no_length = false;
    exchange->http_1_0 = false;
    exchange->last = false;
    exchange->chunked = false;
    exchange->must_finish = false;
    exchange->expected_bytes = 0;
    exchange->client = (struct address){{0}};
    exchange->notes = (struct http_exchange_notes){.started_ns = connection->loop->now_ns};
    if (connection->tail != NULL) {
        connection->tail->next = exchange;
    } else {
        connection->head = exchange;
    }
    connection->tail = exchange;
    connection->line_count++;
    connection->exchange_count++;
    return exchange;
}

void http_exchange_free(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange->connection;
    if (exchange->own.bytes != NULL) {
        http_loop_give_buffer(connection->loop, &exchange->own);
    }
    exchange->in_use = false;
    http_exchange_expect(exchange, 0);
    per_address_leave(http_server_per_address(connection->loop->server), &exchange->client);
    http_loop_give_exchange(connection->loop, exchange);
    connection->exchange_count--;
    http_connection_free_when_done(connection);
}

void http_exchange_lose(struct http_exchange *exchange)
{
    exchange->in_line = false;
    exchange->state = HTTP_EXCHANGE_GONE;
    http_loop_tell_gone(exchange->connection->loop, exchange);
}

/* Takes the head's bytes, without copying them when nothing is in front of them. */
static void line_move_own(struct http_connection *connection, struct http_exchange *exchange)
{
    if (exchange->own.length == 0) {
        return;
    }
    connection->ready_bytes -= exchange->own.length;
    if (connection->out.length == 0) {
        struct buffer emptied = connection->out;
        connection->out = exchange->own;
        exchange->own = emptied;
    } else {
        buffer_append(&connection->out, exchange->own.bytes, exchange->own.length);
        buffer_clear(&exchange->own);
    }
}

static struct http_exchange *line_leave(struct http_connection *connection)
{
    struct http_exchange *exchange = connection->head;
    connection->head = exchange->next;
    if (connection->head == NULL) {
        connection->tail = NULL;
    }
    connection->line_count--;
    exchange->in_line = false;
    return exchange;
}

void http_line_advance(struct http_connection *connection)
{
    while (connection->head != NULL && connection->head->state == HTTP_EXCHANGE_READY) {
        struct http_exchange *exchange = line_leave(connection);
        line_move_own(connection, exchange);
        bool last = exchange->last;
        http_exchange_free(exchange);
        if (last) {
            connection->ending = true;
            connection->input_ended = true;
            http_line_dissolve(connection);
        }
    }
    struct http_exchange *head = connection->head;
    if (head != NULL && head->state == HTTP_EXCHANGE_STREAMING) {
        line_move_own(connection, head);
        head->target = &connection->out;
        if (head->no_body || connection->end_received ||
            connection->loop->stop_phase != HTTP_STOP_NOT) {
            http_connection_end_stream(connection);
        }
    }
    http_connection_touch(connection);
}

void http_line_dissolve(struct http_connection *connection)
{
    while (connection->head != NULL) {
        struct http_exchange *exchange = line_leave(connection);
        if (exchange->state == HTTP_EXCHANGE_READY) {
            http_exchange_free(exchange);
        } else if (exchange->state == HTTP_EXCHANGE_STREAMING) {
            http_exchange_lose(exchange);
        }
    }
    connection->ready_bytes = 0;
}
