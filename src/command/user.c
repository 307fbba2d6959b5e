/* user.c: `dibs user …`: a person is blocked, or erased. */
#include "base/array.h"
#include "base/json.h"
#include "base/url.h"
#include "command/exchange.h"

#define PATH_MAX_LENGTH 1024
#define BODY_SIZE       32
#define ERASE_WAIT_MS   60000 /* claims that are on their way to the ledger are waited for */

static void show_user(yyjson_val *root)
{
    static const struct table_column facts[] = {FACT("user", "user"), FACT("blocked", "blocked"),
                                                FACT("pseudonym", "pseudonym"),
                                                FACT("coupons", "coupons")};
    exchange_print_facts(root, facts, COUNT_OF(facts));
}

static int ask_about(const struct command_call *call, const char *method, const char *end,
                     const char *flag, bool value)
{
    struct buffer path;
    char text[BODY_SIZE];
    struct buffer body = {.bytes = text, .capacity = sizeof(text), .length_max = sizeof(text)};
    int code = exchange_check_id(call, "a user", call->words[0]);

    if (code != COMMAND_FINE)
        return code;
    buffer_init(&path, PATH_MAX_LENGTH);
    buffer_append_literal(&path, "/v1/users/");
    url_append_word(&path, span_of(call->words[0]));
    buffer_append_text(&path, end);
    buffer_printf(&body, "{\"%s\":%s}", flag, value ? "true" : "false");
    code = exchange_once(call, EXCHANGE_ADMIN,
                         &(struct client_request){.method = method,
                                                  .path = path.bytes,
                                                  .body = buffer_span(&body),
                                                  .extra_timeout_ms = ERASE_WAIT_MS},
                         show_user);
    buffer_release(&path);
    return code;
}

int command_user_block(const struct command_call *call)
{
    return ask_about(call, "PUT", "", "blocked", true);
}

int command_user_unblock(const struct command_call *call)
{
    return ask_about(call, "PUT", "", "blocked", false);
}

int command_user_erase(const struct command_call *call)
{
    return ask_about(call, "POST", "/erase", "anyway", command_option(call, "anyway") != NULL);
}
