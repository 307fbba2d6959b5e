/* fuzz_url.c: any text as the URL of a backend.
 *
 * What is accepted keeps to what url.h says of its parts, and masking it changes nothing but the
 * passwords: the masked URL is accepted again with the same other parts, and masks to itself. Of
 * what is refused, the mask shows a beginning only.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static void check_parts(const struct url *url)
{
    ensure(url->scheme[0] != '\0' && url->path != NULL);
    ensure(url->password == NULL || url->user != NULL);
    ensure(url->host_count >= 1 && url->host_count <= URL_HOSTS_MAX);
    ensure(url->parameter_count <= URL_PARAMETERS_MAX);
    for (size_t i = 0; i < url->host_count; i++) {
        ensure(url->hosts[i].name != NULL && (url->host_count == 1 || url->hosts[i].name[0]));
        ensure(url->hosts[i].port >= 0 && url->hosts[i].port <= 65535);
    }
    for (size_t i = 0; i < url->parameter_count; i++) {
        const struct url_parameter *parameter = &url->parameters[i];
        ensure(parameter->name[0] != '\0' && strcmp(parameter->name, "socket") != 0);
        ensure(url_parameter(url, parameter->name) == parameter->value);
    }
}

static void check_same(const struct url *url, const struct url *masked)
{
    ensure(same_text(url->scheme, masked->scheme) && same_text(url->user, masked->user));
    ensure(same_text(url->path, masked->path) && url->host_count == masked->host_count);
    ensure((url->password == NULL) == (masked->password == NULL));
    ensure(url->password == NULL || strcmp(masked->password, "***") == 0);
    for (size_t i = 0; i < url->host_count; i++) {
        ensure(same_text(url->hosts[i].name, masked->hosts[i].name));
        ensure(url->hosts[i].port == masked->hosts[i].port);
    }
    ensure(url->parameter_count == masked->parameter_count);
    for (size_t i = 0; i < url->parameter_count; i++) {
        bool is_secret = strcasestr(url->parameters[i].name, "password") != NULL;
        ensure(same_text(url->parameters[i].name, masked->parameters[i].name));
        ensure(
            same_text(is_secret ? "***" : url->parameters[i].value, masked->parameters[i].value));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = calloc(1, size + 1);
    memcpy(text, bytes, size);
    struct url url;
    struct error error = {{0}};
    struct buffer mask;
    /* A "***" may be longer than the password it stands for. */
    buffer_init(&mask, size + 3 * (URL_PARAMETERS_MAX + 1) + 1);
    buffer_append_text(&mask, " ");
    url_mask(&mask, text);
    ensure(!mask.overflowed);
    if (url_parse(&url, text, &error) == STATUS_OK) {
        struct url masked;
        check_parts(&url);
        if (strlen(mask.bytes + 1) <= URL_LENGTH_MAX) {
            ensure(url_parse(&masked, mask.bytes + 1, &error) == STATUS_OK);
            check_same(&url, &masked);
            url_release(&masked);
        }
        url_release(&url);
    } else {
        size_t shown = mask.length - 1;
        ensure(error.text[0] != '\0');
        shown -= shown != strlen(text) || strcmp(text, mask.bytes + 1) != 0 ? 3 : 0;
        ensure(strncmp(text, mask.bytes + 1, shown) == 0);
    }
    buffer_release(&mask);
    free(text);
    return 0;
}
