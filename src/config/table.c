/* table.c: the one list of settings, from which everything about them is made. */
#include "config/config.h"

#include "config/check.h"

static const char *const config_acks[] = {"gate", "ledger", NULL};
static const char *const config_fallbacks[] = {"reject", "ledger", NULL};
static const char *const config_claims[] = {"token", "open", NULL};
static const char *const config_boards[] = {"auto", "local", "redis", NULL};

/* In the order of the enums they become. */
static const char *const config_switches[] = {"off", "on", NULL};
static const char *const config_integrity_checks[] = {"quick", "full", "off", NULL};
static const char *const config_log_levels[] = {"debug", "info", "warn", "error", NULL};
static const char *const config_log_formats[] = {"logfmt", "json", NULL};

#define MINUTE_MS INT64_C(60000)
#define HOUR_MS   (60 * MINUTE_MS)

/* What every row begins with: its name, its group, the type of its value and where that is. */
#define KEY(key, heading, value_type, member)                \
    .name = (key), .group = (heading), .type = (value_type), \
    .offset = offsetof(struct config, member)

/* A number, a rate or a duration, with its default, the least and the most that it may be, an
 * example and what it does. */
#define NUMBER(value_type, key, heading, member, usual, least, most, shown, says) \
    {KEY(key, heading, CONFIG_##value_type, member),                              \
     .fallback = (usual),                                                         \
     .minimum = (least),                                                          \
     .maximum = (most),                                                           \
     .example = (shown),                                                          \
     .help = (says)}

/* One of several words, with its default, all of them, what stands for one, an example and what it
 * does. */
#define WORD(value_type, key, heading, member, usual, names, word, shown, says) \
    {KEY(key, heading, CONFIG_##value_type, member),                            \
     .fallback = (usual),                                                       \
     .choices = (names),                                                        \
     .value_name = (word),                                                      \
     .example = (shown),                                                        \
     .help = (says)}

/* A secret's two rows: the name of its file, and itself for when there is none to put it into. */
#define SECRET(key, heading, least, checked_by, what, file_has)           \
    {KEY(#key "_file", heading, CONFIG_FILE, key##_file), .fallback = "", \
     .help = "A file with " file_has, .example = "/etc/dibs/" #key},      \
        {KEY(#key, heading, CONFIG_SECRET, key),                          \
         .fallback = "",                                                  \
         .minimum = (least),                                              \
         .secret_file = #key "_file",                                     \
         .check = (checked_by),                                           \
         .help = "The " what " itself, for when there is no file to put it into."}

const struct config_key config_keys[] = {
    {
        KEY("listen", "Server", CONFIG_ADDRESS, listen),
        .fallback = "127.0.0.1:8080",
        .help = "Where to listen: an address and a port, in numbers. Port 0 picks a free one. "
                "Anything but loopback needs an admin token.",
        .example = "0.0.0.0:8080",
    },
    {
        KEY("worker_listen", "Server", CONFIG_TEXT, worker_listen),
        .fallback = "",
        .value_name = "ADDRESS",
        .help = "Where a worker answers /healthz, /readyz and /metrics; empty means nowhere.",
        .example = "127.0.0.1:9090",
        .check = config_check_address_or_none,
    },
    {
        KEY("metrics_listen", "Server", CONFIG_TEXT, metrics_listen),
        .fallback = "",
        .value_name = "ADDRESS",
        .help = "Where a server answers /metrics, and /healthz and /readyz as well, apart from the "
                "rest; where it listens for the rest, /metrics is then for admins only. Empty "
                "means that it is there for all.",
        .example = "127.0.0.1:9090",
        .check = config_check_address_or_none,
    },
    NUMBER(INTEGER, "threads", "Server", threads, "0", 0, 256, "4",
           "How many event loops serve requests; 0 means one per core."),
    NUMBER(INTEGER, "connections_max", "Server", connections_max, "0", 0, 10000000, "20000",
           "The most connections that may be open at once; 0 means as many as the limit of open "
           "files allows."),
    NUMBER(INTEGER, "connections_per_address", "Server", connections_per_address, "500", 0,
           10000000, "50",
           "The most connections of one address (of IPv6: one /64); 0 means any number. Those of "
           "127.0.0.1, ::1 and trusted_proxies are not counted; what a trusted proxy asks counts "
           "for the client it names."),
    NUMBER(INTEGER, "streams_per_address", "Server", streams_per_address, "100", 0, 10000000, "20",
           "The most event streams of one client address, counted as connections are; 0 means any "
           "number. Those of admins and of the service token are not counted."),
    NUMBER(INTEGER, "unsent_max", "Server", unsent_max_mib, "64", 1, 1000000, "256",
           "How many MiB of answers may be under way to clients that have not taken them. Beyond "
           "that, lists, pages and streams get 503, and connections that do not read are cut off "
           "sooner; claims go on."),
    {
        KEY("demo", "Server", CONFIG_ENUM, demo),
        .fallback = "off",
        .choices = config_switches,
        .value_name = "[on]",
        .help = "Shows what dibs does: a drop of 500 coupons and a crowd that wants them, anew "
                "every minute, and a shop that sells. Only on loopback.",
        .example = "on",
        .alone = "on",
    },
    {
        KEY("gate", "Backends", CONFIG_URL, gate),
        .fallback = "local",
        .help = "Who decides which claims win: local is this process, in memory; the URL of a "
                "Redis (redis://, rediss:// with TLS, redis+sentinel://, redis+cluster://) lets "
                "any number of servers share one line.",
        .example = "redis://redis.example:6379",
        .check = config_check_gate,
    },
    SECRET(gate_password, "Backends", 1, config_check_password, "password for Redis",
           "the password for Redis."),
    NUMBER(DURATION, "gate_timeout", "Backends", gate_timeout_ms, "1s", 10, MINUTE_MS, "500ms",
           "How long Redis may take to answer before it counts as away."),
    WORD(CHOICE, "ack", "Backends", ack, "gate", config_acks, "WHEN", "ledger",
         "With Redis, when a winner is answered: gate at once, with 202 ACCEPTED; ledger when the "
         "coupon is in the database, with 201 ISSUED. Servers and workers need the same."),
    NUMBER(INTEGER, "replicas", "Backends", replicas, "0", 0, 100, "1",
           "With Redis, how many of its replicas must have a win before it is answered; with too "
           "few the answer is 503, and the retry finds the claim."),
    WORD(CHOICE, "board", "Backends", board, "auto", config_boards, "WHERE", "local",
         "Where the ranking's counters are: local in the memory of each server, redis in the "
         "gate's Redis, shared by all; auto goes with the gate."),
    NUMBER(DURATION, "sync_interval", "Backends", sync_interval_ms, "10s", 10, 10 * MINUTE_MS, "1m",
           "With Redis, how often a worker compares each policy and its leases there with the "
           "ledger; what is changed through a server is there at once."),
    NUMBER(INTEGER, "orders_keep_days", "Backends", orders_keep_days, "0", 0, 36500, "730",
           "How many days an order is kept, 31 or more; 0 means for ever. What was sold stays "
           "counted."),
    NUMBER(DURATION, "audit_interval", "Backends", audit_interval_ms, "1m", 0, 24 * 60 * MINUTE_MS,
           "5m",
           "How often every policy is audited in the background, by a worker or by the server of a "
           "local gate; one that is oversold is paused. 0s is never."),
    WORD(CHOICE, "fallback", "Backends", fallback, "reject", config_fallbacks, "WHAT", "ledger",
         "With Redis, what happens to claims while it is away: reject answers 503; ledger serves "
         "them from each policy's reserve."),
    {
        KEY("ledger", "Backends", CONFIG_URL, ledger),
        .fallback = "sqlite:dibs.db",
        .help = "The database that holds policies and coupons: sqlite: and the path of its file, "
                "or the URL of a PostgreSQL (postgres://) or MySQL or MariaDB (mysql://) database.",
        .example = "postgres://dibs@db.example/shop?sslmode=verify-full",
        .check = config_check_ledger,
    },
    SECRET(ledger_password, "Backends", 1, config_check_password, "ledger's password",
           "the password for the ledger's database."),
    NUMBER(DURATION, "ledger_timeout", "Backends", ledger_timeout_ms, "10s", 100, 5 * MINUTE_MS,
           "3s",
           "How long PostgreSQL or MySQL may take to connect, to run a statement or to give a lock "
           "before it counts as away."),
    {
        KEY("relay", "Backends", CONFIG_URL, relay),
        .fallback = "direct",
        .help = "How winning claims travel from a gate in Redis to the ledger: direct is within "
                "the worker; the URL of a Kafka (kafka://host:9092,host:9092) lets others listen, "
                "with ?claims=direct only to what becomes of coupons.",
        .example = "kafka://kafka.example:9092",
        .check = config_check_relay,
    },
    SECRET(relay_password, "Backends", 1, config_check_password, "password for Kafka",
           "the password for Kafka."),
    {
        KEY("kafka_topic_pended", "Backends", CONFIG_TEXT, kafka_topic_pended),
        .fallback = "coupon-pended",
        .value_name = "NAME",
        .help =
            "With Kafka, the topic of claims that are won; its dead letters are in one with -dlq "
            "behind the name. Every server and worker has to say the same, here and below.",
        .example = "shop.claims",
        .check = config_check_topic,
    },
    {
        KEY("kafka_topic_issued", "Backends", CONFIG_TEXT, kafka_topic_issued),
        .fallback = "coupon-issued",
        .value_name = "NAME",
        .help = "With Kafka, the topic that tells what becomes of coupons.",
        .example = "shop.coupons",
        .check = config_check_topic,
    },
    {
        KEY("kafka_topic_orders", "Backends", CONFIG_TEXT, kafka_topic_orders),
        .fallback = "order-completed",
        .value_name = "NAME",
        .help = "With Kafka, the topic that orders are read from.",
        .example = "shop.orders",
        .check = config_check_topic,
    },
    {
        KEY("kafka_group", "Backends", CONFIG_TEXT, kafka_group),
        .fallback = "dibs-issuer",
        .value_name = "NAME",
        .help = "With Kafka, the group of the workers that turn claims into coupons.",
        .example = "shop-issuer",
        .check = config_check_topic,
    },
    {
        KEY("kafka_orders_group", "Backends", CONFIG_TEXT, kafka_orders_group),
        .fallback = "dibs-orders",
        .value_name = "NAME",
        .help = "With Kafka, the group of the workers that count orders.",
        .example = "shop-counter",
        .check = config_check_topic,
    },
    NUMBER(
        INTEGER, "kafka_partitions", "Backends", kafka_partitions, "3", 1, 128, "12",
        "With Kafka, how many partitions a topic gets that dibs creates; one that is there stays "
        "as it is. The claims of a policy are in one of them."),
    NUMBER(DURATION, "ack_timeout", "Backends", ack_timeout_ms, "5s", 10, 10 * MINUTE_MS, "2s",
           "How long a claim may wait for the ledger before it is answered 503; its retry finds "
           "the claim."),
    NUMBER(INTEGER, "worker_batch", "Backends", worker_batch, "500", 1, 500, "100",
           "With Redis, how many pending claims a worker reads at once; those of a batch share a "
           "transaction of the database."),
    NUMBER(DURATION, "worker_pause", "Backends", worker_pause_ms, "250ms", 1, 1000, "50ms",
           "With Redis, how long a worker rests at most before it looks again whether a policy "
           "that was quiet has claims pending; one that was claimed from in the last 10 s is "
           "looked at every 20ms, or as often as this says."),
    NUMBER(
        INTEGER, "issue_attempts", "Backends", issue_attempts, "6", 1, 100, "10",
        "With Redis and ack=gate, how often a claim is tried whose row the database refuses, with "
        "pauses that double from 200ms on; then it is VOID, and a dead letter says why. "
        "With ack=ledger the first refusal counts: the user, who was not told yet, gets 503."),
    NUMBER(INTEGER, "pending_max", "Backends", pending_max, "100000", 1, 10000000, "50000",
           "How many claims may wait for the ledger; more are answered 503 before the gate sees "
           "them."),
    WORD(ENUM, "integrity_check", "Backends", integrity_check, "quick", config_integrity_checks,
         "MODE", "full",
         "How thoroughly the SQLite file is checked at start, or while it serves when it is large. "
         "full also compares every index with its table."),
    {
        KEY("webhook", "Webhook", CONFIG_URL, webhook),
        .fallback = "",
        .help = "Where a POST tells of every coupon that is issued, redeemed, cancelled, void or "
                "merged, at least once and in order per policy; empty means nowhere. On every "
                "server and worker of a ledger.",
        .example = "https://shop.example/hooks/dibs",
        .check = config_check_webhook,
    },
    SECRET(webhook_secret, "Webhook", 30, NULL, "webhook's secret",
           "the secret that signs what is sent to the webhook: whsec_ and 24 to 64 bytes in "
           "base64, as Standard Webhooks has it. Several, one a line, all sign while one takes the "
           "place of another."),
    {
        KEY("webhook_ca_file", "Webhook", CONFIG_FILE, webhook_ca_file),
        .fallback = "",
        .help = "A file with the certificates of those who may vouch for the webhook's host; empty "
                "means whom this system trusts.",
        .example = "/etc/dibs/webhook_ca.pem",
    },
    NUMBER(DURATION, "webhook_timeout", "Webhook", webhook_timeout_ms, "10s", 10, 5 * MINUTE_MS,
           "5s", "How long the webhook may take to answer one event."),
    NUMBER(DURATION, "webhook_retry_max", "Webhook", webhook_retry_max_ms, "5m", 10, HOUR_MS, "1m",
           "The longest pause between two tries of an event; the first is a second, and each next "
           "one twice as long."),
    SECRET(admin_token, "Access", 16, config_check_token, "admin token",
           "the token for admin calls. Without an admin token, dibs listens on loopback only."),
    SECRET(
        admin_tokens, "Access", 1, config_check_tokens, "operators' tokens",
        "operators' tokens, a line each: NAME ROLE TOKEN. A viewer sees how it goes, an operator "
        "acts for users and changes policies, an admin may do all. SIGHUP reads it again."),
    SECRET(service_token, "Access", 16, config_check_token, "service token",
           "the token with which a shop's backend claims for its users."),
    SECRET(user_key, "Access", 32, NULL, "users' key",
           "the key that signs users' HS256 tokens. When it is set, the user of a claim is the sub "
           "of such a token and nothing else."),
    {
        KEY("user_audience", "Access", CONFIG_TEXT, user_audience),
        .fallback = "",
        .help = "What the aud of a user's token must contain; empty means that aud is not checked.",
        .example = "shop",
    },
    WORD(CHOICE, "claims", "Access", claims, "token", config_claims, "WHO", "open",
         "Who may claim once any token is set: token, whoever has a user's, the service or the "
         "admin token; open, anyone, to whom a code is shown only by the answer that made it or "
         "for the same Idempotency-Key. Without any token claims are open."),
    SECRET(code_key, "Access", 16, NULL, "codes' key",
           "the key from which coupon codes are made; empty means that the ledger keeps a key of "
           "its own. Another key makes other codes."),
    {
        KEY("cors_origin", "Access", CONFIG_LIST, cors_origin),
        .fallback = "",
        .value_name = "ORIGINS",
        .help = "The origins whose pages may call the API from a browser: a list, or * for all; "
                "empty turns CORS off.",
        .example = "https://shop.example, https://www.shop.example",
        .check = config_check_origin,
    },
    {
        KEY("trusted_proxies", "Access", CONFIG_LIST, trusted_proxies),
        .fallback = "",
        .value_name = "NETWORKS",
        .help = "The addresses of proxies in front, as networks. What they say in X-Forwarded-For "
                "or Forwarded is whose address counts for limits, logs and the login: the "
                "rightmost one there that is not a trusted proxy's.",
        .example = "10.0.0.0/8, 2001:db8::/32",
        .check = config_check_network,
    },
    NUMBER(RATE, "rate_limit_user", "Limits", rate_limit_user, "0", 0, 1000000, "2",
           "How many claims per second one user may make; 0 turns the limit off."),
    NUMBER(INTEGER, "rate_limit_user_burst", "Limits", rate_limit_user_burst, "10", 1, 1000000, "5",
           "How many claims a user who was quiet may make at once."),
    NUMBER(RATE, "rate_limit_address", "Limits", rate_limit_address, "0", 0, 1000000, "100",
           "How many requests per second one address may send; 0 turns the limit off. Behind a "
           "proxy that is not one of trusted_proxies all requests come from its address."),
    NUMBER(INTEGER, "rate_limit_address_burst", "Limits", rate_limit_address_burst, "100", 1,
           1000000, "200", "How many requests an address that was quiet may send at once."),
    NUMBER(DURATION, "header_timeout", "Limits", header_timeout_ms, "5s", 10, HOUR_MS, "2s",
           "How long a client may take to send all headers of a request."),
    NUMBER(DURATION, "body_timeout", "Limits", body_timeout_ms, "5s", 10, HOUR_MS, "2s",
           "How long a client may take to send the body of a request."),
    NUMBER(DURATION, "idle_timeout", "Limits", idle_timeout_ms, "15s", 10, HOUR_MS, "1m",
           "How long a connection may be open without a request."),
    NUMBER(DURATION, "write_timeout", "Limits", write_timeout_ms, "10s", 10, HOUR_MS, "5s",
           "How long a client may stop reading an answer. One that takes less than 4 KiB per "
           "second is cut off, too, after a while."),
    NUMBER(DURATION, "stop_timeout", "Limits", stop_timeout_ms, "10s", 10, HOUR_MS, "30s",
           "How long a stopping server waits for the answers that are in flight."),
    NUMBER(DURATION, "start_timeout", "Limits", start_timeout_ms, "1m", 0, HOUR_MS, "5m",
           "How long a starting server or worker waits for a Redis or a database that is not there "
           "yet; 0 does not wait."),
    NUMBER(DURATION, "ranking_half_life", "Ranking", ranking_half_life_ms, "0s", 0,
           30 * 24 * HOUR_MS, "6h",
           "After this time a sale counts half in the ranking, after twice the time a quarter: 1h "
           "to 720h; 0 ranks by what was sold. The same on every server of a ledger."),
    NUMBER(DURATION, "ranking_refresh", "Ranking", ranking_refresh_ms, "500ms", 100, 10 * MINUTE_MS,
           "10s",
           "How old the best sellers that people are shown may be at least before they are worked "
           "out anew, once something was sold; fresh=true does not wait for it."),
    {
        KEY("ranking_weights", "Ranking", CONFIG_TEXT, ranking_weights),
        .fallback = "",
        .value_name = "LIST",
        .help = "How much a view, a cart and an order of a product count in the ranking; orders "
                "alone when it is empty. The same on every server of a ledger.",
        .example = "view:1,cart:5,order:20",
    },
    {
        KEY("shop_file", "Pages", CONFIG_FILE, shop_file),
        .fallback = "",
        .help = "A JSON file that says whose the storefront is: name, logo, colour, links.",
        .example = "/etc/dibs/shop.json",
    },
    {
        KEY("timezone", "Time and logs", CONFIG_TEXT, timezone),
        .fallback = "UTC",
        .value_name = "NAME",
        .help = "The IANA name of the time zone in which the days of sales begin and end. A ledger "
                "that has orders keeps to the zone that they were counted in.",
        .example = "Asia/Seoul",
        .check = config_check_timezone,
    },
    WORD(ENUM, "log_level", "Time and logs", log_level, "info", config_log_levels, "LEVEL", "debug",
         "The least important events that are logged."),
    WORD(ENUM, "log_format", "Time and logs", log_format, "logfmt", config_log_formats, "FORMAT",
         "json", "How log lines are written on stderr."),
};

const size_t config_key_count = sizeof(config_keys) / sizeof(config_keys[0]);

_Static_assert(sizeof(config_keys) / sizeof(config_keys[0]) <= CONFIG_KEYS_MAX,
               "CONFIG_KEYS_MAX is too small for the table");
_Static_assert(sizeof(enum log_level) == sizeof(int) && sizeof(enum log_format) == sizeof(int) &&
                   sizeof(enum config_integrity_check) == sizeof(int),
               "CONFIG_ENUM values are written as int");
