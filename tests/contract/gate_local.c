/* gate_local.c: the gate suite on the gate in process memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "gate_suite.h"

struct gate *gate_suite_open(struct gate_outlet outlet)
{
    struct gate *gate = NULL;
    struct error error;
    assert_int_equal(gate_open(&gate, "local", outlet, &error), STATUS_OK);
    return gate;
}

int main(void)
{
    return gate_suite_run();
}
