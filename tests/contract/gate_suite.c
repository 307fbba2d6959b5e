/* gate_suite.c: all parts of the gate's contract. */
#include "gate_suite.h"

int gate_suite_run(void)
{
    return gate_suite_stock_run() + gate_suite_people_run() + gate_suite_race_run() +
           gate_visit_suite_run();
}
