/* actions.c: `dibs actions`: what operators did. */
#include "base/array.h"
#include "command/exchange.h"

int command_actions(const struct command_call *call)
{
    static const struct table_column columns[] = {
        COLUMN("ID", RIGHT, "id"),    COLUMN("AT", LEFT, "at"),         COLUMN("WHO", LEFT, "who"),
        COLUMN("WHAT", LEFT, "what"), COLUMN("TARGET", LEFT, "target"),
    };
    return exchange_list(call, &(struct exchange_listing){.path = "/v1/actions",
                                                          .columns = columns,
                                                          .column_count = COUNT_OF(columns),
                                                          .nothing = "Nobody has done anything."});
}
