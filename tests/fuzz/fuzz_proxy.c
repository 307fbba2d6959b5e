/* fuzz_proxy.c: any headers that a trusted proxy might have sent on. */
#include <stddef.h>
#include <stdint.h>

#include "http/server/proxy.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char one[] = "10.0.0.0/8";
    char other[] = "2001:db8::/32";
    char *items[] = {one, other};
    const struct config_list trusted = {items, 2};
    struct proxies proxies;
    struct address peer;
    struct error error;
    char text[ADDRESS_TEXT_SIZE];
    if (proxies_init(&proxies, &trusted, &error) != STATUS_OK ||
        !address_parse(SPAN("10.0.0.1"), &peer))
        return 0;
    struct http_request request = {.headers = {(const char *)bytes, size}, .is_forwarded = true};
    struct address client = proxies_client(&proxies, peer, &request);
    address_format(&client, text);
    proxies_release(&proxies);
    return 0;
}
