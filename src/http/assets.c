/* assets.c: sorts embedded files into assets and their forms, and chooses among the forms. */
#include "http/assets.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "http/header.h"

static const struct {
    const char *suffix;
    struct span name;
} assets_codings[ASSET_CODING_COUNT] = {
    [ASSET_PLAIN] = {"", {"identity", 8}},
    [ASSET_GZIP] = {".gz", {"gzip", 4}},
    [ASSET_BROTLI] = {".br", {"br", 2}},
};

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name);
    size_t end_length = strlen(end);
    return length >= end_length && strcmp(name + length - end_length, end) == 0;
}

static struct span content_type_of(const char *name)
{
    static const struct {
        const char *end;
        const char *type;
    } types[] = {
        {".html", "text/html; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".svg", "image/svg+xml"},
        {".png", "image/png"},
        {".woff2", "font/woff2"},
    };
    for (size_t index = 0; index < sizeof types / sizeof types[0]; index++) {
        if (ends_with(name, types[index].end)) {
            return span_of(types[index].type);
        }
    }
    return SPAN("application/octet-stream");
}

static struct asset_form form_of(const struct embedded_file *file)
{
    struct asset_form form = {.body = {(const char *)file->bytes, file->length}};
    uint64_t hash = hash_mac((struct hash_key){0, 0}, form.body.bytes, form.body.length);
    snprintf(form.etag, sizeof form.etag, "\"%016" PRIx64 "\"", hash);
    return form;
}

static const struct embedded_file *find_file(const struct embedded_file *files, size_t count,
                                             const char *name, const char *suffix)
{
    size_t length = strlen(name);
    for (size_t index = 0; index < count; index++) {
        if (strncmp(files[index].name, name, length) == 0 &&
            strcmp(files[index].name + length, suffix) == 0) {
            return &files[index];
        }
    }
    return NULL;
}

enum status assets_open(struct assets *assets, const struct embedded_file *files, size_t count,
                        struct error *error)
{
    *assets = (struct assets){.items = calloc(count + 1, sizeof(struct asset))};
    if (assets->items == NULL) {
        return error_set(error, STATUS_FAILED, "no memory for the pages");
    }
    for (size_t index = 0; index < count; index++) {
        const char *name = files[index].name;
        if (ends_with(name, assets_codings[ASSET_GZIP].suffix) ||
            ends_with(name, assets_codings[ASSET_BROTLI].suffix)) {
            continue;
        }
        struct asset *asset = &assets->items[assets->count++];
        *asset = (struct asset){.name = name, .content_type = content_type_of(name)};
        for (unsigned coding = 0; coding < ASSET_CODING_COUNT; coding++) {
            const struct embedded_file *file =
                find_file(files, count, name, assets_codings[coding].suffix);
            if (file != NULL) {
                asset->forms[coding] = form_of(file);
            }
        }
    }
    return STATUS_OK;
}

void assets_close(struct assets *assets)
{
    free(assets->items);
    *assets = (struct assets){0};
}

const struct asset *assets_find(const struct assets *assets, struct span name)
{
    for (size_t index = 0; index < assets->count; index++) {
        if (span_equal(span_of(assets->items[index].name), name)) {
            return &assets->items[index];
        }
    }
    return NULL;
}

/* RFC 9110 12.5.3: what is not named is taken as "*" says, and the plain form unless refused. */
static int quality_of(struct span accept_encoding, enum asset_coding coding)
{
    int quality = header_quality(accept_encoding, assets_codings[coding].name);
    if (quality < 0) {
        quality = header_quality(accept_encoding, SPAN("*"));
    }
    /* Taken, but less gladly than anything that is named. */
    return quality < 0 && coding == ASSET_PLAIN ? 1 : quality;
}

enum asset_coding asset_choose(const struct asset *asset, struct span accept_encoding)
{
    enum asset_coding chosen = ASSET_PLAIN;
    if (accept_encoding.bytes == NULL) {
        return chosen;
    }
    int best = quality_of(accept_encoding, ASSET_PLAIN);
    for (unsigned coding = ASSET_GZIP; coding < ASSET_CODING_COUNT; coding++) {
        int quality = quality_of(accept_encoding, (enum asset_coding)coding);
        if (asset->forms[coding].body.bytes != NULL && quality > 0 && quality >= best) {
            chosen = (enum asset_coding)coding;
            best = quality;
        }
    }
    return chosen;
}

struct span asset_coding_name(enum asset_coding coding)
{
    return coding == ASSET_PLAIN ? (struct span){NULL, 0} : assets_codings[coding].name;
}
