/* crowd.c: two crowds for one server: people who claim at a steady rate while an operator changes a
 * policy now and then, and 200 connections that mean no good.
 *
 *     crowd people ADDRESS PORT TOKEN SECONDS PER_SECOND FIRST_USER
 *     crowd hostile ADDRESS PORT SECONDS
 *
 * The people do not wait for each other: each claim has its moment, and is late from then on. Both
 * print what they have seen as JSON.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PEOPLE_CONNECTIONS  128
#define HOSTILE_CONNECTIONS 200
#define SOURCES             8 /* hostile ones come from 127.0.0.2 and the next ones */
#define PATCH_NS            INT64_C(100000000)
#define TICK_NS             INT64_C(20000000)
#define STALLED_TICKS       10
#define SLOW_TICKS          5
#define SLOW_BYTES          128
#define SLOW_RECEIVE_BYTES  4096
#define REPLY_SIZE          65536
#define REQUESTS_SIZE       32768
#define STATUS_MAX          600
#define EVENTS_MAX          512

static struct sockaddr_in server;

__attribute__((noreturn)) static void crowd_die(const char *what)
{
    fprintf(stderr, "crowd: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t crowd_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void crowd_wait(int epoll_fd, struct epoll_event *events, int *count, int64_t until_ns)
{
    int64_t left_ns = until_ns - crowd_now_ns();
    if (left_ns < 0)
        left_ns = 0;
    struct timespec left = {.tv_sec = left_ns / 1000000000, .tv_nsec = left_ns % 1000000000};
    *count = epoll_pwait2(epoll_fd, events, EVENTS_MAX, &left, NULL);
}

static int crowd_connect(unsigned source, int receive_bytes)
{
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        crowd_die("socket");
    if (receive_bytes > 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000 + source)};
    if (bind(fd, (const struct sockaddr *)&own, sizeof(own)) != 0 ||
        connect(fd, (const struct sockaddr *)&server, sizeof(server)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* --- people --- */

struct person {
    int fd;
    bool is_operator;
    int64_t due_ns; /* of the request in flight; 0: none */
    size_t have;
    char reply[REPLY_SIZE];
};

struct people {
    int epoll_fd;
    struct person persons[PEOPLE_CONNECTIONS + 1]; /* the last is the operator */
    size_t free[PEOPLE_CONNECTIONS];
    size_t free_count;
    const char *token;
    int64_t start_ns;
    int64_t interval_ns;
    uint64_t first_user;
    uint64_t sent;
    uint64_t claim_max; /* claims in all */
    uint64_t statuses[STATUS_MAX];
    uint32_t *late_us;
    uint64_t late_count;
    uint32_t patch_us[10000];
    size_t patch_count;
    uint64_t patch_failed;
};

static void person_send(struct person *person, const char *request, size_t length, int64_t due_ns)
{
    person->due_ns = due_ns;
    person->have = 0;
    if (send(person->fd, request, length, MSG_NOSIGNAL) != (ssize_t)length)
        crowd_die("send");
}

static void people_claim(struct people *people)
{
    char request[512];
    struct person *person = &people->persons[people->free[--people->free_count]];
    int64_t due_ns = people->start_ns + (int64_t)people->sent * people->interval_ns;
    int length = snprintf(request, sizeof(request),
                          "POST /v1/policies/1/claims HTTP/1.1\r\nHost: bench\r\n"
                          "Content-Type: application/json\r\nContent-Length: 28\r\n\r\n"
                          "{\"user\":\"u%016llx\"}",
                          (unsigned long long)(people->first_user + people->sent));
    people->sent++;
    person_send(person, request, (size_t)length, due_ns);
}

static void people_patch(struct people *people, int64_t now_ns)
{
    char request[512];
    const char *body = people->patch_count % 2 == 0 ? "{\"paused\":true }" : "{\"paused\":false}";
    int length = snprintf(request, sizeof(request),
                          "PATCH /v1/policies/2 HTTP/1.1\r\nHost: bench\r\n"
                          "Authorization: Bearer %s\r\nContent-Type: application/json\r\n"
                          "Content-Length: 16\r\n\r\n%s",
                          people->token, body);
    person_send(&people->persons[PEOPLE_CONNECTIONS], request, (size_t)length, now_ns);
}

/* Whether all of the reply is there. */
static bool person_has_reply(struct person *person)
{
    person->reply[person->have] = '\0';
    const char *body = strstr(person->reply, "\r\n\r\n");
    const char *length = strstr(person->reply, "Content-Length: ");
    if (body == NULL || length == NULL)
        return false;
    return person->have >= (size_t)(body + 4 - person->reply) + strtoul(length + 16, NULL, 10);
}

static void people_hear(struct people *people, struct person *person)
{
    ssize_t got = recv(person->fd, person->reply + person->have,
                       sizeof(person->reply) - 1 - person->have, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0)
        crowd_die("the server ended a connection");
    person->have += (size_t)got;
    if (!person_has_reply(person))
        return;
    uint32_t took_us = (uint32_t)((crowd_now_ns() - person->due_ns) / 1000);
    unsigned status = (unsigned)strtoul(person->reply + 9, NULL, 10);
    person->due_ns = 0;
    if (person->is_operator) {
        people->patch_us[people->patch_count++ % 10000] = took_us;
        people->patch_failed += status != 200;
        return;
    }
    people->statuses[status < STATUS_MAX ? status : 0]++;
    people->late_us[people->late_count++] = took_us;
    people->free[people->free_count++] = (size_t)(person - people->persons);
}

static int by_size(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a;
    uint32_t right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

static double people_quantile_ms(const uint32_t *sorted, size_t count, double quantile)
{
    return count == 0 ? 0 : sorted[(size_t)(quantile * (double)(count - 1))] / 1000.0;
}

static void people_report(struct people *people)
{
    qsort(people->late_us, people->late_count, sizeof(*people->late_us), by_size);
    qsort(people->patch_us, people->patch_count, sizeof(*people->patch_us), by_size);
    printf("{\"claims\":%llu,\"won\":%llu,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f,"
           "\"patches\":%zu,\"patches_failed\":%llu,\"patch_p50_ms\":%.3f,\"patch_max_ms\":%.3f,"
           "\"statuses\":{",
           (unsigned long long)people->late_count, (unsigned long long)people->statuses[201],
           people_quantile_ms(people->late_us, people->late_count, 0.5),
           people_quantile_ms(people->late_us, people->late_count, 0.99),
           people_quantile_ms(people->late_us, people->late_count, 1), people->patch_count,
           (unsigned long long)people->patch_failed,
           people_quantile_ms(people->patch_us, people->patch_count, 0.5),
           people_quantile_ms(people->patch_us, people->patch_count, 1));
    const char *separator = "";
    for (unsigned status = 0; status < STATUS_MAX; status++) {
        if (people->statuses[status] == 0)
            continue;
        printf("%s\"%u\":%llu", separator, status, (unsigned long long)people->statuses[status]);
        separator = ",";
    }
    printf("}}\n");
}

static void people_open(struct people *people)
{
    people->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (size_t i = 0; i <= PEOPLE_CONNECTIONS; i++) {
        struct person *person = &people->persons[i];
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = person};
        person->fd = crowd_connect(1, 0);
        person->is_operator = i == PEOPLE_CONNECTIONS;
        if (person->fd < 0 || epoll_ctl(people->epoll_fd, EPOLL_CTL_ADD, person->fd, &event) != 0)
            crowd_die("connect");
        if (!person->is_operator)
            people->free[people->free_count++] = i;
    }
}

static void people_run(struct people *people)
{
    struct epoll_event events[EVENTS_MAX];
    struct person *operator= & people->persons[PEOPLE_CONNECTIONS];
    int64_t patch_ns = people->start_ns = crowd_now_ns();
    while (people->late_count < people->claim_max || operator->due_ns != 0) {
        int64_t now_ns = crowd_now_ns();
        int64_t next_ns = people->start_ns + (int64_t)people->sent * people->interval_ns;
        while (people->sent < people->claim_max && people->free_count > 0 && next_ns <= now_ns) {
            people_claim(people);
            next_ns += people->interval_ns;
        }
        if (now_ns >= patch_ns && operator->due_ns == 0 && people->sent<people->claim_max) {
            people_patch(people, now_ns);
            patch_ns = now_ns + PATCH_NS;
        }
        int count;
        bool is_waiting = people->free_count == 0 || people->sent == people->claim_max;
        crowd_wait(people->epoll_fd, events, &count, is_waiting ? now_ns + PATCH_NS : next_ns);
        for (int i = 0; i < count; i++)
            people_hear(people, events[i].data.ptr);
    }
}

static int crowd_people(char **words)
{
    static struct people people;
    uint64_t per_second = strtoull(words[2], NULL, 10);
    people.token = words[0];
    people.claim_max = strtoull(words[1], NULL, 10) * per_second;
    people.interval_ns = INT64_C(1000000000) / (int64_t)per_second;
    people.first_user = strtoull(words[3], NULL, 10);
    people.late_us = calloc(people.claim_max, sizeof(*people.late_us));
    if (people.late_us == NULL)
        crowd_die("memory");
    people_open(&people);
    people_run(&people);
    people_report(&people);
    return 0;
}

/* --- those who mean no good --- */

enum role {
    ROLE_BIG,     /* pipelines what is long */
    ROLE_UNKNOWN, /* claims policies that do not exist, another one each time */
    ROLE_SLOW,    /* pipelines what is long, and takes a little now and then */
    ROLE_GUESS,   /* wrong codes and wrong tokens */
    ROLE_STREAM,  /* leaves streams open */
    ROLE_METRICS,
    ROLE_JUNK,
    ROLE_COUNT,
};

static const struct {
    const char *name;
    unsigned connections;
} roles[ROLE_COUNT] = {
    [ROLE_BIG] = {"big", 40},       [ROLE_UNKNOWN] = {"unknown", 40},
    [ROLE_SLOW] = {"slow", 30},     [ROLE_GUESS] = {"guess", 30},
    [ROLE_STREAM] = {"stream", 20}, [ROLE_METRICS] = {"metrics", 20},
    [ROLE_JUNK] = {"junk", 20},
};

struct villain {
    enum role role;
    unsigned source;
    int fd; /* -1: not connected */
    unsigned awaited;
    unsigned ticks; /* since something happened */
};

struct hostile {
    int epoll_fd;
    struct villain villains[HOSTILE_CONNECTIONS];
    uint64_t number; /* of the next id, code or token */
    uint64_t replies[ROLE_COUNT];
    uint64_t connects[ROLE_COUNT];
    uint64_t bytes;
};

static unsigned hostile_write(struct hostile *hostile, enum role role, char *text, size_t *length)
{
    static const char get[] = "GET %s HTTP/1.1\r\nHost: bench\r\n\r\n";
    char *at = text;
    unsigned long long number = hostile->number;
    unsigned count = 1;
    switch (role) {
    case ROLE_BIG:
    case ROLE_SLOW:
        for (count = 0; count < 64; count++)
            at += sprintf(at, get, count % 8 == 0 ? "/v1/policies?limit=1000" : "/openapi.json");
        break;
    case ROLE_UNKNOWN:
        for (count = 0; count < 64; count++)
            at += sprintf(at,
                          "POST /v1/policies/%llu/claims HTTP/1.1\r\nHost: bench\r\nContent-Type: "
                          "application/json\r\nContent-Length: 12\r\n\r\n{\"user\":\"x\"}",
                          1000000 + number + count);
        break;
    case ROLE_GUESS:
        at += sprintf(at,
                      "GET /v1/coupons/1-1-%013llu HTTP/1.1\r\nHost: bench\r\n\r\n"
                      "GET /v1/policies HTTP/1.1\r\nHost: bench\r\n"
                      "Authorization: Bearer wrong-token-%llu\r\n\r\n",
                      number, number);
        count = 2;
        break;
    case ROLE_STREAM:
        at += sprintf(at, get, "/v1/policies/1/events");
        break;
    case ROLE_METRICS:
        for (count = 0; count < 16; count++)
            at += sprintf(at, get, "/metrics");
        break;
    default:
        at += sprintf(at, "%llx \x01\x02junk\r\n\r\n", number * UINT64_C(0x9e3779b97f4a7c15));
        break;
    }
    hostile->number += count;
    *length = (size_t)(at - text);
    return count;
}

static void hostile_leave(struct villain *villain)
{
    close(villain->fd);
    villain->fd = -1;
    villain->ticks = 0;
}

/* The next requests, when all before were answered. */
static void hostile_ask(struct hostile *hostile, struct villain *villain)
{
    static char text[REQUESTS_SIZE];
    size_t length;
    villain->awaited = hostile_write(hostile, villain->role, text, &length);
    villain->ticks = 0;
    ssize_t sent = send(villain->fd, text, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN)
        hostile_leave(villain);
}

static void hostile_enter(struct hostile *hostile, struct villain *villain)
{
    bool is_slow = villain->role == ROLE_SLOW;
    struct epoll_event event = {.events = is_slow ? EPOLLRDHUP : EPOLLIN, .data.ptr = villain};
    villain->fd = crowd_connect(villain->source, is_slow ? SLOW_RECEIVE_BYTES : 0);
    if (villain->fd < 0)
        return;
    if (epoll_ctl(hostile->epoll_fd, EPOLL_CTL_ADD, villain->fd, &event) != 0)
        crowd_die("epoll");
    hostile->connects[villain->role]++;
    hostile_ask(hostile, villain);
}

static void hostile_hear(struct hostile *hostile, struct villain *villain, size_t bytes_max)
{
    static char reply[1 << 18];
    static const char mark[] = "HTTP/1.1 ";
    ssize_t got = recv(villain->fd, reply, bytes_max < sizeof(reply) ? bytes_max : sizeof(reply),
                       MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        hostile_leave(villain);
        return;
    }
    hostile->bytes += (uint64_t)got;
    villain->ticks = 0;
    const char *end = reply + got;
    for (const char *at = reply; (at = memmem(at, (size_t)(end - at), mark, 9)) != NULL; at++) {
        hostile->replies[villain->role]++;
        villain->awaited -= villain->awaited > 0;
    }
    if (villain->awaited == 0 && villain->role != ROLE_STREAM)
        hostile_ask(hostile, villain);
}

static void hostile_tick(struct hostile *hostile)
{
    for (size_t i = 0; i < HOSTILE_CONNECTIONS; i++) {
        struct villain *villain = &hostile->villains[i];
        villain->ticks++;
        if (villain->fd < 0)
            hostile_enter(hostile, villain);
        else if (villain->role == ROLE_SLOW && villain->ticks >= SLOW_TICKS)
            hostile_hear(hostile, villain, SLOW_BYTES);
        else if (villain->role != ROLE_STREAM && villain->role != ROLE_SLOW &&
                 villain->ticks > STALLED_TICKS)
            hostile_ask(hostile, villain); /* A reply was cut in two, and not counted. */
    }
}

static void hostile_report(const struct hostile *hostile)
{
    printf("{\"bytes\":%llu", (unsigned long long)hostile->bytes);
    for (unsigned role = 0; role < ROLE_COUNT; role++)
        printf(",\"%s\":{\"replies\":%llu,\"connects\":%llu}", roles[role].name,
               (unsigned long long)hostile->replies[role],
               (unsigned long long)hostile->connects[role]);
    printf("}\n");
}

static int crowd_hostile(char **words)
{
    static struct hostile hostile;
    struct epoll_event events[EVENTS_MAX];
    int64_t end_ns = crowd_now_ns() + (int64_t)(strtod(words[0], NULL) * 1e9);
    int64_t tick_ns = 0;
    size_t count = 0;
    hostile.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (unsigned role = 0; role < ROLE_COUNT; role++)
        for (unsigned i = 0; i < roles[role].connections; i++, count++)
            hostile.villains[count] =
                (struct villain){.role = role, .fd = -1, .source = (unsigned)(2 + count % SOURCES)};
    while (crowd_now_ns() < end_ns) {
        int heard;
        if (crowd_now_ns() >= tick_ns) {
            hostile_tick(&hostile);
            tick_ns = crowd_now_ns() + TICK_NS;
        }
        crowd_wait(hostile.epoll_fd, events, &heard, tick_ns);
        for (int i = 0; i < heard; i++) {
            struct villain *villain = events[i].data.ptr;
            if (villain->fd >= 0 && villain->role == ROLE_SLOW)
                hostile_leave(villain);
            else if (villain->fd >= 0)
                hostile_hear(&hostile, villain, SIZE_MAX);
        }
    }
    hostile_report(&hostile);
    return 0;
}

int main(int argc, char **argv)
{
    bool is_people = argc == 8 && strcmp(argv[1], "people") == 0;
    bool is_hostile = argc == 5 && strcmp(argv[1], "hostile") == 0;
    if (!is_people && !is_hostile) {
        fputs("usage: crowd people ADDRESS PORT TOKEN SECONDS PER_SECOND FIRST_USER\n"
              "       crowd hostile ADDRESS PORT SECONDS\n",
              stderr);
        return 2;
    }
    server.sin_family = AF_INET;
    server.sin_port = htons((uint16_t)strtoul(argv[3], NULL, 10));
    if (inet_pton(AF_INET, argv[2], &server.sin_addr) != 1)
        return 2;
    return is_people ? crowd_people(argv + 4) : crowd_hostile(argv + 4);
}
