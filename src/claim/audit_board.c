/* audit_board.c: the ranking's board held against the ledger, day by day.
 *
 * A server has a board, its own or the one in Redis that all share; who serves nobody opens the
 * latter to look at it. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/zone.h"
#include "claim/audit_parts.h"
#include "ranking/compare.h"
#include "ranking/scoring.h"

#define LOOKS    3
#define PAUSE_MS 250

static enum status audit_board_compare(struct service *service, struct board_comparison *comparison,
                                       struct error *error)
{
    struct board *board = NULL;
    int64_t today = zone_day(service->zone, clock_wall_ms());

    if (service->ranking != NULL)
        return ranking_audit(service->ranking, comparison, NULL, 0, error);
    enum status status = service_open_board(service, &board, error);
    if (status == STATUS_OK)
        status = board_compare(board, service->ledger, today - board->days_max + 1, today,
                               comparison, NULL, 0, error);
    board_close(board);
    return status;
}

/* Whether there is a board to look at from here. */
static bool audit_board_is_here(const struct service *service)
{
    return service->ranking != NULL ||
           (service->gate->ops->is_shared && service->options.board != BOARD_LOCAL &&
            !scoring_is_on(&service->scoring));
}

void service_audit_board(struct service *service, struct board_audit *audit)
{
    *audit = (struct board_audit){.is_known = false};
    if (!audit_board_is_here(service) || ledger_is_behind(service->ledger))
        return;
    for (int i = 0; i < LOOKS; i++) {
        struct board_comparison comparison = {0};
        struct error error = {""};
        const struct timespec pause = {.tv_nsec = i > 0 ? PAUSE_MS * 1000000L : 0};
        nanosleep(&pause, NULL);
        if (audit_board_compare(service, &comparison, &error) != STATUS_OK) {
            log_event(LOG_WARN, "audit_failed", LOG_FIELD("status", LOG_TEXT("board")),
                      LOG_FIELD("error", LOG_TEXT(error.text)));
            *audit = (struct board_audit){.is_known = false};
            return;
        }
        *audit = (struct board_audit){.is_known = true,
                                      .kind = comparison.board,
                                      .is_built = comparison.is_built,
                                      .counters = comparison.counter_count,
                                      .differences = comparison.difference_count};
        /* One that stands for something else is wrong in all that it says. */
        if (comparison.is_built && !comparison.follows && audit->differences == 0)
            audit->differences = 1;
        if (!audit->is_built || audit->differences == 0)
            return;
    }
}

static enum status audit_board_build(struct service *service, struct error *error)
{
    struct board *board = NULL;

    if (service->ranking != NULL)
        return ranking_repair(service->ranking, error);
    enum status status = service_open_board(service, &board, error);
    if (status == STATUS_OK)
        status = ranking_build_board(board, service->ledger,
                                     zone_day(service->zone, clock_wall_ms()), error);
    board_close(board);
    return status;
}

enum status audit_board_repair(struct service *service, struct audit_repair *done,
                               struct error *error)
{
    struct board_audit audit;

    service_audit_board(service, &audit);
    if (!audit.is_known || audit.differences == 0)
        return STATUS_OK;
    struct ledger_repair_note note = {.asked_at_ms = clock_wall_ms()};
    snprintf(note.plan, sizeof(note.plan), "board %" PRId64, audit.differences);
    enum status status = ledger_repair_begin(service->ledger, &note, error);
    if (status != STATUS_OK)
        return status;
    status = audit_board_build(service, error);
    if (status == STATUS_BUSY)
        status = STATUS_OK; /* Another server is at it. */
    done->is_board_built = status == STATUS_OK;
    audit_note(service, &note,
               status == STATUS_OK ? "done; the board was built anew" : error->text);
    return status;
}
