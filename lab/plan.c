/* plan.c: each scenario, with the smallest storm that shows what it is about. */
#include "lab/plan.h"

#include <string.h>

const struct lab_setting lab_setting_usual = {
    .knobs = {.total = 1000,
              .policies = 1,
              .retries = -1,
              .sync_ms = -1,
              .lock_wait_ms = 3000,
              .lock_lease_ms = 1000,
              .ttl_s = 180},
    .shape = {.users = 2000,
              .duplicates = 10,
              .connections = 200,
              .burst = 200,
              .every_ms = 100,
              .retries = 3,
              .seed = 1},
    .fronts = 1,
};

/* A crowd that is through in a second or two, and does not give up while something is away. */
static void plan_small(struct lab_setting *setting)
{
    setting->knobs.total = 300;
    setting->shape.users = 600;
    setting->shape.burst = 100;
    setting->shape.connections = 100;
    setting->shape.retries = 30;
}

static void plan_rush(struct lab_setting *setting)
{
    (void)setting;
}

static void plan_held_up(struct lab_setting *setting)
{
    plan_small(setting);
    setting->knobs.total = 100;
    setting->shape.users = 200;
    setting->shape.retries = 3;
    setting->knobs.pause_ms = 20;
    setting->knobs.lock_lease_ms = 10;
    setting->knobs.lock_wait_ms = 300;
}

static void plan_far_database(struct lab_setting *setting)
{
    plan_small(setting);
    setting->knobs.total = 60;
    setting->shape.users = 120;
    setting->shape.retries = 3;
    setting->latency_ms = 5;
    setting->knobs.lock_wait_ms = 1000;
}

static void plan_worker(struct lab_setting *setting)
{
    plan_small(setting);
    setting->shape.duplicates = 0;
    setting->fault = LAB_WORKER_KILLED;
}

static void plan_server(struct lab_setting *setting)
{
    plan_small(setting);
    setting->shape.duplicates = 0;
    setting->fault = LAB_SERVER_KILLED;
}

static void plan_redis(struct lab_setting *setting)
{
    plan_small(setting);
    setting->shape.duplicates = 0;
    setting->fault = LAB_REDIS_KILLED;
}

static void plan_redis_always(struct lab_setting *setting)
{
    plan_redis(setting);
    setting->syncs_always = true;
}

static void plan_broker(struct lab_setting *setting)
{
    plan_small(setting);
    setting->shape.duplicates = 0;
    setting->shape.burst = 50;
    setting->shape.every_ms = 200;
    setting->fault = LAB_BROKER_AWAY;
}

static void plan_poison(struct lab_setting *setting)
{
    plan_small(setting);
    setting->shape.duplicates = 0;
    setting->shape.retries = 3;
    setting->shape.has_poison = true;
    setting->fault = LAB_POISON;
}

static void plan_clocks(struct lab_setting *setting)
{
    plan_small(setting);
    setting->shape.duplicates = 0;
    setting->fronts = 2;
    setting->clock_apart_ms = -5000;
}

static void plan_sync(struct lab_setting *setting)
{
    plan_small(setting);
    setting->shape.duplicates = 0;
    setting->syncs_amid = true;
}

static void plan_later(struct lab_setting *setting)
{
    plan_small(setting);
    setting->knobs.total = 100;
    setting->shape.users = 200;
    setting->shape.duplicates = 100;
    setting->shape.again_ms = 3000;
    setting->knobs.ttl_s = 1;
}

static void plan_four(struct lab_setting *setting)
{
    setting->knobs.total = 200;
    setting->knobs.policies = 4;
    setting->shape.users = 1000;
    setting->shape.duplicates = 0;
}

bool lab_is_reference(const struct lab_contestant *contestant)
{
    return contestant->strategy == NULL || strcmp(contestant->name, "lua") == 0;
}

bool lab_promises(const struct lab_contestant *reference, const struct lab_setting *setting)
{
    bool tells_before_the_row =
        lab_has_worker(reference) &&
        (reference->strategy != NULL || strcmp(reference->ack, "ledger") != 0);
    if (setting->fault == LAB_POISON ||
        (setting->fault == LAB_REDIS_KILLED && !setting->syncs_always))
        return !tells_before_the_row;
    return setting->fault != LAB_NO_FAULT || setting->clock_apart_ms != 0 || setting->syncs_amid;
}

static bool plan_has_database_only(const struct lab_contestant *contestant)
{
    return !lab_has_worker(contestant) || contestant->strategy == NULL;
}

static bool plan_has_redis_state(const struct lab_contestant *contestant)
{
    return lab_has_redis(contestant) && strstr(contestant->name, "lock") == NULL &&
           !lab_has_kafka(contestant);
}

static bool plan_is_careful(const struct lab_contestant *contestant)
{
    return lab_is_reference(contestant) && plan_has_redis_state(contestant);
}

static bool plan_goes_by_clock(const struct lab_contestant *contestant)
{
    return strstr(contestant->name, "zset") != NULL || plan_is_careful(contestant);
}

static bool plan_has_sync(const struct lab_contestant *contestant)
{
    return contestant->sync_ms > 0 || plan_is_careful(contestant);
}

static bool plan_has_expiry(const struct lab_contestant *contestant)
{
    return strcmp(contestant->name, "hash-zset-nx") == 0 || plan_is_careful(contestant);
}

static bool plan_writes_later(const struct lab_contestant *contestant)
{
    return lab_has_worker(contestant) || contestant->strategy == NULL;
}

static bool plan_has_policies(const struct lab_contestant *contestant)
{
    return lab_has_kafka(contestant) || plan_is_careful(contestant) ||
           strcmp(contestant->name, "update-where") == 0;
}

const struct lab_scenario lab_scenarios[] = {
    {"rush", "A rush", "1,000 coupons, 2,000 people in bursts of 200; one in ten presses twice.",
     NULL, NULL, plan_rush},
    {"held-up", "Held up between two commands",
     "100 coupons, 200 people in two bursts. Between two commands a server is held up for up to "
     "20 ms, as by its garbage collector; a lock is let for 10 ms and waited for 300 ms. lua and "
     "dibs decide in one command.",
     NULL, NULL, plan_held_up},
    {"far-database", "A database 5 ms away",
     "60 coupons, 120 people in two bursts; every answer of the database takes 5 ms more, and a "
     "lock is waited for one second.",
     NULL, plan_has_database_only, plan_far_database},
    {"worker", "The worker is killed",
     "300 coupons, 600 people. The worker dies between two of its commands, and is started again.",
     NULL, lab_has_worker, plan_worker},
    {"server", "A server is killed",
     "300 coupons, 600 people. The server dies between two of its commands with 32 claims under "
     "way, and is started again; people try again until they have an answer.",
     NULL, NULL, plan_server},
    {"redis", "Redis is killed, appendfsync everysec",
     "300 coupons, 600 people. kill -9 of Redis on a busy disk, where it holds back up to two "
     "seconds of what it has answered.",
     "Redis has answered what it had not written: up to two seconds of it are forgotten, and sold "
     "again.",
     plan_has_redis_state, plan_redis},
    {"redis-always", "Redis is killed, appendfsync always",
     "The same with what ack=gate of dibs asks for: Redis writes before it answers.", NULL,
     plan_is_careful, plan_redis_always},
    {"broker", "The broker is away",
     "300 coupons, 600 people. kill -9 of Kafka in the middle; it comes back later than messages "
     "are kept for it.",
     NULL, lab_has_kafka, plan_broker},
    {"poison", "One whom the database refuses",
     "300 coupons, 600 people, and a rule of the shop's own that refuses the row of one of them.",
     NULL, plan_writes_later, plan_poison},
    {"clocks", "Two servers, clocks apart",
     "300 coupons, 600 people; the clock of the second server is five seconds behind.", NULL,
     plan_goes_by_clock, plan_clocks},
    {"sync", "The sync job comes amid the rush",
     "300 coupons, 600 people; the job that writes the database's count over Redis's has its turn "
     "in the middle.",
     NULL, plan_has_sync, plan_sync},
    {"later", "They come again when keys have expired",
     "100 coupons, 200 people, all of whom press again three seconds later. Keys that would live "
     "for three minutes live for one second.",
     NULL, plan_has_expiry, plan_later},
    {"four", "Four policies at once",
     "Four times 200 coupons for 1,000 people each; with Kafka through three partitions.", NULL,
     plan_has_policies, plan_four},
    {.name = NULL},
};
