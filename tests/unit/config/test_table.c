/* test_table.c: every row of the table is complete, and the page about it is up to date. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/config.h"
#include "config/value.h"

static void test_table__says_all_there_is_to_say_about_a_key(void **state)
{
    for (size_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        assert_non_null(key->name);
        assert_int_equal(strspn(key->name, "abcdefghijklmnopqrstuvwxyz_"), strlen(key->name));
        assert_non_null(key->group);
        assert_non_null(key->fallback);
        assert_non_null(config_key_value_word(key));
        assert_non_null(key->help);
        assert_true(isupper((unsigned char)key->help[0]));
        assert_int_equal(key->help[strlen(key->help) - 1], '.');
        assert_ptr_equal(config_key_find(key->name), key);
        assert_true((key->type == CONFIG_SECRET) == (key->secret_file != NULL));
        assert_true((key->type == CONFIG_SECRET) == (key->example == NULL));
        assert_true((key->type == CONFIG_CHOICE || key->type == CONFIG_ENUM) ==
                    (key->choices != NULL));
    }
}

static void test_table__allows_its_own_examples(void **state)
{
    struct config config;
    struct error error;
    assert_int_equal(config_load(&config, 2,
                                 (char *[]){(char[]){"--config"}, (char[]){"/dev/null"}}, NULL,
                                 &error),
                     STATUS_OK);
    for (size_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        if (key->example != NULL &&
            config_value_set(&config, key, key->example, &error) != STATUS_OK)
            fail_msg("%s: %s", key->name, error.text);
    }
    config_release(&config);
}

static void test_table__prints_a_value_as_it_was_written(void **state)
{
    struct config config;
    struct error error;
    assert_int_equal(config_load(&config, 2,
                                 (char *[]){(char[]){"--config"}, (char[]){"/dev/null"}}, NULL,
                                 &error),
                     STATUS_OK);
    for (size_t i = 0; i < config_key_count; i++) {
        struct buffer shown;
        buffer_init(&shown, 1024);
        buffer_append_text(&shown, "");
        config_append_value(&shown, &config, &config_keys[i]);
        assert_string_equal(shown.length > 0 ? shown.bytes : "", config_keys[i].fallback);
        buffer_release(&shown);
    }
    config_release(&config);
}

static void test_table__keeps_the_rows_of_a_group_together(void **state)
{
    for (size_t i = 1; i < config_key_count; i++) {
        if (strcmp(config_keys[i].group, config_keys[i - 1].group) == 0)
            continue;
        for (size_t j = 0; j + 1 < i; j++)
            assert_string_not_equal(config_keys[j].group, config_keys[i].group);
    }
}

static void test_table__is_what_the_page_about_settings_says(void **state)
{
    const char *root = getenv("DIBS_TEST_SOURCE_ROOT");
    if (root == NULL)
        fail_msg("DIBS_TEST_SOURCE_ROOT is not set: run through meson");
    char path[4096];
    snprintf(path, sizeof(path), "%s/docs/configuration.md", root);
    struct buffer page;
    struct buffer reference;
    struct error error;
    buffer_init(&page, 1024 * 1024);
    buffer_init(&reference, 1024 * 1024);
    if (config_read_file(path, &page, NULL, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    config_append_reference(&reference);
    if (strcmp(page.bytes, reference.bytes) != 0)
        fail_msg("%s is out of date: dibs manual configuration > docs/configuration.md", path);
    buffer_release(&page);
    buffer_release(&reference);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table__says_all_there_is_to_say_about_a_key),
        cmocka_unit_test(test_table__allows_its_own_examples),
        cmocka_unit_test(test_table__prints_a_value_as_it_was_written),
        cmocka_unit_test(test_table__keeps_the_rows_of_a_group_together),
        cmocka_unit_test(test_table__is_what_the_page_about_settings_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
