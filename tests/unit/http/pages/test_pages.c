/* test_pages.c: which form of a page's file a client gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "http/pages/pages.h"

#define BYTES(text) (const unsigned char *)(text), sizeof(text) - 1

/* In the order of their names, as scripts/embed writes them. */
static const struct embedded_file files[] = {
    {"app-AB.js", BYTES("plain")},    {"app-AB.js.br", BYTES("b")},  {"app-AB.js.gz", BYTES("gz")},
    {"app.js", BYTES("other")},       {"icon.png", BYTES("png")},    {"index.html", BYTES("<p>")},
    {"index.html.gz", BYTES("<gz>")}, {"what.bin", BYTES("octets")},
};

static int open_assets(void **state)
{
    static struct assets assets;
    struct error error;
    *state = &assets;
    return assets_open(&assets, files, sizeof(files) / sizeof(files[0]), &error) == STATUS_OK ? 0
                                                                                              : -1;
}

static int close_assets(void **state)
{
    assets_close(*state);
    return 0;
}

static const struct asset *find(void **state, const char *name)
{
    return assets_find(*state, span_of(name));
}

static void test_assets__a_file_has_its_type_and_its_forms(void **state)
{
    const struct asset *script = find(state, "app-AB.js");
    assert_non_null(script);
    assert_true(span_equal(script->content_type, SPAN("text/javascript; charset=utf-8")));
    assert_true(span_equal(script->forms[ASSET_PLAIN].body, SPAN("plain")));
    assert_true(span_equal(script->forms[ASSET_GZIP].body, SPAN("gz")));
    assert_true(span_equal(script->forms[ASSET_BROTLI].body, SPAN("b")));
    const struct asset *icon = find(state, "icon.png");
    assert_true(span_equal(icon->content_type, SPAN("image/png")));
    assert_null(icon->forms[ASSET_GZIP].body.bytes);
    assert_true(
        span_equal(find(state, "what.bin")->content_type, SPAN("application/octet-stream")));
    /* A name that only begins like another's takes none of its forms. */
    assert_null(find(state, "app.js")->forms[ASSET_BROTLI].body.bytes);
}

static void test_assets__only_whole_names_are_found(void **state)
{
    static const char *const names[] = {"",           "app-AB.js.gz", "app-AB.js.br", "app-AB",
                                        "app-AB.jss", "APP-AB.JS",    "../app.js"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_null(find(state, names[i]));
}

static void test_assets__every_form_has_its_own_etag(void **state)
{
    const struct asset *script = find(state, "app-AB.js");
    for (unsigned a = 0; a < ASSET_CODING_COUNT; a++) {
        const char *etag = script->forms[a].etag;
        assert_int_equal(strlen(etag), 18);
        assert_true(etag[0] == '"' && etag[17] == '"');
        for (unsigned b = 0; b < a; b++)
            assert_string_not_equal(etag, script->forms[b].etag);
    }
}

static void test_assets__the_smallest_that_is_taken_is_sent(void **state)
{
    static const struct {
        const char *accept; /* NULL: no header */
        enum asset_coding all;
        enum asset_coding without_brotli;
    } cases[] = {
        {NULL, ASSET_PLAIN, ASSET_PLAIN},
        {"", ASSET_PLAIN, ASSET_PLAIN},
        {"gzip, deflate, br, zstd", ASSET_BROTLI, ASSET_GZIP},
        {"gzip", ASSET_GZIP, ASSET_GZIP},
        {"br", ASSET_BROTLI, ASSET_PLAIN},
        {"BR;Q=1.0,GZIP", ASSET_BROTLI, ASSET_GZIP},
        {"br;q=0, gzip", ASSET_GZIP, ASSET_GZIP},
        {"br;q=0.5, gzip;q=0.8", ASSET_GZIP, ASSET_GZIP},
        {"br;q=0.800 , gzip ; q=0.8", ASSET_BROTLI, ASSET_GZIP},
        {"identity, br;q=0.5", ASSET_PLAIN, ASSET_PLAIN},
        {"identity;q=0.2, br;q=0.5", ASSET_BROTLI, ASSET_PLAIN},
        {"br;q=0.001", ASSET_BROTLI, ASSET_PLAIN},
        {"*", ASSET_BROTLI, ASSET_GZIP},
        {"*;q=0", ASSET_PLAIN, ASSET_PLAIN},
        {"*;q=0.5, br;q=0", ASSET_GZIP, ASSET_GZIP},
        {"gzip;q=0, *", ASSET_BROTLI, ASSET_PLAIN},
        {"identity;q=0", ASSET_PLAIN, ASSET_PLAIN},
        {"deflate, x-gzip", ASSET_PLAIN, ASSET_PLAIN},
        {"br;q=2, gzip", ASSET_GZIP, ASSET_GZIP},
        {"br;q=, gzip;q=x", ASSET_PLAIN, ASSET_PLAIN},
        {",,;q=1,", ASSET_PLAIN, ASSET_PLAIN},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct span accept = {NULL, 0};
        if (cases[i].accept != NULL)
            accept = span_of(cases[i].accept);
        assert_int_equal(asset_choose(find(state, "app-AB.js"), accept), cases[i].all);
        assert_int_equal(asset_choose(find(state, "index.html"), accept), cases[i].without_brotli);
        assert_int_equal(asset_choose(find(state, "icon.png"), accept), ASSET_PLAIN);
    }
}

static void test_assets__a_binary_without_pages_has_none(void **state)
{
    (void)state;
    struct assets none;
    struct error error;
    assert_int_equal(assets_open(&none, files, 0, &error), STATUS_OK);
    assert_null(assets_find(&none, SPAN("index.html")));
    assets_close(&none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_assets__a_file_has_its_type_and_its_forms, open_assets,
                                        close_assets),
        cmocka_unit_test_setup_teardown(test_assets__only_whole_names_are_found, open_assets,
                                        close_assets),
        cmocka_unit_test_setup_teardown(test_assets__every_form_has_its_own_etag, open_assets,
                                        close_assets),
        cmocka_unit_test_setup_teardown(test_assets__the_smallest_that_is_taken_is_sent,
                                        open_assets, close_assets),
        cmocka_unit_test(test_assets__a_binary_without_pages_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
