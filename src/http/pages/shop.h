/* shop.h: whose storefront it is: what the operator's shop file says, and the pictures it names.
 *
 * The file is JSON with name, url, terms_url, description, image, colour, logo, icon,
 * coupons_come_back and look_again_at, of which only the name has to be there. Pictures are SVG or
 * PNG files beside it.
 *
 * Threads: written by open and close only; any thread may look.
 */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

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
