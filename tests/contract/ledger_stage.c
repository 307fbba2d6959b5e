/* ledger_stage.c: a driver that waits before every step until it is allowed. */
#include "ledger_stage.h"

#include <limits.h>
#include <time.h>

/* --- stepping --- */

static _Thread_local struct actor *this_actor;

/* Waits until one more step is allowed. */
static void step(void)
{
    struct actor *actor = this_actor;
    struct stage *stage = actor->stage;

    pthread_mutex_lock(&stage->lock);
    actor->steps++;
    pthread_cond_broadcast(&stage->moved);
    while (actor->steps > actor->allowed)
        pthread_cond_wait(&stage->moved, &stage->lock);
    pthread_mutex_unlock(&stage->lock);
}

static enum status step_begin(struct ledger_session *session, struct error *error)
{
    step();
    return ledger_suite_driver->begin(session, error);
}

static enum status step_commit(struct ledger_session *session, struct error *error)
{
    step();
    return ledger_suite_driver->commit(session, error);
}

static enum status step_run(struct ledger_session *session, const struct sql_call *call,
                            struct error *error)
{
    step();
    return ledger_suite_driver->run(session, call, error);
}

static enum status step_insert(struct ledger_session *session, struct coupon_row *rows,
                               size_t count, struct error *error)
{
    step();
    return ledger_suite_driver->insert_coupons(session, rows, count, error);
}

/* Who finds the other in its way does it again when that one is done, as a caller's pauses have it.
 * What it had locked is free by now, so the other comes to its end. */
static void let_pass(struct actor *actor)
{
    struct stage *stage = actor->stage;
    const struct actor *other = &stage->actors[actor == &stage->actors[0]];

    pthread_mutex_lock(&stage->lock);
    actor->waits = !other->is_done && !other->waits;
    pthread_cond_broadcast(&stage->moved);
    while (actor->waits && !other->is_done)
        pthread_cond_wait(&stage->moved, &stage->lock);
    actor->waits = false;
    pthread_mutex_unlock(&stage->lock);
}

/* As the writer does it: what is in each other's way is done again, a batch that is refused is
 * done with care, and what breaks a rule is undone. */
static void *act(void *context)
{
    struct actor *actor = context;
    const struct ledger_driver *driver = actor->sql.driver;
    struct ledger_session *session = actor->sql.session;

    this_actor = actor;
    for (int tries = 0; tries < 20; tries++) {
        actor->status = driver->begin(session, &actor->error);
        if (actor->status == STATUS_OK)
            actor->status = actor->act(&actor->sql, actor->argument, &actor->error);
        if (actor->status == STATUS_OK)
            actor->status = driver->commit(session, &actor->error);
        if (actor->status != STATUS_OK)
            driver->rollback(session);
        if (actor->status != STATUS_BUSY)
            break;
        actor->busy_count++;
        let_pass(actor);
    }
    pthread_mutex_lock(&actor->stage->lock);
    actor->is_done = true;
    pthread_cond_broadcast(&actor->stage->moved);
    pthread_mutex_unlock(&actor->stage->lock);
    return NULL;
}

/* Lets the actor come to where it would begin the step behind those, to its end, or to a lock. */
static void advance(struct stage *stage, struct actor *actor, int steps)
{
    pthread_mutex_lock(&stage->lock);
    actor->allowed = steps;
    pthread_cond_broadcast(&stage->moved);
    while (!actor->is_done && !actor->waits && actor->steps <= steps) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 2000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (pthread_cond_timedwait(&stage->moved, &stage->lock, &until) == 0)
            continue;
        pthread_mutex_unlock(&stage->lock);
        int64_t waits = ledger_suite_ask(stage->fixture->session, ledger_suite_lock_waits);
        pthread_mutex_lock(&stage->lock);
        if (waits > 0)
            break;
    }
    pthread_mutex_unlock(&stage->lock);
}

static void play(struct stage *stage, int first, int first_steps, int second_steps)
{
    struct actor *one = &stage->actors[first];
    struct actor *two = &stage->actors[1 - first];

    snprintf(stage->words, sizeof(stage->words), "%s goes %d steps, then the other %d",
             first == 0 ? "the first" : "the second", first_steps, second_steps);
    for (int i = 0; i < 2; i++) {
        struct actor *actor = &stage->actors[i];
        actor->steps = 0;
        actor->allowed = 0;
        actor->is_done = false;
        actor->waits = false;
        ensure(pthread_create(&actor->thread, NULL, act, actor) == 0);
    }
    advance(stage, one, first_steps);
    advance(stage, two, second_steps);
    advance(stage, one, INT_MAX);
    advance(stage, two, INT_MAX);
    for (int i = 0; i < 2; i++)
        pthread_join(stage->actors[i].thread, NULL);
}

/* --- the stage --- */

int set_up_stage(void **state)
{
    struct stage *stage = calloc(1, sizeof(*stage));
    const struct ledger_driver *driver = ledger_suite_driver;
    struct error error = {""};

    set_up_shared((void **)&stage->fixture);
    stage->stepping = *driver;
    stage->stepping.begin = step_begin;
    stage->stepping.commit = step_commit;
    stage->stepping.run = step_run;
    stage->stepping.insert_coupons = step_insert;
    pthread_mutex_init(&stage->lock, NULL);
    pthread_cond_init(&stage->moved, NULL);
    struct store_options options = {
        .url = stage->fixture->url, .use = LEDGER_SHARE, .timeout_ms = 10000};
    if (driver->store_open(&stage->store, &options, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    for (int i = 0; i < 2; i++) {
        struct actor *actor = &stage->actors[i];
        actor->stage = stage;
        actor->sql.driver = &stage->stepping;
        if (driver->session_open(stage->store, SESSION_WRITER, &actor->sql.session, &error) !=
            STATUS_OK)
            fail_msg("%s", error.text);
    }
    *state = stage;
    return 0;
}

int tear_down_stage(void **state)
{
    struct stage *stage = *state;

    for (int i = 0; i < 2; i++) {
        ledger_suite_driver->session_close(stage->actors[i].sql.session);
        issue_room_release(&stage->issuing[i].room);
    }
    ledger_suite_driver->store_close(stage->store);
    pthread_cond_destroy(&stage->moved);
    pthread_mutex_destroy(&stage->lock);
    tear_down((void **)&stage->fixture);
    free(stage);
    return 0;
}

void expect(struct stage *stage, bool condition, const char *what)
{
    if (!condition)
        fail_msg("%s: %s (%s, %s)", stage->words, what, status_name(stage->actors[0].status),
                 status_name(stage->actors[1].status));
}

void play_all(struct stage *stage, enum scene_kind kind, scene_fn set, scene_fn look)
{
    int steps[2] = {INT_MAX, INT_MAX};

    stage->actors[0].busy_count = stage->actors[1].busy_count = 0;
    for (int first = 0; first < 2; first++) {
        for (int i = 1; i < steps[first]; i++) {
            for (int j = 1; j < steps[1 - first]; j++) {
                set(stage);
                play(stage, first, i, j);
                expect(stage, imbalance_of(stage->fixture->session, stage->policy.id) == 0,
                       "stock is not conserved");
                look(stage);
                expect(stage,
                       kind == SCENE_BUSY ||
                           stage->actors[0].busy_count + stage->actors[1].busy_count == 0,
                       "one had to be done again");
                /* The first round tells how many steps there are, undisturbed or nearly so. */
                for (int k = 0; k < 2 && i == 1 && j == 1 && first == 0; k++)
                    steps[k] = stage->actors[k].steps;
            }
        }
    }
}

void cast(struct stage *stage, int number,
          enum status (*body)(struct sql *sql, void *argument, struct error *error), void *argument)
{
    stage->actors[number].act = body;
    stage->actors[number].argument = argument;
}
