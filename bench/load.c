/* load.c: a closed-loop load generator for one core, cheap enough that the server is the slower.
 *
 * N keep-alive connections with one request in flight each. A request's bytes are made once per
 * connection; only the user in it changes. A reply is read just far enough to know its status and
 * its length. The server's CPU time is read from its process clock around the measured window,
 * all its threads included, and what it still does after the last reply counts as well.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REPLY_SIZE_MAX   16384
#define REQUEST_SIZE_MAX 16384
#define BATCH_MAX        64
#define PRODUCT_DIGITS   7
#define EVENTS_MAX       1024
#define USER_DIGITS      16
#define STATUS_MAX       600
#define SILENCE_NS       30000000000LL
#define SETTLED_NS       200000 /* a server that takes less than this in 20 ms is at rest */

/* Who asks, for what. */
enum mode {
    MODE_SOLD_OUT, /* claims of users that nobody has seen, each of them once */
    MODE_ALREADY,  /* claims of users who hold one, picked at random */
    MODE_ISSUED,   /* claims of new users: first, first + 1, ... */
    MODE_STATUS,   /* status of users who hold one, picked at random */
    MODE_TOP,      /* the best sellers, always the same question */
    MODE_ORDER,    /* new orders of one product each, one of `held` at random */
    MODE_ORDERS,   /* the same, BATCH_MAX of them in a request */
};

static const char *const mode_names[] = {"sold_out", "already", "issued", "status",
                                         "top",      "order",   "orders"};

struct options {
    enum mode mode;
    struct sockaddr_in address;
    const char *address_text;
    long policy_id;
    uint64_t held_count;
    uint64_t first_user;
    uint64_t request_count; /* 0: as long as `seconds` says */
    double seconds;
    double warmup_seconds;
    size_t connection_count;
    pid_t server_pid; /* 0: nobody's CPU is read */
};

struct connection {
    int fd;
    size_t request_length;
    size_t place_count; /* of what changes from one request to the next */
    size_t users_at[BATCH_MAX];
    size_t products_at[BATCH_MAX];
    size_t reply_have;
    size_t reply_need; /* 0: the head is not complete yet */
    char request[REQUEST_SIZE_MAX];
    char reply[REPLY_SIZE_MAX];
};

struct load {
    const struct options *options;
    struct connection *connections;
    int epoll_fd;
    uint64_t random;
    uint64_t next_user;
    uint64_t sent_count;
    uint64_t in_flight_count;
    bool stopping;
    /* The measured window. */
    uint64_t reply_count;
    uint64_t reply_bytes;
    int64_t busy_ns;
    uint64_t status_counts[STATUS_MAX];
};

__attribute__((noreturn, format(printf, 1, 2))) static void load_die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static int64_t load_clock_ns(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now) != 0)
        load_die("cannot read a clock: %s", strerror(errno));
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t load_server_cpu_ns(pid_t pid)
{
    clockid_t clock;
    if (pid == 0)
        return 0;
    if (clock_getcpuclockid(pid, &clock) != 0)
        load_die("process %d has no CPU clock: has the server gone?", (int)pid);
    return load_clock_ns(clock);
}

/* One to one on 64 bits, so that numbers in a row become users in no order. */
static uint64_t load_scramble(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t load_random_below(struct load *load, uint64_t limit)
{
    load->random = load_scramble(load->random);
    return (uint64_t)(((unsigned __int128)load->random * limit) >> 64);
}

static uint64_t load_pick_user(struct load *load)
{
    switch (load->options->mode) {
    case MODE_ALREADY:
    case MODE_STATUS:
        return load->options->first_user + load_random_below(load, load->options->held_count);
    case MODE_SOLD_OUT:
    case MODE_ISSUED:
    case MODE_TOP:
    case MODE_ORDER:
    case MODE_ORDERS:
        break;
    }
    return load->next_user++;
}

/* Every user is "u" and 16 hex digits. */
static void load_put_user(char *digits, uint64_t user)
{
    uint64_t value = load_scramble(user);
    for (size_t i = 0; i < USER_DIGITS; i++, value <<= 4)
        digits[i] = "0123456789abcdef"[value >> 60];
}

static bool load_sells(enum mode mode)
{
    return mode == MODE_ORDER || mode == MODE_ORDERS;
}

/* An order's id is made as a user's. */
static void load_make_orders(char *body, size_t size, size_t count)
{
    size_t length = (size_t)snprintf(body, size, count > 1 ? "{\"orders\":[" : "");
    for (size_t i = 0; i < count; i++)
        length += (size_t)snprintf(body + length, size - length,
                                   "%s{\"order_id\":\"u0000000000000000\",\"items\":[{"
                                   "\"product_id\":\"p0000000\",\"quantity\":1}]}",
                                   i > 0 ? "," : "");
    snprintf(body + length, size - length, "%s", count > 1 ? "]}" : "");
}

/* Where users and products stand in the request. */
static void load_find_places(struct connection *connection)
{
    const char *user = connection->request;
    const char *product = connection->request;
    while ((user = strstr(user, "u0000000000000000")) != NULL) {
        size_t number = connection->place_count++;
        connection->users_at[number] = (size_t)(++user - connection->request);
        if (product != NULL && (product = strstr(product, "p0000000")) != NULL)
            connection->products_at[number] = (size_t)(++product - connection->request);
    }
}

static void load_make_request(const struct options *options, struct connection *connection)
{
    /* The headers that curl sends. */
    static char body[REQUEST_SIZE_MAX];
    char entity[96] = "";
    char path[64];
    const char *method = "POST";
    body[0] = '\0';
    snprintf(path, sizeof(path), "/v1/policies/%ld/claims", options->policy_id);
    if (options->mode == MODE_STATUS) {
        method = "GET";
        snprintf(path, sizeof(path), "/v1/policies/%ld/claims/u0000000000000000",
                 options->policy_id);
    } else if (options->mode == MODE_TOP) {
        method = "GET";
        snprintf(path, sizeof(path), "/v1/products/top?days=3&limit=5");
    } else if (load_sells(options->mode)) {
        snprintf(path, sizeof(path), "/v1/orders");
        load_make_orders(body, sizeof(body), options->mode == MODE_ORDER ? 1 : BATCH_MAX);
    } else {
        snprintf(body, sizeof(body), "{\"user\":\"u0000000000000000\"}");
    }
    if (body[0] != '\0')
        snprintf(entity, sizeof(entity),
                 "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    int length = snprintf(connection->request, sizeof(connection->request),
                          "%s %s HTTP/1.1\r\nHost: %s\r\n"
                          "User-Agent: dibs-bench/1\r\nAccept: */*\r\n%s\r\n%s",
                          method, path, options->address_text, entity, body);
    if (length < 0 || (size_t)length >= sizeof(connection->request))
        load_die("the request does not fit");
    connection->request_length = (size_t)length;
    load_find_places(connection);
}

static void load_fill_request(struct load *load, struct connection *connection)
{
    for (size_t i = 0; i < connection->place_count; i++) {
        load_put_user(connection->request + connection->users_at[i], load_pick_user(load));
        if (!load_sells(load->options->mode))
            continue;
        uint64_t product = load_random_below(load, load->options->held_count);
        char *digits = connection->request + connection->products_at[i];
        for (size_t at = PRODUCT_DIGITS; at-- > 0; product /= 10)
            digits[at] = (char)('0' + product % 10);
    }
}

static void load_send(struct load *load, struct connection *connection)
{
    const struct options *options = load->options;
    if (load->stopping || (options->request_count && load->sent_count == options->request_count))
        return;
    load_fill_request(load, connection);
    ssize_t sent = send(connection->fd, connection->request, connection->request_length,
                        MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent != (ssize_t)connection->request_length)
        load_die("cannot send: %s", sent < 0 ? strerror(errno) : "the socket is full");
    load->sent_count++;
    load->in_flight_count++;
}

/* Sets reply_need once the head is there. */
static void load_read_head(struct connection *connection)
{
    static const char name[] = "content-length:";
    char *at = connection->reply;
    char *end = at + connection->reply_have;
    size_t body_length = 0;
    for (;;) {
        char *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL)
            return;
        if (newline - at <= 1)
            break;
        if ((size_t)(newline - at) > sizeof(name) && (*at | 0x20) == 'c' &&
            strncasecmp(at, name, sizeof(name) - 1) == 0)
            body_length = strtoul(at + sizeof(name) - 1, NULL, 10);
        at = newline + 1;
        if (at == end)
            return;
    }
    char *newline = memchr(at, '\n', (size_t)(end - at));
    connection->reply_need = (size_t)(newline + 1 - connection->reply) + body_length;
    if (connection->reply_need > REPLY_SIZE_MAX)
        load_die("a reply of %zu bytes is too long for me", connection->reply_need);
}

static void load_count_reply(struct load *load, const struct connection *connection)
{
    const char *digits = connection->reply + 9; /* after "HTTP/1.1 " */
    unsigned status = 0;
    for (int i = 0; i < 3; i++)
        status = status * 10 + (unsigned)(digits[i] - '0');
    if (memcmp(connection->reply, "HTTP/1.1 ", 9) != 0 || status >= STATUS_MAX)
        load_die("this is not HTTP: %.40s", connection->reply);
    load->status_counts[status]++;
    load->reply_count++;
    load->reply_bytes += connection->reply_need;
    load->in_flight_count--;
}

static void load_on_readable(struct load *load, struct connection *connection)
{
    ssize_t got = recv(connection->fd, connection->reply + connection->reply_have,
                       sizeof(connection->reply) - connection->reply_have, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0)
        load_die("the server closed a connection%s%s", got < 0 ? ": " : "",
                 got < 0 ? strerror(errno) : "");
    connection->reply_have += (size_t)got;
    if (connection->reply_need == 0)
        load_read_head(connection);
    if (connection->reply_need == 0 || connection->reply_have < connection->reply_need)
        return;
    if (connection->reply_have > connection->reply_need)
        load_die("more bytes than one reply has");
    load_count_reply(load, connection);
    connection->reply_have = 0;
    connection->reply_need = 0;
    load_send(load, connection);
}

static void load_connect(struct load *load, struct connection *connection)
{
    const struct options *options = load->options;
    connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection->fd < 0 || connect(connection->fd, (const struct sockaddr *)&options->address,
                                      sizeof(options->address)) != 0)
        load_die("cannot connect to %s: %s", options->address_text, strerror(errno));
    int on = 1;
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    load_make_request(options, connection);
    /* Edge-triggered: a reply that comes in parts makes an edge for each part. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = connection};
    if (epoll_ctl(load->epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) != 0)
        load_die("epoll: %s", strerror(errno));
}

/* Serves events until the deadline, or until nothing is in flight any more. Never sleeps: a
 * sleeping client on the same machine would have to be woken by the server's writes, at the
 * server's expense, and all the more often the longer the server takes; a client elsewhere would
 * not. */
static void load_run_until(struct load *load, int64_t deadline_ns)
{
    struct epoll_event events[EVENTS_MAX];
    int64_t now_ns = load_clock_ns(CLOCK_MONOTONIC);
    int64_t heard_ns = now_ns;
    while (load->in_flight_count > 0 && now_ns < deadline_ns) {
        int count = epoll_wait(load->epoll_fd, events, EVENTS_MAX, 0);
        for (int i = 0; i < count; i++)
            load_on_readable(load, events[i].data.ptr);
        int64_t before_ns = now_ns;
        now_ns = load_clock_ns(CLOCK_MONOTONIC);
        if (count > 0) {
            load->busy_ns += now_ns - before_ns;
            heard_ns = now_ns;
        } else if (now_ns - heard_ns > SILENCE_NS) {
            load_die("no reply for %lld s, %llu requests in flight", SILENCE_NS / 1000000000,
                     (unsigned long long)load->in_flight_count);
        }
    }
}

static void load_forget_counts(struct load *load)
{
    load->reply_count = 0;
    load->reply_bytes = 0;
    load->busy_ns = 0;
    memset(load->status_counts, 0, sizeof(load->status_counts));
}

/* Waits, a second at most, until the server has done what the last replies left it to do. */
static int64_t load_settled_cpu_ns(pid_t pid)
{
    int64_t before_ns = load_server_cpu_ns(pid);
    for (int i = 0; i < 50 && pid != 0; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        int64_t now_ns = load_server_cpu_ns(pid);
        bool settled = now_ns - before_ns < SETTLED_NS;
        before_ns = now_ns;
        if (settled)
            break;
    }
    return before_ns;
}

static void load_measure(struct load *load)
{
    const struct options *options = load->options;
    int64_t start_ns = load_clock_ns(CLOCK_MONOTONIC);
    for (size_t i = 0; i < options->connection_count; i++)
        load_send(load, &load->connections[i]);
    if (options->warmup_seconds > 0) {
        load_run_until(load, start_ns + (int64_t)(options->warmup_seconds * 1e9));
        load_forget_counts(load);
        start_ns = load_clock_ns(CLOCK_MONOTONIC);
    }
    int64_t server_start_ns = load_server_cpu_ns(options->server_pid);
    int64_t deadline_ns = INT64_MAX;
    if (options->request_count == 0)
        deadline_ns = start_ns + (int64_t)(options->seconds * 1e9);
    load_run_until(load, deadline_ns);
    load->stopping = true;
    load_run_until(load, INT64_MAX);
    int64_t end_ns = load_clock_ns(CLOCK_MONOTONIC);
    int64_t server_end_ns = load_server_cpu_ns(options->server_pid);
    int64_t server_ns = load_settled_cpu_ns(options->server_pid) - server_start_ns;

    printf("{\"mode\":\"%s\",\"requests\":%llu,\"seconds\":%.6f,\"server_cpu_seconds\":%.6f,"
           "\"server_busy\":%.3f,\"generator_busy\":%.3f,\"reply_bytes\":%llu,\"statuses\":{",
           mode_names[options->mode], (unsigned long long)load->reply_count,
           (double)(end_ns - start_ns) / 1e9, (double)server_ns / 1e9,
           (double)(server_end_ns - server_start_ns) / (double)(end_ns - start_ns),
           (double)load->busy_ns / (double)(end_ns - start_ns),
           (unsigned long long)(load->reply_count ? load->reply_bytes / load->reply_count : 0));
    const char *separator = "";
    for (unsigned status = 0; status < STATUS_MAX; status++) {
        if (load->status_counts[status] == 0)
            continue;
        printf("%s\"%u\":%llu", separator, status, (unsigned long long)load->status_counts[status]);
        separator = ",";
    }
    printf("}}\n");
}

__attribute__((noreturn)) static void load_usage(void)
{
    fputs("usage: load --address IPV4:PORT --mode MODE [--policy ID]\n"
          "            [--connections N] [--seconds S | --requests N] [--warmup S]\n"
          "            [--first USER] [--held USERS or PRODUCTS] [--pid SERVER]\n"
          "modes: sold_out already issued status top order orders\n",
          stderr);
    exit(2);
}

static void load_parse_address(struct options *options, char *text)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    if (colon == NULL || (size_t)(colon - text) >= sizeof(host))
        load_usage();
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    options->address.sin_family = AF_INET;
    options->address.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    if (inet_pton(AF_INET, host, &options->address.sin_addr) != 1)
        load_usage();
    options->address_text = text;
}

static enum mode load_parse_mode(const char *text)
{
    for (size_t i = 0; i < sizeof(mode_names) / sizeof(*mode_names); i++)
        if (strcmp(mode_names[i], text) == 0)
            return (enum mode)i;
    load_usage();
}

static void load_parse(struct options *options, int argc, char **argv)
{
    static const struct option flags[] = {
        {"address", 1, NULL, 'a'},     {"mode", 1, NULL, 'm'},    {"policy", 1, NULL, 'p'},
        {"connections", 1, NULL, 'c'}, {"seconds", 1, NULL, 's'}, {"requests", 1, NULL, 'r'},
        {"warmup", 1, NULL, 'w'},      {"first", 1, NULL, 'f'},   {"held", 1, NULL, 'h'},
        {"pid", 1, NULL, 'i'},         {NULL, 0, NULL, 0},
    };
    int flag;
    while ((flag = getopt_long(argc, argv, "", flags, NULL)) != -1) {
        switch (flag) {
        case 'a':
            load_parse_address(options, optarg);
            break;
        case 'm':
            options->mode = load_parse_mode(optarg);
            break;
        case 'p':
            options->policy_id = strtol(optarg, NULL, 10);
            break;
        case 'c':
            options->connection_count = strtoul(optarg, NULL, 10);
            break;
        case 's':
            options->seconds = strtod(optarg, NULL);
            break;
        case 'r':
            options->request_count = strtoull(optarg, NULL, 10);
            break;
        case 'w':
            options->warmup_seconds = strtod(optarg, NULL);
            break;
        case 'f':
            options->first_user = strtoull(optarg, NULL, 10);
            break;
        case 'h':
            options->held_count = strtoull(optarg, NULL, 10);
            break;
        case 'i':
            options->server_pid = (pid_t)strtol(optarg, NULL, 10);
            break;
        default:
            load_usage();
        }
    }
    if (options->address_text == NULL || options->connection_count == 0 || optind != argc)
        load_usage();
}

int main(int argc, char **argv)
{
    struct options options = {
        .policy_id = 1, .connection_count = 64, .seconds = 2, .held_count = 1};
    load_parse(&options, argc, argv);
    struct load load = {.options = &options, .next_user = options.first_user};
    load.random = (uint64_t)load_clock_ns(CLOCK_REALTIME);
    /* Nobody else has users up there, nor had an earlier run of this mode. */
    if (options.mode == MODE_SOLD_OUT)
        load.next_user = load.random | (UINT64_C(1) << 63);
    load.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    load.connections = calloc(options.connection_count, sizeof(*load.connections));
    if (load.epoll_fd < 0 || load.connections == NULL)
        load_die("cannot start: %s", strerror(errno));
    for (size_t i = 0; i < options.connection_count; i++)
        load_connect(&load, &load.connections[i]);
    load_measure(&load);
    for (size_t i = 0; i < options.connection_count; i++)
        close(load.connections[i].fd);
    close(load.epoll_fd);
    free(load.connections);
    return 0;
}
