/* redis_impostor.c: enough of the Redis protocol to be taken for one. */
#include "redis_impostor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
/* cmocka.h needs the ones above it. */
#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"

#define INPUT_MAX (256 * 1024) /* redis.lua is one command */
#define WORDS_MAX 64

static int listen_somewhere(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ensure(bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 64) == 0 &&
           getsockname(listener, (struct sockaddr *)&address, &length) == 0);
    *port = ntohs(address.sin_port);
    return listener;
}

/* --- the impostor --- */

struct impostor_peer {
    int fd; /* -1: none */
    char input[INPUT_MAX];
    size_t length;
};

static void impostor_send(struct impostor_peer *peer, const char *bytes, size_t length)
{
    ssize_t sent = send(peer->fd, bytes, length, MSG_NOSIGNAL);
    (void)sent; /* Whoever is gone hears nothing. */
}

static void impostor_say(struct impostor_peer *peer, const char *text)
{
    impostor_send(peer, text, strlen(text));
}

static void impostor_close(struct impostor_peer *peer)
{
    close(peer->fd);
    peer->fd = -1;
    peer->length = 0;
}

/* Answers a claim of `count` wishes with that name. */
static void impostor_claim(struct redis_impostor *impostor, struct impostor_peer *peer,
                           const char *name, size_t count)
{
    static char verdicts[WORDS_MAX * 24];
    static char reply[2 * sizeof(verdicts) + 512];
    size_t length = 0;

    pthread_mutex_lock(&impostor->lock);
    enum impostor_claims claims = impostor->claims;
    for (size_t i = 0; i < count; i++)
        length += (size_t)snprintf(verdicts + length, sizeof(verdicts) - length, "%sW%lld:1",
                                   i == 0 ? "" : " ", (long long)++impostor->seq);
    if (claims == IMPOSTOR_OTHERS_NAME)
        name = "another";
    int total = snprintf(reply, sizeof(reply), "*3\r\n$%zu\r\n%s\r\n$1\r\n0\r\n$%zu\r\n%s\r\n",
                         strlen(name), name, length, verdicts);
    if (claims == IMPOSTOR_SAYS)
        total = snprintf(reply, sizeof(reply), "%s", impostor->words);
    pthread_mutex_unlock(&impostor->lock);
    impostor->claim_count++;
    if (claims == IMPOSTOR_SILENT)
        return;
    if (claims == IMPOSTOR_CLOSES) {
        impostor_close(peer);
        return;
    }
    if (claims == IMPOSTOR_TWICE) {
        memcpy(reply + total, reply, (size_t)total);
        total *= 2;
    }
    impostor_send(peer, reply, (size_t)(claims == IMPOSTOR_HALF ? total / 2 : total));
}

static void impostor_info(struct redis_impostor *impostor, struct impostor_peer *peer)
{
    char info[256];
    char reply[320];

    pthread_mutex_lock(&impostor->lock);
    int length = snprintf(info, sizeof(info),
                          "# Server\r\nredis_version:%s\r\n# Memory\r\nmaxmemory_policy:%s\r\n"
                          "# Persistence\r\naof_enabled:1\r\n",
                          impostor->version, impostor->eviction);
    pthread_mutex_unlock(&impostor->lock);
    snprintf(reply, sizeof(reply), "$%d\r\n%s\r\n", length, info);
    impostor_say(peer, reply);
}

static void impostor_run(struct redis_impostor *impostor, struct impostor_peer *peer, char **words,
                         size_t count)
{
    char greeting[80];

    pthread_mutex_lock(&impostor->lock);
    snprintf(greeting, sizeof(greeting), "-%s\r\n", impostor->greeting);
    pthread_mutex_unlock(&impostor->lock);
    if (strlen(greeting) > 3)
        impostor_say(peer, greeting);
    else if (strcmp(words[0], "INFO") == 0)
        impostor_info(impostor, peer);
    else if (strcmp(words[0], "CONFIG") == 0)
        impostor_say(peer, "*2\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n");
    else if (count > 1 && strcmp(words[1], "dibs_version") == 0)
        /* An old Redis does not know functions. */
        impostor_say(peer, impostor->version[0] >= '7' ? ":6\r\n"
                                                       : "-ERR unknown command 'FCALL_RO'\r\n");
    else if (count > 1 && strcmp(words[1], "dibs_count") == 0)
        impostor_say(peer,
                     "*14\r\n:1\r\n$1\r\n9\r\n:0\r\n$1\r\n0\r\n$1\r\n0\r\n$1\r\n9\r\n$1\r\n1\r\n"
                     "$1\r\n1\r\n$1\r\n0\r\n$1\r\n0\r\n$1\r\n0\r\n$1\r\n0\r\n$1\r\n0\r\n"
                     "$1\r\n5\r\n");
    else if (count > 1 && strcmp(words[1], "dibs_moment") == 0)
        impostor_say(peer, "*3\r\n$4\r\nname\r\n$1\r\n5\r\n$1\r\n0\r\n");
    else if (count > 13 && strcmp(words[1], "dibs_claim") == 0)
        impostor_claim(impostor, peer, words[10], count - 13);
    else
        impostor_say(peer, ":1\r\n");
}

/* Takes one command "*2\r\n$3\r\nGET\r\n$1\r\na\r\n" off the input. False: it is not all there. */
static bool impostor_take(struct redis_impostor *impostor, struct impostor_peer *peer)
{
    char *words[WORDS_MAX];
    long lengths[WORDS_MAX];
    char *at = peer->input;
    char *end = peer->input + peer->length;
    long count = *at == '*' ? strtol(at + 1, &at, 10) : 0;

    if (peer->length == 0 || count < 1 || count > WORDS_MAX)
        return false;
    for (long i = 0; i < count; i++) {
        at += 2;
        if (at + 1 >= end || *at != '$' || memchr(at, '\n', (size_t)(end - at)) == NULL)
            return false;
        long length = strtol(at + 1, &at, 10);
        at += 2;
        if (at + length + 2 > end)
            return false;
        words[i] = at;
        lengths[i] = length;
        at += length;
    }
    at += 2;
    /* The words are told apart only now that all are there. */
    char *next = peer->input;
    char copy[INPUT_MAX];
    size_t used = (size_t)(at - peer->input);
    memcpy(copy, peer->input, used);
    for (long i = 0; i < count; i++) {
        words[i] = copy + (words[i] - next);
        words[i][lengths[i]] = '\0';
    }
    peer->length -= used;
    memmove(peer->input, at, peer->length);
    peer->input[peer->length] = '\0';
    impostor_run(impostor, peer, words, (size_t)count);
    return peer->fd >= 0;
}

static void impostor_read(struct redis_impostor *impostor, struct impostor_peer *peer)
{
    ssize_t length =
        recv(peer->fd, peer->input + peer->length, INPUT_MAX - 1 - peer->length, MSG_DONTWAIT);

    if (length <= 0) {
        impostor_close(peer);
        return;
    }
    peer->length += (size_t)length;
    peer->input[peer->length] = '\0';
    while (impostor_take(impostor, peer))
        continue;
}

static void *impostor_main(void *context)
{
    struct redis_impostor *impostor = context;
    struct impostor_peer *peers = calloc(IMPOSTOR_PEERS_MAX, sizeof(*peers));
    struct pollfd polls[IMPOSTOR_PEERS_MAX + 2];

    for (size_t i = 0; i < IMPOSTOR_PEERS_MAX; i++)
        peers[i].fd = -1;
    for (;;) {
        polls[0] = (struct pollfd){.fd = impostor->wake[0], .events = POLLIN};
        polls[1] = (struct pollfd){.fd = impostor->listener, .events = POLLIN};
        for (size_t i = 0; i < IMPOSTOR_PEERS_MAX; i++)
            polls[2 + i] = (struct pollfd){.fd = peers[i].fd, .events = POLLIN};
        poll(polls, IMPOSTOR_PEERS_MAX + 2, -1);
        if (polls[0].revents != 0)
            break;
        for (size_t i = 0; i < IMPOSTOR_PEERS_MAX; i++)
            if (polls[2 + i].revents != 0)
                impostor_read(impostor, &peers[i]);
        for (size_t i = 0; i < IMPOSTOR_PEERS_MAX && polls[1].revents != 0; i++) {
            if (peers[i].fd < 0) {
                peers[i].fd = accept4(impostor->listener, NULL, NULL, SOCK_CLOEXEC);
                break;
            }
        }
    }
    for (size_t i = 0; i < IMPOSTOR_PEERS_MAX; i++)
        if (peers[i].fd >= 0)
            close(peers[i].fd);
    free(peers);
    return NULL;
}

void redis_impostor_start(struct redis_impostor *impostor)
{
    *impostor = (struct redis_impostor){.version = "7.0.15", .eviction = "noeviction"};
    impostor->listener = listen_somewhere(&impostor->port);
    snprintf(impostor->url, sizeof(impostor->url), "redis://127.0.0.1:%d", impostor->port);
    pthread_mutex_init(&impostor->lock, NULL);
    ensure(pipe(impostor->wake) == 0);
    ensure(pthread_create(&impostor->thread, NULL, impostor_main, impostor) == 0);
}

void redis_impostor_stop(struct redis_impostor *impostor)
{
    ensure(write(impostor->wake[1], "x", 1) == 1);
    pthread_join(impostor->thread, NULL);
    close(impostor->wake[0]);
    close(impostor->wake[1]);
    close(impostor->listener);
    pthread_mutex_destroy(&impostor->lock);
}

void redis_impostor_answer(struct redis_impostor *impostor, enum impostor_claims claims,
                           const char *words)
{
    pthread_mutex_lock(&impostor->lock);
    impostor->claims = claims;
    snprintf(impostor->words, sizeof(impostor->words), "%s", words == NULL ? "" : words);
    pthread_mutex_unlock(&impostor->lock);
}

/* --- the proxy --- */

/* Bytes on their way back, due at a time. */
struct proxy_chunk {
    struct proxy_chunk *next;
    int64_t due_ms;
    size_t length;
    char bytes[];
};

struct proxy_pair {
    int client; /* -1: none */
    int server;
    struct proxy_chunk *first;
    struct proxy_chunk *last;
    bool is_held;
};

static void proxy_close(struct proxy_pair *pair)
{
    close(pair->client);
    close(pair->server);
    pair->client = pair->server = -1;
    pair->is_held = false;
    while (pair->first != NULL) {
        struct proxy_chunk *next = pair->first->next;
        free(pair->first);
        pair->first = next;
    }
    pair->last = NULL;
}

static void proxy_accept(struct redis_proxy *proxy, struct proxy_pair *pair)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)proxy->server_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    pair->client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
    pair->server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(pair->server, (struct sockaddr *)&address, sizeof(address)) != 0)
        proxy_close(pair);
}

static void proxy_forward(struct redis_proxy *proxy, struct proxy_pair *pair)
{
    char bytes[65536];
    ssize_t length = recv(pair->client, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (length <= 0 || send(pair->server, bytes, (size_t)length, MSG_NOSIGNAL) != length)
        proxy_close(pair);
    else if (proxy->holds_looks && memmem(bytes, (size_t)length, "dibs_count", 10) != NULL)
        pair->is_held = true;
}

static void proxy_take_back(struct redis_proxy *proxy, struct proxy_pair *pair)
{
    char bytes[65536];
    ssize_t length = recv(pair->server, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (length <= 0) {
        proxy_close(pair);
        return;
    }
    if (atomic_exchange(&proxy->swallows, false)) {
        proxy->swallow_count++;
        proxy_close(pair);
        return;
    }
    int delay_max_ms = proxy->delay_max_ms;
    struct proxy_chunk *chunk = malloc(sizeof(*chunk) + (size_t)length);
    ensure(chunk != NULL);
    *chunk = (struct proxy_chunk){
        .length = (size_t)length,
        .due_ms = clock_monotonic_ms() +
                  (delay_max_ms == 0 ? 0 : (int64_t)random_below((uint64_t)delay_max_ms))};
    memcpy(chunk->bytes, bytes, (size_t)length);
    if (pair->last != NULL)
        pair->last->next = chunk;
    else
        pair->first = chunk;
    pair->last = chunk;
    proxy->held_count += pair->is_held;
}

/* Passes on what is due; the time until the next, or -1. */
static int proxy_deliver(struct redis_proxy *proxy, struct proxy_pair *pair, int64_t now_ms)
{
    if (pair->is_held && proxy->holds_looks)
        return 1;
    pair->is_held = false;
    while (pair->first != NULL && pair->first->due_ms <= now_ms) {
        struct proxy_chunk *chunk = pair->first;
        if (send(pair->client, chunk->bytes, chunk->length, MSG_NOSIGNAL) !=
            (ssize_t)chunk->length) {
            proxy_close(pair);
            return -1;
        }
        pair->first = chunk->next;
        if (pair->first == NULL)
            pair->last = NULL;
        free(chunk);
    }
    return pair->first == NULL ? -1 : (int)(pair->first->due_ms - now_ms);
}

static void *proxy_main(void *context)
{
    struct redis_proxy *proxy = context;
    struct proxy_pair pairs[IMPOSTOR_PEERS_MAX] = {0};
    struct pollfd polls[2 * IMPOSTOR_PEERS_MAX + 2];

    for (size_t i = 0; i < IMPOSTOR_PEERS_MAX; i++)
        pairs[i] = (struct proxy_pair){.client = -1, .server = -1};
    for (;;) {
        int timeout_ms = -1;
        int64_t now_ms = clock_monotonic_ms();
        for (size_t i = 0; i < IMPOSTOR_PEERS_MAX; i++) {
            int due_ms = proxy_deliver(proxy, &pairs[i], now_ms);
            if (due_ms >= 0 && (timeout_ms < 0 || due_ms < timeout_ms))
                timeout_ms = due_ms;
        }
        polls[0] = (struct pollfd){.fd = proxy->wake[0], .events = POLLIN};
        polls[1] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
        for (size_t i = 0; i < IMPOSTOR_PEERS_MAX; i++) {
            polls[2 + 2 * i] = (struct pollfd){.fd = pairs[i].client, .events = POLLIN};
            polls[3 + 2 * i] = (struct pollfd){.fd = pairs[i].server, .events = POLLIN};
        }
        poll(polls, 2 * IMPOSTOR_PEERS_MAX + 2, timeout_ms);
        if (polls[0].revents != 0)
            break;
        for (size_t i = 0; i < IMPOSTOR_PEERS_MAX; i++) {
            if (pairs[i].client >= 0 && polls[2 + 2 * i].revents != 0)
                proxy_forward(proxy, &pairs[i]);
            if (pairs[i].client >= 0 && polls[3 + 2 * i].revents != 0)
                proxy_take_back(proxy, &pairs[i]);
        }
        for (size_t i = 0; i < IMPOSTOR_PEERS_MAX && polls[1].revents != 0; i++) {
            if (pairs[i].client < 0) {
                proxy_accept(proxy, &pairs[i]);
                break;
            }
        }
    }
    for (size_t i = 0; i < IMPOSTOR_PEERS_MAX; i++)
        if (pairs[i].client >= 0)
            proxy_close(&pairs[i]);
    return NULL;
}

void redis_proxy_start(struct redis_proxy *proxy, int server_port)
{
    *proxy = (struct redis_proxy){.server_port = server_port};
    proxy->listener = listen_somewhere(&proxy->port);
    snprintf(proxy->url, sizeof(proxy->url), "redis://127.0.0.1:%d", proxy->port);
    ensure(pipe(proxy->wake) == 0);
    ensure(pthread_create(&proxy->thread, NULL, proxy_main, proxy) == 0);
}

void redis_proxy_stop(struct redis_proxy *proxy)
{
    ensure(write(proxy->wake[1], "x", 1) == 1);
    pthread_join(proxy->thread, NULL);
    close(proxy->wake[0]);
    close(proxy->wake[1]);
    close(proxy->listener);
}
