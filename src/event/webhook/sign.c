/* sign.c: secrets, signatures, and the body that is signed. */
#include "event/webhook/webhook.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

#define SECRET_PREFIX "whsec_"
#define SECRET_ADVICE                                                                     \
    "a webhook secret is whsec_ and 24 to 64 random bytes in base64, such as from: echo " \
    "\"whsec_$(openssl rand -base64 32)\""
#define SPACES " \t\r\n"

static bool webhook_read_key(struct webhook_key *key, const char *text, size_t length)
{
    size_t prefix = strlen(SECRET_PREFIX);
    const char *end = NULL;

    return length > prefix && memcmp(text, SECRET_PREFIX, prefix) == 0 &&
           sodium_base642bin(key->bytes, sizeof(key->bytes), text + prefix, length - prefix, NULL,
                             &key->length, &end, sodium_base64_VARIANT_ORIGINAL) == 0 &&
           end == text + length && key->length >= WEBHOOK_SECRET_MIN;
}

enum status webhook_read_secrets(struct webhook_keys *keys, struct span text, struct error *error)
{
    keys->count = 0;
    for (size_t at = 0; at < text.length;) {
        size_t length = 0;
        while (at + length < text.length && strchr(SPACES, text.bytes[at + length]) == NULL)
            length++;
        if (length > 0 && (keys->count == WEBHOOK_SECRETS_MAX ||
                           !webhook_read_key(&keys->items[keys->count++], text.bytes + at, length)))
            return error_set(error, STATUS_INVALID,
                             "webhook_secret: " SECRET_ADVICE "; at most %d, with a space between",
                             WEBHOOK_SECRETS_MAX);
        at += length + 1;
    }
    return keys->count > 0
               ? STATUS_OK
               : error_set(error, STATUS_INVALID, "webhook_secret: is missing; " SECRET_ADVICE);
}

void webhook_sign(const struct webhook_keys *keys, const char *id, int64_t at_s, struct span body,
                  char signatures[WEBHOOK_SIGNATURES_SIZE])
{
    char head[128];
    size_t used = 0;
    int length = snprintf(head, sizeof(head), "%s.%lld.", id, (long long)at_s);

    ensure(length > 0 && (size_t)length < sizeof(head));
    for (size_t i = 0; i < keys->count; i++) {
        crypto_auth_hmacsha256_state state;
        uint8_t mac[crypto_auth_hmacsha256_BYTES];
        char text[sodium_base64_ENCODED_LEN(sizeof(mac), sodium_base64_VARIANT_ORIGINAL)];
        crypto_auth_hmacsha256_init(&state, keys->items[i].bytes, keys->items[i].length);
        crypto_auth_hmacsha256_update(&state, (const unsigned char *)head, (size_t)length);
        crypto_auth_hmacsha256_update(&state, (const unsigned char *)body.bytes, body.length);
        crypto_auth_hmacsha256_final(&state, mac);
        sodium_bin2base64(text, sizeof(text), mac, sizeof(mac), sodium_base64_VARIANT_ORIGINAL);
        used += (size_t)snprintf(signatures + used, WEBHOOK_SIGNATURES_SIZE - used, "%sv1,%s",
                                 i > 0 ? " " : "", text);
    }
}

/* The attributes of a CloudEvent, by the names that its headers have. */
static const struct webhook_attribute {
    const char *header;
    const char *quoted;
} webhook_attributes[] = {
    {"ce_specversion", "\"specversion\":"},
    {"ce_id", "\"id\":"},
    {"ce_source", "\"source\":"},
    {"ce_type", "\"type\":"},
    {"ce_time", "\"time\":"},
    {"content-type", "\"datacontenttype\":"},
    {"traceparent", "\"traceparent\":"},
};

void webhook_write_body(struct buffer *out, const struct event_message *message)
{
    buffer_append_literal(out, "{"); /* Others may stand in front of it. */
    for (size_t i = 0; i < message->header_count; i++) {
        const struct event_header *header = &message->headers[i];
        for (size_t j = 0; j < sizeof(webhook_attributes) / sizeof(webhook_attributes[0]); j++) {
            const struct webhook_attribute *attribute = &webhook_attributes[j];
            if (strcmp(header->name, attribute->header) != 0)
                continue;
            json_name(out, attribute->quoted, strlen(attribute->quoted));
            json_append_text(out, header->value);
        }
    }
    json_name(out, "\"data\":", strlen("\"data\":"));
    buffer_append_span(out, message->value);
    buffer_append_literal(out, "}");
}
