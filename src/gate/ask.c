/* ask.c: one wish, decided on a loop of its own. */
#include <uv.h>

#include "gate/gate.h"

struct gate_question {
    uv_loop_t loop;
    bool is_decided;
};

static void gate_question_decided(void *context, struct gate_batch *batch)
{
    struct gate_question *question = context;

    (void)batch;
    question->is_decided = true;
    uv_stop(&question->loop);
}

/* A gate that decides at once needs no loop to wait on. */
static enum status gate_ask_at_once(struct gate *gate, struct gate_batch *batch, int64_t now_ms,
                                    struct error *error)
{
    struct gate_line_options options = {.loop = NULL};
    struct gate_line *line = NULL;
    enum status status = gate_line_open(gate, &options, &line, error);

    if (status == STATUS_OK) {
        ensure(gate_claim(line, batch, now_ms));
        gate_line_close(line);
    }
    return status;
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
    if (gate->ops->decides_at_once)
        return gate_ask_at_once(gate, &batch, now_ms, error);
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
