/* tokens.c: reads lines of NAME ROLE TOKEN. */
#include "config/tokens.h"

#include <string.h>

#define BLANKS " \t\r"
#define ADVICE \
    "a line is NAME ROLE TOKEN, as in: alice operator 5dX…; roles are viewer, operator, admin"
#define WORD_SET "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

const char *access_role_name(enum access_role role)
{
    static const char *const names[] = {
        [ACCESS_VIEWER] = "viewer", [ACCESS_OPERATOR] = "operator", [ACCESS_ADMIN] = "admin"};

    return names[role];
}

/* Takes the next word of the line. */
static struct span tokens_word(struct span *line)
{
    struct span word = {line->bytes, 0};

    while (line->length > 0 && strchr(BLANKS, line->bytes[0]) != NULL)
        *line = (struct span){line->bytes + 1, line->length - 1};
    word.bytes = line->bytes;
    while (word.length < line->length && strchr(BLANKS, line->bytes[word.length]) == NULL)
        word.length++;
    *line = (struct span){line->bytes + word.length, line->length - word.length};
    return word;
}

static bool tokens_is_name(struct span word)
{
    if (word.length == 0 || word.length > NAMED_TOKEN_NAME_MAX)
        return false;
    for (size_t i = 0; i < word.length; i++)
        if (memchr(WORD_SET, word.bytes[i], sizeof(WORD_SET) - 1) == NULL)
            return false;
    return true;
}

static bool tokens_is_token(struct span word)
{
    for (size_t i = 0; i < word.length; i++)
        if (word.bytes[i] <= ' ' || word.bytes[i] > '~')
            return false;
    return word.length >= NAMED_TOKEN_MIN;
}

static enum access_role tokens_role(struct span word)
{
    for (enum access_role role = ACCESS_VIEWER; role <= ACCESS_ADMIN; role++)
        if (span_equal(word, span_of(access_role_name(role))))
            return role;
    return ACCESS_NOTHING;
}

/* What is wrong with the line, or NULL. */
static const char *tokens_read_line(struct span line, struct named_token *token,
                                    const struct named_token *others, size_t other_count)
{
    struct span name = tokens_word(&line);

    token->role = tokens_role(tokens_word(&line));
    token->token = tokens_word(&line);
    if (!tokens_is_name(name))
        return "the name must be 1 to 32 characters of A-Z a-z 0-9 . _ -";
    if (token->role == ACCESS_NOTHING || tokens_word(&line).length > 0)
        return ADVICE;
    if (!tokens_is_token(token->token))
        return "the token must be at least 16 visible ASCII characters";
    memcpy(token->name, name.bytes, name.length);
    token->name[name.length] = '\0';
    for (size_t i = 0; i < other_count; i++)
        if (strcmp(others[i].name, token->name) == 0 || span_equal(others[i].token, token->token))
            return "the name or the token is there twice";
    return NULL;
}

enum status named_tokens_read(struct span text, struct named_token tokens[NAMED_TOKENS_MAX],
                              size_t *count, struct error *error)
{
    int number = 0;

    *count = 0;
    while (text.length > 0) {
        const char *end = memchr(text.bytes, '\n', text.length);
        struct span line = {text.bytes, end != NULL ? (size_t)(end - text.bytes) : text.length};
        size_t used = line.length + (end != NULL ? 1 : 0);
        struct span rest = line;
        struct span first = tokens_word(&rest);
        number++;
        text = (struct span){text.bytes + used, text.length - used};
        if (first.length == 0 || first.bytes[0] == '#')
            continue;
        const char *wrong = *count == NAMED_TOKENS_MAX
                                ? "there may be 64 at most"
                                : tokens_read_line(line, &tokens[*count], tokens, *count);
        if (wrong != NULL)
            return error_set(error, STATUS_INVALID, "line %d: %s", number, wrong);
        ++*count;
    }
    return STATUS_OK;
}
