/* event_own.c: reads the value of a pended claim that was written by event_write_claim(), byte for
 * byte as that writes it; much faster than reading any JSON, and for nearly all that comes. */
#include "base/clock.h"
#include "relay/event.h"

/* Takes what has to come next. */
static bool event_own_take(struct span *text, struct span wanted)
{
    if (text->length < wanted.length || memcmp(text->bytes, wanted.bytes, wanted.length) != 0) {
        return false;
    }
    text->bytes += wanted.length;
    text->length -= wanted.length;
    return true;
}

/* A number from 1 on, without leading zeros. */
static bool event_own_number(struct span *text, int64_t maximum, int64_t *number)
{
    size_t length = 0;
    *number = 0;
    while (length < text->length && length < 17 && text->bytes[length] >= '0' &&
           text->bytes[length] <= '9') {
        *number = *number * 10 + (text->bytes[length++] - '0');
    }
    if (length == 0 || text->bytes[0] == '0' || *number > maximum) {
        return false;
    }
    text->bytes += length;
    text->length -= length;
    return true;
}

/* What stands before the next quote. */
static bool event_own_text(struct span *text, struct span *found)
{
    const char *quote = memchr(text->bytes, '"', text->length);
    if (quote == NULL) {
        return false;
    }
    *found = (struct span){.bytes = text->bytes, .length = (size_t)(quote - text->bytes)};
    text->bytes += found->length;
    text->length -= found->length;
    return true;
}

static int event_own_hex(char digit)
{
    return digit >= '0' && digit <= '9'   ? digit - '0'
           : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
                                          : -1;
}

static bool event_own_request(struct span text, struct request_id *id)
{
    int bad = text.length != 2 * sizeof(id->bytes);
    for (size_t i = 0; !bad && i < sizeof(id->bytes); i++) {
        int high = event_own_hex(text.bytes[2 * i]);
        int low = event_own_hex(text.bytes[2 * i + 1]);
        bad = high < 0 || low < 0;
        id->bytes[i] = (uint8_t)((unsigned)high << 4 | (unsigned)low);
    }
    return !bad;
}

bool event_read_own_claim(struct span key, struct span value, struct claim *claim,
                          bool *has_traceparent)
{
    struct span user;
    struct span request;
    struct span time;
    int64_t nth;
    *claim = (struct claim){0};
    if (!event_own_take(&value, SPAN("{\"policy_id\":"))) {
        return false;
    }
    const char *policy = value.bytes;
    if (!event_own_number(&value, POLICY_ID_MAX, &claim->policy_id) ||
        !span_equal(key, (struct span){policy, (size_t)(value.bytes - policy)}) ||
        !event_own_take(&value, SPAN(",\"user\":\"")) || !event_own_text(&value, &user) ||
        !json_id_valid(user) || !event_own_take(&value, SPAN("\",\"seq\":")) ||
        !event_own_number(&value, POLICY_ID_MAX, &claim->seq) ||
        !event_own_take(&value, SPAN(",\"nth\":")) ||
        !event_own_number(&value, PER_USER_LIMIT_MAX, &nth) ||
        !event_own_take(&value, SPAN(",\"lease\":")) ||
        !event_own_number(&value, POLICY_ID_MAX, &claim->lease_id) ||
        !event_own_take(&value, SPAN(",\"request_id\":\"")) || !event_own_text(&value, &request) ||
        !event_own_request(request, &claim->request_id) ||
        !event_own_take(&value, SPAN("\",\"requested_at\":\"")) || !event_own_text(&value, &time) ||
        !clock_parse_rfc3339(time, &claim->requested_at_ms) ||
        !event_own_take(&value, SPAN("\"}"))) {
        return false;
    }
    claim->nth = (int32_t)nth;
    claim->user = user_id_of(user);
    *has_traceparent = event_own_take(&value, SPAN("\n"));
    return value.length == 0 && claim->requested_at_ms > 0;
}
