/* source.h: files of the source tree, for tests that hold documents and pages against tables.
 *
 * Threads: no state.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>

/* A file of the source tree, with its NUL; to be freed. */
static inline char *read_source(const char *name)
{
    const char *root = getenv("DIBS_TEST_SOURCE_ROOT");
    char path[512];
    if (root == NULL)
        fail_msg("DIBS_TEST_SOURCE_ROOT is not set: run through meson");
    snprintf(path, sizeof(path), "%s/%s", root, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    size_t length = fread(text, 1, (1 << 20) - 1, file);
    assert_true(length > 0 && feof(file));
    fclose(file);
    return text;
}
