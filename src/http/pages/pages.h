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

/* --- the storefront ---
 *
 * Whose storefront it is: what the operator's shop file says, and the pictures it names.
 *
 * The file is JSON with name, url, terms_url, description, image, colour, logo, icon,
 * coupons_come_back and look_again_at, of which only the name has to be there. Pictures are SVG or
 * PNG files beside it.
 */

struct shop_picture {
    char name[48]; /* under /assets/, with a hash of its bytes; "": none */
    struct buffer bytes;
};

struct shop {
    struct buffer json; /* as the API shows it; "null" without a file */
    struct buffer
        head; /* what a page's <head> says of it to those who share its link; "" without */
    struct shop_picture logo;
    struct shop_picture icon;
};

/* `path` "": there is no file. INVALID or FAILED with the file's name and what is wrong with it;
 * close it then, too. */
enum status shop_open(struct shop *shop, const char *path, struct error *error) MUST_CHECK;
void shop_close(struct shop *shop);
