/* code.c: coupon ids, their codes, and request ids. */
#include "claim/code.h"

#include <sodium.h>

#include "base/array.h"
#include "claim/parts.h"

/* Crockford's base 32: no I, L, O or U. */
static const char code_alphabet[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

static size_t code_length(const struct service *service, int64_t policy_id)
{
    size_t at = array_place(service->short_codes, service->short_code_count, , policy_id);
    bool is_short = at < service->short_code_count && service->short_codes[at] == policy_id;

    return is_short ? CODE_MAC_SHORT : CODE_MAC_LENGTH;
}

static void code_mac(const struct service *service, int64_t policy_id, int64_t seq,
                     char mac[CODE_MAC_LENGTH])
{
    int64_t id[2] = {policy_id, seq};
    uint64_t bits = hash_mac(service->code_key, id, sizeof(id));

    for (int i = 0; i < CODE_MAC_LENGTH; i++) {
        mac[i] = code_alphabet[bits & 31];
        bits >>= 5;
    }
}

void code_append_id(struct buffer *out, int64_t policy_id, int64_t seq)
{
    buffer_append_i64(out, policy_id);
    buffer_append_literal(out, "-");
    buffer_append_i64(out, seq);
}

void code_append(struct buffer *out, const struct service *service, int64_t policy_id, int64_t seq)
{
    char mac[CODE_MAC_LENGTH];

    code_append_id(out, policy_id, seq);
    buffer_append_literal(out, "-");
    code_mac(service, policy_id, seq, mac);
    buffer_append(out, mac, code_length(service, policy_id));
}

/* Reads a number as we would have written it: no sign, no leading zero. */
static bool code_read_number(struct span *text, int64_t max, int64_t *number)
{
    int64_t value = 0;
    size_t length = 0;

    while (length < text->length && text->bytes[length] >= '0' && text->bytes[length] <= '9') {
        int digit = text->bytes[length] - '0';
        if (value > (max - digit) / 10)
            return false;
        value = value * 10 + digit;
        length++;
    }
    if (length == 0 || text->bytes[0] == '0')
        return false;
    *number = value;
    text->bytes += length;
    text->length -= length;
    return true;
}

static bool code_read_dash(struct span *text)
{
    if (text->length == 0 || text->bytes[0] != '-')
        return false;
    text->bytes++;
    text->length--;
    return true;
}

enum code_kind code_parse(const struct service *service, struct span text, int64_t *policy_id,
                          int64_t *seq)
{
    char given[CODE_MAC_LENGTH];
    char right[CODE_MAC_LENGTH];

    if (!code_read_number(&text, POLICY_ID_MAX, policy_id) || !code_read_dash(&text) ||
        !code_read_number(&text, INT64_MAX, seq))
        return CODE_INVALID;
    if (text.length == 0)
        return CODE_ID;
    size_t length = code_length(service, *policy_id);
    if (!code_read_dash(&text) || text.length != length)
        return CODE_INVALID;
    for (size_t i = 0; i < length; i++) {
        char letter = text.bytes[i];
        given[i] = letter >= 'a' && letter <= 'z' ? (char)(letter - 'a' + 'A') : letter;
    }
    code_mac(service, *policy_id, *seq, right);
    return sodium_memcmp(given, right, length) == 0 ? CODE_FULL : CODE_WRONG;
}

struct request_id request_id_of_key(const struct id *user, struct span key)
{
    /* The length keeps the user and the key apart; the zero keeps both apart from any bare key,
     * which is what older versions hashed. */
    unsigned char head[2] = {0, user->length};
    struct request_id id;
    crypto_generichash_state state;

    crypto_generichash_init(&state, NULL, 0, sizeof(id.bytes));
    crypto_generichash_update(&state, head, sizeof(head));
    crypto_generichash_update(&state, (const unsigned char *)user->bytes, user->length);
    crypto_generichash_update(&state, (const unsigned char *)key.bytes, key.length);
    crypto_generichash_final(&state, id.bytes, sizeof(id.bytes));
    id.bytes[0] |= 0x80;
    return id;
}
