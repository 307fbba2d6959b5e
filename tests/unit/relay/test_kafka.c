/* test_kafka.c: what a worker gives to the relay comes out again, is settled, and only then
 * forgotten; gate and ledger are played by the test. */
#include "../event/kafka/mock_kafka.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "played.h"

#define ISSUED_MAX 4000
#define POLICY     42

/* Numbers of the relay. */
enum { PUBLISHED, CONFIRMED, CONSUMED, DEAD, COUNTED };

struct stage {
    struct mock_kafka mock;
    struct kafka *kafka;
    struct relay_kafka *opened;
    struct relay *relay;
    uint64_t before[COUNTED]; /* of the numbers below, when the test began */
    pthread_mutex_t lock;
    /* the ledger */
    struct claim issued[ISSUED_MAX]; /* in the order of issuing */
    size_t issued_count;
    size_t settled_count; /* of those, told of */
    struct dead_letter buried;
    size_t buried_count;
    /* the gate */
    char token[64];
    int64_t mark;
    size_t mark_moves;
};

static struct error error;
static struct stage stage;

/* --- gate and ledger --- */

static void play_issue(void *context, const struct claim *claims, size_t count)
{
    (void)context;
    pthread_mutex_lock(&stage.lock);
    assert_true(stage.issued_count + count <= ISSUED_MAX);
    memcpy(stage.issued + stage.issued_count, claims, count * sizeof(*claims));
    stage.issued_count += count;
    pthread_mutex_unlock(&stage.lock);
}

static enum status play_publish(void *context, int64_t policy_id, const char *token, int64_t *mark,
                                struct error *words)
{
    (void)context;
    (void)policy_id;
    (void)words;
    snprintf(stage.token, sizeof(stage.token), "%s", token);
    *mark = stage.mark;
    return STATUS_OK;
}

static enum status play_published(void *context, int64_t policy_id, const char *token, int64_t seq,
                                  struct error *words)
{
    (void)context;
    (void)policy_id;
    if (strcmp(token, stage.token) != 0)
        return error_set(words, STATUS_CONFLICT, "another worker publishes");
    assert_true(seq > stage.mark);
    stage.mark = seq;
    stage.mark_moves++;
    return STATUS_OK;
}

static enum status play_letter(void *context, int64_t policy_id, int64_t seq,
                               struct dead_letter *letter, struct error *words)
{
    (void)context;
    (void)words;
    *letter = (struct dead_letter){.claim = {.policy_id = policy_id, .seq = seq}};
    snprintf(letter->reason, sizeof(letter->reason), "the user was blocked");
    return STATUS_OK;
}

static enum status play_keep(void *context, const struct dead_letter *letter, struct error *words)
{
    (void)context;
    (void)words;
    pthread_mutex_lock(&stage.lock);
    stage.buried = *letter;
    stage.buried_count++;
    pthread_mutex_unlock(&stage.lock);
    return STATUS_OK;
}

static const struct relay_outlet outlet = {
    .issue = play_issue,
    .filter = play_filter,
    .outstanding = play_outstanding,
    .publish = play_publish,
    .published = play_published,
    .letter = play_letter,
    .keep = play_keep,
};

static size_t issued_count(void)
{
    pthread_mutex_lock(&stage.lock);
    size_t count = stage.issued_count;
    pthread_mutex_unlock(&stage.lock);
    return count;
}

/* The ledger settles all that it has been given, each in the state that `judge` says. */
static void settle(enum coupon_state (*judge)(const struct claim *claim))
{
    pthread_mutex_lock(&stage.lock);
    size_t from = stage.settled_count;
    size_t count = stage.issued_count - from;
    enum coupon_state *states = malloc((count + 1) * sizeof(*states));
    assert_non_null(states);
    for (size_t i = 0; i < count; i++)
        states[i] = judge(&stage.issued[from + i]);
    stage.settled_count = stage.issued_count;
    pthread_mutex_unlock(&stage.lock);
    if (count > 0)
        relay_kafka_settled(stage.opened, stage.issued + from, states, count);
    free(states);
}

static enum coupon_state all_issued(const struct claim *claim)
{
    (void)claim;
    return COUPON_ISSUED;
}

/* Settles whatever is issued until the condition holds: what was carried at once may come out in
 * several batches, and a queue gives the next one out when the one before is settled. */
#define settle_until(judge, condition) mock_await((condition) || (settle(judge), (condition)))

/* --- set-up --- */

static uint64_t counted(int number)
{
    static const char *const names[COUNTED] = {
        [PUBLISHED] = "published_total",
        [CONFIRMED] = "confirmed_total",
        [CONSUMED] = "consumed_total",
        [DEAD] = "dead_total",
    };

    return relay_counted(stage.kafka, stage.opened, names[number]) - stage.before[number];
}

static void open_relay(void)
{
    assert_int_equal(kafka_open(&stage.kafka, stage.mock.url, NULL,
                                &(struct kafka_names){.partitions = 0}, KAFKA_PUBLISHES, &error),
                     STATUS_OK);
    assert_int_equal(relay_kafka_open(&stage.opened, stage.kafka, &outlet, NULL, &error),
                     STATUS_OK);
    stage.relay = relay_kafka_publisher(stage.opened);
    memset(stage.before, 0, sizeof(stage.before));
}

static void close_relay(void)
{
    relay_kafka_stop(stage.opened, 500);
    kafka_stop(stage.kafka);
    relay_kafka_close(stage.opened);
    kafka_close(stage.kafka);
}

/* One relay for all tests, because it takes these brokers seconds to let one into a group. */
static int set_up_all(void **state)
{
    (void)state;
    pthread_mutex_init(&stage.lock, NULL);
    mock_kafka_init(&stage.mock);
    open_relay();
    return 0;
}

static int tear_down_all(void **state)
{
    (void)state;
    close_relay();
    mock_kafka_release(&stage.mock);
    pthread_mutex_destroy(&stage.lock);
    return 0;
}

/* Every test leaves with everything settled. */
static int set_up(void **state)
{
    (void)state;
    stage.issued_count = stage.settled_count = stage.buried_count = 0;
    stage.mark = 0;
    for (int i = 0; i < COUNTED; i++)
        stage.before[i] += counted(i);
    return 0;
}

static struct relay_stream begin(int64_t policy_id)
{
    struct relay_stream stream = {.policy_id = policy_id};
    assert_int_equal(stage.relay->ops->begin(stage.relay, &stream, &error), STATUS_OK);
    return stream;
}

static enum status try_carry(struct relay_stream *stream, int64_t first_seq, size_t count)
{
    struct claim *claims = calloc(count, sizeof(*claims));

    assert_non_null(claims);
    for (size_t i = 0; i < count; i++) {
        claims[i] = (struct claim){.policy_id = stream->policy_id,
                                   .seq = first_seq + (int64_t)i,
                                   .lease_id = 7,
                                   .requested_at_ms = 1800000000000,
                                   .nth = 1,
                                   .user = id_of(SPAN("u1"))};
        claims[i].request_id.bytes[15] = (uint8_t)i;
    }
    enum status status = stage.relay->ops->carry(stage.relay, stream, claims, count, &error);
    free(claims);
    return status;
}

static void carry(struct relay_stream *stream, int64_t first_seq, size_t count)
{
    mock_await(try_carry(stream, first_seq, count) == STATUS_OK);
}

/* Rests until the mark is there, as a worker does that finds nothing new. */
static bool marks(struct relay_stream *stream, int64_t seq)
{
    (void)stage.relay->ops->rest(stage.relay, stream, 0);
    return stage.mark == seq;
}

/* --- tests --- */

static void test_kafka_relay__carries_in_order_and_marks_what_is_confirmed(void **state)
{
    struct relay_stream stream = begin(POLICY);

    (void)state;
    carry(&stream, 1, 200);
    carry(&stream, 201, 300);
    assert_int_equal(stream.cursor, 500);
    mock_await(marks(&stream, 500));
    mock_await(issued_count() > 0);
    assert_int_equal(counted(CONSUMED), 0); /* The ledger has not said a word. */
    settle_until(all_issued, counted(CONSUMED) == 500);
    assert_int_equal(issued_count(), 500);
    for (size_t i = 0; i < 500; i++) {
        assert_int_equal(stage.issued[i].policy_id, POLICY);
        assert_int_equal(stage.issued[i].seq, i + 1);
        assert_int_equal(stage.issued[i].lease_id, 7);
        assert_int_equal(stage.issued[i].requested_at_ms, 1800000000000);
    }
    assert_int_equal(counted(CONFIRMED), 500);
    stage.relay->ops->leave(stage.relay, &stream);
}

static void test_kafka_relay__reads_again_what_was_not_settled(void **state)
{
    struct relay_stream stream = begin(POLICY);

    (void)state;
    carry(&stream, 1, 10);
    settle_until(all_issued, counted(CONSUMED) == 10);
    carry(&stream, 11, 10);
    mock_await(issued_count() > 10);
    stage.relay->ops->leave(stage.relay, &stream);
    close_relay(); /* 11 to 20 are at work, and nobody knows what became of them. */
    size_t before = stage.settled_count = issued_count();
    open_relay();
    settle_until(all_issued, counted(CONSUMED) == 10);
    assert_int_equal(issued_count(), before + 10);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(stage.issued[before + i].seq, 11 + i);
}

static void test_kafka_relay__sends_again_what_failed(void **state)
{
    struct relay_stream stream = begin(POLICY);

    (void)state;
    carry(&stream, 1, 10);
    mock_await(marks(&stream, 10));
    rd_kafka_mock_push_request_errors(stage.mock.cluster, MOCK_PRODUCE, 1,
                                      RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
    carry(&stream, 11, 10);
    assert_int_equal(stream.cursor, 20);
    mock_await(stage.relay->ops->rest(stage.relay, &stream,
                                      20)); /* the cursor goes back to what is confirmed */
    assert_int_equal(stream.cursor, 10);
    assert_int_equal(stage.mark, 10);
    carry(&stream, 11, 10);
    mock_await(marks(&stream, 20));
    settle_until(all_issued, counted(CONSUMED) == 20);
    assert_int_equal(issued_count(), 20);
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(stage.issued[i].seq, i + 1);
    stage.relay->ops->leave(stage.relay, &stream);
}

static void test_kafka_relay__only_the_last_steward_moves_the_mark(void **state)
{
    struct relay_stream stalled = begin(POLICY);

    (void)state;
    carry(&stalled, 1, 10);
    mock_await(counted(CONFIRMED) == 10);
    struct relay_stream stream = begin(POLICY);
    assert_int_equal(stream.cursor, 0); /* The mark had not moved: it is published again. */
    mock_await(try_carry(&stalled, 11, 10) == STATUS_CONFLICT);
    assert_int_equal(stage.mark, 0);
    carry(&stream, 1, 10);
    mock_await(marks(&stream, 10));
    /* What came twice is issued once at a time, and harmless. */
    settle_until(all_issued, counted(CONSUMED) == 20);
    stage.relay->ops->leave(stage.relay, &stalled);
    stage.relay->ops->leave(stage.relay, &stream);
}

static enum coupon_state first_refused(const struct claim *claim)
{
    return claim->policy_id == 1 ? COUPON_PENDING : COUPON_ISSUED;
}

static bool has_issued(int64_t policy_id, int32_t attempt)
{
    bool has = false;

    pthread_mutex_lock(&stage.lock);
    for (size_t i = 0; i < stage.issued_count; i++)
        has = has || (stage.issued[i].policy_id == policy_id && stage.issued[i].attempt == attempt);
    pthread_mutex_unlock(&stage.lock);
    return has;
}

static void test_kafka_relay__a_refused_claim_holds_up_its_partition_only(void **state)
{
    struct relay_stream ways[8];
    size_t issued_before = 0;

    (void)state;
    ways[0] = begin(1);
    carry(&ways[0], 1, 1);
    mock_await(issued_count() == 1);
    settle(first_refused);
    for (int64_t i = 1; i < 8; i++) {
        ways[i] = begin(i + 1);
        carry(&ways[i], 1, 1);
    }
    /* It is tried again and again, with its attempts counted, and the others do not wait for it. */
    settle_until(first_refused, has_issued(1, 3));
    for (int64_t i = 1; i < 8; i++)
        issued_before += has_issued(i + 1, 0);
    assert_in_range(issued_before, 1, 6);
    assert_int_equal(counted(CONSUMED), issued_before);
    /* Those behind it were not skipped. */
    settle_until(all_issued, counted(CONSUMED) == 8);
    for (int64_t i = 1; i < 8; i++)
        assert_true(has_issued(i + 1, 0));
    for (size_t i = 0; i < 8; i++)
        stage.relay->ops->leave(stage.relay, &ways[i]);
}

static enum coupon_state fifth_void(const struct claim *claim)
{
    return claim->seq == 5 ? COUPON_VOID : COUPON_ISSUED;
}

static void produce_rubbish(void)
{
    char rubbish[] = "rubbish";
    rd_kafka_conf_t *conf = rd_kafka_conf_new();

    rd_kafka_conf_set(conf, "bootstrap.servers",
                      rd_kafka_mock_cluster_bootstraps(stage.mock.cluster), NULL, 0);
    rd_kafka_t *stranger = rd_kafka_new(RD_KAFKA_PRODUCER, conf, NULL, 0);
    assert_non_null(stranger);
    assert_int_equal(rd_kafka_producev(stranger, RD_KAFKA_V_TOPIC("coupon-pended"),
                                       RD_KAFKA_V_VALUE(rubbish, sizeof(rubbish)),
                                       RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END),
                     RD_KAFKA_RESP_ERR_NO_ERROR);
    assert_int_equal(rd_kafka_flush(stranger, 10000), RD_KAFKA_RESP_ERR_NO_ERROR);
    rd_kafka_destroy(stranger);
}

static void test_kafka_relay__what_comes_to_nothing_is_put_aside(void **state)
{
    struct relay_stream stream = begin(POLICY);

    (void)state;
    carry(&stream, 1, 10);
    settle_until(fifth_void, counted(CONSUMED) == 10);
    assert_int_equal(counted(DEAD), 1);
    assert_int_equal(stage.buried_count, 0); /* The ledger has its letter already. */
    stage.relay->ops->leave(stage.relay, &stream);
}

static void test_kafka_relay__what_is_no_claim_is_kept_and_passed_over(void **state)
{
    (void)state;
    mock_await(relay_counted(stage.kafka, stage.opened, "up") == 1);
    produce_rubbish();
    mock_await(counted(DEAD) == 1);
    mock_await(counted(CONSUMED) == 1);
    assert_int_equal(stage.buried_count, 1);
    assert_int_equal(stage.buried.claim.policy_id, 0);
    assert_true(stage.buried.claim.seq > 0);
    assert_non_null(strstr(stage.buried.reason, "coupon-pended partition"));
    assert_int_equal(issued_count(), 0);
}

static void test_kafka_relay__passes_when_the_ledger_has_all(void **state)
{
    struct relay_stream stream = begin(POLICY);

    (void)state;
    carry(&stream, 1, 10);
    mock_await(issued_count() > 0);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(stage.relay->ops->pass(stage.relay, &stream, NULL, 0, &error),
                         STATUS_BUSY);
        mock_pause();
    }
    settle_until(all_issued,
                 stage.relay->ops->pass(stage.relay, &stream, NULL, 0, &error) == STATUS_OK);
    stage.relay->ops->leave(stage.relay, &stream);
}

/* As where claims go past the topic now: nothing is armed before what is in it is settled. */
static void test_kafka_relay__is_drained_when_the_ledger_has_all(void **state)
{
    struct relay_stream stream = begin(POLICY);
    struct kafka_goal goal = {.is_set = false};

    (void)state;
    carry(&stream, 1, 10);
    mock_await(marks(&stream, 10));
    stage.relay->ops->leave(stage.relay, &stream);
    close_relay(); /* They are in the topic, and the ledger has none of them. */
    size_t before = stage.settled_count = issued_count();
    open_relay();
    /* Not even while it is not known yet what is there. */
    assert_int_equal(relay_kafka_drained(stage.kafka, &goal, POLICY, &error), STATUS_BUSY);
    mock_await(issued_count() > before);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(relay_kafka_drained(stage.kafka, &goal, POLICY, &error), STATUS_BUSY);
        mock_pause();
    }
    settle_until(all_issued, relay_kafka_drained(stage.kafka, &goal, POLICY, &error) == STATUS_OK);
    assert_int_equal(counted(CONSUMED), 10);
}

#define TEST(name) cmocka_unit_test_setup(test_kafka_relay__##name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(carries_in_order_and_marks_what_is_confirmed),
        TEST(reads_again_what_was_not_settled),
        TEST(sends_again_what_failed),
        TEST(only_the_last_steward_moves_the_mark),
        TEST(a_refused_claim_holds_up_its_partition_only),
        TEST(what_comes_to_nothing_is_put_aside),
        TEST(what_is_no_claim_is_kept_and_passed_over),
        TEST(passes_when_the_ledger_has_all),
        TEST(is_drained_when_the_ledger_has_all),
    };
    return cmocka_run_group_tests(tests, set_up_all, tear_down_all);
}
