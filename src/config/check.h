/* check.h: what must hold for single values beyond their type.
 *
 * The table names these; config_check() in config.h holds the rules between values. The words of
 * an error follow the name of the key, and never repeat a secret.
 *
 * Threads: pure, but for a look at the time zone files.
 */
#pragma once

#include <stdbool.h>

#include "base/buffer.h"
#include "base/error.h"

/* host:port in numbers, IPv6 in brackets, port 0 to 65535. */
enum status config_check_address(const char *value, struct error *error) MUST_CHECK;

/* The same, or nothing. */
enum status config_check_address_or_none(const char *value, struct error *error) MUST_CHECK;

/* True for 127.0.0.0/8, ::1 and the former mapped into IPv6; the address must be a valid one. */
bool config_address_is_loopback(const char *address);

/* "local" or the URL of a Redis. */
enum status config_check_gate(const char *value, struct error *error) MUST_CHECK;

/* "sqlite:" and a path, or the URL of a database. */
enum status config_check_ledger(const char *value, struct error *error) MUST_CHECK;

/* What Kafka takes as the name of a topic or a group, with room for a prefix. */
enum status config_check_topic(const char *value, struct error *error) MUST_CHECK;

/* "direct" or the URL of a Kafka. */
enum status config_check_webhook(const char *value, struct error *error) MUST_CHECK;
enum status config_check_relay(const char *value, struct error *error) MUST_CHECK;

/* True when a backend's URL, which must be a valid one, carries a password. */
bool config_url_has_password(const char *url);

/* Appends a backend's URL without its password. */
void config_append_url(struct buffer *out, const char *url);

/* One line of text. */
enum status config_check_password(const char *value, struct error *error) MUST_CHECK;

/* Visible ASCII only, because it travels in a header. */
enum status config_check_tokens(const char *value, struct error *error) MUST_CHECK;
enum status config_check_token(const char *value, struct error *error) MUST_CHECK;

/* One item of trusted_proxies: an address, or a network as in 10.0.0.0/8. */
enum status config_check_network(const char *value, struct error *error) MUST_CHECK;

/* One item of cors_origin: "*" or "https://host[:port]". */
enum status config_check_origin(const char *value, struct error *error) MUST_CHECK;

/* UTC, or a name of the system's time zone files. */
enum status config_check_timezone(const char *value, struct error *error) MUST_CHECK;

struct config;

/* Adds a warning for each password that would go to another machine, unencrypted or to whoever
 * poses as it. */
void config_warn_of_exposure(struct config *config);
