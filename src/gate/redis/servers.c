/* servers.c: reads a Redis URL and prepares TLS; finds the primaries: given, asked from sentinels,
 * or read from CLUSTER SLOTS. */
#include "gate/redis/servers.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "gate/redis/link.h"

#define PORT_DEFAULT          6379
#define PORT_SENTINEL_DEFAULT 26379
#define DATABASE_MAX          1000000

static const char *const redis_parameters[] = {"ssl_ca", "ssl_cert", "ssl_key", "ssl_verify"};

static enum status redis_target_check_parameters(const struct url *url, struct error *error)
{
    for (size_t i = 0; i < url->parameter_count; i++) {
        bool known = false;
        for (size_t j = 0; j < sizeof(redis_parameters) / sizeof(redis_parameters[0]); j++)
            known = known || strcmp(url->parameters[i].name, redis_parameters[j]) == 0;
        if (!known)
            return error_set(error, STATUS_INVALID,
                             "gate: unknown parameter \"%.40s\"; known: ssl_ca, ssl_cert, ssl_key, "
                             "ssl_verify, socket",
                             url->parameters[i].name);
    }
    return STATUS_OK;
}

static enum status redis_target_read_scheme(struct redis_target *target, struct error *error)
{
    static const struct {
        const char *scheme;
        enum redis_mode mode;
        bool uses_tls;
    } schemes[] = {
        {"redis", REDIS_MODE_SINGLE, false},
        {"rediss", REDIS_MODE_SINGLE, true},
        {"redis+sentinel", REDIS_MODE_SENTINEL, false},
        {"rediss+sentinel", REDIS_MODE_SENTINEL, true},
        {"redis+cluster", REDIS_MODE_CLUSTER, false},
        {"rediss+cluster", REDIS_MODE_CLUSTER, true},
    };

    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        if (strcmp(target->url.scheme, schemes[i].scheme) == 0) {
            target->mode = schemes[i].mode;
            target->uses_tls = schemes[i].uses_tls;
            return STATUS_OK;
        }
    }
    return error_set(error, STATUS_INVALID,
                     "gate: unknown kind of URL; known: local, redis://…, rediss://…, "
                     "redis+sentinel://…, redis+cluster://…");
}

static enum status redis_target_read_hosts(struct redis_target *target, struct error *error)
{
    const struct url *url = &target->url;

    if (target->mode == REDIS_MODE_SINGLE && url->host_count > 1)
        return error_set(error, STATUS_INVALID,
                         "gate: redis:// names one server; several are redis+sentinel:// or "
                         "redis+cluster://");
    for (size_t i = 0; i < url->host_count; i++) {
        struct redis_address *seed = &target->seeds[i];
        if (strlen(url->hosts[i].name) >= sizeof(seed->host))
            return error_set(error, STATUS_INVALID, "gate: a host's name is too long");
        snprintf(seed->host, sizeof(seed->host), "%s",
                 url->hosts[i].name[0] != '\0' ? url->hosts[i].name : "127.0.0.1");
        seed->port = url->hosts[i].port;
        if (seed->port == 0)
            seed->port = target->mode == REDIS_MODE_SENTINEL ? PORT_SENTINEL_DEFAULT : PORT_DEFAULT;
    }
    target->seed_count = url->host_count;
    return STATUS_OK;
}

static enum status redis_target_read_database(struct redis_target *target, const char *text,
                                              struct error *error)
{
    char *end = NULL;
    long number = text[0] == '\0' ? 0 : strtol(text, &end, 10);

    if ((end != NULL && *end != '\0') || number < 0 || number > DATABASE_MAX)
        return error_set(error, STATUS_INVALID,
                         "gate: the database is a number, as in redis://host/0");
    if (number != 0 && target->mode == REDIS_MODE_CLUSTER)
        return error_set(error, STATUS_INVALID, "gate: a cluster has database 0 only");
    target->database = (int)number;
    return STATUS_OK;
}

/* "0", or of the sentinels "master/0". */
static enum status redis_target_read_path(struct redis_target *target, struct error *error)
{
    const char *path = target->url.path;

    if (target->mode != REDIS_MODE_SENTINEL)
        return redis_target_read_database(target, path, error);
    const char *slash = strchr(path, '/');
    target->master = slash == NULL ? strdup(path) : strndup(path, (size_t)(slash - path));
    if (target->master == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the gate's URL");
    if (target->master[0] == '\0')
        return error_set(error, STATUS_INVALID,
                         "gate: redis+sentinel:// needs the master's name: host,host/NAME");
    return redis_target_read_database(target, slash == NULL ? "" : slash + 1, error);
}

/* --- TLS --- */

static enum status redis_target_tls_error(const char *what, const char *file, struct error *error)
{
    char message[160] = "";
    ERR_error_string_n(ERR_get_error(), message, sizeof(message));
    return error_set(error, STATUS_INVALID, "gate: %s %.100s: %s", what, file, message);
}

static enum status redis_target_open_tls(struct redis_target *target, struct error *error)
{
    const char *ca = url_parameter(&target->url, "ssl_ca");
    const char *certificate = url_parameter(&target->url, "ssl_cert");
    const char *key = url_parameter(&target->url, "ssl_key");
    const char *verify = url_parameter(&target->url, "ssl_verify");

    if (!target->uses_tls)
        return STATUS_OK;
    if (verify != NULL && strcmp(verify, "full") != 0 && strcmp(verify, "ca") != 0 &&
        strcmp(verify, "none") != 0)
        return error_set(error, STATUS_INVALID, "gate: ssl_verify is full, ca or none");
    if ((certificate == NULL) != (key == NULL))
        return error_set(error, STATUS_INVALID, "gate: ssl_cert and ssl_key belong together");
    target->tls = SSL_CTX_new(TLS_client_method());
    if (target->tls == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for TLS");
    SSL_CTX_set_min_proto_version(target->tls, TLS1_2_VERSION);
    target->verifies_name = verify == NULL || strcmp(verify, "full") == 0;
    SSL_CTX_set_verify(
        target->tls,
        verify != NULL && strcmp(verify, "none") == 0 ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    if (ca != NULL ? SSL_CTX_load_verify_locations(target->tls, ca, NULL) != 1
                   : SSL_CTX_set_default_verify_paths(target->tls) != 1)
        return redis_target_tls_error("ssl_ca", ca != NULL ? ca : "of the system", error);
    if (certificate != NULL && SSL_CTX_use_certificate_chain_file(target->tls, certificate) != 1)
        return redis_target_tls_error("ssl_cert", certificate, error);
    if (key != NULL && SSL_CTX_use_PrivateKey_file(target->tls, key, SSL_FILETYPE_PEM) != 1)
        return redis_target_tls_error("ssl_key", key, error);
    return STATUS_OK;
}

/* --- life --- */

enum status redis_target_init(struct redis_target *target, const char *url, const char *password,
                              int64_t timeout_ms, struct error *error)
{
    *target = (struct redis_target){.timeout_ms = timeout_ms};
    enum status status = url_parse(&target->url, url, error);

    if (status != STATUS_OK)
        return status;
    target->user =
        target->url.user != NULL && target->url.user[0] != '\0' ? target->url.user : NULL;
    if (password == NULL)
        password = target->url.password;
    if (password != NULL && (target->password = strdup(password)) == NULL)
        status = error_set(error, STATUS_UNAVAILABLE, "no memory for the gate's URL");
    if (status == STATUS_OK)
        status = redis_target_check_parameters(&target->url, error);
    if (status == STATUS_OK)
        status = redis_target_read_scheme(target, error);
    if (status == STATUS_OK)
        status = redis_target_read_hosts(target, error);
    if (status == STATUS_OK)
        status = redis_target_read_path(target, error);
    if (status == STATUS_OK)
        status = redis_target_open_tls(target, error);
    if (status != STATUS_OK)
        redis_target_release(target);
    return status;
}

void redis_target_release(struct redis_target *target)
{
    secret_free(target->password);
    free(target->master);
    SSL_CTX_free(target->tls);
    url_release(&target->url);
    *target = (struct redis_target){0};
}

struct error redis_address_text(const struct redis_address *address)
{
    struct error message;
    if (address->host[0] == '/')
        error_set(&message, STATUS_OK, "%s", address->host);
    else
        error_set(&message, STATUS_OK, "%s:%d", address->host, address->port);
    return message;
}

bool redis_address_equal(const struct redis_address *a, const struct redis_address *b)
{
    return a->port == b->port && strcmp(a->host, b->host) == 0;
}

#define REFRESH_PAUSE_MS 100
#define PORT_MAX         65535

void redis_map_init(struct redis_map *map, const struct redis_target *target)
{
    *map = (struct redis_map){.target = target};
    pthread_mutex_init(&map->refresh_lock, NULL);
    pthread_mutex_init(&map->lock, NULL);
    if (target->mode == REDIS_MODE_SINGLE) {
        map->nodes[0] = target->seeds[0];
        map->node_count = 1;
    }
}

void redis_map_release(struct redis_map *map)
{
    pthread_mutex_destroy(&map->lock);
    pthread_mutex_destroy(&map->refresh_lock);
}

/* --- slots --- */

/* CRC-16/XMODEM, which is how a cluster spreads keys. */
static unsigned redis_map_crc16(const char *bytes, size_t length)
{
    unsigned crc = 0;

    for (size_t i = 0; i < length; i++) {
        crc ^= (unsigned)(unsigned char)bytes[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 0x8000) != 0 ? (crc << 1 ^ 0x1021) & 0xffff : crc << 1 & 0xffff;
    }
    return crc;
}

unsigned redis_map_slot_of(const char *tag)
{
    return redis_map_crc16(tag, strlen(tag)) % REDIS_SLOTS;
}

unsigned redis_map_slot(int64_t policy_id)
{
    char tag[24];

    snprintf(tag, sizeof(tag), "%lld", (long long)policy_id);
    return redis_map_slot_of(tag);
}

/* --- asking --- */

/* An array's first two parts, the host and the port. */
static bool redis_map_read_address(const redisReply *reply, const struct redis_address *from,
                                   struct redis_address *address)
{
    const redisReply *host = redis_reply_at(reply, 0);
    int64_t port;

    if (!redis_reply_number(redis_reply_at(reply, 1), 1, PORT_MAX, &port) ||
        (!redis_reply_is_nil(host) &&
         !redis_reply_copy(host, address->host, sizeof(address->host))))
        return false;
    /* A node that does not know its own name means the one we asked. */
    if (redis_reply_is_nil(host) || address->host[0] == '\0')
        memcpy(address->host, from->host, sizeof(address->host));
    address->port = (int)port;
    return true;
}

static bool redis_map_add_node(struct redis_map *fresh, const struct redis_address *address,
                               uint16_t *index)
{
    for (size_t i = 0; i < fresh->node_count; i++) {
        if (redis_address_equal(&fresh->nodes[i], address)) {
            *index = (uint16_t)i;
            return true;
        }
    }
    if (fresh->node_count == REDIS_NODES_MAX)
        return false;
    *index = (uint16_t)fresh->node_count;
    fresh->nodes[fresh->node_count++] = *address;
    return true;
}

/* Ranges as [first, last, [host, port, …] of the primary, replicas …]. */
static bool redis_map_read_slots(const redisReply *reply, const struct redis_address *from,
                                 struct redis_map *fresh)
{
    for (size_t i = 0; i < redis_reply_count(reply); i++) {
        const redisReply *range = redis_reply_at(reply, i);
        struct redis_address address = {.port = 0};
        int64_t first;
        int64_t last;
        uint16_t index;
        if (!redis_reply_number(redis_reply_at(range, 0), 0, REDIS_SLOTS - 1, &first) ||
            !redis_reply_number(redis_reply_at(range, 1), 0, REDIS_SLOTS - 1, &last) ||
            !redis_map_read_address(redis_reply_at(range, 2), from, &address) ||
            !redis_map_add_node(fresh, &address, &index))
            return false;
        for (int64_t slot = first; slot <= last; slot++)
            fresh->slots[slot] = index;
    }
    return fresh->node_count > 0;
}

bool redis_map_read(struct redis_map *fresh, const redisReply *reply,
                    const struct redis_target *target, const struct redis_address *from)
{
    fresh->node_count = 0;
    if (target->mode == REDIS_MODE_CLUSTER)
        return redis_map_read_slots(reply, from, fresh);
    fresh->node_count = 1;
    return redis_reply_count(reply) == 2 && redis_map_read_address(reply, from, &fresh->nodes[0]);
}

static enum status redis_map_ask(const struct redis_map *map, const struct redis_address *address,
                                 struct redis_map *fresh, struct error *error)
{
    redisContext *link = NULL;
    struct redis_target plain = *map->target;

    if (plain.mode == REDIS_MODE_SENTINEL) {
        /* Sentinels have neither databases nor, usually, the data's password. */
        plain.database = 0;
        plain.password = NULL;
    }
    enum status status = redis_link_open(&link, &plain, address, error);
    if (status != STATUS_OK)
        return status;
    redisReply *reply =
        map->target->mode == REDIS_MODE_SENTINEL
            ? redisCommand(link, "SENTINEL get-master-addr-by-name %s", map->target->master)
            : redisCommand(link, "CLUSTER SLOTS");
    if (!redis_map_read(fresh, reply, map->target, address))
        status = error_set(error, STATUS_UNAVAILABLE, "%s does not say where the %s is",
                           redis_address_text(address).text,
                           map->target->mode == REDIS_MODE_SENTINEL ? "master" : "data");
    freeReplyObject(reply);
    redisFree(link);
    return status;
}

/* Under the lock: gives those that were known the places they had, and the others what is free. */
static void redis_map_give_places(const struct redis_map *map, struct redis_map *fresh)
{
    bool is_taken[REDIS_NODES_MAX] = {false};
    bool is_known[REDIS_NODES_MAX] = {false};

    for (size_t i = 0; i < fresh->node_count; i++) {
        for (size_t old = 0; old < map->node_count && !is_known[i]; old++) {
            is_known[i] = redis_address_equal(&map->nodes[old], &fresh->nodes[i]);
            if (is_known[i])
                is_taken[fresh->places[i] = map->places[old]] = true;
        }
    }
    for (size_t i = 0, place = 0; i < fresh->node_count; i++) {
        if (is_known[i])
            continue;
        while (is_taken[place])
            place++;
        fresh->places[i] = (uint16_t)place++;
    }
}

/* Takes over what was learnt. */
static void redis_map_take(struct redis_map *map, struct redis_map *fresh)
{
    pthread_mutex_lock(&map->lock);
    bool same = map->node_count == fresh->node_count &&
                memcmp(map->slots, fresh->slots, sizeof(map->slots)) == 0;

    for (size_t i = 0; i < fresh->node_count && same; i++)
        same = redis_address_equal(&map->nodes[i], &fresh->nodes[i]);
    if (!same) {
        redis_map_give_places(map, fresh);
        memcpy(map->places, fresh->places, sizeof(map->places));
        memcpy(map->nodes, fresh->nodes, fresh->node_count * sizeof(map->nodes[0]));
        memcpy(map->slots, fresh->slots, sizeof(map->slots));
        map->node_count = fresh->node_count;
        log_event(LOG_INFO, "redis_map_changed", LOG_FIELD("primaries", LOG_I64(map->node_count)),
                  LOG_FIELD("first", LOG_TEXT(redis_address_text(&map->nodes[0]).text)));
    }
    pthread_mutex_unlock(&map->lock);
}

/* Asks the nodes of the URL, then, of a cluster, those known last. */
static enum status redis_map_ask_all(struct redis_map *map, struct redis_map *fresh,
                                     struct error *error)
{
    struct redis_address nodes[REDIS_NODES_MAX];
    enum status status = STATUS_UNAVAILABLE;
    size_t count =
        map->target->mode == REDIS_MODE_CLUSTER ? redis_map_list(map, nodes, REDIS_NODES_MAX) : 0;
    for (size_t i = 0; i < map->target->seed_count && status != STATUS_OK; i++)
        status = redis_map_ask(map, &map->target->seeds[i], fresh, error);
    for (size_t i = 0; i < count && status != STATUS_OK; i++)
        status = redis_map_ask(map, &nodes[i], fresh, error);
    return status;
}

enum status redis_map_refresh(struct redis_map *map, struct error *error)
{
    enum status status = STATUS_OK;

    if (map->target->mode == REDIS_MODE_SINGLE)
        return STATUS_OK;
    pthread_mutex_lock(&map->refresh_lock);
    int64_t now_ms = clock_monotonic_ms();
    if (map->refreshed_ms == 0 || now_ms - map->refreshed_ms >= REFRESH_PAUSE_MS) {
        struct redis_map fresh = {.node_count = 0};
        status = redis_map_ask_all(map, &fresh, error);
        if (status == STATUS_OK)
            redis_map_take(map, &fresh);
        /* After the asking: whoever waited for it does not ask again. */
        map->refreshed_ms = clock_monotonic_ms();
    }
    pthread_mutex_unlock(&map->refresh_lock);
    return status;
}

/* --- looking --- */

bool redis_map_find(struct redis_map *map, int64_t policy_id, struct redis_address *address)
{
    return redis_map_find_slot(map, redis_map_slot(policy_id), address);
}

bool redis_map_find_slot(struct redis_map *map, unsigned slot, struct redis_address *address)
{
    pthread_mutex_lock(&map->lock);
    bool known = map->node_count > 0;
    if (known)
        *address = map->nodes[map->target->mode == REDIS_MODE_CLUSTER ? map->slots[slot] : 0];
    pthread_mutex_unlock(&map->lock);
    return known;
}

size_t redis_map_place(struct redis_map *map, int64_t policy_id)
{
    unsigned slot = redis_map_slot(policy_id);

    pthread_mutex_lock(&map->lock);
    size_t place = map->target->mode == REDIS_MODE_CLUSTER && map->node_count > 0
                       ? map->places[map->slots[slot]]
                       : 0;
    pthread_mutex_unlock(&map->lock);
    return place;
}

size_t redis_map_list(struct redis_map *map, struct redis_address *addresses, size_t max)
{
    pthread_mutex_lock(&map->lock);
    size_t count = map->node_count < max ? map->node_count : max;
    memcpy(addresses, map->nodes, count * sizeof(addresses[0]));
    pthread_mutex_unlock(&map->lock);
    return count;
}

bool redis_map_read_redirect(const char *message, const struct redis_address *from,
                             struct redis_address *to)
{
    const char *slot = strchr(message, ' ');
    const char *host = slot == NULL ? NULL : strchr(slot + 1, ' ');
    const char *port = host == NULL ? NULL : strrchr(host, ':');

    struct redis_address read = *from; /* which may be `to` */
    int64_t number;

    if (port == NULL || (size_t)(port - host) > sizeof(read.host))
        return false;
    if (port > host + 1)
        snprintf(read.host, sizeof(read.host), "%.*s", (int)(port - host - 1), host + 1);
    struct span digits = span_of(port + 1);
    if (!redis_text_take_numbers(&digits, 1, &number) || digits.length > 0 || number < 1 ||
        number > PORT_MAX)
        return false;
    read.port = (int)number;
    *to = read;
    return true;
}
