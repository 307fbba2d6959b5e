/* fuzz_reply.c: any bytes as a server's answer, cut anywhere: what is whole stays within what came,
 * and says the same however it was cut. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "rush/reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check_claim(const struct rush_reply *reply)
{
    struct rush_claim claim;

    memset(&claim, 0xff, sizeof(claim));
    rush_claim_read(reply, &claim);
    ensure(claim.outcome < RUSH_OUTCOMES && rush_outcome_name(claim.outcome) != NULL);
    ensure(memchr(claim.code, '\0', sizeof(claim.code)) != NULL);
    ensure(claim.seq >= 0);
}

/* The first `length` bytes, in a place of their own. */
static enum rush_reading read_some(const uint8_t *bytes, size_t length, struct rush_reply *reply)
{
    char *copy = malloc(length > 0 ? length : 1);

    ensure(copy != NULL);
    memcpy(copy, bytes, length);
    struct span span = {copy, length};
    enum rush_reading reading = rush_reply_read(span, reply);
    if (reading == RUSH_READ_WHOLE) {
        ensure(reply->length <= length && reply->body.length <= reply->length);
        ensure(reply->body.bytes + reply->body.length == copy + reply->length);
        check_claim(reply);
    }
    free(copy);
    return reading;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct rush_reply whole = {0};
    struct rush_reply part = {0};

    if (size == 0)
        return 0;
    enum rush_reading reading = read_some(bytes + 1, size - 1, &whole);
    /* Fewer bytes never make another reply of it. */
    enum rush_reading cut = read_some(bytes + 1, (size - 1) * bytes[0] / 256, &part);
    if (cut == RUSH_READ_WHOLE)
        ensure(reading == RUSH_READ_WHOLE && part.length == whole.length &&
               part.status == whole.status);
    return 0;
}
