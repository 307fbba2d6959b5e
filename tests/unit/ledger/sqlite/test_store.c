/* test_store.c: one owner per file, however it is named, until that process ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "ledger/sqlite/store.h"

static char folder[64];

static char *in_folder(const char *name)
{
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/dibs-owner-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int tear_down(void **state)
{
    static const char *const names[] = {"a.db",    "b.db",       "link.db",
                                        "hard.db", "a.db-owner", "b.db-owner"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unlink(in_folder(names[i]));
    return rmdir(folder);
}

/* What another process is told; 'k' when it got the lock. */
static char ask_from_elsewhere(const char *path, char *words, size_t size)
{
    int ends[2];
    char answer[600] = "";

    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct owner_lock lock = {0};
        struct error error = {""};
        enum status status = owner_lock_take(&lock, path, &error);
        int length = snprintf(answer, sizeof(answer), "%c%s",
                              status == STATUS_OK         ? 'k'
                              : status == STATUS_CONFLICT ? 'c'
                                                          : 'f',
                              error.text);
        _exit(write(ends[1], answer, (size_t)length) != length);
    }
    close(ends[1]);
    ssize_t length = read(ends[0], answer, sizeof(answer) - 1);
    close(ends[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(length > 0);
    answer[length] = '\0';
    snprintf(words, size, "%.511s", answer + 1);
    return answer[0];
}

static void test_owner__second_is_refused_and_told_who(void **state)
{
    struct owner_lock lock = {0};
    struct error error;
    char words[512];
    char pid[32];
    (void)state;

    assert_int_equal(owner_lock_take(&lock, in_folder("a.db"), &error), STATUS_OK);
    assert_int_equal(ask_from_elsewhere(in_folder("a.db"), words, sizeof(words)), 'c');
    snprintf(pid, sizeof(pid), "%ld", (long)getpid());
    assert_non_null(strstr(words, pid));
    assert_non_null(strstr(words, "a.db"));
    assert_int_equal(ask_from_elsewhere(in_folder("b.db"), words, sizeof(words)), 'k');
    owner_lock_release(&lock);
    assert_int_equal(ask_from_elsewhere(in_folder("a.db"), words, sizeof(words)), 'k');
    owner_lock_release(&lock);
}

static void test_owner__links_are_the_same_file(void **state)
{
    struct owner_lock lock = {0};
    struct error error;
    char words[512];
    (void)state;

    /* Taken once, so that the file is there. */
    assert_int_equal(owner_lock_take(&lock, in_folder("a.db"), &error), STATUS_OK);
    FILE *file = fopen(in_folder("a.db"), "a");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(symlink("a.db", in_folder("link.db")), 0);
    assert_int_equal(link(in_folder("a.db"), in_folder("hard.db")), 0);
    assert_int_equal(ask_from_elsewhere(in_folder("link.db"), words, sizeof(words)), 'c');
    assert_int_equal(ask_from_elsewhere(in_folder("hard.db"), words, sizeof(words)), 'c');
    owner_lock_release(&lock);
}

static void test_owner__dies_with_its_holder(void **state)
{
    struct owner_lock lock = {0};
    struct error error;
    char words[512];
    (void)state;

    /* The child ends without letting go. */
    assert_int_equal(ask_from_elsewhere(in_folder("a.db"), words, sizeof(words)), 'k');
    assert_int_equal(owner_lock_take(&lock, in_folder("a.db"), &error), STATUS_OK);
    owner_lock_release(&lock);
}

static void test_owner__no_such_folder(void **state)
{
    struct owner_lock lock = {0};
    struct error error = {""};
    (void)state;
    assert_int_equal(owner_lock_take(&lock, in_folder("no/where/a.db"), &error), STATUS_FAILED);
    assert_non_null(strstr(error.text, "no/where"));
    owner_lock_release(&lock);
}

int main(void)
{
#define OWNER_TEST(name) cmocka_unit_test_setup_teardown(test_owner__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        OWNER_TEST(second_is_refused_and_told_who),
        OWNER_TEST(links_are_the_same_file),
        OWNER_TEST(dies_with_its_holder),
        OWNER_TEST(no_such_folder),
    };
    return cmocka_run_group_tests_name("owner", tests, NULL, NULL);
}
