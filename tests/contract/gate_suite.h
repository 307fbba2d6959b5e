/* gate_suite.h: what every gate must do, run on each backend.
 *
 * A backend's program provides gate_suite_open() and gate_suite_claim(), and lists gate_suite_run()
 * as its main.
 */
#ifndef CONTRACT_GATE_SUITE_H
#define CONTRACT_GATE_SUITE_H

#include "gate/gate.h"

/* Opens a fresh, empty gate that hands its winners to `outlet`. */
struct gate *gate_suite_open(struct gate_outlet outlet);

/* Decides wishes through a line of its own, and waits for the verdicts. From any thread. */
void gate_suite_claim(struct gate *gate, int64_t policy_id, struct wish **wishes, size_t count,
                      int64_t now_ms);

int gate_suite_run(void);

/* The part about gate_visit(); gate_suite_run() runs it too. */
int gate_visit_suite_run(void);

#endif
