/* capture.h: what a call writes to stdout and stderr, for tests of commands. */
#pragma once

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CAPTURE_SIZE (64 * 1024)

struct capture {
    FILE *files[2];
    int kept[2];
    char out[CAPTURE_SIZE];
    char err[CAPTURE_SIZE];
};

/* From here on both streams go to files of ours. */
static inline void capture_begin(struct capture *capture)
{
    FILE *streams[2] = {stdout, stderr};
    for (int i = 0; i < 2; i++) {
        fflush(streams[i]);
        capture->kept[i] = dup(fileno(streams[i]));
        capture->files[i] = tmpfile();
        dup2(fileno(capture->files[i]), fileno(streams[i]));
    }
}

/* Both streams are themselves again, and `out` and `err` hold what was written. */
static inline void capture_end(struct capture *capture)
{
    FILE *streams[2] = {stdout, stderr};
    char *texts[2] = {capture->out, capture->err};
    for (int i = 0; i < 2; i++) {
        fflush(streams[i]);
        dup2(capture->kept[i], fileno(streams[i]));
        close(capture->kept[i]);
        rewind(capture->files[i]);
        size_t length = fread(texts[i], 1, CAPTURE_SIZE - 1, capture->files[i]);
        texts[i][length] = '\0';
        fclose(capture->files[i]);
    }
}
