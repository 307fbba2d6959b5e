/* fuzz_redis.c: any replies of Redis to everyone who reads them: never a crash, and what is taken
 * keeps its promises.
 *
 * The first byte chooses the reader; the rest is what the server says, in a notation that the
 * fuzzer can change without breaking lengths: a line is one reply of RESP, "(" and ")" stand around
 * the parts of an array, and a text "$…" gets its length here. Behind a line "!" all bytes go out
 * as they are. hiredis itself reads them.
 */
#include <errno.h>
#include <netdb.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/traces.h"
#include "base/zone.h"
#include "gate/redis/gate.h"
#include "gate/shared.h"
#include "ranking/redis/board.h"
#include "ranking/tally.h"
#include "redis_wire.h"

#define POLICY       7
#define WISHES       4
#define SAID_MAX     65536
#define DEPTH_MAX    8
#define DAY          19000
#define STRAYS_MAX   16
#define ELEMENTS_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Redirections name any host: nobody is looked up, nothing is connected to, nothing is waited for.
 */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **result)
{
    (void)node, (void)service, (void)hints, (void)result;
    return EAI_FAIL;
}

int connect(int fd, const struct sockaddr *address, socklen_t length)
{
    (void)fd, (void)address, (void)length;
    errno = ECONNREFUSED;
    return -1;
}

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    (void)wanted, (void)left;
    return 0;
}

/* --- what is said --- */

static struct span next_line(struct span *input)
{
    const char *end = memchr(input->bytes, '\n', input->length);
    size_t length = end == NULL ? input->length : (size_t)(end - input->bytes);
    struct span line = {input->bytes, length};

    input->bytes += end == NULL ? length : length + 1;
    input->length -= end == NULL ? length : length + 1;
    return line;
}

/* Writes the replies up to the ")"; how many. */
static size_t write_replies(struct span *input, struct buffer *out, int depth)
{
    size_t count = 0;

    for (; input->length > 0; count++) {
        struct span line = next_line(input);
        if (span_equal(line, SPAN("!"))) {
            buffer_append_span(out, *input);
            input->length = 0;
        } else if (span_equal(line, SPAN("(")) && depth < DEPTH_MAX) {
            struct buffer parts;
            buffer_init(&parts, SAID_MAX);
            size_t part_count = write_replies(input, &parts, depth + 1);
            buffer_append_literal(out, "*");
            buffer_append_i64(out, (int64_t)part_count);
            buffer_append_literal(out, "\r\n");
            buffer_append_span(out, (struct span){parts.bytes, parts.length});
            buffer_release(&parts);
        } else if (span_equal(line, SPAN(")"))) {
            break;
        } else if (line.length > 0 && line.bytes[0] == '$') {
            buffer_append_literal(out, "$");
            buffer_append_i64(out, (int64_t)line.length - 1);
            buffer_append_literal(out, "\r\n");
            buffer_append_span(out, (struct span){line.bytes + 1, line.length - 1});
            buffer_append_literal(out, "\r\n");
        } else {
            buffer_append_span(out, line);
            buffer_append_literal(out, "\r\n");
        }
    }
    return count;
}

/* --- the readers --- */

static void check_told(enum status status, const struct error *error)
{
    ensure(status == STATUS_OK || error->text[0] != '\0');
}

static void check_user(const struct id *user)
{
    ensure(json_id_valid(id_span(user)));
}

static void check_claim(const struct claim *claim)
{
    check_user(&claim->user);
    ensure(claim->policy_id == POLICY && claim->nth >= 1 && claim->nth <= PER_USER_LIMIT_MAX);
    ensure(claim->seq >= 0 && claim->seq <= REDIS_NUMBER_MAX);
}

static void read_pending(struct redis_wire *wire)
{
    static struct gate_pending pending;
    struct error error = {""};
    enum status status = gate_pending(gate_shared(&wire->redis.gate), POLICY, 0, &pending, &error);

    check_told(status, &error);
    ensure(pending.claim_count <= GATE_PENDING_MAX && pending.binding_count <= GATE_PENDING_MAX);
    for (size_t i = 0; i < pending.claim_count && status == STATUS_OK; i++) {
        check_claim(&pending.claims[i]);
        ensure(pending.claims[i].seq > 0);
    }
    for (size_t i = 0; i < pending.binding_count && status == STATUS_OK; i++)
        ensure(pending.bindings[i].seq >= 0 && pending.bindings[i].policy_id == POLICY);
}

static void read_leases(struct redis_wire *wire)
{
    struct gate_lease *leases;
    size_t count;
    int64_t highest_id;
    struct error error = {""};
    enum status status =
        gate_leases(gate_shared(&wire->redis.gate), POLICY, &leases, &count, &highest_id, &error);

    check_told(status, &error);
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        ensure(leases[i].first_seq >= 0 && leases[i].first_seq <= leases[i].next_seq &&
               leases[i].next_seq <= leases[i].end_seq);
    free(leases);
}

static enum status visit_policy(void *context, const struct policy *policy, struct error *error)
{
    (void)context, (void)error;
    ensure(policy->id == POLICY && memchr(policy->name, '\0', sizeof(policy->name)) != NULL);
    ensure(policy->per_user_limit >= 0 && policy->next_seq >= 0);
    return STATUS_OK;
}

static enum status visit_lease(void *context, const struct lease *lease, int64_t given_count,
                               struct error *error)
{
    (void)context, (void)error;
    ensure(lease->policy_id == POLICY && lease->count >= 0 && given_count >= 0 &&
           given_count <= lease->count);
    return STATUS_OK;
}

static enum status visit_claim(void *context, const struct held_claim *held, struct error *error)
{
    (void)context, (void)error;
    check_claim(&held->claim);
    return STATUS_OK;
}

static enum status visit_key(void *context, const struct key_binding *key, struct error *error)
{
    (void)context, (void)error;
    check_user(&key->user);
    return STATUS_OK;
}

static void read_visit(struct redis_wire *wire)
{
    const struct claim_visitor visitor = {
        .policy = visit_policy, .lease = visit_lease, .claim = visit_claim, .key = visit_key};
    struct error error = {""};

    check_told(gate_redis_visit(&wire->redis.gate, POLICY, &visitor, &error), &error);
}

static void read_enumerate(struct redis_wire *wire)
{
    int64_t *ids = NULL;
    size_t count = 0;
    struct error error = {""};

    check_told(gate_enumerate(gate_shared(&wire->redis.gate), &ids, &count, &error), &error);
    for (size_t i = 0; i < count; i++)
        ensure(ids[i] >= 1 && (i == 0 || ids[i] > ids[i - 1]));
    free(ids);
}

static void read_inspect(struct redis_wire *wire)
{
    static struct gate_state state;
    struct error error = {""};

    memset(&state, 0, sizeof(state));
    check_told(gate_redis_inspect(&wire->redis.gate, POLICY, &state, &error), &error);
    ensure(state.lease_count <= GATE_STATE_LEASES_MAX && state.left >= 0);
}

static void read_strays(struct redis_wire *wire)
{
    struct claim strays[STRAYS_MAX];
    size_t count = 0;
    struct error error = {""};

    check_told(
        gate_strays(gate_shared(&wire->redis.gate), POLICY, strays, STRAYS_MAX, &count, &error),
        &error);
    ensure(count <= STRAYS_MAX);
    for (size_t i = 0; i < count; i++)
        check_claim(&strays[i]);
}

static void read_find(struct redis_wire *wire)
{
    struct gate_claim claims[2];
    const struct id user = id_of(SPAN("ann"));
    size_t count = 0;
    struct error error = {""};
    enum status status =
        wire->redis.gate.ops->find(&wire->redis.gate, POLICY, &user, claims, 2, &count, &error);

    check_told(status, &error);
    for (size_t i = 0; i < count && i < 2 && status == STATUS_OK; i++)
        ensure(claims[i].seq >= 0 && claims[i].nth <= PER_USER_LIMIT_MAX);
}

static void read_recall(struct redis_wire *wire)
{
    struct lease_shrunk shrunk[GATE_RECALL_LEASES_MAX];
    size_t count = 0;
    struct error error = {""};

    check_told(wire->redis.gate.ops->recall(&wire->redis.gate, POLICY, 5, shrunk, &count, &error),
               &error);
    ensure(count <= GATE_RECALL_LEASES_MAX);
}

/* Those that answer one number, one after the other. */
static void read_numbers(struct redis_wire *wire)
{
    struct gate *gate = &wire->redis.gate;
    const struct gate_fix fix = {.claim.user = id_of(SPAN("ann"))};
    const struct gate_arming arming = {.term = 1};
    int64_t number = 0;
    bool is_continuous;
    struct error error = {""};

    check_told(gate_announce(gate_shared(gate), POLICY, 5, &number, &error), &error);
    ensure(number >= 0);
    check_told(gate_publish(gate_shared(gate), POLICY, "token", &number, &error), &error);
    check_told(gate_retire(gate_shared(gate), POLICY, 5, &error), &error);
    check_told(gate_take_over(gate_shared(gate), POLICY, 2, 1, &is_continuous, &error), &error);
    check_told(gate_fix(gate_shared(gate), POLICY, &fix, 1, &number, &error), &error);
    check_told(gate_arm(gate_shared(gate), POLICY, 1, &arming, &error), &error);
}

static void read_moment(struct redis_wire *wire)
{
    struct gate_moment moment;
    struct error error = {""};
    enum status status = gate_moment(gate_shared(&wire->redis.gate), POLICY, &moment, &error);

    check_told(status, &error);
    ensure(status != STATUS_OK || memchr(moment.process, '\0', sizeof(moment.process)) != NULL);
}

/* Its numbers, then who has won in it. */
static void read_watch(struct redis_wire *wire)
{
    struct redis_watch *watch = &wire->redis.watch;
    struct gate_numbers numbers;
    struct error error = {""};

    check_told(redis_watch_refresh(watch, POLICY, &error), &error);
    redis_watch_note_winners(watch, POLICY);
    if (gate_count(&wire->redis.gate, POLICY, 0, &numbers) == STATUS_OK)
        ensure(numbers.pending >= 0 && watch->pending_count == numbers.pending);
}

static void read_survey(struct redis_wire *wire)
{
    struct gate_survey survey = {0};
    struct error error = {""};

    check_told(gate_survey(gate_shared(&wire->redis.gate), POLICY, &survey, &error), &error);
}

/* Whether the library is there, which has to be loaded where it is not. */
static void read_library(struct redis_wire *wire)
{
    struct redis_pool *pool = &wire->redis.pool;
    struct error error = {""};

    check_told(redis_pool_check(pool, &pool->target->seeds[0], &error), &error);
}

/* --- those that get a reply, not a connection --- */

static redisReply *reply_of(struct redis_wire *wire)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;

    ensure(reader != NULL);
    reader->maxelements = ELEMENTS_MAX;
    if (redisReaderFeed(reader, wire->said.bytes, wire->said.length) == REDIS_OK)
        (void)redisReaderGetReply(reader, &reply);
    redisReaderFree(reader);
    return reply;
}

static void read_verdicts(struct redis_wire *wire)
{
    struct wish wishes[WISHES];
    struct wish *batch[WISHES];
    redisReply *reply = reply_of(wire);
    bool is_over;

    memset(wishes, 0, sizeof(wishes));
    for (size_t i = 0; i < WISHES; i++)
        batch[i] = &wishes[i];
    bool is_read = redis_verdicts_read(reply, "n1", batch, WISHES);
    for (size_t i = 0; i < WISHES && is_read; i++) {
        bool has_place = wishes[i].verdict == VERDICT_WON || wishes[i].verdict == VERDICT_HELD;
        ensure(wishes[i].verdict != VERDICT_UNDECIDED);
        ensure(!has_place || (wishes[i].seq >= 1 && wishes[i].nth >= 1));
        ensure(has_place || !wishes[i].is_accepted);
    }
    for (size_t i = 0; i < WISHES; i++) {
        wishes[i].verdict = i == 0 ? VERDICT_SOLD_OUT : VERDICT_WON;
        wishes[i].is_accepted = i > 0;
    }
    if (redis_settled_read(reply, batch, WISHES, &is_over) && is_over)
        for (size_t i = 0; i < WISHES; i++)
            ensure(!wishes[i].is_accepted);
    freeReplyObject(reply);
}

static void read_map(struct redis_wire *wire, enum redis_mode mode)
{
    static struct redis_map fresh;
    const struct redis_target target = {.mode = mode};
    const struct redis_address from = {.host = "asked", .port = 1};
    redisReply *reply = reply_of(wire);

    if (redis_map_read(&fresh, reply, &target, &from)) {
        ensure(fresh.node_count >= 1 && fresh.node_count <= REDIS_NODES_MAX);
        for (size_t i = 0; i < fresh.node_count; i++)
            ensure(fresh.nodes[i].port >= 1 && fresh.nodes[i].port <= 65535 &&
                   memchr(fresh.nodes[i].host, '\0', sizeof(fresh.nodes[i].host)) != NULL);
        for (size_t i = 0; i < REDIS_SLOTS && mode == REDIS_MODE_CLUSTER; i++)
            ensure(fresh.slots[i] < REDIS_NODES_MAX);
    }
    freeReplyObject(reply);
}

static void read_slots(struct redis_wire *wire)
{
    read_map(wire, REDIS_MODE_CLUSTER);
}

static void read_master(struct redis_wire *wire)
{
    read_map(wire, REDIS_MODE_SENTINEL);
}

/* --- the board --- */

static void read_board(struct redis_wire *wire)
{
    struct board *board = NULL;
    struct tally tally = {0};
    const struct id product = id_of(SPAN("apple"));
    struct sales_line lines[5];
    size_t count;
    struct feed_place place;
    int64_t age_ms;
    struct buffer text;
    struct error error = {""};

    ensure(board_redis_open(&board, &(struct board_redis_options){.url = "redis://nobody:1"},
                            &error) == STATUS_OK);
    redis_wire_plug(&board_redis(board)->pool, &wire->said);
    buffer_init(&text, 1024);
    const struct board_question questions[] = {
        {.kind = BOARD_TOP, .first_day = DAY, .last_day = DAY, .limit = 5},
        {.kind = BOARD_AROUND,
         .first_day = DAY,
         .last_day = DAY,
         .limit = 2,
         .ids = &product,
         .id_count = 1},
    };
    for (size_t i = 0; i < 2; i++) {
        check_told(board->ops->ask(board, &questions[i], lines, &count, &error), &error);
        ensure(count <= 5);
    }
    check_told(board->ops->read(board, DAY, DAY, &tally, &place, &error), &error);
    for (size_t i = 0; i < tally.product_count; i++)
        check_user(&tally.products[i]);
    tally_release(&tally);
    check_told(board->cache->recall(board, &text, &age_ms, &error), &error);
    buffer_release(&text);
    board->ops->close(board);
}

static void (*const readers[])(struct redis_wire *wire) = {
    read_pending, read_leases,   read_visit,   read_enumerate, read_inspect, read_strays,
    read_find,    read_recall,   read_numbers, read_moment,    read_watch,   read_survey,
    read_library, read_verdicts, read_slots,   read_master,    read_board,
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct redis_wire wire;
    static struct traces *traces;
    const size_t reader_count = sizeof(readers) / sizeof(readers[0]);

    if (size == 0)
        return 0;
    if (traces == NULL)
        traces = traces_new();
    struct span input = {(const char *)bytes + 1, size - 1};
    struct buffer said;
    buffer_init(&said, SAID_MAX);
    (void)write_replies(&input, &said, 0);
    redis_wire_open(&wire, (struct span){said.bytes, said.length});
    wire.redis.options.traces = traces;
    readers[(size_t)(uint8_t)(bytes[0] - 'a') % reader_count](&wire);
    redis_wire_close(&wire);
    buffer_release(&said);
    return 0;
}
