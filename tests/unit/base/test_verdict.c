/* test_verdict.c: what the API's description and the pages say of verdicts is what the table has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include <cmocka.h>

#include "base/model.h"
#include "source.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#define WORD(CODE, ...) #CODE,
static const char *const grants[] = {CLAIM_GRANTS(WORD)};
static const char *const refusals[] = {CLAIM_REFUSALS(WORD)};

#define LABEL(CODE, STATUS_CODE, LABEL_TEXT, ...) #LABEL_TEXT,
static const char *const labels[] = {CLAIM_GRANTS(LABEL) CLAIM_REFUSALS(LABEL)};

static bool is_among(const char *word, size_t length, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(words[i]) == length && memcmp(words[i], word, length) == 0)
            return true;
    return false;
}

static void check_enum(yyjson_doc *document, const char *place, const char *const *words,
                       size_t count, bool has_others)
{
    yyjson_val *list = yyjson_doc_ptr_get(document, place);
    assert_true(yyjson_is_arr(list));
    for (size_t i = 0; i < count; i++) {
        bool is_there = false;
        for (size_t at = 0; at < yyjson_arr_size(list); at++)
            is_there |= yyjson_equals_str(yyjson_arr_get(list, at), words[i]);
        if (!is_there)
            fail_msg("%s lacks %s", place, words[i]);
    }
    if (!has_others)
        assert_int_equal(yyjson_arr_size(list), count);
}

static void test_verdict__openapi_has_every_word(void **state)
{
    (void)state;
    char *text = read_source("src/http/pages/openapi.json");
    yyjson_doc *document = yyjson_read(text, strlen(text), 0);
    assert_non_null(document);
    check_enum(document, "/components/schemas/Claim/properties/result/enum", grants,
               COUNT_OF(grants), false);
    check_enum(document, "/components/schemas/ProblemCode/enum", refusals, COUNT_OF(refusals),
               true);
    check_enum(document, "/components/schemas/LiveClaim/properties/result/enum", labels,
               COUNT_OF(labels), false);
    yyjson_doc_free(document);
    free(text);
}

/* The keys of an object literal `const NAME = {…};` are among these words. */
static void check_keys(const char *text, const char *opening, const char *const *words,
                       size_t count)
{
    const char *at = strstr(text, opening);
    assert_non_null(at);
    const char *end = strstr(at, "};");
    assert_non_null(end);
    size_t found = 0;
    for (at += strlen(opening); at < end; at++) {
        size_t length = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_");
        if (length > 0 && at[length] == ':') {
            if (!is_among(at, length, words, count))
                fail_msg("%s has words for %.*s, which nobody says", opening, (int)length, at);
            found++;
        }
        at += length;
    }
    assert_true(found > 0);
}

static void test_verdict__pages_have_words_for_what_is_said(void **state)
{
    (void)state;
    char *feed = read_source("web/src/feed.js");
    char *drop = read_source("web/src/drop.js");
    check_keys(feed, "const RESULTS = {", labels, COUNT_OF(labels));
    check_keys(drop, "const REFUSALS = {", refusals, COUNT_OF(refusals));
    free(drop);
    free(feed);
}

static void test_verdict__letters_are_told_apart(void **state)
{
    (void)state;
#define VERDICT_LETTER(VERDICT, LETTER, RESULT, WHY) LETTER,
    static const char letters[] = {VERDICTS(VERDICT_LETTER)};
    char *library = read_source("src/gate/redis/redis.lua");
    assert_int_equal(COUNT_OF(letters), VERDICT_COUNT);
    for (size_t i = 0; i < COUNT_OF(letters); i++) {
        char quoted[] = {'\'', letters[i], '\'', '\0'};
        assert_null(memchr(letters + i + 1, letters[i], COUNT_OF(letters) - i - 1));
        if (letters[i] >= 'A' && strstr(library, quoted) == NULL)
            fail_msg("redis.lua never says %s", quoted);
    }
    free(library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdict__openapi_has_every_word),
        cmocka_unit_test(test_verdict__pages_have_words_for_what_is_said),
        cmocka_unit_test(test_verdict__letters_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
