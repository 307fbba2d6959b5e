/* log_ring.c: lines wait here for the thread that writes them. */
#include "base/log_ring.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

/* So many bytes leave a pipe whole, whoever else writes into it. */
#define BATCH_SIZE PIPE_BUF

/* How long a flush gives the reader to take the next batch before it looks, and how often it looks
 * at one that could be taken and is not. */
#define READER_MS     50
#define LOOKS_IN_VAIN 20

static struct {
    pthread_mutex_t lock;
    pthread_cond_t filled; /* something to write, or the end */
    pthread_cond_t moved;  /* a batch was written */
    pthread_t thread;
    int fd;
    void (*report)(uint64_t dropped);
    char *bytes; /* NULL: the ring does not run */
    size_t start;
    size_t length;
    uint64_t written_count;  /* batches */
    uint64_t dropped_count;  /* lines since the start */
    uint64_t reported_count; /* those of them that were told */
    bool is_writing;         /* a batch is on its way */
    bool ends;
} ring = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .filled = PTHREAD_COND_INITIALIZER,
    .moved = PTHREAD_COND_INITIALIZER,
};

/* False while the reader of a pipe takes nothing. */
static bool reader_takes(void)
{
    struct pollfd sink = {.fd = ring.fd, .events = POLLOUT};
    return poll(&sink, 1, 0) > 0;
}

bool log_ring_write(int file_descriptor, struct span bytes)
{
    while (bytes.length > 0) {
        ssize_t count = write(file_descriptor, bytes.bytes, bytes.length);
        if (count < 0 && errno == EAGAIN) {
            /* Somebody else has made the descriptor, which we share, not wait. */
            struct pollfd sink = {.fd = file_descriptor, .events = POLLOUT};
            (void)poll(&sink, 1, -1);
        } else if (count < 0 && errno != EINTR) {
            return false;
        } else if (count > 0) {
            bytes = (struct span){bytes.bytes + count, bytes.length - (size_t)count};
        }
    }
    return true;
}

/* --- the thread --- */

/* Takes as many whole lines as make a batch out of the ring; with the lock held. */
static size_t take_batch(char batch[BATCH_SIZE])
{
    size_t length = ring.length < BATCH_SIZE ? ring.length : BATCH_SIZE;
    if (length == 0) {
        return 0; /* at the end there is no ring either */
    }
    size_t first = LOG_RING_SIZE - ring.start;
    if (first > length) {
        first = length;
    }
    memcpy(batch, ring.bytes + ring.start, first);
    memcpy(batch + first, ring.bytes, length - first);
    const char *end = memrchr(batch, '\n', length);
    length = end != NULL ? (size_t)(end - batch) + 1 : 0;
    ring.start = (ring.start + length) % LOG_RING_SIZE;
    ring.length -= length;
    return length;
}

static uint64_t count_lines(const char *bytes, size_t length)
{
    uint64_t count = 0;
    for (size_t at = 0; at < length; at++) {
        count += bytes[at] == '\n';
    }
    return count;
}

static void *write_lines(void *context)
{
    (void)context;
    char batch[BATCH_SIZE];
    pthread_mutex_lock(&ring.lock);
    for (;;) {
        uint64_t dropped = ring.dropped_count - ring.reported_count;
        size_t length = take_batch(batch);
        if (length == 0 && dropped == 0) {
            if (ring.ends) {
                break;
            }
            pthread_cond_wait(&ring.filled, &ring.lock);
            continue;
        }
        ring.reported_count += dropped;
        ring.is_writing = true;
        pthread_mutex_unlock(&ring.lock);
        bool written = log_ring_write(ring.fd, (struct span){batch, length});
        if (dropped > 0) {
            ring.report(dropped);
        }
        pthread_mutex_lock(&ring.lock);
        ring.dropped_count += written ? 0 : count_lines(batch, length);
        ring.is_writing = false;
        ring.written_count++;
        pthread_cond_broadcast(&ring.moved);
    }
    pthread_mutex_unlock(&ring.lock);
    return NULL;
}

/* No signal is for this thread: those who wait for them have to get them. */
static bool start_thread(void)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&ring.thread, NULL, write_lines, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

void log_ring_start(int file_descriptor, void (*report)(uint64_t dropped))
{
    pthread_mutex_lock(&ring.lock);
    ring.fd = file_descriptor;
    ring.report = report;
    ring.start = 0;
    ring.length = 0;
    ring.ends = false;
    ring.bytes = malloc(LOG_RING_SIZE);
    if (ring.bytes != NULL && !start_thread()) {
        free(ring.bytes);
        ring.bytes = NULL;
    }
    pthread_mutex_unlock(&ring.lock);
}

/* --- those who log --- */

bool log_ring_put(struct span line)
{
    pthread_mutex_lock(&ring.lock);
    bool runs = ring.bytes != NULL;
    if (runs && line.length > LOG_RING_SIZE - ring.length) {
        ring.dropped_count++;
    } else if (runs) {
        size_t at = (ring.start + ring.length) % LOG_RING_SIZE;
        size_t first = LOG_RING_SIZE - at < line.length ? LOG_RING_SIZE - at : line.length;
        memcpy(ring.bytes + at, line.bytes, first);
        memcpy(ring.bytes, line.bytes + first, line.length - first);
        ring.length += line.length;
        if (!ring.is_writing) {
            pthread_cond_signal(&ring.filled);
        }
    }
    pthread_mutex_unlock(&ring.lock);
    return runs;
}

/* Waits for the next batch to be written, or for a while; with the lock held. */
static void await_move(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += READER_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&ring.moved, &ring.lock, &until);
}

/* With the lock held, which it lets go of while it waits. A reader that takes nothing ends the
 * wait, whatever is left. */
static bool drain(void)
{
    unsigned in_vain = 0;
    while (ring.bytes != NULL && (ring.length > 0 || ring.is_writing)) {
        uint64_t written_count = ring.written_count;
        await_move();
        in_vain = ring.written_count == written_count ? in_vain + 1 : 0;
        if (in_vain == LOOKS_IN_VAIN || (in_vain > 0 && !reader_takes())) {
            return false;
        }
    }
    return true;
}

void log_ring_flush(void)
{
    pthread_mutex_lock(&ring.lock);
    (void)drain();
    pthread_mutex_unlock(&ring.lock);
}

void log_ring_stop(void)
{
    pthread_mutex_lock(&ring.lock);
    if (ring.bytes == NULL) {
        pthread_mutex_unlock(&ring.lock);
        return;
    }
    bool drained = drain();
    char *bytes = ring.bytes;
    ring.bytes = NULL;
    ring.length = 0;
    ring.ends = true;
    pthread_cond_signal(&ring.filled);
    pthread_mutex_unlock(&ring.lock);
    if (drained) {
        pthread_join(ring.thread, NULL);
    } else {
        /* It stands in a write that nobody takes; the process's end ends it. */
        pthread_detach(ring.thread);
    }
    free(bytes);
}

uint64_t log_ring_dropped(void)
{
    pthread_mutex_lock(&ring.lock);
    uint64_t count = ring.dropped_count;
    pthread_mutex_unlock(&ring.lock);
    return count;
}
