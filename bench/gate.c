/* gate.c: the local gate alone: what one decision costs, and what one claim held weighs.
 *
 * Fills a policy with claims, makes them durable, then has batches of new users decided. The
 * measured calls stand in functions of their own, which are not inlined, so that callgrind can
 * count exactly what happens inside them.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gate/gate.h"

#define POLICY_ID  1
#define BATCH_SIZE 64
#define NOW_MS     INT64_C(1763200000000)

enum mode {
    MODE_WIN,         /* new users, and stock for them */
    MODE_REPEAT,      /* users who hold a claim, picked at random */
    MODE_SOLD_OUT,    /* new users, and no stock */
    MODE_ACKNOWLEDGE, /* no decisions: the ledger's word that winners are durable */
};

static const char *const mode_names[] = {"win", "repeat", "sold_out", "acknowledge"};

struct gate_bench {
    struct gate *gate;
    struct gate_line *line;
    enum mode mode;
    uint64_t held_count;
    uint64_t next_user;
    uint64_t random;
    uint64_t ticket;
    uint64_t ask_count;
    /* What the gate handed out of the last batch; not copied, which would count as its work. */
    size_t won_count;
    size_t bound_count;
    struct claim won[BATCH_SIZE];
    struct wish wishes[BATCH_SIZE];
    struct wish *batch[BATCH_SIZE];
};

__attribute__((noreturn)) static void gate_bench_die(const char *what)
{
    fprintf(stderr, "gate bench: %s\n", what);
    exit(1);
}

static uint64_t gate_bench_push(void *context, const struct claim *claims, size_t claim_count,
                                const struct key_binding *bindings, size_t binding_count)
{
    struct gate_bench *bench = context;
    (void)claims;
    (void)bindings;
    bench->won_count += claim_count;
    bench->bound_count += binding_count;
    return ++bench->ticket;
}

/* --- what is measured --- */

static const enum coupon_state all_issued[BATCH_SIZE]; /* ISSUED is 0 */
_Static_assert(COUPON_ISSUED == 0, "the states are zeroed");

static void gate_bench_claim(struct gate_bench *bench, size_t count)
{
    struct gate_batch batch = {.policy_id = POLICY_ID, .wishes = bench->batch, .count = count};
    if (!gate_claim(bench->line, &batch, NOW_MS))
        gate_bench_die("the gate did not decide at once");
}

__attribute__((noinline)) static void gate_bench_decide(struct gate_bench *bench)
{
    gate_bench_claim(bench, BATCH_SIZE);
}

__attribute__((noinline)) static void gate_bench_acknowledge(struct gate_bench *bench)
{
    gate_acknowledge(bench->gate, bench->won, all_issued, BATCH_SIZE);
}

/* --- around it --- */

static uint64_t gate_bench_scramble(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static struct id gate_bench_user(uint64_t number)
{
    char text[32];
    int length = snprintf(text, sizeof(text), "u%016" PRIx64, gate_bench_scramble(number));
    return id_of((struct span){.bytes = text, .length = (size_t)length});
}

static void gate_bench_ask(struct gate_bench *bench, size_t count, bool repeat)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t number;
        if (repeat) {
            bench->random = gate_bench_scramble(bench->random);
            number = bench->random % bench->held_count;
        } else {
            number = bench->next_user++;
        }
        struct wish *wish = &bench->wishes[i];
        *wish = (struct wish){.policy_id = POLICY_ID, .user = gate_bench_user(number)};
        /* As the server makes them: unique, with the bit of a client's key clear. */
        bench->ask_count++;
        memcpy(wish->request_id.bytes + 8, &bench->ask_count, sizeof(bench->ask_count));
        bench->batch[i] = wish;
    }
}

static int64_t gate_bench_cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void gate_bench_check(struct gate_bench *bench, size_t count, enum verdict expected)
{
    for (size_t i = 0; i < count; i++) {
        if (bench->wishes[i].verdict != expected)
            gate_bench_die("another verdict than this mode is about");
        bench->won[i] = (struct claim){.policy_id = POLICY_ID, .seq = bench->wishes[i].seq};
    }
    if (bench->bound_count > 0 || bench->won_count != (expected == VERDICT_WON ? count : 0))
        gate_bench_die("the gate pushed what nobody asked for");
}

/* Not through the measured functions, so that callgrind leaves it out. */
static void gate_bench_fill(struct gate_bench *bench)
{
    for (uint64_t left = bench->held_count; left > 0;) {
        size_t count = left < BATCH_SIZE ? (size_t)left : BATCH_SIZE;
        gate_bench_ask(bench, count, false);
        bench->won_count = 0;
        gate_bench_claim(bench, count);
        gate_bench_check(bench, count, VERDICT_WON);
        gate_acknowledge(bench->gate, bench->won, all_issued, count);
        left -= count;
    }
}

/* One batch from asking to durable; gives back what the mode's part of it took. */
static int64_t gate_bench_batch(struct gate_bench *bench, enum verdict expected)
{
    gate_bench_ask(bench, BATCH_SIZE, bench->mode == MODE_REPEAT);
    bench->won_count = 0;
    int64_t start_ns = gate_bench_cpu_ns();
    gate_bench_decide(bench);
    int64_t decide_ns = gate_bench_cpu_ns() - start_ns;
    gate_bench_check(bench, BATCH_SIZE, expected);
    start_ns = gate_bench_cpu_ns();
    if (bench->won_count > 0)
        gate_bench_acknowledge(bench);
    int64_t acknowledge_ns = gate_bench_cpu_ns() - start_ns;
    return bench->mode == MODE_ACKNOWLEDGE ? acknowledge_ns : decide_ns;
}

static void gate_bench_open(struct gate_bench *bench, int64_t total)
{
    struct error error = {""};
    struct gate_options options = {.url = "local",
                                   .outlet = {.push = gate_bench_push, .context = bench}};
    struct policy policy = {.id = POLICY_ID,
                            .name = "bench",
                            .discount_value = 10,
                            .total = total,
                            .per_user_limit = 1,
                            .created_at_ms = NOW_MS,
                            .version = 1,
                            .next_seq = total + 1};
    struct lease lease = {
        .id = 1, .policy_id = POLICY_ID, .first_seq = 1, .count = total, .open = true};
    if (gate_open(&bench->gate, &options, &error) != STATUS_OK ||
        gate_line_open(bench->gate, &(struct gate_line_options){.loop = NULL}, &bench->line,
                       &error) != STATUS_OK ||
        gate_policy_set(bench->gate, &policy, &error) != STATUS_OK ||
        gate_lend(bench->gate, &lease, 0, 0, &error) != STATUS_OK)
        gate_bench_die(error.text);
}

static long gate_bench_resident_kib(void)
{
    char line[128];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "RssAnon: %ld", &kib) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return kib;
}

static enum mode gate_bench_parse_mode(const char *text)
{
    for (size_t i = 0; i < sizeof(mode_names) / sizeof(*mode_names); i++)
        if (strcmp(mode_names[i], text) == 0)
            return (enum mode)i;
    gate_bench_die("modes are win, repeat, sold_out, acknowledge");
}

int main(int argc, char **argv)
{
    static struct gate_bench bench;
    if (argc != 4)
        gate_bench_die("usage: gate MODE CLAIMS_HELD DECISIONS");
    bench.mode = gate_bench_parse_mode(argv[1]);
    bench.held_count = strtoull(argv[2], NULL, 10);
    uint64_t batch_count = strtoull(argv[3], NULL, 10) / BATCH_SIZE;
    bool wins = bench.mode == MODE_WIN || bench.mode == MODE_ACKNOWLEDGE;
    if (bench.held_count == 0 || batch_count == 0)
        gate_bench_die("at least one claim held and one batch of decisions");

    long empty_kib = gate_bench_resident_kib();
    uint64_t total = bench.held_count + (wins ? batch_count * BATCH_SIZE : 0);
    gate_bench_open(&bench, (int64_t)total);
    gate_bench_fill(&bench);
    long full_kib = gate_bench_resident_kib();

    enum verdict expected = wins                        ? VERDICT_WON
                            : bench.mode == MODE_REPEAT ? VERDICT_HELD
                                                        : VERDICT_SOLD_OUT;
    int64_t took_ns = 0;
    for (uint64_t i = 0; i < batch_count; i++)
        took_ns += gate_bench_batch(&bench, expected);
    uint64_t decision_count = batch_count * BATCH_SIZE;
    printf("{\"mode\":\"%s\",\"held\":%" PRIu64 ",\"decisions\":%" PRIu64
           ",\"cpu_seconds\":%.6f,\"ns_per_decision\":%.1f,\"bytes_per_claim\":%.1f}\n",
           argv[1], bench.held_count, decision_count, (double)took_ns / 1e9,
           (double)took_ns / (double)decision_count,
           (double)(full_kib - empty_kib) * 1024 / (double)bench.held_count);
    gate_line_close(bench.line);
    gate_close(bench.gate);
    return 0;
}
