/* local.h: the gate in process memory. Opened through gate_open(). */
#ifndef GATE_LOCAL_H
#define GATE_LOCAL_H

#include "gate/gate.h"

enum status gate_local_open(struct gate **gate, const struct gate_options *options,
                            struct error *error) MUST_CHECK;

#endif
