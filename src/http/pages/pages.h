/* pages.h: the files of the pages, each in the forms that a client may take.
 *
 * A table of embedded files holds a file under its name and, where that is smaller, a compressed
 * form under the name with ".gz" or ".br". Every form has an ETag of its own.
 *
 * Threads: written by open and close only; any thread may look.
 */
#pragma once

#include <stddef.h>

#include "base/buffer.h"
#include "base/embedded.h"
#include "base/error.h"

/* The smallest last: of two that a client takes as gladly, the later is sent. */
enum asset_coding {
    ASSET_PLAIN,
    ASSET_GZIP,
    ASSET_BROTLI,
    ASSET_CODING_COUNT,
};

struct asset_form {
    struct span body; /* bytes == NULL: not there; the plain one always is */
    char etag[24];    /* with its quotes */
};

struct asset {
    const char *name;
    struct span content_type;
    struct asset_form forms[ASSET_CODING_COUNT];
};

struct assets {
    struct asset *items;
    size_t count;
};

/* `files` is borrowed for the life of the assets. STATUS_FAILED: no memory. */
enum status assets_open(struct assets *assets, const struct embedded_file *files, size_t count,
                        struct error *error) MUST_CHECK;
void assets_close(struct assets *assets);

/* NULL when there is none of that name. */
const struct asset *assets_find(const struct assets *assets, struct span name);

/* What to send to a client with this Accept-Encoding (bytes == NULL: it sent none). One that
 * takes nothing we have gets the plain form. */
enum asset_coding asset_choose(const struct asset *asset, struct span accept_encoding);
