/* gate.c: what every gate shares: opening by URL, and the checks that no backend should repeat. */
#include "gate/gate.h"

#include <string.h>
#include <uv.h>

#include "gate/shared.h"

static void gate_check_ops(const struct gate_ops *ops)
{
    ensure(ops->name && ops->close && ops->policy_set && ops->lend && ops->recall && ops->restore &&
           ops->restore_key && ops->line_open && ops->line_close && ops->claim &&
           ops->acknowledge && ops->settle && ops->block && ops->find && ops->count && ops->list &&
           ops->inspect && ops->visit);
}

enum status gate_open(struct gate **gate, const struct gate_options *options, struct error *error)
{
    enum status status = strcmp(options->url, "local") == 0 ? gate_local_open(gate, options, error)
                                                            : gate_redis_open(gate, options, error);
    if (status == STATUS_OK)
        gate_check_ops((*gate)->ops);
    return status;
}

struct shared_gate *gate_shared(struct gate *gate)
{
    return gate->ops == &gate_redis_ops ? (struct shared_gate *)gate : NULL;
}

/* --- one wish, decided on a loop of its own --- */

struct gate_question {
    uv_loop_t loop;
    bool is_decided;
};

static void gate_question_decided(void *context, struct gate_batch *batch)
{
    struct gate_question *question = context;

    question->is_decided = true;
    uv_stop(&question->loop);
}

enum status gate_ask(struct gate *gate, struct wish *wish, int64_t now_ms, struct error *error)
{
    struct gate_question question = {.is_decided = false};
    struct wish *wishes[] = {wish};
    struct gate_batch batch = {.policy_id = wish->policy_id, .wishes = wishes, .count = 1};
    struct gate_line_options options = {
        .loop = &question.loop, .decided = gate_question_decided, .context = &question};
    struct gate_line *line = NULL;

    wish->verdict = VERDICT_UNDECIDED;
    wish->is_accepted = wish->is_away = false;
    if (uv_loop_init(&question.loop) != 0)
        return error_set(error, STATUS_UNAVAILABLE, "no memory to ask the gate");
    enum status status = gate_line_open(gate, &options, &line, error);
    if (status == STATUS_OK) {
        question.is_decided = gate_claim(line, &batch, now_ms);
        /* A line keeps time, so that every batch is decided in the end. */
        while (!question.is_decided)
            uv_run(&question.loop, UV_RUN_DEFAULT);
        gate_line_close(line);
    }
    /* What the line has closed is let go. */
    while (uv_loop_close(&question.loop) == UV_EBUSY)
        uv_run(&question.loop, UV_RUN_DEFAULT);
    return status;
}
