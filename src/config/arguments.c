/* arguments.c: cuts flags into name and value. */
#include "config/arguments.h"

#include <stdio.h>
#include <string.h>

void arguments_begin(struct arguments *arguments, int argc, char *const *argv)
{
    *arguments = (struct arguments){.argv = argv, .argc = argc};
}

bool arguments_next(struct arguments *arguments, struct argument *argument)
{
    if (arguments->next >= arguments->argc) {
        return false;
    }
    const char *text = arguments->argv[arguments->next++];
    if (!arguments->words_only && strcmp(text, "--") == 0) {
        arguments->words_only = true;
        return arguments_next(arguments, argument);
    }
    *argument = (struct argument){.text = text, .text_length = (int)strlen(text)};
    if (arguments->words_only || text[0] != '-' || text[1] == '\0') {
        return true;
    }
    argument->is_flag = true;
    const char *name = text + (text[1] == '-' ? 2 : 1);
    const char *equals = strchr(name, '=');
    argument->text_length = (int)strcspn(text, "=");
    size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);
    snprintf(argument->name, sizeof(argument->name), "%.*s", (int)length, name);
    argument->value = equals != NULL ? equals + 1 : NULL;
    return true;
}

const char *arguments_value(struct arguments *arguments, const struct argument *argument)
{
    if (argument->value != NULL) {
        return argument->value;
    }
    if (arguments->next >= arguments->argc) {
        return NULL;
    }
    const char *text = arguments->argv[arguments->next];
    if (strncmp(text, "--", 2) == 0) {
        return NULL;
    }
    arguments->next++;
    return text;
}
