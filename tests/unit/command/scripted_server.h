/* scripted_server.h: a server of one thread that takes what it is sent and answers what it is told,
 * for tests of the client. */
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SCRIPTED_ANSWERS_MAX  4
#define SCRIPTED_REQUEST_SIZE 4096

struct scripted_server {
    int listener;
    char url[64];
    pthread_t thread;
    const char *answers[SCRIPTED_ANSWERS_MAX + 1]; /* one per connection; ends with NULL */
    bool silent; /* keeps the last connection open without a word until the client leaves */
    char requests[SCRIPTED_ANSWERS_MAX][SCRIPTED_REQUEST_SIZE];
};

/* Reads headers and as much body as they announce. */
static inline void scripted_read(int connection, char *request)
{
    size_t length = 0;
    for (;;) {
        request[length] = '\0';
        const char *end = strstr(request, "\r\n\r\n");
        const char *announced = strstr(request, "Content-Length: ");
        size_t body = announced != NULL ? strtoul(announced + 16, NULL, 10) : 0;
        if (end != NULL && length >= (size_t)(end + 4 - request) + body)
            return;
        ssize_t more = read(connection, request + length, SCRIPTED_REQUEST_SIZE - 1 - length);
        if (more <= 0)
            return;
        length += (size_t)more;
    }
}

static inline void *scripted_run(void *context)
{
    struct scripted_server *server = context;
    for (int i = 0; server->answers[i] != NULL; i++) {
        int connection = accept(server->listener, NULL, NULL);
        if (connection < 0)
            return NULL;
        scripted_read(connection, server->requests[i]);
        if (server->answers[i][0] != '\0')
            send(connection, server->answers[i], strlen(server->answers[i]), MSG_NOSIGNAL);
        if (server->silent) {
            char byte;
            (void)!read(connection, &byte, 1);
        }
        close(connection);
    }
    return NULL;
}

/* `answers` are whole answers, status line and all, and end with NULL. */
static inline void scripted_start(struct scripted_server *server, const char *const *answers)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    memset(server->requests, 0, sizeof(server->requests));
    memset(server->answers, 0, sizeof(server->answers));
    for (int i = 0; answers[i] != NULL && i < SCRIPTED_ANSWERS_MAX; i++)
        server->answers[i] = answers[i];
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(server->listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(server->listener, 8) != 0 ||
        getsockname(server->listener, (struct sockaddr *)&address, &length) != 0)
        abort();
    snprintf(server->url, sizeof(server->url), "http://127.0.0.1:%d", ntohs(address.sin_port));
    if (pthread_create(&server->thread, NULL, scripted_run, server) != 0)
        abort();
}

/* Waits for the script to end; one that nobody called is cut short. */
static inline void scripted_stop(struct scripted_server *server)
{
    shutdown(server->listener, SHUT_RDWR);
    pthread_join(server->thread, NULL);
    close(server->listener);
}

#define SCRIPTED_JSON(status, body) \
    "HTTP/1.1 " status "\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" body
