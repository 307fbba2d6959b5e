/* fuzz_config.c: any bytes as a settings file, as flags or as environment variables.
 *
 * The first byte picks the source. Whatever is accepted must print, and what was printed must be
 * accepted again and print the same: a setting that cannot be written down as it is shown would
 * mislead whoever copies it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/layer.h"
#include "config/value.h"

#define WORDS_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Cuts the text at newlines into strings that end at a NULL. */
static int cut(char *text, char *words[WORDS_MAX + 1])
{
    int count = 0;
    for (char *line = text; line != NULL && count < WORDS_MAX;) {
        char *newline = strchr(line, '\n');
        if (newline != NULL)
            *newline++ = '\0';
        words[count++] = line;
        line = newline;
    }
    words[count] = NULL;
    return count;
}

static enum status read_layer(struct config_layer *layer, int source, char *text, size_t length,
                              struct error *error)
{
    char *words[WORDS_MAX + 1];
    switch (source % 3) {
    case 0:
        return config_layer_read_text(layer, "dibs.conf", (struct span){text, length}, error);
    case 1: {
        int count = cut(text, words);
        return config_layer_read_flags(layer, count, words, error);
    }
    default:
        cut(text, words);
        return config_layer_read_environment(layer, words, error);
    }
}

static void check_round_trip(struct config *config)
{
    struct buffer first;
    struct buffer second;
    struct error error;
    buffer_init(&first, CONFIG_VALUE_LENGTH_MAX * 4);
    buffer_init(&second, CONFIG_VALUE_LENGTH_MAX * 4);
    for (size_t i = 0; i < config_key_count; i++) {
        if (config_keys[i].type == CONFIG_SECRET)
            continue;
        buffer_clear(&first);
        buffer_clear(&second);
        config_append_value(&first, config, &config_keys[i]);
        const char *shown = first.length > 0 ? first.bytes : "";
        /* Joining a list with ", " can make it a little longer than a value may be. */
        if (first.length <= CONFIG_VALUE_LENGTH_MAX)
            ensure(config_value_set(config, &config_keys[i], shown, &error) == STATUS_OK);
        config_append_value(&second, config, &config_keys[i]);
        ensure(span_equal((struct span){first.bytes, first.length},
                          (struct span){second.bytes, second.length}));
    }
    buffer_release(&first);
    buffer_release(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size == 0 || size > CONFIG_FILE_LENGTH_MAX)
        return 0;
    char *text = calloc(1, size);
    memcpy(text, bytes + 1, size - 1);
    struct error error = {{0}};
    struct config config;
    struct config_layer layer = {0};
    /* Nothing from this machine: neither its environment nor a dibs.conf in this folder. */
    ensure(config_load(&config, 1, (char *[]){(char[]){"--config=/dev/null"}}, NULL, &error) ==
           STATUS_OK);
    enum status status = read_layer(&layer, bytes[0], text, size - 1, &error);
    if (status == STATUS_OK)
        status = config_layer_apply(&layer, &config, &error);
    if (status == STATUS_OK) {
        (void)!config_check(&config, &error);
        check_round_trip(&config);
    } else {
        ensure(error.text[0] != '\0');
    }
    config_layer_release(&layer);
    config_release(&config);
    free(text);
    return 0;
}
