/* shop.c: reads the shop file strictly, and writes of it what pages and the API show. */
#include "http/pages/pages.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/json.h"
#include "config/value.h"

#define FILE_MAX    (16 * 1024)
#define TEXT_MAX    500
#define PICTURE_MAX (256 * 1024)
#define HEAD_MAX    (16 * 1024)

/* What the file says. */
struct shop_words {
    struct span name;
    struct span url;
    struct span terms_url;
    struct span description;
    struct span image;
    struct span colour;
    struct span logo;
    struct span icon;
    int64_t look_again_at_ms;
    bool coupons_come_back;
};

static bool begins_with(struct span text, const char *start)
{
    return text.length > strlen(start) && memcmp(text.bytes, start, strlen(start)) == 0;
}

static bool ends_with(struct span text, const char *end)
{
    size_t length = strlen(end);
    return text.length > length && memcmp(text.bytes + text.length - length, end, length) == 0;
}

static bool is_link(struct span text)
{
    return text.length == 0 || begins_with(text, "https://") || begins_with(text, "http://");
}

static bool is_colour(struct span text)
{
    return text.length == 0 || (text.length == 7 && text.bytes[0] == '#' &&
                                strspn(text.bytes + 1, "0123456789abcdefABCDEF") >= 6);
}

/* A file beside the shop file: no way out of its folder. */
static bool is_picture(struct span text)
{
    return text.length == 0 || (memchr(text.bytes, '/', text.length) == NULL &&
                                (ends_with(text, ".svg") || ends_with(text, ".png")));
}

static enum status shop_check(const struct shop_words *words, struct error *error)
{
    const struct {
        bool is_good;
        const char *says;
    } rules[] = {
        {is_link(words->url), "url: must begin with https:// or http://"},
        {is_link(words->terms_url), "terms_url: must begin with https:// or http://"},
        {is_link(words->image), "image: must begin with https:// or http://"},
        {is_colour(words->colour), "colour: must be as in \"#1f8a55\""},
        {is_picture(words->logo), "logo: must be a .svg or .png file beside this one"},
        {is_picture(words->icon), "icon: must be a .svg or .png file beside this one"},
    };

    for (size_t i = 0; i < COUNT_OF(rules); i++)
        if (!rules[i].is_good)
            return error_set(error, STATUS_INVALID, "%s", rules[i].says);
    return STATUS_OK;
}

static enum status shop_read_picture(struct shop_picture *picture, const char *path,
                                     struct span name, struct error *error)
{
    char full[1024];
    const char *slash = strrchr(path, '/');
    int folder = slash != NULL ? (int)(slash - path) + 1 : 0;

    if (name.length == 0)
        return STATUS_OK;
    snprintf(full, sizeof(full), "%.*s%.*s", folder, path, (int)name.length, name.bytes);
    buffer_init(&picture->bytes, PICTURE_MAX);
    enum status status = config_read_file(full, &picture->bytes, NULL, error);
    uint64_t hash = hash_mac((struct hash_key){0, 0}, picture->bytes.bytes, picture->bytes.length);
    snprintf(picture->name, sizeof(picture->name), "shop-%016" PRIx64 "%.4s", hash,
             name.bytes + name.length - 4);
    return status;
}

/* --- what is shown --- */

static void put_text(struct buffer *out, const char *quoted, struct span text)
{
    json_name(out, quoted, strlen(quoted));
    if (text.length == 0)
        buffer_append_literal(out, "null");
    else
        json_append_text(out, text);
}

static void put_picture(struct buffer *out, const char *quoted, const struct shop_picture *picture)
{
    json_name(out, quoted, strlen(quoted));
    if (picture->name[0] == '\0')
        buffer_append_literal(out, "null");
    else
        buffer_printf(out, "\"/assets/%s\"", picture->name);
}

static void shop_write_json(struct shop *shop, const struct shop_words *words)
{
    struct buffer *out = &shop->json;

    buffer_clear(out);
    json_begin(out, '{');
    put_text(out, "\"name\":", words->name);
    put_text(out, "\"url\":", words->url);
    put_text(out, "\"terms_url\":", words->terms_url);
    put_text(out, "\"colour\":", words->colour);
    put_picture(out, "\"logo\":", &shop->logo);
    json_put_flag(out, "coupons_come_back", words->coupons_come_back);
    json_put_time(out, "look_again_at", words->look_again_at_ms);
    buffer_append_literal(out, "}");
}

static void append_escaped(struct buffer *out, struct span text)
{
    for (size_t at = 0; at < text.length; at++) {
        switch (text.bytes[at]) {
        case '&':
            buffer_append_literal(out, "&amp;");
            break;
        case '<':
            buffer_append_literal(out, "&lt;");
            break;
        case '"':
            buffer_append_literal(out, "&quot;");
            break;
        default:
            buffer_append(out, text.bytes + at, 1);
        }
    }
}

static void append_meta(struct buffer *out, const char *start, struct span content)
{
    if (content.length == 0)
        return;
    buffer_printf(out, "<meta %s\" content=\"", start);
    append_escaped(out, content);
    buffer_append_literal(out, "\">\n");
}

static void shop_write_head(struct shop *shop, const struct shop_words *words)
{
    struct buffer *out = &shop->head;

    buffer_append_literal(out, "<title>");
    append_escaped(out, words->name);
    buffer_append_literal(out, "</title>\n<meta property=\"og:type\" content=\"website\">\n");
    append_meta(out, "property=\"og:site_name", words->name);
    append_meta(out, "property=\"og:title", words->name);
    append_meta(out, "property=\"og:description", words->description);
    append_meta(out, "name=\"description", words->description);
    append_meta(out, "property=\"og:image", words->image);
    if (shop->icon.name[0] != '\0')
        buffer_printf(out, "<link rel=\"icon\" href=\"/assets/%s\">\n", shop->icon.name);
    else
        buffer_append_literal(out, "<link rel=\"icon\" href=\"data:,\">\n");
}

/* --- life --- */

static enum status shop_read(struct shop *shop, const char *path, struct span text,
                             struct json_reader *reader, struct error *error)
{
    struct shop_words words = {.coupons_come_back = false};
    const struct json_field fields[] = {
        {"name", JSON_TEXT, JSON_REQUIRED, 1, 100, &words.name, NULL, NULL, 0},
        {"url", JSON_TEXT, JSON_OPTIONAL, 1, TEXT_MAX, &words.url, NULL, NULL, 0},
        {"terms_url", JSON_TEXT, JSON_OPTIONAL, 1, TEXT_MAX, &words.terms_url, NULL, NULL, 0},
        {"description", JSON_TEXT, JSON_OPTIONAL, 1, TEXT_MAX, &words.description, NULL, NULL, 0},
        {"image", JSON_TEXT, JSON_OPTIONAL, 1, TEXT_MAX, &words.image, NULL, NULL, 0},
        {"colour", JSON_TEXT, JSON_OPTIONAL, 1, 7, &words.colour, NULL, NULL, 0},
        {"logo", JSON_TEXT, JSON_OPTIONAL, 1, 200, &words.logo, NULL, NULL, 0},
        {"icon", JSON_TEXT, JSON_OPTIONAL, 1, 200, &words.icon, NULL, NULL, 0},
        {"coupons_come_back", JSON_FLAG, JSON_OPTIONAL, 0, 0, &words.coupons_come_back, NULL, NULL,
         0},
        {"look_again_at", JSON_TIME, JSON_OPTIONAL, 0, 0, &words.look_again_at_ms, NULL, NULL, 0},
    };
    enum status status = json_read_object(reader, text, fields, COUNT_OF(fields), NULL, error);

    if (status == STATUS_OK)
        status = shop_check(&words, error);
    if (status == STATUS_OK)
        status = shop_read_picture(&shop->logo, path, words.logo, error);
    if (status == STATUS_OK)
        status = shop_read_picture(&shop->icon, path, words.icon, error);
    if (status != STATUS_OK)
        return status;
    shop_write_json(shop, &words);
    shop_write_head(shop, &words);
    return STATUS_OK;
}

enum status shop_open(struct shop *shop, const char *path, struct error *error)
{
    struct buffer text;

    *shop = (struct shop){0};
    buffer_init(&shop->json, HEAD_MAX);
    buffer_init(&shop->head, HEAD_MAX);
    buffer_append_literal(&shop->json, "null");
    if (path[0] == '\0')
        return STATUS_OK;
    buffer_init(&text, FILE_MAX);
    struct json_reader *reader = json_reader_new(FILE_MAX);
    enum status status = reader == NULL
                             ? error_set(error, STATUS_FAILED, "no memory for the shop file")
                             : config_read_file(path, &text, NULL, error);
    if (status == STATUS_OK)
        status = shop_read(shop, path, buffer_span(&text), reader, error);
    if (status != STATUS_OK)
        error_prefix(error, "shop_file");
    json_reader_free(reader);
    buffer_release(&text);
    return status;
}

void shop_close(struct shop *shop)
{
    buffer_release(&shop->json);
    buffer_release(&shop->head);
    buffer_release(&shop->logo.bytes);
    buffer_release(&shop->icon.bytes);
}
