/* alone.h: what a gate that no other process shares answers to those who look after shared ones:
 * nothing is pending in it, and it is always armed.
 *
 * Threads: no state.
 */
#ifndef GATE_ALONE_H
#define GATE_ALONE_H

#include "gate/gate.h"

/* Slots of struct gate_ops. */
size_t gate_alone_place(struct gate *gate, int64_t policy_id);
enum status gate_alone_announce(struct gate *gate, int64_t policy_id, int64_t count,
                                int64_t *wait_ms, struct error *error);
enum status gate_alone_pending(struct gate *gate, int64_t policy_id, int64_t after_seq,
                               struct gate_pending *pending, struct error *error);
enum status gate_alone_acknowledge_keys(struct gate *gate, const struct key_binding *bindings,
                                        size_t count, struct error *error);
bool gate_alone_can_move(const struct gate *gate);
enum status gate_alone_take_over(struct gate *gate, int64_t policy_id, int64_t term,
                                 int64_t previous, bool *is_continuous, struct error *error);
enum status gate_alone_reset(struct gate *gate, int64_t policy_id, int64_t last_seq, int64_t term,
                             struct error *error);
enum status gate_alone_moment(struct gate *gate, int64_t policy_id, struct gate_moment *moment,
                              struct error *error);
enum status gate_alone_arm(struct gate *gate, int64_t policy_id, int64_t active_count,
                           const struct gate_arming *arming, struct error *error);
bool gate_alone_renewal_begin(struct gate *gate, int64_t pause_ms);
void gate_alone_renew(struct gate *gate, const struct gate_term *terms, size_t count,
                      int64_t length_ms, bool is_confirmed);
enum status gate_alone_enter(struct gate *gate, int64_t policy_id, const struct claim *claims,
                             const enum coupon_state *states, size_t count, struct error *error);
enum status gate_alone_leases(struct gate *gate, int64_t policy_id, struct gate_lease **leases,
                              size_t *count, int64_t *highest_id, struct error *error);
enum status gate_alone_retire(struct gate *gate, int64_t policy_id, int64_t seconds,
                              struct error *error);
enum status gate_alone_publish(struct gate *gate, int64_t policy_id, const char *token,
                               int64_t *mark, struct error *error);
enum status gate_alone_published(struct gate *gate, int64_t policy_id, const char *token,
                                 int64_t seq, struct error *error);
enum status gate_alone_strays(struct gate *gate, int64_t policy_id, struct claim *strays,
                              size_t max, size_t *count, struct error *error);
enum status gate_alone_mend(struct gate *gate, int64_t policy_id, const struct gate_mend *mends,
                            size_t count, int64_t *changed_count, struct error *error);
enum status gate_alone_lay_down(struct gate *gate, int64_t policy_id, struct error *error);
enum status gate_alone_enumerate(struct gate *gate, int64_t **ids, size_t *count,
                                 struct error *error);
enum status gate_alone_suspend(struct gate *gate, int64_t policy_id, struct error *error);
enum status gate_alone_forget(struct gate *gate, int64_t policy_id, struct error *error);
enum status gate_alone_look(struct gate *gate, int64_t policy_id, struct error *error);
bool gate_alone_is_ready(struct gate *gate, struct error *words);
enum status gate_alone_survey(struct gate *gate, int64_t policy_id, struct gate_survey *survey,
                              struct error *error);

#endif
