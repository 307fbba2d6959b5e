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
    struct gate_options options = {.url = "local", .outlet = outlet};
    assert_int_equal(gate_open(&gate, &options, &error), STATUS_OK);
    return gate;
}

void gate_suite_claim(struct gate *gate, int64_t policy_id, struct wish **wishes, size_t count,
                      int64_t now_ms)
{
    struct gate_batch batch = {.policy_id = policy_id, .wishes = wishes, .count = count};
    struct gate_line_options options = {.loop = NULL};
    struct gate_line *line = NULL;
    struct error error;

    ensure(gate_line_open(gate, &options, &line, &error) == STATUS_OK);
    ensure(gate_claim(line, &batch, now_ms));
    gate_line_close(line);
}

int main(void)
{
    return gate_suite_run();
}
