/* test_load.c: which source wins, what secrets need, and the rules between settings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/config.h"

#define TOKEN "0123456789abcdef"
#define KEY   "0123456789abcdef0123456789abcdef"

static struct config config;
static struct error error;
static char start_folder[4096];
static char folder[] = "/tmp/dibs-test-config-XXXXXX";

/* Every test runs in an empty folder of its own, because ./dibs.conf is read when it is there. */
static int enter_folder(void **state)
{
    assert_non_null(getcwd(start_folder, sizeof(start_folder)));
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    umask(077);
    return 0;
}

static int leave_folder(void **state)
{
    if (config.listen != NULL)
        config_release(&config);
    static const char *const files[] = {"dibs.conf", "other.conf", "secret"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        unlink(files[i]);
    assert_int_equal(chdir(start_folder), 0);
    return rmdir(folder);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

/* Loads from `flags` and `variables`, which are separated by blanks; "" for none. */
static enum status load(const char *flags, const char *variables)
{
    char words[2][512];
    char *lists[2][16] = {{NULL}, {NULL}};
    int counts[2] = {0, 0};
    const char *texts[2] = {flags, variables};
    for (int i = 0; i < 2; i++) {
        strcpy(words[i], texts[i]);
        for (char *word = strtok(words[i], " "); word != NULL; word = strtok(NULL, " "))
            lists[i][counts[i]++] = word;
    }
    if (config.listen != NULL)
        config_release(&config);
    error.text[0] = '\0';
    return config_load(&config, counts[0], lists[0], lists[1], &error);
}

static void assert_load_refused(const char *flags, const char *variables, const char *words)
{
    enum status status = load(flags, variables);
    assert_true(status == STATUS_INVALID || status == STATUS_FAILED);
    if (strstr(error.text, words) == NULL)
        fail_msg("said: %s", error.text);
    assert_null(config.listen);
}

static const char *origin(const char *name)
{
    static char text[256];
    struct buffer out;
    buffer_init(&out, sizeof(text));
    config_append_origin(&out, &config, config_key_find(name));
    strcpy(text, out.bytes);
    buffer_release(&out);
    return text;
}

static void test_load__has_defaults_for_everything(void **state)
{
    assert_int_equal(load("", ""), STATUS_OK);
    assert_string_equal(config.listen, "127.0.0.1:8080");
    assert_string_equal(config.gate, "local");
    assert_string_equal(config.ledger, "sqlite:dibs.db");
    assert_string_equal(config.relay, "direct");
    assert_int_equal(config.threads, 0);
    assert_int_equal(config.ledger_timeout_ms, 10000);
    assert_null(config.ledger_password.bytes);
    assert_int_equal(config.ack_timeout_ms, 5000);
    assert_int_equal(config.pending_max, 100000);
    assert_int_equal(config.idle_timeout_ms, 15000);
    assert_int_equal(config.write_timeout_ms, 10000);
    assert_int_equal(config.log_level, LOG_INFO);
    assert_int_equal(config.log_format, LOG_LOGFMT);
    assert_int_equal(config.integrity_check, CONFIG_INTEGRITY_QUICK);
    assert_string_equal(config.timezone, "UTC");
    assert_string_equal(config.file, "");
    assert_null(config.admin_token.bytes);
    assert_int_equal(config.cors_origin.count, 0);
    assert_int_equal(config.warnings.count, 0);
    assert_string_equal(origin("listen"), "default");
    assert_int_equal(config_check(&config, &error), STATUS_OK);
}

static void test_load__lets_flags_beat_variables_beat_the_file(void **state)
{
    write_file("dibs.conf", "\nthreads = 1\nack_timeout = 1s\nidle_timeout = 1s\n");
    assert_int_equal(load("--threads 3", "DIBS_THREADS=2 DIBS_ACK_TIMEOUT=2s"), STATUS_OK);
    assert_int_equal(config.threads, 3);
    assert_string_equal(origin("threads"), "--threads");
    assert_int_equal(config.ack_timeout_ms, 2000);
    assert_string_equal(origin("ack_timeout"), "DIBS_ACK_TIMEOUT");
    assert_int_equal(config.idle_timeout_ms, 1000);
    assert_string_equal(origin("idle_timeout"), "dibs.conf:4");
    assert_int_equal(config.body_timeout_ms, 5000);
    assert_string_equal(origin("body_timeout"), "default");
    assert_string_equal(config.file, "dibs.conf");
}

static void test_load__reads_the_file_that_is_asked_for(void **state)
{
    write_file("dibs.conf", "threads = 1\n");
    write_file("other.conf", "threads = 2\n");
    assert_int_equal(load("", ""), STATUS_OK);
    assert_int_equal(config.threads, 1);
    assert_int_equal(load("", "DIBS_CONFIG=other.conf"), STATUS_OK);
    assert_int_equal(config.threads, 2);
    assert_int_equal(load("--config dibs.conf", "DIBS_CONFIG=other.conf"), STATUS_OK);
    assert_int_equal(config.threads, 1);
    assert_load_refused("--config none.conf", "", "none.conf: cannot be opened: No such file");
    assert_load_refused("--config .", "", ".: is a folder, not a file");
}

static void test_load__says_where_a_wrong_value_came_from(void **state)
{
    write_file("dibs.conf", "\nthreads = many\n");
    assert_load_refused("", "", "dibs.conf:2: threads: \"many\" is not a whole number");
    assert_load_refused("--config /dev/null --threads=-1", "", "--threads: \"-1\" is not a whole");
    assert_load_refused("--config /dev/null", "DIBS_THREADS=", "DIBS_THREADS: \"\" is not a whole");
    /* A wrong value is an error also when a stronger one would hide it. */
    assert_load_refused("--threads 4", "", "dibs.conf:2: threads:");
}

static void test_load__takes_secrets_from_the_environment(void **state)
{
    assert_int_equal(load("", "DIBS_ADMIN_TOKEN=" TOKEN " DIBS_USER_KEY=" KEY), STATUS_OK);
    assert_string_equal(config.admin_token.bytes, TOKEN);
    assert_string_equal(config.user_key.bytes, KEY);
    assert_null(config.service_token.bytes);
    assert_string_equal(origin("admin_token"), "DIBS_ADMIN_TOKEN");
    assert_load_refused("", "DIBS_ADMIN_TOKEN=short", "DIBS_ADMIN_TOKEN: is too short");
    assert_load_refused("", "DIBS_ADMIN_TOKEN=", "DIBS_ADMIN_TOKEN: is empty");
    assert_load_refused("", "DIBS_USER_KEY=" TOKEN,
                        "DIBS_USER_KEY: is too short; allowed: at least "
                        "32 bytes");
    assert_null(strstr(error.text, TOKEN));
}

static void test_load__takes_secrets_from_files(void **state)
{
    write_file("secret", TOKEN "\n");
    assert_int_equal(load("--admin-token-file secret", ""), STATUS_OK);
    assert_string_equal(config.admin_token.bytes, TOKEN);
    assert_int_equal(config.admin_token.length, strlen(TOKEN));
    assert_string_equal(origin("admin_token"), "admin_token_file");
    assert_int_equal(config.warnings.count, 0);
    write_file("secret", TOKEN "\r\n");
    assert_int_equal(load("--service-token-file secret", ""), STATUS_OK);
    assert_string_equal(config.service_token.bytes, TOKEN);
    write_file("secret", KEY "\n\n");
    assert_int_equal(load("--user-key-file secret", ""), STATUS_OK);
    assert_string_equal(config.user_key.bytes, KEY "\n");
    write_file("secret", KEY);
    assert_int_equal(load("", "DIBS_CODE_KEY_FILE=secret"), STATUS_OK);
    assert_string_equal(config.code_key.bytes, KEY);
}

static void test_load__refuses_secret_files_that_cannot_be_meant(void **state)
{
    write_file("secret", "\n");
    assert_load_refused("--admin-token-file secret", "", "admin_token_file: secret: is empty");
    write_file("secret", "");
    assert_load_refused("--user-key-file secret", "", "user_key_file: secret: is empty");
    write_file("secret", KEY);
    truncate("secret", 31) == 0 ? (void)0 : fail();
    assert_load_refused("--user-key-file secret", "", "user_key_file: secret: is too short");
    write_file("secret", "two words are not a token\n");
    assert_load_refused("--admin-token-file secret", "", "must be visible ASCII characters only");
    assert_load_refused("--admin-token-file none", "",
                        "admin_token_file: none: cannot be opened: No such file");
    assert_load_refused("--admin-token-file /dev/zero", "", "/dev/zero: is larger than 4096 bytes");
}

static void test_load__warns_about_secrets_that_all_can_read(void **state)
{
    write_file("secret", TOKEN);
    assert_int_equal(chmod("secret", 0644), 0);
    assert_int_equal(load("--admin-token-file secret", ""), STATUS_OK);
    assert_int_equal(config.warnings.count, 1);
    assert_string_equal(config.warnings.items[0],
                        "admin_token_file: secret is open to everyone on this machine (mode 0644); "
                        "chmod 600 secret");
    assert_int_equal(chmod("secret", 0640), 0);
    assert_int_equal(load("--admin-token-file secret", ""), STATUS_OK);
    assert_int_equal(config.warnings.count, 0);
}

static void test_load__takes_a_password_in_a_url_but_not_as_a_flag(void **state)
{
    assert_int_equal(load("", "DIBS_LEDGER=postgres://shop:hunter2@localhost/dibs"), STATUS_OK);
    assert_string_equal(config.ledger, "postgres://shop:hunter2@localhost/dibs");
    assert_int_equal(config.warnings.count, 0);
    assert_int_equal(load("--ledger postgres://shop@db/dibs", ""), STATUS_OK);
    assert_load_refused("--ledger postgres://shop:hunter2@db/dibs", "",
                        "--ledger: holds a password, and anyone on this machine can read the "
                        "arguments of a process; put the URL into DIBS_LEDGER or dibs.conf, or use "
                        "ledger_password_file");
    assert_null(strstr(error.text, "hunter2"));
    assert_load_refused("--ledger=mysql://db/dibs?ssl_key_password=hunter2", "",
                        "--ledger: holds a password");
    assert_load_refused("postgres://shop:hunter2@db/dibs", "",
                        "unexpected \"postgres://shop:***@db/dibs\"");
    assert_load_refused("--ledger-password hunter2", "", "use --ledger-password-file FILE");
    assert_null(strstr(error.text, "hunter2"));
}

static void test_load__warns_about_a_password_in_a_file_that_others_can_read(void **state)
{
    write_file("dibs.conf", "ledger = postgres://shop:hunter2@localhost/dibs\n");
    assert_int_equal(load("", ""), STATUS_OK);
    assert_string_equal(config.ledger, "postgres://shop:hunter2@localhost/dibs");
    assert_int_equal(config.warnings.count, 0);
    assert_int_equal(chmod("dibs.conf", 0640), 0);
    assert_int_equal(load("", ""), STATUS_OK);
    assert_int_equal(config.warnings.count, 1);
    assert_string_equal(config.warnings.items[0],
                        "ledger: dibs.conf holds a password and is open to its group (mode 0640); "
                        "chmod 600 dibs.conf, or use ledger_password_file");
    /* Also when it is not the ledger in effect: it can be read all the same. */
    assert_int_equal(chmod("dibs.conf", 0604), 0);
    assert_int_equal(load("--ledger sqlite:dibs.db", ""), STATUS_OK);
    assert_int_equal(config.warnings.count, 1);
    assert_non_null(strstr(config.warnings.items[0], "open to everyone on this machine"));
    write_file("dibs.conf", "ledger = postgres://shop@db/dibs\n");
    assert_int_equal(load("", ""), STATUS_OK);
    assert_int_equal(config.warnings.count, 0);
}

static void test_load__lets_the_stronger_source_of_a_secret_win(void **state)
{
    write_file("secret", "from-the-file-of-secrets");
    write_file("dibs.conf", "admin_token_file = secret\n");
    assert_int_equal(load("", "DIBS_ADMIN_TOKEN=" TOKEN), STATUS_OK);
    assert_string_equal(config.admin_token.bytes, TOKEN);
    assert_int_equal(load("--admin-token-file secret", "DIBS_ADMIN_TOKEN=" TOKEN), STATUS_OK);
    assert_string_equal(config.admin_token.bytes, "from-the-file-of-secrets");
    assert_load_refused("", "DIBS_ADMIN_TOKEN=" TOKEN " DIBS_ADMIN_TOKEN_FILE=secret",
                        "DIBS_ADMIN_TOKEN and DIBS_ADMIN_TOKEN_FILE are both set");
    assert_int_equal(load("", "DIBS_ADMIN_TOKEN=" TOKEN " DIBS_ADMIN_TOKEN_FILE="), STATUS_OK);
    assert_string_equal(origin("admin_token"), "DIBS_ADMIN_TOKEN");
}

static void assert_check_refused(const char *words)
{
    assert_int_equal(config_check(&config, &error), STATUS_INVALID);
    if (strstr(error.text, words) == NULL)
        fail_msg("said: %s", error.text);
}

static void test_load__wants_an_admin_token_off_loopback(void **state)
{
    assert_int_equal(load("--listen 0.0.0.0:8080", ""), STATUS_OK);
    assert_check_refused("set admin_token_file (or the variable DIBS_ADMIN_TOKEN), or listen on "
                         "127.0.0.1");
    assert_int_equal(load("--listen 0.0.0.0:8080", "DIBS_ADMIN_TOKEN=" TOKEN), STATUS_OK);
    assert_int_equal(config_check(&config, &error), STATUS_OK);
    assert_int_equal(load("--listen [::1]:8080", ""), STATUS_OK);
    assert_int_equal(config_check(&config, &error), STATUS_OK);
}

static void test_load__refuses_settings_that_contradict_each_other(void **state)
{
    assert_int_equal(load("--cors-origin *", ""), STATUS_OK);
    assert_check_refused("name the origins");
    assert_int_equal(load("--cors-origin *", "DIBS_ADMIN_TOKEN=" TOKEN), STATUS_OK);
    assert_int_equal(config_check(&config, &error), STATUS_OK);
    assert_int_equal(load("--cors-origin https://shop.example", ""), STATUS_OK);
    assert_int_equal(config_check(&config, &error), STATUS_OK);
    assert_int_equal(load("--user-audience shop", ""), STATUS_OK);
    assert_check_refused("set user_key_file too");
    assert_int_equal(load("", "DIBS_ADMIN_TOKEN=" TOKEN " DIBS_SERVICE_TOKEN=" TOKEN), STATUS_OK);
    assert_check_refused("make them different");
    assert_null(strstr(error.text, TOKEN));
    assert_int_equal(load("", "DIBS_LEDGER_PASSWORD=hunter2"), STATUS_OK);
    assert_check_refused("the ledger is sqlite:dibs.db, which has none");
    assert_int_equal(
        load("", "DIBS_LEDGER_PASSWORD=hunter2 DIBS_LEDGER=postgres://shop:hunter3@db/dibs"),
        STATUS_OK);
    assert_check_refused("the ledger's URL has a password too");
    assert_null(strstr(error.text, "hunter"));
    assert_int_equal(config_check_backends(&config, &error), STATUS_INVALID);
    write_file("secret", "hunter2\n");
    assert_int_equal(load("--ledger mysql://shop@db/dibs --ledger-password-file secret", ""),
                     STATUS_OK);
    assert_int_equal(config_check(&config, &error), STATUS_OK);
    assert_string_equal(config.ledger_password.bytes, "hunter2");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, enter_folder, leave_folder)
    const struct CMUnitTest tests[] = {
        TEST(test_load__has_defaults_for_everything),
        TEST(test_load__lets_flags_beat_variables_beat_the_file),
        TEST(test_load__reads_the_file_that_is_asked_for),
        TEST(test_load__says_where_a_wrong_value_came_from),
        TEST(test_load__takes_secrets_from_the_environment),
        TEST(test_load__takes_secrets_from_files),
        TEST(test_load__refuses_secret_files_that_cannot_be_meant),
        TEST(test_load__warns_about_secrets_that_all_can_read),
        TEST(test_load__takes_a_password_in_a_url_but_not_as_a_flag),
        TEST(test_load__warns_about_a_password_in_a_file_that_others_can_read),
        TEST(test_load__lets_the_stronger_source_of_a_secret_win),
        TEST(test_load__wants_an_admin_token_off_loopback),
        TEST(test_load__refuses_settings_that_contradict_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
