/*
 * A text file that became part of the binary at build time.
 *
 * scripts/embed writes one table of these per target (`embedded_migrations`, …), in the order of
 * the files' names, with its own header. The bytes are followed by a NUL that `length` does not
 * count, so that they also read as a string. Everything here is constant: any thread may read it.
 */
#pragma once

#include <stddef.h>

struct embedded_file {
    const char *name; /* without its folder, as in "0001_first.sql" */
    const unsigned char *bytes;
    size_t length;
};
