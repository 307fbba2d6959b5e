/* redis_impostor.h: a server that speaks as Redis does and answers claims as it is told to, and a
 * proxy before a real one that is late or loses answers.
 *
 * Threads: each runs one of its own; the functions belong to the test's thread.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IMPOSTOR_PEERS_MAX 64

/* What the impostor answers to dibs_claim, besides a text. */
enum impostor_claims {
    IMPOSTOR_WINS,        /* each wish wins; seqs count up */
    IMPOSTOR_SAYS,        /* `words`, byte for byte */
    IMPOSTOR_OTHERS_NAME, /* as if it were the answer to another batch */
    IMPOSTOR_HALF,        /* the first half of a good answer */
    IMPOSTOR_SILENT,      /* nothing */
    IMPOSTOR_CLOSES,      /* the connection ends */
    IMPOSTOR_TWICE,       /* the answer, and the same again */
};

struct redis_impostor {
    int port;
    char url[48];
    int listener;
    int wake[2]; /* a pipe: something to do, or the end */
    pthread_t thread;
    pthread_mutex_t lock;
    enum impostor_claims claims;
    char words[256];
    char version[16];        /* of Redis, as INFO tells */
    char eviction[24];       /* maxmemory-policy */
    char greeting[64];       /* an error that answers everything; "": none */
    _Atomic int claim_count; /* calls of dibs_claim so far */
    int64_t seq;
};

/* Listens on a port of its own; claims win. */
void redis_impostor_start(struct redis_impostor *impostor);
void redis_impostor_stop(struct redis_impostor *impostor);

/* From now on. `words` go on the wire as they are; NULL: none. */
void redis_impostor_answer(struct redis_impostor *impostor, enum impostor_claims claims,
                           const char *words);

struct redis_proxy {
    int port;
    char url[48];
    int listener;
    int wake[2];
    pthread_t thread;
    int server_port;
    _Atomic int delay_max_ms;  /* an answer is late by up to that */
    _Atomic bool swallows;     /* the next answer is not passed on, and its connection ends */
    _Atomic int swallow_count; /* so often */
    _Atomic bool holds_looks;  /* answers to dibs_count, and what is behind them, wait meanwhile */
    _Atomic int held_count;    /* so often */
};

void redis_proxy_start(struct redis_proxy *proxy, int server_port);
void redis_proxy_stop(struct redis_proxy *proxy);
