/* test_view.c: what a server tells, and what lies between two looks at it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "top/screen.h"
#include "top/view.h"

/* A snapshot of a server that has served so many claims, of which so many took 1 ms and the rest
 * 8 ms. */
static struct top_snapshot snapshot_at(int64_t now_ms, double won, double sold_out, double quick)
{
    struct top_snapshot snapshot = {
        .seen_at_ms = now_ms, .wall_ms = 1700000000000 + now_ms, .is_reachable = true};
    char text[1024];

    snprintf(text, sizeof(text),
             "# HELP dibs_pending x\nprocess_start_time_seconds 5\ndibs_pending 7\n"
             "dibs_pending_max 100\ndibs_claims_total{result=\"issued\"} %.0f\n"
             "dibs_claims_total{result=\"accepted\"} 1\n"
             "dibs_claims_total{result=\"sold_out\"} %.0f\n"
             "dibs_claims_total{result=\"paused\"} 0\n"
             "dibs_claim_seconds_bucket{le=\"0.001\"} %.0f\n"
             "dibs_claim_seconds_bucket{le=\"0.008\"} %.0f\n"
             "dibs_claim_seconds_bucket{le=\"+Inf\"} %.0f\n",
             won, sold_out, quick, won + sold_out, won + sold_out);
    top_snapshot_read_metrics(&snapshot, span_of(text));
    return snapshot;
}

static void add_policies(struct top_snapshot *snapshot, const char *json)
{
    yyjson_doc *document = yyjson_read(json, strlen(json), YYJSON_READ_NOFLAG);
    assert_non_null(document);
    top_snapshot_read_policies(snapshot, yyjson_doc_get_root(document));
    yyjson_doc_free(document);
}

static void test_view__metrics_are_read(void **state)
{
    struct top_snapshot snapshot = snapshot_at(0, 10, 20, 15);

    (void)state;
    assert_true(snapshot.claims[TOP_WON] == 11);
    assert_true(snapshot.claims[TOP_SOLD_OUT] == 20);
    assert_true(snapshot.pending == 7);
    assert_int_equal(snapshot.bucket_count, 3);
    assert_true(isinf(snapshot.bucket_limits_s[2]));
    /* Again: it is not added up. */
    top_snapshot_read_metrics(&snapshot, SPAN("dibs_claims_total{result=\"issued\"} 3\n"));
    assert_true(snapshot.claims[TOP_WON] == 3);
}

static void test_view__rates_and_quantiles_are_of_the_time_between(void **state)
{
    struct top_view view = {.has_rates = false};
    struct top_snapshot first = snapshot_at(1000, 1000, 0, 0);
    struct top_snapshot second = snapshot_at(3000, 1100, 300, 380);

    (void)state;
    top_view_take(&view, &first);
    assert_false(view.has_rates);
    top_view_take(&view, &second);
    assert_true(view.has_rates);
    assert_true(view.rates[TOP_WON] == 50);
    assert_true(view.rates[TOP_SOLD_OUT] == 150);
    assert_true(top_view_rate(&view) == 200);
    /* 380 of the 400 between were quick. */
    assert_true(view.p50_s == 0.001);
    assert_true(view.p99_s == 0.008);
    assert_true(view.history[TOP_HISTORY - 1] == 200);
    top_view_release(&view);
}

static void test_view__a_server_that_started_again_has_no_rates(void **state)
{
    struct top_view view = {.has_rates = false};
    struct top_snapshot first = snapshot_at(1000, 1000, 0, 0);
    struct top_snapshot second = snapshot_at(2000, 10, 0, 0);

    (void)state;
    second.started_at_s = 99;
    top_view_take(&view, &first);
    top_view_take(&view, &second);
    assert_false(view.has_rates);
    assert_int_equal(view.event_count, 1);
    assert_non_null(strstr(view.events[0].text, "started again"));
    top_view_release(&view);
}

static void test_view__changes_become_events(void **state)
{
    struct top_view view = {.has_rates = false};
    struct top_snapshot first = snapshot_at(1000, 0, 0, 0);
    struct top_snapshot second = snapshot_at(2000, 0, 0, 0);
    struct top_snapshot third = {.wall_ms = 1, .seen_at_ms = 3000, .trouble = "refused"};

    (void)state;
    add_policies(&first, "{\"items\":[{\"id\":1,\"state\":\"CLOSED\"},{\"id\":3,\"state\":\"OPEN\","
                         "\"total\":5}]}");
    add_policies(&second,
                 "{\"items\":[{\"id\":1,\"state\":\"CLOSED\"},{\"id\":2,\"state\":\"OPEN\","
                 "\"name\":\"New\\u001b[2J\"},{\"id\":3,\"state\":\"SOLD_OUT\","
                 "\"total\":5}]}");
    top_view_take(&view, &first);
    top_view_take(&view, &second);
    assert_int_equal(view.event_count, 2);
    assert_string_equal(view.events[0].text, "policy 2 was created: New\\u001b[2J");
    assert_string_equal(view.events[1].text, "policy 3 is SOLD_OUT, it was OPEN");
    /* What can be claimed is shown first. */
    assert_int_equal(top_view_policy(&view, 0)->id, 2);
    assert_int_equal(top_view_policy(&view, 1)->id, 3);
    assert_int_equal(top_view_policy(&view, 2)->id, 1);
    /* A server that is away is shown as it was. */
    top_view_take(&view, &third);
    assert_false(view.now.is_reachable);
    assert_int_equal(view.now.policy_count, 3);
    assert_non_null(strstr(view.events[2].text, "does not answer: refused"));
    top_view_release(&view);
}

static void test_view__bars_show_everything_there_is(void **state)
{
    int parts[3];

    (void)state;
    top_bar(&(struct top_policy){.total = 100, .remaining = 50, .issued = 50}, 10, parts);
    assert_int_equal(parts[0], 5);
    assert_int_equal(parts[2], 5);
    top_bar(&(struct top_policy){.total = 1000000, .remaining = 1, .pending = 1, .issued = 999998},
            10, parts);
    assert_int_equal(parts[0], 8);
    assert_int_equal(parts[1], 1);
    assert_int_equal(parts[2], 1);
    top_bar(&(struct top_policy){.total = 3, .issued = 3}, 10, parts);
    assert_int_equal(parts[0], 10);
}

static void test_view__a_list_that_cannot_be_had_is_not_an_empty_one(void **state)
{
    struct top_view view = {.has_rates = false};
    struct top_snapshot first = snapshot_at(1000, 0, 0, 0);
    struct top_snapshot second = snapshot_at(2000, 0, 0, 0);
    struct top_snapshot third = snapshot_at(3000, 0, 0, 0);
    const char *json = "{\"items\":[{\"id\":1,\"total\":1,\"name\":\"a\",\"state\":\"OPEN\"}]}";

    (void)state;
    add_policies(&first, json);
    second.lacks_policies = true;
    add_policies(&third, json);
    top_view_take(&view, &first);
    top_view_take(&view, &second);
    assert_int_equal(view.now.policy_count, 1);
    assert_int_equal(top_view_policy(&view, 0)->id, 1);
    top_view_take(&view, &third);
    assert_int_equal(view.now.policy_count, 1);
    assert_int_equal(view.event_count, 0); /* nothing was created */
    top_view_release(&view);
}

static void test_view__a_policy_is_found_where_it_has_moved(void **state)
{
    struct top_view view = {.has_rates = false};
    struct top_snapshot snapshot = snapshot_at(1000, 0, 0, 0);

    (void)state;
    assert_int_equal(top_view_place(&view, 7, 3), 0);
    add_policies(&snapshot,
                 "{\"items\":[{\"id\":1,\"state\":\"CLOSED\"},{\"id\":2,\"state\":\"OPEN\"},"
                 "{\"id\":3,\"state\":\"OPEN\"}]}");
    top_view_take(&view, &snapshot);
    assert_int_equal(top_view_place(&view, 1, 0), 2);
    assert_int_equal(top_view_place(&view, 2, 2), 0);
    assert_int_equal(top_view_place(&view, 9, 1), 1);
    assert_int_equal(top_view_place(&view, 9, 8), 2);
    top_view_release(&view);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_view__metrics_are_read),
        cmocka_unit_test(test_view__rates_and_quantiles_are_of_the_time_between),
        cmocka_unit_test(test_view__a_server_that_started_again_has_no_rates),
        cmocka_unit_test(test_view__changes_become_events),
        cmocka_unit_test(test_view__bars_show_everything_there_is),
        cmocka_unit_test(test_view__a_list_that_cannot_be_had_is_not_an_empty_one),
        cmocka_unit_test(test_view__a_policy_is_found_where_it_has_moved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
