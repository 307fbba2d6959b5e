/* test_shared.c: an answer that was written is read as it was, and what is not one is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ranking/parts.h"

static struct ranking_answer *answer_of(size_t count)
{
    struct ranking_answer *answer = calloc(1, sizeof(*answer));

    ensure(answer != NULL);
    answer->days = 3;
    answer->last_day = 20772;
    answer->as_of_ms = INT64_C(1794744000123);
    answer->count = count;
    for (size_t i = 0; i < count; i++) {
        struct ranking_line *line = &answer->lines[i];
        char id[32];
        snprintf(id, sizeof(id), "p%zu", i);
        line->sales.rank = (int64_t)i + 1;
        line->sales.product_id = line->product.id = id_of(span_of(id));
        line->sales.sold = 1000 - (int64_t)i;
        line->sales.sold_last_day = (int64_t)i;
        line->product.price = i % 3 == 0 ? PRODUCT_PRICE_NONE : (int64_t)i * 100;
        line->change = i % 4 == 0 ? RANKING_CHANGE_NONE : 2 - (int64_t)i;
        if (i % 2 == 0)
            memset(line->product.name, '"', PRODUCT_NAME_CHARACTERS_MAX);
    }
    return answer;
}

static void test_shared__is_read_as_it_was_written(void **state)
{
    static const size_t counts[] = {0, 1, RANKING_LIMIT_MAX};
    struct buffer text;
    struct error error;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct ranking_answer *answer = answer_of(counts[i]);
        struct ranking_answer *read = calloc(1, sizeof(*read));
        buffer_init(&text, RANKING_TEXT_MAX);
        ranking_write_text(answer, &text);
        assert_int_equal(ranking_read_text((struct span){text.bytes, text.length}, read, &error),
                         STATUS_OK);
        assert_int_equal(read->days, answer->days);
        assert_int_equal(read->last_day, answer->last_day);
        assert_int_equal(read->as_of_ms, answer->as_of_ms);
        assert_int_equal(read->count, answer->count);
        for (size_t j = 0; j < read->count; j++) {
            const struct ranking_line *is = &read->lines[j];
            const struct ranking_line *should = &answer->lines[j];
            assert_int_equal(is->sales.rank, should->sales.rank);
            assert_true(id_equal(&is->sales.product_id, &should->sales.product_id));
            assert_true(id_equal(&is->product.id, &should->product.id));
            assert_int_equal(is->sales.sold, should->sales.sold);
            assert_int_equal(is->sales.sold_last_day, should->sales.sold_last_day);
            assert_int_equal(is->product.price, should->product.price);
            assert_int_equal(is->change, should->change);
            assert_string_equal(is->product.name, should->product.name);
        }
        buffer_release(&text);
        free(answer);
        free(read);
    }
}

static void test_shared__refuses_what_is_not_one(void **state)
{
    static const char *const texts[] = {
        "",
        "7",
        "{}",
        "{\"items\":[],\"days\":3,\"last_day\":\"2026-13-15\",\"as_of\":\"2026-11-15T12:00:00Z\"}",
        "{\"items\":[],\"days\":31,\"last_day\":\"2026-11-15\",\"as_of\":\"2026-11-15T12:00:00Z\"}",
        "{\"items\":[{\"rank\":1}],\"days\":3,\"last_day\":\"2026-11-15\",\"as_of\":\"2026-11-"
        "15T12:"
        "00:00Z\"}",
    };
    struct ranking_answer *answer = calloc(1, sizeof(*answer));
    struct error error;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_int_equal(ranking_read_text(span_of(texts[i]), answer, &error), STATUS_INVALID);
    free(answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared__is_read_as_it_was_written),
        cmocka_unit_test(test_shared__refuses_what_is_not_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
