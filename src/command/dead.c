/* dead.c: `dibs dead …`: claims that came to nothing: looked at, tried once more, put away. */
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "command/exchange.h"

int command_dead_list(const struct command_call *call)
{
    static const struct table_column columns[] = {
        COLUMN("ID", RIGHT, "id"),          COLUMN("USER", LEFT, "user"),
        COLUMN("DIED AT", LEFT, "died_at"), COLUMN("ATTEMPTS", RIGHT, "attempts"),
        COLUMN("REASON", LEFT, "reason"),
    };
    return exchange_list(call, &(struct exchange_listing){.path = "/v1/dead",
                                                          .columns = columns,
                                                          .column_count = COUNT_OF(columns),
                                                          .nothing = "There are no dead letters."});
}

/* "42-17" */
static bool is_dead_letter_id(const char *word)
{
    size_t policy = strspn(word, "0123456789");
    if (policy == 0 || policy > 16 || word[policy] != '-')
        return false;
    size_t seq = strspn(word + policy + 1, "0123456789");
    return seq > 0 && seq <= 16 && word[policy + 1 + seq] == '\0';
}

static int ask_about(const struct command_call *call, const char *method, const char *end,
                     void (*show)(yyjson_val *root))
{
    char path[96];
    if (!is_dead_letter_id(call->words[0]))
        return command_usage(call, "\"%s\" is not a dead letter's id, as in 42-17", call->words[0]);
    snprintf(path, sizeof(path), "/v1/dead/%s%s", call->words[0], end);
    return exchange_once(call, EXCHANGE_ADMIN,
                         &(struct client_request){.method = method, .path = path}, show);
}

static void show_retried(yyjson_val *root)
{
    static const struct table_column facts[] = {FACT("result", "result"), FACT("user", "user"),
                                                FACT("coupon", "coupon_id"), FACT("nth", "nth")};
    exchange_print_facts(root, facts, COUNT_OF(facts));
}

static void show_dropped(yyjson_val *root)
{
    static const struct table_column facts[] = {FACT("dropped", "id"), FACT("user", "user"),
                                                FACT("reason", "reason")};
    exchange_print_facts(root, facts, COUNT_OF(facts));
}

int command_dead_retry(const struct command_call *call)
{
    return ask_about(call, "POST", "/retry", show_retried);
}

int command_dead_drop(const struct command_call *call)
{
    return ask_about(call, "DELETE", "", show_dropped);
}
