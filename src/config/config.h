/* config.h: every setting of dibs: one table, and the values in effect.
 *
 * The table (config/table.c) is the only place that names a key. Flags, environment variables, the
 * settings file, `--help`, the completion, the man page and docs/configuration.md come from it.
 * A flag beats the environment, which beats the file, which beats the default; each value
 * remembers where it came from. A loaded config holds only values that are allowed by themselves;
 * config_check() holds the rules between them.
 *
 * Secrets come from files of their own or from the environment, never from flags or the settings
 * file, and nothing here ever prints one. A backend's URL may carry a password, except as a flag.
 *
 * Threads: written by config_load() before threads start, then read by all.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/log.h"

/* At least as many as the table has rows. */
#define CONFIG_KEYS_MAX 96

/* The longest value a key may have, and the longest settings or secret file. */
#define CONFIG_VALUE_LENGTH_MAX 4096
#define CONFIG_FILE_LENGTH_MAX  (64 * 1024)

enum config_integrity_check {
    CONFIG_INTEGRITY_QUICK,
    CONFIG_INTEGRITY_FULL,
    CONFIG_INTEGRITY_OFF,
};

/* Later ones beat earlier ones. */
enum config_source {
    CONFIG_FROM_DEFAULT,
    CONFIG_FROM_FILE,
    CONFIG_FROM_ENVIRONMENT,
    CONFIG_FROM_FLAG,
};

struct config_origin {
    enum config_source source;
    int line; /* of the settings file, when it came from there */
};

/* Text items, each NUL-terminated. */
struct config_list {
    char **items;
    size_t count;
};

/* Bytes nobody may see; `bytes` is NULL when the secret is not set, and a NUL that is not counted
 * follows them otherwise. Wiped by config_release(). */
struct config_secret {
    char *bytes;
    size_t length;
};

enum config_switch { CONFIG_OFF, CONFIG_ON };

/* The values in effect. Texts are never NULL; an empty text means "not set". */
struct config {
    char *listen;            /* "127.0.0.1:8080" or "[::1]:8080", numbers only; port 0 picks one */
    int64_t threads;         /* 0: one per core */
    int64_t connections_max; /* 0: from the fd limit */
    int64_t connections_per_address; /* 0: any number */
    int64_t streams_per_address;     /* 0: any number */
    int64_t unsent_max_mib;

    char *gate; /* "local" or the URL of a Redis; may hold a password */
    char *gate_password_file;
    struct config_secret gate_password; /* not set: as the URL says */
    int64_t gate_timeout_ms;
    char *ack; /* "gate" or "ledger" */
    int64_t replicas;
    char *board; /* "auto", "local" or "redis" */
    int64_t sync_interval_ms;
    int64_t orders_keep_days; /* 0: for ever */
    int64_t audit_interval_ms;
    char *worker_listen;  /* "": nowhere */
    char *metrics_listen; /* "": where the rest is */
    char *fallback;       /* "reject" or "ledger" */
    char *ledger;         /* "sqlite:PATH", "postgres://…" or "mysql://…"; may hold a password */
    char *ledger_password_file;
    struct config_secret ledger_password; /* not set: as the URL or the client library says */
    int64_t ledger_timeout_ms;
    char *relay; /* "direct", or a URL */
    char *relay_password_file;
    struct config_secret relay_password; /* not set: as the URL says */
    char *kafka_topic_pended;            /* these without the URL's prefix */
    char *kafka_topic_issued;
    char *kafka_topic_orders;
    char *kafka_group;
    char *kafka_orders_group;
    int64_t kafka_partitions;
    char *webhook; /* "": none; may hold a password */
    char *webhook_secret_file;
    struct config_secret webhook_secret; /* one or more */
    char *webhook_ca_file;               /* "": what the system trusts */
    int64_t webhook_timeout_ms;
    int64_t webhook_retry_max_ms;
    int64_t ack_timeout_ms;
    int64_t worker_batch;
    int64_t worker_pause_ms;
    int64_t issue_attempts;
    int64_t pending_max; /* claims waiting for the ledger, over all policies */
    enum config_integrity_check integrity_check;

    char *admin_token_file;
    char *admin_tokens_file;
    char *service_token_file;
    char *user_key_file;
    char *code_key_file;
    char *claims;                       /* "token" or "open" */
    struct config_list trusted_proxies; /* networks; empty: none */
    char *user_audience;                /* "": aud is not checked */
    struct config_secret admin_token;   /* at least 16 visible ASCII characters */
    struct config_secret admin_tokens;  /* lines of NAME ROLE TOKEN */
    struct config_secret service_token; /* at least 16 visible ASCII characters */
    struct config_secret user_key;      /* at least 32 bytes */
    struct config_secret code_key;      /* at least 16 bytes; not set: the ledger keeps the key */

    double rate_limit_user; /* claims per second of one user; 0: off */
    int64_t rate_limit_user_burst;
    double rate_limit_address; /* requests per second of one address; 0: off */
    int64_t rate_limit_address_burst;

    struct config_list cors_origin; /* empty: off; one item "*": any */
    int64_t ranking_half_life_ms;   /* 0: by what was sold */
    char *ranking_weights;
    int64_t ranking_refresh_ms;
    char *timezone;  /* an IANA name */
    char *shop_file; /* "": none */

    int64_t header_timeout_ms;
    int64_t body_timeout_ms;
    int64_t idle_timeout_ms;
    int64_t write_timeout_ms;
    int64_t stop_timeout_ms;
    int64_t start_timeout_ms;

    enum config_switch demo;

    enum log_level log_level;
    enum log_format log_format;

    /* Where it all came from. */
    char *file; /* the settings file that was read, or "" */
    struct config_origin origins[CONFIG_KEYS_MAX];
    struct config_list warnings; /* for the operator; say them once logging is set up */
};

enum config_type {
    CONFIG_ADDRESS,  /* char *: host:port in numbers */
    CONFIG_TEXT,     /* char * */
    CONFIG_URL,      /* char *: of a backend; its password is never printed, nor taken as a flag */
    CONFIG_FILE,     /* char *: a path */
    CONFIG_SECRET,   /* struct config_secret */
    CONFIG_INTEGER,  /* int64_t */
    CONFIG_RATE,     /* double: times per second */
    CONFIG_DURATION, /* int64_t milliseconds */
    CONFIG_CHOICE,   /* char *: one of `choices` */
    CONFIG_ENUM,     /* enum: the index in `choices` */
    CONFIG_LIST,     /* struct config_list: separated by commas or blanks */
};

/* One row of the table. */
struct config_key {
    const char *name; /* as in the file: "ack_timeout"; --ack-timeout; DIBS_ACK_TIMEOUT */
    const char *group;
    enum config_type type;
    size_t offset;        /* of the value in struct config */
    const char *fallback; /* the default, in the words of the file */
    int64_t minimum;      /* numbers: the least and the most; secrets: the least length */
    int64_t maximum;
    const char *const *choices; /* ends with NULL */
    const char *value_name;     /* "WHEN" in `--ack WHEN`; NULL: the type's word, as N */
    const char *help;           /* one or two full sentences, plain text */
    const char *example;
    const char *alone;       /* what the flag means without a value; NULL: it needs one */
    const char *secret_file; /* of a secret: the key that names its file */
    /* More than the type can know; NULL when there is no more. The words follow "NAME: ". */
    enum status (*check)(const char *value, struct error *error);
};

extern const struct config_key config_keys[];
extern const size_t config_key_count;

/* --- life cycle --- */

/* Fills `config` from the defaults, the settings file, `environment` (as in environ) and the
 * flags argv[0] … argv[argc - 1], which are what follows the command on its line.
 *
 * The settings file is what `--config FILE` or DIBS_CONFIG names, else ./dibs.conf when there is
 * one. STATUS_INVALID with words that say where the value came from, what is wrong with it and
 * what is allowed; an unknown key, variable or flag is an error too. STATUS_FAILED when a file
 * cannot be read. After a failure there is nothing to release. */
enum status config_load(struct config *config, int argc, char *const *argv,
                        char *const *environment, struct error *error) MUST_CHECK;

/* Frees all of it and wipes the secrets. */
void config_release(struct config *config);

/* --- operations --- */

/* The rules between settings, for a server that is about to start: STATUS_INVALID with what to
 * set, for example when it would listen to strangers without an admin token. */
enum status config_check(const struct config *config, struct error *error) MUST_CHECK;

/* Whether there is an admin token, with or without a name. */
bool config_has_admin(const struct config *config);

/* Those of them that are about the ledger, for a command that uses only that. */
enum status config_check_backends(const struct config *config, struct error *error) MUST_CHECK;

/* The row of that name, or NULL. */
const struct config_key *config_key_find(const char *name);

/* Appends the value in the words of the file ("5s", "127.0.0.1:8080"); a secret as "****", the
 * password in a URL as "***", and nothing for what is not set. */
void config_append_value(struct buffer *out, const struct config *config,
                         const struct config_key *key);

/* Appends where the value came from: "default", "dibs.conf:3", "DIBS_LISTEN", "--listen". */
void config_append_origin(struct buffer *out, const struct config *config,
                          const struct config_key *key);

/* Appends "--ack-timeout" or "DIBS_ACK_TIMEOUT". */
void config_append_flag(struct buffer *out, const struct config_key *key);
void config_append_variable(struct buffer *out, const struct config_key *key);

/* Whether the key may come from a flag and from the file; every key may come from the
 * environment. */
bool config_key_has_flag(const struct config_key *key);

/* What stands for the value behind the flag: "ADDRESS" in `--listen ADDRESS`. */
const char *config_key_value_word(const struct config_key *key);

/* Appends what is allowed: "10ms to 1h", "logfmt or json". Nothing when all text is. */
void config_append_allowed(struct buffer *out, const struct config_key *key);

/* Appends docs/configuration.md. */
void config_append_reference(struct buffer *out);
