/* ledger_suite_events.c: every change of a coupon is told of once, in order, with the change. */
#include "ledger_fixture.h"

#include <stdatomic.h>
#include <unistd.h>

#define EVENTS_MAX 512

struct events {
    struct ledger_event items[EVENTS_MAX];
    size_t count;
};

static struct events events_of(struct fixture *fixture, int64_t policy_id, int64_t after)
{
    struct events *events = calloc(1, sizeof(*events));
    const struct ledger_event_place place = {.policy_id = policy_id, .number = after};

    assert_non_null(events);
    check(fixture, ledger_events(fixture->ledger, LEDGER_SINK_KAFKA, &place, events->items,
                                 EVENTS_MAX, &events->count, &fixture->error));
    struct events copy = *events;
    free(events);
    return copy;
}

static void assert_event(const struct ledger_event *event, int64_t number, int64_t seq,
                         enum coupon_state state)
{
    assert_int_equal(event->place.number, number);
    assert_int_equal(event->coupon.claim.seq, seq);
    assert_string_equal(coupon_state_name(event->coupon.state), coupon_state_name(state));
}

static bool find_trace(void *context, const struct request_id *request_id,
                       char traceparent[TRACEPARENT_SIZE])
{
    (void)context;
    if (request_id->bytes[8] != 1)
        return false;
    snprintf(traceparent, TRACEPARENT_SIZE, "00-%032d-%016d-01", 4, 2);
    return true;
}

static void on_events(void *context)
{
    struct fixture *fixture = context;
    atomic_fetch_add(&fixture->told_count, 1);
}

static int set_up_events(void **state, enum ledger_use use)
{
    if ((use == LEDGER_OWN ? set_up : set_up_shared)(state) != 0)
        return 1;
    struct fixture *fixture = *state;
    fixture->has_events = true;
    fixture->on_events = on_events;
    fixture->find_trace = find_trace;
    reopen(fixture);
    return 0;
}

static int set_up_own(void **state)
{
    return set_up_events(state, LEDGER_OWN);
}

static int set_up_sharing(void **state)
{
    return set_up_events(state, LEDGER_SHARE);
}

/* --- what is told --- */

static void test_events__every_change_is_told_once(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create_with(fixture, 6, 1, 1, &lease);
    struct claim claims[] = {claim_of(&lease, 1, "a", 1), claim_of(&lease, 2, "b", 1)};
    struct id order = id_of(SPAN("order-7"));
    struct coupon coupon;

    issue(fixture, claims, 2);
    issue(fixture, claims, 2); /* Found written: no change. */
    for (int i = 0; i < 2; i++) {
        check(fixture, ledger_coupon_redeem(fixture->ledger, policy.id, 1, &order, NOW + 5, "trace",
                                            &coupon, &fixture->error));
        check(fixture, ledger_coupon_cancel(fixture->ledger, policy.id, 2, NOW + 6, NULL, &coupon,
                                            &policy, &fixture->error));
    }
    assert_int_equal(ledger_coupon_cancel(fixture->ledger, policy.id, 1, NOW, NULL, &coupon,
                                          &policy, &fixture->error),
                     STATUS_CONFLICT);
    struct events told = events_of(fixture, policy.id, 0);
    assert_int_equal(told.count, 4);
    assert_event(&told.items[0], 1, 1, COUPON_ISSUED);
    assert_event(&told.items[1], 2, 2, COUPON_ISSUED);
    assert_event(&told.items[2], 3, 1, COUPON_REDEEMED);
    assert_event(&told.items[3], 4, 2, COUPON_CANCELLED);
    assert_memory_equal(told.items[0].coupon.claim.user.bytes, "a", 1);
    assert_int_equal(told.items[0].coupon.claim.requested_at_ms, NOW);
    assert_memory_equal(&told.items[0].coupon.claim.request_id, &claims[0].request_id,
                        sizeof(claims[0].request_id));
    assert_true(told.items[0].coupon.issued_at_ms > 0);
    assert_int_equal(told.items[0].coupon.issued_at_ms, told.items[0].changed_at_ms);
    assert_int_equal(told.items[0].coupon.expires_at_ms, 0);
    assert_string_equal(told.items[0].traceparent,
                        "00-00000000000000000000000000000004-0000000000000002-01");
    assert_string_equal(told.items[1].traceparent, "");
    assert_int_equal(told.items[2].changed_at_ms, NOW + 5);
    assert_true(id_equal(&told.items[2].coupon.order_id, &order));
    assert_string_equal(told.items[2].traceparent, "trace");
    assert_int_equal(told.items[3].coupon.order_id.length, 0);
    assert_int_equal(told.items[3].changed_at_ms, NOW + 6);
    assert_true(atomic_load(&fixture->told_count) >= 3);
}

static void test_events__claims_that_came_to_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create_with(fixture, 8, 1, 1, &lease);
    struct id blocked = id_of(SPAN("blocked"));
    const struct claim claims[] = {claim_of(&lease, 1, "a", 1), claim_of(&lease, 2, "a", 1),
                                   claim_of(&lease, 3, "blocked", 1)};
    const struct claim collision = claim_of(&lease, 1, "thief", 1);

    check(fixture, ledger_user_block(fixture->ledger, &blocked, true, NOW, &fixture->error));
    issue(fixture, claims, 3);
    issue(fixture, claims, 3);
    assert_int_equal(issue(fixture, &collision, 1), COUPON_VOID);
    struct events told = events_of(fixture, policy.id, 0);
    assert_int_equal(told.count, 3);
    assert_event(&told.items[0], 1, 1, COUPON_ISSUED);
    assert_event(&told.items[1], 2, 2, COUPON_MERGED);
    assert_int_equal(told.items[1].coupon.merged_into_seq, 1);
    assert_event(&told.items[2], 3, 3, COUPON_VOID);
    assert_string_equal(told.items[2].coupon.reason,
                        "the user was blocked before the coupon was issued");
}

/* A refused row is told of once, when a VOID one takes its place; its neighbours as ever. */
static void test_events__a_refused_row(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 3, &lease);
    const struct claim claims[] = {claim_of(&lease, 1, "a", 1), claim_of(&lease, 2, "bad", 1),
                                   claim_of(&lease, 3, "c", 1)};

    ledger_suite_ask(fixture->session, ledger_suite_refuse_bad);
    issue(fixture, claims, 3);
    issue(fixture, claims, 3);
    struct events told = events_of(fixture, policy.id, 0);
    assert_int_equal(told.count, 3);
    assert_event(&told.items[0], 1, 1, COUPON_ISSUED);
    assert_event(&told.items[1], 2, 2, COUPON_VOID);
    assert_memory_equal(told.items[1].coupon.claim.user.bytes, "bad", 3);
    assert_string_equal(told.items[1].coupon.reason, "the database refused it");
    assert_event(&told.items[2], 3, 3, COUPON_ISSUED);
}

static void test_events__claims_from_the_reserve(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create_with(fixture, 2, 2, 1, &lease);
    struct ledger_wish wish = {.policy_id = policy.id, .user = id_of(SPAN("a")), .now_ms = NOW + 1};

    for (int i = 0; i < 2; i++)
        check(fixture, ledger_claim(fixture->ledger, &wish, &fixture->error));
    assert_int_equal(wish.verdict, VERDICT_HELD);
    struct events told = events_of(fixture, policy.id, 0);
    assert_int_equal(told.count, 1);
    assert_event(&told.items[0], 1, wish.coupon.claim.seq, COUPON_ISSUED);
    assert_int_equal(told.items[0].coupon.issued_at_ms, NOW + 1);
}

/* More than fit into one statement, of two policies, in one transaction. */
static void test_events__a_large_batch(void **state)
{
    enum { EACH = 700 };
    struct fixture *fixture = *state;
    struct lease leases[2];
    struct claim *claims = calloc(2 * EACH, sizeof(*claims));
    int64_t ids[2];

    assert_non_null(claims);
    for (int i = 0; i < 2; i++)
        ids[i] = create(fixture, EACH, &leases[i]).id;
    for (int i = 0; i < 2 * EACH; i++) {
        char user[16];
        snprintf(user, sizeof(user), "u%d", i);
        claims[i] = claim_of(&leases[1 - i % 2], i / 2 + 1, user, 1);
    }
    issue(fixture, claims, (size_t)2 * EACH);
    free(claims);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ask(fixture->session,
                             "SELECT COUNT(*) FROM outbox WHERE policy_id = %lld AND seq = number",
                             (long long)ids[i]),
                         EACH);
        assert_int_equal(ask(fixture->session,
                             "SELECT MAX(number) FROM outbox WHERE policy_id = %lld",
                             (long long)ids[i]),
                         EACH);
    }
}

/* --- one transaction --- */

static void await_health(struct fixture *fixture)
{
    for (int waited_ms = 0; !ledger_healthy(fixture->ledger); waited_ms += 5) {
        if (waited_ms > 30000)
            fail_msg("the ledger does not recover");
        usleep(5000);
    }
}

/* A change that cannot be told of is not made. */
static void test_events__are_rolled_back_with_the_change(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 3, &lease);
    struct id none = {0};
    struct coupon coupon;

    issue_one(fixture, &lease, 1, "a", 1);
    ledger_suite_ask(fixture->session, "ALTER TABLE outbox RENAME TO outbox_away");
    assert_int_not_equal(ledger_coupon_redeem(fixture->ledger, policy.id, 1, &none, NOW, NULL,
                                              &coupon, &fixture->error),
                         STATUS_OK);
    ledger_suite_ask(fixture->session, "ALTER TABLE outbox_away RENAME TO outbox");
    await_health(fixture);
    assert_int_equal(coupon_of(fixture, policy.id, 1).state, COUPON_ISSUED);
    assert_int_equal(events_of(fixture, policy.id, 0).count, 1);
    check(fixture, ledger_coupon_redeem(fixture->ledger, policy.id, 1, &none, NOW, NULL, &coupon,
                                        &fixture->error));
    struct events told = events_of(fixture, policy.id, 0);
    assert_int_equal(told.count, 2); /* and no number was used up */
    assert_event(&told.items[1], 2, 1, COUPON_REDEEMED);
}

static void test_events__none_when_they_are_off(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 3, &lease);
    struct coupon coupon;

    assert_false(fixture->has_events);
    issue_one(fixture, &lease, 1, "a", 1);
    check(fixture, ledger_coupon_cancel(fixture->ledger, policy.id, 1, NOW, NULL, &coupon, &policy,
                                        &fixture->error));
    assert_int_equal(ask(fixture->session, "SELECT COUNT(*) FROM outbox"), 0);
    assert_int_equal(ask(fixture->session, "SELECT COUNT(*) FROM outbox_counter"), 0);
}

/* --- reading and dropping --- */

static void test_events__pages_and_drops(void **state)
{
    struct fixture *fixture = *state;
    struct lease leases[2];
    int64_t ids[2];
    struct ledger_event events[3];
    struct ledger_event_place place = {0};
    struct ledger_backlog backlog;
    size_t count = 0;

    check(fixture,
          ledger_event_backlog(fixture->ledger, LEDGER_SINK_KAFKA, &backlog, &fixture->error));
    assert_int_equal(backlog.count, 0);
    assert_int_equal(backlog.oldest_at_ms, 0);
    for (int i = 0; i < 2; i++) {
        ids[i] = create(fixture, 2, &leases[i]).id;
        issue_one(fixture, &leases[i], 1, "a", 1);
        issue_one(fixture, &leases[i], 2, "b", 1);
    }
    check(fixture, ledger_events(fixture->ledger, LEDGER_SINK_KAFKA, &place, events, 3, &count,
                                 &fixture->error));
    assert_int_equal(count, 3);
    assert_int_equal(events[2].place.policy_id, ids[1]);
    assert_int_equal(events[2].place.number, 1);
    place = events[2].place;
    check(fixture, ledger_events(fixture->ledger, LEDGER_SINK_KAFKA, &place, events, 3, &count,
                                 &fixture->error));
    assert_int_equal(count, 1);
    assert_int_equal(events[0].place.number, 2);
    const struct ledger_event_place delivered[] = {{ids[0], 2}, {ids[1], 1}};
    check(fixture,
          ledger_events_drop(fixture->ledger, LEDGER_SINK_KAFKA, delivered, 2, &fixture->error));
    check(fixture,
          ledger_event_backlog(fixture->ledger, LEDGER_SINK_KAFKA, &backlog, &fixture->error));
    assert_int_equal(backlog.count, 1);
    assert_true(backlog.oldest_at_ms > 0);
    check(fixture,
          ledger_events(fixture->ledger, LEDGER_SINK_KAFKA, &(struct ledger_event_place){0}, events,
                        3, &count, &fixture->error));
    assert_int_equal(count, 1);
    assert_int_equal(events[0].place.policy_id, ids[1]);
    assert_int_equal(events[0].place.number, 2);
}

static int64_t waiting(struct fixture *fixture, enum ledger_sink sink)
{
    struct ledger_backlog backlog;

    check(fixture, ledger_event_backlog(fixture->ledger, sink, &backlog, &fixture->error));
    return backlog.count;
}

/* Each has a copy, in the same numbers; what is told once more is told to that one only. */
static void test_events__each_sink_has_its_own(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct ledger_event events[4];
    struct ledger_event_place none = {0};
    size_t count = 0;

    fixture->has_webhook = true;
    reopen(fixture);
    int64_t id = create(fixture, 2, &lease).id;
    issue_one(fixture, &lease, 1, "a", 1);
    issue_one(fixture, &lease, 2, "b", 1);
    const struct ledger_event_place delivered = {id, 2};
    check(fixture,
          ledger_events_drop(fixture->ledger, LEDGER_SINK_WEBHOOK, &delivered, 1, &fixture->error));
    assert_int_equal(waiting(fixture, LEDGER_SINK_KAFKA), 2);
    assert_int_equal(waiting(fixture, LEDGER_SINK_WEBHOOK), 0);
    check(fixture, ledger_events(fixture->ledger, LEDGER_SINK_KAFKA, &none, events, 4, &count,
                                 &fixture->error));
    assert_int_equal(count, 2);
    check(fixture,
          ledger_events_repeat(fixture->ledger, LEDGER_SINK_WEBHOOK, events, 1, &fixture->error));
    assert_int_equal(waiting(fixture, LEDGER_SINK_KAFKA), 2);
    check(fixture, ledger_events(fixture->ledger, LEDGER_SINK_WEBHOOK, &none, events, 4, &count,
                                 &fixture->error));
    assert_int_equal(count, 1);
    assert_int_equal(events[0].place.number, 3);
    assert_int_equal(events[0].coupon.claim.seq, 1);
    assert_string_equal(coupon_state_name(events[0].coupon.state), "ISSUED");
    fixture->has_webhook = false;
    reopen(fixture);
    assert_int_equal(
        ledger_events_repeat(fixture->ledger, LEDGER_SINK_WEBHOOK, events, 1, &fixture->error),
        STATUS_CONFLICT);
}

static void test_events__a_sinks_state_is_kept(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_sink_state kept = {.failing_since_ms = NOW, .text = "it answers 500"};
    struct ledger_sink_state found;

    for (int i = 0; i < 2; i++)
        check(fixture, ledger_sink_ask(fixture->ledger, LEDGER_SINK_WEBHOOK, &fixture->error));
    for (int i = 0; i < 2; i++)
        check(fixture,
              ledger_sink_state_put(fixture->ledger, LEDGER_SINK_WEBHOOK, &kept, &fixture->error));
    check(fixture,
          ledger_sink_state_get(fixture->ledger, LEDGER_SINK_WEBHOOK, &found, &fixture->error));
    assert_int_equal(found.failing_since_ms, NOW);
    assert_int_equal(found.asked, 2);
    assert_string_equal(found.text, "it answers 500");
    check(fixture,
          ledger_sink_state_get(fixture->ledger, LEDGER_SINK_KAFKA, &found, &fixture->error));
    assert_int_equal(found.failing_since_ms, 0);
}

static bool holds(struct fixture *fixture, const char *holder, int64_t term_ms)
{
    bool held = false;
    check(fixture,
          ledger_duty_hold(fixture->ledger, "publisher", holder, term_ms, &held, &fixture->error));
    return held;
}

static void test_events__one_has_the_duty(void **state)
{
    struct fixture *fixture = *state;

    assert_true(holds(fixture, "a", 600000));
    assert_true(holds(fixture, "a", 600000));
    assert_false(holds(fixture, "b", 600000));
    check(fixture, ledger_duty_release(fixture->ledger, "publisher", "b", &fixture->error));
    assert_false(holds(fixture, "b", 600000));
    check(fixture, ledger_duty_release(fixture->ledger, "publisher", "a", &fixture->error));
    assert_true(holds(fixture, "b", 600000));
    /* It is the row that says until when, by the database's clock. */
    ask(fixture->session, "UPDATE duty SET until = 1");
    assert_true(holds(fixture, "a", 600000));
    assert_false(holds(fixture, "b", 600000));
}

/* --- several at once --- */

#define WRITERS 3
#define CHANGES 60

struct events_writer {
    struct fixture *fixture;
    struct lease lease;
    int number;
    atomic_int *running_count;
    pthread_t thread;
};

static void *issue_and_redeem(void *context)
{
    const struct events_writer *writer = context;
    struct ledger *ledger = writer->fixture->ledger;

    for (int i = 0; i < CHANGES; i++) {
        struct id order = id_of(SPAN("o"));
        struct coupon coupon;
        struct error error;
        char user[16];
        int64_t seq = i * WRITERS + writer->number + 1;

        snprintf(user, sizeof(user), "u%d", (int)seq);
        struct claim claim = claim_of(&writer->lease, seq, user, 1);
        wait_for(writer->fixture, ledger_issue(ledger, &claim, 1, NULL, 0));
        if (ledger_coupon_redeem(ledger, claim.policy_id, seq, &order, NOW, NULL, &coupon,
                                 &error) != STATUS_OK)
            break;
    }
    atomic_fetch_sub(writer->running_count, 1);
    return NULL;
}

/* A number is never seen before a smaller one: who has read up to it has read everything. */
static void test_events__become_visible_in_order(void **state)
{
    struct fixture *fixture = *state;
    struct fixture *others[WRITERS] = {fixture};
    struct events_writer writers[WRITERS];
    atomic_int running_count = WRITERS;
    struct lease lease;
    struct policy policy = create(fixture, WRITERS * CHANGES, &lease);
    int64_t last = 0;
    bool is_last_poll = false;

    for (int i = 0; i < WRITERS; i++) {
        if (i > 0) {
            others[i] = fixture_new(fixture->url, LEDGER_SHARE);
            others[i]->has_events = true;
            open_ledger(others[i]);
        }
        writers[i] = (struct events_writer){
            .fixture = others[i], .lease = lease, .number = i, .running_count = &running_count};
        pthread_create(&writers[i].thread, NULL, issue_and_redeem, &writers[i]);
    }
    while (!is_last_poll) {
        is_last_poll = atomic_load(&running_count) == 0;
        struct events told = events_of(fixture, policy.id, last);
        for (size_t i = 0; i < told.count; i++)
            assert_int_equal(told.items[i].place.number, ++last);
    }
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(writers[i].thread, NULL);
        if (i > 0) {
            ledger_close(others[i]->ledger);
            fixture_free(others[i]);
        }
    }
    assert_int_equal(last, 2 * WRITERS * CHANGES);
    /* A coupon is issued before it is redeemed. */
    assert_int_equal(ask(fixture->session,
                         "SELECT COUNT(*) FROM outbox a JOIN outbox b ON a.policy_id = b.policy_id"
                         " AND a.seq = b.seq AND a.state = 'ISSUED' AND b.state = 'REDEEMED'"
                         " AND a.number < b.number"),
                     WRITERS * CHANGES);
}

int ledger_suite_run_events(void)
{
#define EVENTS_TEST(name) \
    cmocka_unit_test_setup_teardown(test_events__##name, set_up_own, tear_down)
    const struct CMUnitTest tests[] = {
        EVENTS_TEST(every_change_is_told_once),
        EVENTS_TEST(claims_that_came_to_nothing),
        EVENTS_TEST(a_refused_row),
        EVENTS_TEST(claims_from_the_reserve),
        EVENTS_TEST(a_large_batch),
        EVENTS_TEST(are_rolled_back_with_the_change),
        cmocka_unit_test_setup_teardown(test_events__none_when_they_are_off, set_up, tear_down),
        EVENTS_TEST(pages_and_drops),
        EVENTS_TEST(each_sink_has_its_own),
        EVENTS_TEST(a_sinks_state_is_kept),
        EVENTS_TEST(one_has_the_duty),
    };
    const struct CMUnitTest shared_tests[] = {
        cmocka_unit_test_setup_teardown(test_events__become_visible_in_order, set_up_sharing,
                                        tear_down),
    };
    int failed = cmocka_run_group_tests_name("ledger events", tests, NULL, NULL);

    if (ledger_suite_is_shared)
        failed += cmocka_run_group_tests_name("ledger events, shared", shared_tests, NULL, NULL);
    return failed;
}
