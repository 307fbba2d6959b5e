/* test_migrate.c: from an empty, an older or a newer database to the schema of this build. */
#include "ledger/migrate.h"

#include <dirent.h>

#include "database.h"
#include "embedded_migrations.h"

#define NOW INT64_C(1763200000000)

struct fixture {
    struct database database;
    struct ledger_options options;
    int notes;
    int last_number;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    database_make_folder(&fixture->database);
    fixture->options = (struct ledger_options){.url = fixture->database.url,
                                               .readers = 1,
                                               .on_issued = database_no_claims,
                                               .on_durable = database_no_waiters};
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    database_remove_folder(&fixture->database);
    free(fixture);
    return 0;
}

static void note(void *context, int number, const char *name, const char *text)
{
    struct fixture *fixture = context;

    assert_true(number > fixture->last_number);
    assert_int_equal(strtol(name, NULL, 10), number);
    assert_non_null(strstr(name, ".sqlite.sql"));
    assert_true(strstr(text, "CREATE ") != NULL || strstr(text, "ALTER ") != NULL);
    fixture->notes++;
    fixture->last_number = number;
}

/* How many migrations the database lacked. */
static int migrate(struct fixture *fixture, enum ledger_migration mode)
{
    fixture->notes = 0;
    fixture->last_number = 0;
    database_check(&fixture->database, ledger_migrate(&fixture->options, mode, note, fixture,
                                                      &fixture->database.error));
    return fixture->notes;
}

static int version_of(struct fixture *fixture)
{
    return (int)database_number(&fixture->database, "PRAGMA user_version");
}

static int newest(void)
{
    return migrate_newest("sqlite");
}

/* How many there are: a number may be missing while it is still being written. */
static int all(void)
{
    int count = 0;

    for (size_t i = 0; i < embedded_migrations_count; i++)
        count += strstr(embedded_migrations[i].name, ".sqlite.sql") != NULL;
    return count;
}

/* A database as an older dibs left it: after that migration, in WAL mode, closed in good order. */
static void make_older(struct fixture *fixture, int number)
{
    char move[64];

    database_execute(&fixture->database, "PRAGMA journal_mode = WAL");
    for (size_t i = 0; i < embedded_migrations_count; i++) {
        const struct embedded_file *file = &embedded_migrations[i];
        if (strstr(file->name, ".sqlite.sql") != NULL && strtol(file->name, NULL, 10) <= number)
            database_execute(&fixture->database, (const char *)file->bytes);
    }
    snprintf(move, sizeof(move), "PRAGMA user_version = %d", number);
    database_execute(&fixture->database, move);
}

static int count_files(struct fixture *fixture)
{
    int count = 0;
    DIR *folder = opendir(fixture->database.folder);

    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* The bytes of the database's file, which the caller frees. */
static uint8_t *read_file(struct fixture *fixture, size_t *length)
{
    uint8_t *bytes = malloc(1 << 20);
    FILE *file = fopen(fixture->database.url + strlen("sqlite:"), "rb");

    assert_non_null(file);
    *length = fread(bytes, 1, 1 << 20, file);
    assert_true(*length < 1 << 20);
    fclose(file);
    return bytes;
}

static void assert_unchanged(struct fixture *fixture, uint8_t *before, size_t length)
{
    size_t length_now = 0;
    uint8_t *now = read_file(fixture, &length_now);

    assert_int_equal(length_now, length);
    assert_memory_equal(now, before, length);
    free(now);
    free(before);
}

/* --- tests --- */

static void test_migrate__show_makes_no_file(void **state)
{
    struct fixture *fixture = *state;

    for (int i = 0; i < 2; i++)
        assert_int_equal(migrate(fixture, LEDGER_MIGRATION_SHOW), all());
    assert_int_equal(count_files(fixture), 0);
    assert_int_equal(fixture->last_number, newest());
    assert_int_equal(ledger_schema(fixture->options.url), newest());
}

static void test_migrate__show_changes_nothing(void **state)
{
    struct fixture *fixture = *state;
    size_t length = 0;

    make_older(fixture, 1);
    uint8_t *before = read_file(fixture, &length);
    assert_int_equal(count_files(fixture), 1);
    assert_int_equal(migrate(fixture, LEDGER_MIGRATION_SHOW), all() - 1);
    assert_int_equal(count_files(fixture), 1);
    assert_unchanged(fixture, before, length);
    assert_int_equal(version_of(fixture), 1);
}

/* Names that are something else to who reads them as a URI. */
static void test_migrate__show_finds_any_name(void **state)
{
    struct fixture *fixture = *state;
    const char *plain = fixture->database.url + strlen("sqlite:");
    char url[128];

    snprintf(url, sizeof(url), "sqlite:%s/a%%41 ?vfs=#.db", fixture->database.folder);
    make_older(fixture, 1);
    assert_int_equal(rename(plain, url + strlen("sqlite:")), 0);
    fixture->options.url = url;
    assert_int_equal(migrate(fixture, LEDGER_MIGRATION_SHOW), all() - 1);
    assert_int_equal(count_files(fixture), 1);
    assert_int_equal(rename(url + strlen("sqlite:"), plain), 0);
}

/* What a running server has written is seen, and it is not disturbed. */
static void test_migrate__show_beside_an_owner(void **state)
{
    struct fixture *fixture = *state;
    struct ledger *ledger = NULL;

    database_check(&fixture->database,
                   ledger_open(&ledger, &fixture->options, &fixture->database.error));
    assert_int_equal(migrate(fixture, LEDGER_MIGRATION_SHOW), 0);
    ledger_close(ledger);
}

static void test_migrate__apply_twice_is_once(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(migrate(fixture, LEDGER_MIGRATION_APPLY), all());
    assert_int_equal(version_of(fixture), newest());
    assert_int_equal(database_number(&fixture->database, "SELECT COUNT(*) FROM steward"), 0);
    assert_int_equal(migrate(fixture, LEDGER_MIGRATION_APPLY), 0);
    assert_int_equal(migrate(fixture, LEDGER_MIGRATION_SHOW), 0);
}

static void test_migrate__a_newer_schema_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct error *error = &fixture->database.error;
    struct ledger *ledger = NULL;
    size_t length = 0;

    make_older(fixture, newest());
    database_execute(&fixture->database, "PRAGMA user_version = 99");
    uint8_t *before = read_file(fixture, &length);
    for (int mode = LEDGER_MIGRATION_SHOW; mode <= LEDGER_MIGRATION_APPLY; mode++) {
        error->text[0] = '\0';
        assert_int_equal(
            ledger_migrate(&fixture->options, (enum ledger_migration)mode, note, fixture, error),
            STATUS_FAILED);
        assert_non_null(strstr(error->text, "schema 99"));
    }
    error->text[0] = '\0';
    assert_int_equal(ledger_open(&ledger, &fixture->options, error), STATUS_FAILED);
    assert_non_null(strstr(error->text, "newer dibs"));
    assert_int_equal(fixture->notes, 0);
    assert_unchanged(fixture, before, length);
}

/* What a shop had before it took this build is all there, and goes on. */
static void test_migrate__rows_of_the_first_schema_go_on(void **state)
{
    struct fixture *fixture = *state;
    struct error *error = &fixture->database.error;
    struct ledger *ledger = NULL;
    struct policy policy;
    struct coupon coupon;
    struct ledger_stewardship taken;

    make_older(fixture, 1);
    database_execute(
        &fixture->database,
        "INSERT INTO policy (id, name, discount_type, discount_value, total, per_user_limit,"
        "    reserve, paused, created_at, version, unleased, next_seq)"
        "  VALUES (7, 'old', 'fixed', 500, 10, 2, 1, 0, 1, 3, 2, 10);"
        "INSERT INTO lease (policy_id, first_seq, count, state) VALUES (7, 1, 9, 'OPEN');"
        "INSERT INTO coupon (policy_id, seq, user_id, nth, slot, state, request_id, lease_id,"
        "    requested_at, issued_at, cancelled_at)"
        "  VALUES (7, 1, 'a', 1, 1, 'ISSUED', zeroblob(16), 1, 1, 2, NULL),"
        "         (7, 2, 'b', 1, NULL, 'CANCELLED', zeroblob(16), 1, 1, 2, 3);"
        "INSERT INTO claim_key VALUES (7, zeroblob(16), 1);"
        "INSERT INTO blocked_user VALUES ('c', 1);"
        "INSERT INTO secret VALUES ('key', x'00112233');");
    database_check(&fixture->database, ledger_open(&ledger, &fixture->options, error));
    assert_int_equal(version_of(fixture), newest());
    assert_int_equal(database_imbalance(&fixture->database), 0);
    database_check(&fixture->database, ledger_policy_get(ledger, 7, &policy, error));
    assert_string_equal(policy.name, "old");
    assert_int_equal(policy.next_seq, 10);
    database_check(&fixture->database, ledger_coupon_get(ledger, 7, 1, &coupon, error));
    assert_int_equal(coupon.state, COUPON_ISSUED);
    database_check(&fixture->database, ledger_coupon_get(ledger, 7, 2, &coupon, error));
    assert_int_equal(coupon.cancelled_at_ms, 3);
    struct ledger_wish wish = {
        .policy_id = 7, .user = id_of(SPAN("b")), .request_id = {{1}}, .now_ms = NOW};
    database_check(&fixture->database, ledger_claim(ledger, &wish, error));
    assert_int_equal(wish.verdict, VERDICT_WON);
    assert_int_equal(wish.coupon.claim.seq, 10);
    database_check(&fixture->database, ledger_steward_take(ledger, 7, "me", 0, &taken, error));
    assert_true(taken.is_held);
    assert_int_equal(taken.term, 1);
    ledger_close(ledger);
    assert_int_equal(database_imbalance(&fixture->database), 0);
}

/* A migration that fails half-way leaves nothing of itself, and says which it was. */
static void test_migrate__all_of_it_or_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct error *error = &fixture->database.error;

    make_older(fixture, 1);
    database_execute(&fixture->database, "CREATE TABLE writer (theirs INTEGER)");
    assert_int_equal(ledger_migrate(&fixture->options, LEDGER_MIGRATION_APPLY, NULL, NULL, error),
                     STATUS_FAILED);
    assert_non_null(strstr(error->text, "0002_"));
    assert_int_equal(version_of(fixture), 1);
    assert_int_equal(database_number(&fixture->database, "SELECT COUNT(*) FROM sqlite_schema"
                                                         " WHERE name = 'steward'"),
                     0);
    database_execute(&fixture->database, "DROP TABLE writer");
    assert_int_equal(migrate(fixture, LEDGER_MIGRATION_APPLY), all() - 1);
}

/* --- someone else at the same moment --- */

/* A schema that another process moves while this one waits for the lock. */
struct moving {
    int before_lock, after_lock;
    bool is_locked;
    int applied, unlocks;
};

static struct moving *moving_of(struct ledger_session *session)
{
    return (struct moving *)session;
}

static enum status moving_lock(struct ledger_session *session, struct error *error)
{
    (void)error;
    moving_of(session)->is_locked = true;
    return STATUS_OK;
}

static void moving_unlock(struct ledger_session *session)
{
    moving_of(session)->is_locked = false;
    moving_of(session)->unlocks++;
}

static enum status moving_version(struct ledger_session *session, int *version, struct error *error)
{
    const struct moving *moving = moving_of(session);
    (void)error;
    *version = moving->is_locked ? moving->after_lock : moving->before_lock;
    return STATUS_OK;
}

static enum status moving_apply(struct ledger_session *session, int number, const char *name,
                                const char *text, struct error *error)
{
    (void)number;
    (void)name;
    (void)text;
    (void)error;
    assert_true(moving_of(session)->is_locked);
    moving_of(session)->applied++;
    return STATUS_OK;
}

static enum status migrate_while_moving(struct moving *moving)
{
    static const struct ledger_driver driver = {.name = "sqlite",
                                                .schema_lock = moving_lock,
                                                .schema_unlock = moving_unlock,
                                                .schema_version = moving_version,
                                                .schema_apply = moving_apply};
    struct sql sql = {.driver = &driver, .session = (struct ledger_session *)moving};
    struct error error;
    return migrate_run(&sql, LEDGER_MIGRATION_APPLY, NULL, NULL, &error);
}

static void test_migrate__looks_again_under_the_lock(void **state)
{
    (void)state;
    struct moving alone = {.before_lock = 0, .after_lock = 0};
    assert_int_equal(migrate_while_moving(&alone), STATUS_OK);
    assert_int_equal(alone.applied, all());
    struct moving done = {.before_lock = 0, .after_lock = newest()};
    assert_int_equal(migrate_while_moving(&done), STATUS_OK);
    assert_int_equal(done.applied, 0);
    assert_int_equal(done.unlocks, 1);
    struct moving newer = {.before_lock = 0, .after_lock = newest() + 1};
    assert_int_equal(migrate_while_moving(&newer), STATUS_FAILED);
    assert_int_equal(newer.applied, 0);
    assert_int_equal(newer.unlocks, 1);
    struct moving current = {.before_lock = newest()};
    assert_int_equal(migrate_while_moving(&current), STATUS_OK);
    assert_int_equal(current.unlocks, 0); /* only read */
}

int main(void)
{
#define MIGRATE_TEST(name) cmocka_unit_test_setup_teardown(test_migrate__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        MIGRATE_TEST(show_makes_no_file),
        MIGRATE_TEST(show_changes_nothing),
        MIGRATE_TEST(show_finds_any_name),
        MIGRATE_TEST(show_beside_an_owner),
        MIGRATE_TEST(apply_twice_is_once),
        MIGRATE_TEST(a_newer_schema_is_refused),
        MIGRATE_TEST(rows_of_the_first_schema_go_on),
        MIGRATE_TEST(all_of_it_or_nothing),
        MIGRATE_TEST(looks_again_under_the_lock),
    };
    return cmocka_run_group_tests_name("migrate", tests, NULL, NULL);
}
