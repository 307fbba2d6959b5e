/* gate_suite.h: what every gate must do, run on each backend.
 *
 * A backend's program provides the functions below, runs gate_suite_run(), and adds the tests that
 * are only its own. What the suite knows of a gate it has from gate.h; how winners reach the
 * ledger, and by which clock the window is judged, differs.
 */
#pragma once

#include "gate/gate.h"

#define BINDINGS_MAX 256

/* Opens a fresh, empty gate; one at a time. */
struct gate *gate_suite_open(void);
void gate_suite_close(struct gate *gate);

/* The gate's clock. */
int64_t gate_suite_now_ms(void);

/* What the ledger has yet to write of a policy, in seq order. Returns how many claims there are;
 * `bindings` has BINDINGS_MAX places. */
size_t gate_suite_pending(struct gate *gate, int64_t policy_id, struct claim *claims,
                          size_t claims_max, struct key_binding *bindings, size_t *binding_count);

/* The ledger has the first `count` of those, and all bindings. */
void gate_suite_acknowledge(struct gate *gate, const struct claim *claims,
                            const enum coupon_state *states, size_t count,
                            const struct key_binding *bindings, size_t binding_count);

/* Runs all of it: how many tests failed. */
int gate_suite_run(void);

/* Its parts. */
int gate_suite_stock_run(void);
int gate_suite_people_run(void);
int gate_suite_race_run(void);
int gate_visit_suite_run(void);
