/* reference.c: docs/configuration.md, written from the table so that it cannot go stale. */
#include <stdio.h>
#include <string.h>

#include "config/config.h"

/* Text for a cell of a Markdown table. */
static void append_cell(struct buffer *out, const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '|' || *at == '*')
            buffer_append_text(out, "\\");
        buffer_append(out, at, 1);
    }
}

static void append_kind(struct buffer *out, const struct config_key *key)
{
    size_t before = out->length;
    config_append_allowed(out, key);
    if (out->length != before)
        return;
    switch (key->type) {
    case CONFIG_ADDRESS:
        buffer_append_text(out, "address:port");
        break;
    case CONFIG_URL:
        buffer_append_text(out, "a URL");
        break;
    case CONFIG_FILE:
        buffer_append_text(out, "a path");
        break;
    case CONFIG_LIST:
        buffer_append_text(out, "a list");
        break;
    default:
        buffer_append_text(out, "text");
        break;
    }
}

static void append_row(struct buffer *out, const struct config_key *key)
{
    buffer_append_text(out, "| ");
    if (config_key_has_flag(key)) {
        buffer_printf(out, "`%s`", key->name);
    } else {
        buffer_append_text(out, "`");
        config_append_variable(out, key);
        buffer_append_text(out, "`");
    }
    buffer_append_text(out, " | ");
    if (key->fallback[0] != '\0')
        buffer_printf(out, "`%s`", key->fallback);
    buffer_append_text(out, " | ");
    append_kind(out, key);
    buffer_append_text(out, " | ");
    append_cell(out, key->help);
    if (key->example != NULL && strcmp(key->example, key->fallback) != 0)
        buffer_printf(out, " Example: `%s`", key->example);
    buffer_append_text(out, " |\n");
}

static void append_introduction(struct buffer *out)
{
    buffer_append_text(
        out,
        "<!-- Written by `dibs manual configuration`; edit src/config/table.c instead. -->\n"
        "# Configuration\n"
        "\n"
        "Every setting has one name and three places to be set. The first of these that sets it "
        "wins:\n"
        "\n"
        "1. a flag: `dibs serve --ack-timeout 2s` (or `--ack-timeout=2s`)\n"
        "2. the environment: `DIBS_ACK_TIMEOUT=2s`\n"
        "3. the settings file: `ack_timeout = 2s`\n"
        "\n"
        "The settings file is the one that `--config FILE` or `DIBS_CONFIG` names, else "
        "`dibs.conf` in the\n"
        "working folder when there is one. It holds one `key = value` per line; `#` or `;` begins "
        "a comment, and a\n"
        "list may go on in indented lines. A name that dibs does not know is an error, wherever it "
        "is said.\n"
        "\n"
        "`dibs config` prints every setting in effect and where it came from. Durations carry "
        "their unit: `500ms`,\n"
        "`5s`, `2m`, `1h`.\n"
        "\n"
        "**Secrets** come from a file of their own or from the environment, never from a flag or "
        "the settings file,\n"
        "and are never printed. A newline at the end of such a file is not a part of the secret; "
        "keep the file\n"
        "readable by dibs alone (`chmod 600`). A backend's URL may carry a password in the "
        "environment and in the settings file,\n"
        "which then wants `chmod 600` too; as a flag it is refused, because everyone on a machine "
        "can read the\n"
        "arguments of its processes. It is printed as `***`.\n");
}

static void append_sample(struct buffer *out)
{
    static const char *const shown[] = {"listen",
                                        "ledger",
                                        "ledger_password_file",
                                        "admin_token_file",
                                        "service_token_file",
                                        "rate_limit_user",
                                        "log_format"};
    buffer_append_text(out, "\n## A settings file\n\n```ini\n");
    for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
        const struct config_key *key = config_key_find(shown[i]);
        ensure(key != NULL);
        buffer_printf(out, "%s = %s\n", key->name, key->example);
    }
    buffer_append_text(out, "```\n");
}

void config_append_reference(struct buffer *out)
{
    append_introduction(out);
    const char *group = "";
    for (size_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        if (strcmp(group, key->group) != 0) {
            group = key->group;
            buffer_printf(out, "\n## %s\n\n| setting | default | allowed | what it does |\n",
                          group);
            buffer_append_text(out, "|---|---|---|---|\n");
        }
        append_row(out, key);
    }
    append_sample(out);
}
