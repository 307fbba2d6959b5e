/* main.c: the lab: the known ways of handing out coupons, side by side.
 *
 * usage: dibs-lab [--quick] [--scenario NAME,…] [--only NAME,…] [--rounds N] [--report FILE] …
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "lab/front.h"
#include "lab/options.h"
#include "lab/proxy.h"
#include "lab/session.h"
#include "lab/table.h"

#define PAGE_MAX        (4 << 20)
#define PROMISED_ROUNDS 50
#define EXIT_BROKEN     3

/* --- as a process of a run --- */

/* argv: role, strategy, Redis, database, Kafka, tallies, flags. */
static int run_role(struct lab_options *options, int argc, char **argv)
{
    struct error error;
    int code;
    struct lab_process process = {.strategy = argc > 6 ? lab_strategy_find(argv[2]) : NULL};
    if (process.strategy == NULL || !lab_options_read(options, argc, argv, 7, &code) ||
        !lab_tallies_open(argv[6]))
        return 2;
    process.redis_address = argv[3];
    process.database = argv[4];
    process.kafka_address = argv[5];
    process.knobs = options->setting.knobs;
    process.knobs.seed = options->setting.shape.seed;
    process.kill_at = options->kill_at;
    if (strcmp(argv[1], "worker") == 0)
        lab_worker_run(&process);
    else if (lab_front_run(&process, options->port, &error) != STATUS_OK) {
        fprintf(stderr, "dibs-lab front: %s\n", error.text);
        return 1;
    }
    return 0;
}

/* --- a session --- */

/* Without names, whatever is set by flags is one storm of its own. */
static const struct lab_scenario own_scenario = {
    .name = "yours", .title = "Your setting", .words = "As the flags have it."};

static void set_quick(struct lab_setting *setting)
{
    setting->knobs.total = 200;
    setting->shape.users = 400;
}

static const struct lab_scenario quick_scenario = {
    .name = "quick",
    .title = "A small rush",
    .words = "200 coupons, 400 people in bursts of 200; one in ten presses twice.",
    .set = set_quick};

static void book_add(struct lab_book *book, const struct lab_options *options,
                     const struct lab_scenario *scenario)
{
    struct lab_setting *setting = &book->settings[book->scenario_count];
    *setting = lab_setting_usual;
    if (scenario->set != NULL)
        scenario->set(setting);
    lab_options_apply(options, setting);
    setting->dibs = options->dibs;
    book->scenarios[book->scenario_count++] = scenario;
}

static bool book_may(const struct lab_book *book, const struct lab_options *options,
                     size_t scenario, size_t contestant)
{
    const struct lab_scenario *one = book->scenarios[scenario];
    const struct lab_contestant *design = book->contestants[contestant];
    const struct lab_setting *setting = &book->settings[scenario];
    /* Somebody else's Redis is not killed. */
    return (one->concerns == NULL || one->concerns(design)) &&
           (options->redis == NULL || setting->fault != LAB_REDIS_KILLED) &&
           (!options->is_promised || lab_promises(design, setting));
}

/* Each design takes what it promises in turn; else every round is of everything. */
static bool book_wants(const struct lab_book *book, const struct lab_options *options,
                       size_t scenario, size_t contestant, int round)
{
    int before = 0, all = 0;
    if (!book_may(book, options, scenario, contestant))
        return false;
    for (size_t i = 0; i < book->scenario_count; i++) {
        bool may = book_may(book, options, i, contestant);
        before += may && i < scenario;
        all += may;
    }
    return !options->is_promised || round % all == before;
}

static void book_plan(struct lab_book *book, const struct lab_options *options)
{
    for (size_t i = 0; lab_contestants[i].name != NULL; i++)
        if (lab_is_listed(options->only, lab_contestants[i].name) &&
            (!options->is_promised || lab_is_reference(&lab_contestants[i])))
            book->contestants[book->contestant_count++] = &lab_contestants[i];
    if (options->is_quick)
        book_add(book, options, &quick_scenario);
    else if (options->given_count > 0 && options->scenarios == NULL && !options->is_promised)
        book_add(book, options, &own_scenario);
    else
        for (size_t i = 0; lab_scenarios[i].name != NULL; i++)
            if (lab_is_listed(options->scenarios, lab_scenarios[i].name))
                book_add(book, options, &lab_scenarios[i]);
    book->seed = book->settings[0].shape.seed;
}

/* A promise that was not kept; false: it was. */
static bool show_broken(const struct lab_book *book, size_t scenario, size_t contestant,
                        uint64_t seed, const struct lab_figures *figures)
{
    char words[256];
    struct lab_result run = {0};
    lab_result_add(&run, figures);
    if (run.right > 0)
        return false;
    lab_result_tell(&run, words, sizeof(words));
    fprintf(stderr, "broken: %s, --scenario %s --seed %llu: %s\n",
            book->contestants[contestant]->name, book->scenarios[scenario]->name,
            (unsigned long long)seed, words);
    return true;
}

static enum status run_scenario(struct lab_book *book, const struct lab_options *options,
                                struct lab_servers *servers, struct lab_progress *progress,
                                size_t scenario, struct error *error)
{
    struct lab_setting setting = book->settings[scenario];
    progress->scenario = book->scenarios[scenario]->name;
    setting.on_progress = lab_progress_show;
    setting.context = progress;
    for (int round = 0; round < options->rounds; round++, setting.shape.seed++)
        for (size_t i = 0; i < book->contestant_count; i++) {
            struct lab_figures figures;
            if (!book_wants(book, options, scenario, i, round))
                continue;
            progress->design = book->contestants[i]->name;
            progress->run++;
            lab_progress_show(progress, 0, 0);
            enum status status = lab_run(&figures, servers, book->contestants[i], &setting, error);
            lab_progress_clear();
            if (status != STATUS_OK) {
                fprintf(stderr, "dibs-lab: %s, %s: %s\n", progress->scenario, progress->design,
                        error->text);
                return status;
            }
            lab_result_add(&book->results[scenario][i], &figures);
            book->is_broken |= options->is_promised &&
                               show_broken(book, scenario, i, setting.shape.seed, &figures);
            if (options->is_json)
                lab_table_json(book->contestants[i], book->scenarios[scenario], setting.shape.seed,
                               &figures);
        }
    if (!options->is_json)
        lab_table_scenario(book, scenario);
    return STATUS_OK;
}

static int write_file(const char *name, const struct lab_book *book,
                      void (*append)(struct buffer *, const struct lab_book *))
{
    struct buffer page;
    if (name == NULL)
        return 0;
    buffer_init(&page, PAGE_MAX);
    append(&page, book);
    FILE *file = fopen(name, "we");
    bool is_written =
        file != NULL && !page.overflowed && fwrite(page.bytes, 1, page.length, file) == page.length;
    if (file != NULL && fclose(file) != 0)
        is_written = false;
    buffer_release(&page);
    fprintf(stderr, "%s%s\n", is_written ? "written: " : "dibs-lab: cannot write ", name);
    return is_written ? 0 : 1;
}

static int show_again(struct lab_book *book, const struct lab_options *options)
{
    if (!lab_table_recall(book, options->from)) {
        fprintf(stderr, "dibs-lab: cannot read %s\n", options->from);
        return 1;
    }
    for (size_t i = 0; i < book->scenario_count; i++)
        lab_table_scenario(book, i);
    lab_table_all(book);
    return write_file(options->report, book, lab_report) |
           write_file(options->picture, book, lab_picture);
}

static int run_session(struct lab_book *book, const struct lab_options *options,
                       struct lab_servers *servers)
{
    struct error error;
    struct lab_progress progress = {.start_ms = clock_monotonic_ms()};
    for (size_t i = 0; i < book->scenario_count; i++)
        for (size_t j = 0; j < book->contestant_count; j++)
            for (int round = 0; round < options->rounds; round++)
                progress.run_count += book_wants(book, options, i, j, round);
    for (size_t i = 0; i < book->scenario_count; i++)
        if (run_scenario(book, options, servers, &progress, i, &error) != STATUS_OK)
            return 1;
    book->seconds = (double)(clock_monotonic_ms() - progress.start_ms) / 1000;
    if (!options->is_json)
        lab_table_all(book);
    if (options->is_promised)
        fprintf(stderr, "%zu runs with faults: %s\n", progress.run_count,
                book->is_broken ? "a promise is BROKEN" : "every promise is kept");
    int code = write_file(options->report, book, lab_report) |
               write_file(options->picture, book, lab_picture);
    return code == 0 && book->is_broken ? EXIT_BROKEN : code;
}

static struct lab_servers servers;

static void stop(int number)
{
    lab_servers_abandon(&servers);
    _exit(128 + number);
}

int main(int argc, char **argv)
{
    static char program[4096], dibs[4200];
    static struct lab_book book;
    static struct lab_options options = {0};
    struct error error;
    int code;

    options.setting = lab_setting_usual;
    if (argc > 1 && (strcmp(argv[1], "front") == 0 || strcmp(argv[1], "worker") == 0))
        return run_role(&options, argc, argv);
    if (argc == 5 && strcmp(argv[1], "proxy") == 0)
        return lab_proxy_run(atoi(argv[2]), argv[3], atoi(argv[4]));
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    ensure(length > 0);
    snprintf(dibs, sizeof(dibs), "%.*s/../dibs", (int)(strrchr(program, '/') - program), program);
    servers.program = program;
    options.dibs = dibs;
    if (!lab_options_read(&options, argc, argv, 1, &code))
        return code;
    if (options.rounds == 0)
        options.rounds = options.is_promised ? PROMISED_ROUNDS : 1;
    book.rounds = options.rounds;
    book_plan(&book, &options);
    if (options.from != NULL)
        return show_again(&book, &options);
    code = 1;
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    if (lab_servers_start(&servers, options.redis, options.postgres, &error) != STATUS_OK)
        fprintf(stderr, "dibs-lab: %s\n", error.text);
    else
        code = run_session(&book, &options, &servers);
    lab_servers_stop(&servers, code != 0);
    return code;
}
