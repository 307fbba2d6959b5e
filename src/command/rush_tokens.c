/* rush_tokens.c: whose tokens people press with in `dibs rush`: their own, where there is a key. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "command/rush.h"

#define KEY_LENGTH_MAX 4096
#define TOKENS_LAST_S  86400

/* The key of users' tokens, as the server reads its own: without a newline at the end. */
static int rush_take_key(struct rush *rush)
{
    char bytes[KEY_LENGTH_MAX];
    struct error error;
    const char *path = rush->options.user_key_file;
    FILE *file = fopen(path, "re");

    if (file == NULL)
        return command_fail(rush->exchange.call, "%s: %s", path, strerror(errno));
    size_t length = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    while (length > 0 && (bytes[length - 1] == '\n' || bytes[length - 1] == '\r'))
        length--;
    const char *audience = rush->options.user_audience;
    enum status status = rush_signer_init(&rush->signer, (struct span){bytes, length},
                                          audience != NULL ? audience : "", rush->run,
                                          clock_wall_ms() / 1000 + TOKENS_LAST_S, &error);
    explicit_bzero(bytes, sizeof(bytes));
    return status == STATUS_OK ? COMMAND_FINE
                               : command_fail(rush->exchange.call, "%s: %s", path, error.text);
}

/* Nobody could press: said before a policy is made. A server that does not tell is stormed. */
static int rush_check_tokens(struct rush *rush)
{
    if (!exchange_ask(&rush->exchange,
                      &(struct client_request){.method = "GET", .path = "/v1/session"}))
        return COMMAND_FAILED;
    bool takes_tokens = rush->exchange.answer.status == 200 &&
                        yyjson_is_true(yyjson_obj_get(rush->exchange.root, "user_tokens"));
    if (takes_tokens && rush->options.user_key_file == NULL)
        return command_fail(rush->exchange.call,
                            "this server takes users' own tokens only; give the key that signs "
                            "them with --user-key-file");
    return COMMAND_FINE;
}

int rush_take_tokens(struct rush *rush)
{
    int code = rush->options.user_key_file != NULL ? rush_take_key(rush) : COMMAND_FINE;

    return code == COMMAND_FINE ? rush_check_tokens(rush) : code;
}
