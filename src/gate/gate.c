/* gate.c: what every gate shares: opening by URL, and the checks that no backend should repeat. */
#include "gate/gate.h"

#include <string.h>

#include "gate/local.h"
#include "gate/redis.h"

static void gate_check_ops(const struct gate_ops *ops)
{
    ensure(ops->name && ops->close && ops->policy_set && ops->announce && ops->lend &&
           ops->recall && ops->restore && ops->restore_key && ops->line_open && ops->line_close &&
           ops->claim && ops->acknowledge && ops->settle && ops->block && ops->find && ops->count &&
           ops->look && ops->list && ops->stands && ops->visit && ops->pending &&
           ops->acknowledge_keys && ops->can_move && ops->take_over && ops->reset && ops->moment &&
           ops->arm && ops->renewal_begin && ops->renew && ops->enter && ops->leases &&
           ops->retire && ops->publish && ops->published && ops->inspect && ops->strays &&
           ops->mend && ops->lay_down && ops->enumerate && ops->suspend && ops->forget &&
           ops->is_ready && ops->survey && ops->place);
}

enum status gate_open(struct gate **gate, const struct gate_options *options, struct error *error)
{
    enum status status = strcmp(options->url, "local") == 0 ? gate_local_open(gate, options, error)
                                                            : gate_redis_open(gate, options, error);
    if (status == STATUS_OK)
        gate_check_ops((*gate)->ops);
    return status;
}

void gate_close(struct gate *gate)
{
    if (gate != NULL)
        gate->ops->close(gate);
}

enum status gate_policy_set(struct gate *gate, const struct policy *policy, struct error *error)
{
    ensure(policy->id >= 1 && policy->id <= POLICY_ID_MAX);
    ensure(policy->per_user_limit >= 1 && policy->per_user_limit <= PER_USER_LIMIT_MAX);
    return gate->ops->policy_set(gate, policy, error);
}

enum status gate_announce(struct gate *gate, int64_t policy_id, int64_t count, int64_t *wait_ms,
                          struct error *error)
{
    return gate->ops->announce(gate, policy_id, count, wait_ms, error);
}

enum status gate_lend(struct gate *gate, const struct lease *lease, int64_t given_count,
                      int64_t term, struct error *error)
{
    ensure(lease->count >= 0 && given_count >= 0 && given_count <= lease->count);
    return gate->ops->lend(gate, lease, given_count, term, error);
}

enum status gate_recall(struct gate *gate, int64_t policy_id, int64_t count,
                        struct lease_shrunk *shrunk, size_t *shrunk_count, struct error *error)
{
    ensure(count >= 0);
    return gate->ops->recall(gate, policy_id, count, shrunk, shrunk_count, error);
}

enum status gate_restore(struct gate *gate, const struct claim *claim, enum coupon_state state,
                         struct error *error)
{
    return gate->ops->restore(gate, claim, state, error);
}

enum status gate_restore_key(struct gate *gate, const struct key_binding *binding,
                             struct error *error)
{
    return gate->ops->restore_key(gate, binding, error);
}

enum status gate_line_open(struct gate *gate, const struct gate_line_options *options,
                           struct gate_line **line, struct error *error)
{
    return gate->ops->line_open(gate, options, line, error);
}

void gate_line_close(struct gate_line *line)
{
    if (line != NULL)
        line->gate->ops->line_close(line);
}

bool gate_claim(struct gate_line *line, struct gate_batch *batch, int64_t now_ms)
{
    return line->gate->ops->claim(line, batch, now_ms);
}

void gate_acknowledge(struct gate *gate, const struct claim *claims,
                      const enum coupon_state *states, size_t count)
{
    gate->ops->acknowledge(gate, claims, states, count);
}

enum status gate_settle(struct gate *gate, int64_t policy_id, const struct user_id *user,
                        int64_t seq, enum coupon_state state, struct error *error)
{
    return gate->ops->settle(gate, policy_id, user, seq, state, error);
}

enum status gate_block(struct gate *gate, const struct user_id *user, bool blocked,
                       struct error *error)
{
    return gate->ops->block(gate, user, blocked, error);
}

enum status gate_find(struct gate *gate, int64_t policy_id, const struct user_id *user,
                      struct gate_claim *claims, size_t claims_max, size_t *count,
                      struct error *error)
{
    return gate->ops->find(gate, policy_id, user, claims, claims_max, count, error);
}

enum status gate_count(struct gate *gate, int64_t policy_id, int64_t now_ms,
                       struct gate_numbers *numbers)
{
    return gate->ops->count(gate, policy_id, now_ms, numbers);
}

enum status gate_look(struct gate *gate, int64_t policy_id, struct error *error)
{
    return gate->ops->look(gate, policy_id, error);
}

size_t gate_list(struct gate *gate, int64_t after_id, int64_t *ids, size_t ids_max)
{
    return gate->ops->list(gate, after_id, ids, ids_max);
}

bool gate_stands(struct gate *gate, const struct wish *wish)
{
    return gate->ops->stands(gate, wish);
}

size_t gate_place(struct gate *gate, int64_t policy_id)
{
    return gate->ops->place(gate, policy_id);
}

enum status gate_pending(struct gate *gate, int64_t policy_id, int64_t after_seq,
                         struct gate_pending *pending, struct error *error)
{
    return gate->ops->pending(gate, policy_id, after_seq, pending, error);
}

enum status gate_acknowledge_keys(struct gate *gate, const struct key_binding *bindings,
                                  size_t count, struct error *error)
{
    return count == 0 ? STATUS_OK : gate->ops->acknowledge_keys(gate, bindings, count, error);
}

bool gate_can_move(const struct gate *gate)
{
    return gate->ops->can_move(gate);
}

enum status gate_take_over(struct gate *gate, int64_t policy_id, int64_t term, int64_t previous,
                           bool *is_continuous, struct error *error)
{
    *is_continuous = false;
    return gate->ops->take_over(gate, policy_id, term, previous, is_continuous, error);
}

enum status gate_reset(struct gate *gate, int64_t policy_id, int64_t last_seq, int64_t term,
                       struct error *error)
{
    return gate->ops->reset(gate, policy_id, last_seq, term, error);
}

enum status gate_moment(struct gate *gate, int64_t policy_id, struct gate_moment *moment,
                        struct error *error)
{
    *moment = (struct gate_moment){0};
    return gate->ops->moment(gate, policy_id, moment, error);
}

enum status gate_arm(struct gate *gate, int64_t policy_id, int64_t active_count,
                     const struct gate_arming *arming, struct error *error)
{
    return gate->ops->arm(gate, policy_id, active_count, arming, error);
}

bool gate_renewal_begin(struct gate *gate, int64_t pause_ms)
{
    return gate->ops->renewal_begin(gate, pause_ms);
}

void gate_renew(struct gate *gate, const struct gate_term *terms, size_t count, int64_t length_ms,
                bool is_confirmed)
{
    gate->ops->renew(gate, terms, count, length_ms, is_confirmed);
}

enum status gate_enter(struct gate *gate, int64_t policy_id, const struct claim *claims,
                       const enum coupon_state *states, size_t count, struct error *error)
{
    return gate->ops->enter(gate, policy_id, claims, states, count, error);
}

enum status gate_leases(struct gate *gate, int64_t policy_id, struct gate_lease **leases,
                        size_t *count, int64_t *highest_id, struct error *error)
{
    return gate->ops->leases(gate, policy_id, leases, count, highest_id, error);
}

enum status gate_retire(struct gate *gate, int64_t policy_id, int64_t seconds, struct error *error)
{
    return gate->ops->retire(gate, policy_id, seconds, error);
}

enum status gate_publish(struct gate *gate, int64_t policy_id, const char *token, int64_t *mark,
                         struct error *error)
{
    return gate->ops->publish(gate, policy_id, token, mark, error);
}

enum status gate_published(struct gate *gate, int64_t policy_id, const char *token, int64_t seq,
                           struct error *error)
{
    return gate->ops->published(gate, policy_id, token, seq, error);
}

bool gate_is_ready(struct gate *gate, struct error *words)
{
    return gate->ops->is_ready(gate, words);
}

enum status gate_survey(struct gate *gate, int64_t policy_id, struct gate_survey *survey,
                        struct error *error)
{
    return gate->ops->survey(gate, policy_id, survey, error);
}

enum status gate_visit(struct gate *gate, int64_t policy_id, const struct gate_visitor *visitor,
                       struct error *error)
{
    return gate->ops->visit(gate, policy_id, visitor, error);
}

enum status gate_inspect(struct gate *gate, int64_t policy_id, struct gate_state *state,
                         struct error *error)
{
    *state = (struct gate_state){0};
    return gate->ops->inspect(gate, policy_id, state, error);
}

enum status gate_strays(struct gate *gate, int64_t policy_id, struct claim *strays, size_t max,
                        size_t *count, struct error *error)
{
    *count = 0;
    return gate->ops->strays(gate, policy_id, strays, max, count, error);
}

enum status gate_mend(struct gate *gate, int64_t policy_id, const struct gate_mend *mends,
                      size_t count, int64_t *changed_count, struct error *error)
{
    *changed_count = 0;
    return count == 0 ? STATUS_OK
                      : gate->ops->mend(gate, policy_id, mends, count, changed_count, error);
}

enum status gate_lay_down(struct gate *gate, int64_t policy_id, struct error *error)
{
    return gate->ops->lay_down(gate, policy_id, error);
}

enum status gate_enumerate(struct gate *gate, int64_t **ids, size_t *count, struct error *error)
{
    *ids = NULL;
    *count = 0;
    return gate->ops->enumerate(gate, ids, count, error);
}

enum status gate_suspend(struct gate *gate, int64_t policy_id, struct error *error)
{
    return gate->ops->suspend(gate, policy_id, error);
}

enum status gate_forget(struct gate *gate, int64_t policy_id, struct error *error)
{
    return gate->ops->forget(gate, policy_id, error);
}
