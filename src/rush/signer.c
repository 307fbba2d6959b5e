/* signer.c: writes the user into the claims, encodes and signs them. */
#include "rush/signer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rush/storm.h"

#define HEAD          "eyJhbGciOiJIUzI1NiJ9." /* {"alg":"HS256"} */
#define HEAD_LENGTH   (sizeof(HEAD) - 1)
#define AUDIENCE_MAX  100
#define NUMBER_DIGITS 8
#define VARIANT       sodium_base64_VARIANT_URLSAFE_NO_PADDING

/* Characters of so many bytes in base64. */
static size_t signer_encoded(size_t length)
{
    return sodium_base64_encoded_len(length, VARIANT) - 1;
}

enum status rush_signer_init(struct rush_signer *signer, struct span key, const char *audience,
                             const char *run, int64_t expires_s, struct error *error)
{
    char user[RUSH_USER_SIZE];
    char wanted[AUDIENCE_MAX + 16] = "";

    if (key.length < SIGNER_KEY_MIN)
        return error_set(error, STATUS_INVALID, "the users' key has %zu bytes; it needs %d",
                         key.length, SIGNER_KEY_MIN);
    if (strlen(audience) > AUDIENCE_MAX || strpbrk(audience, "\"\\") != NULL)
        return error_set(error, STATUS_INVALID, "the audience is too long, or has a quote");
    if (audience[0] != '\0')
        snprintf(wanted, sizeof(wanted), ",\"aud\":\"%s\"", audience);
    crypto_auth_hmacsha256_init(&signer->keyed, (const unsigned char *)key.bytes, key.length);
    rush_user_name(user, run, 0);
    int length = snprintf(signer->claims, sizeof(signer->claims),
                          "{\"sub\":\"%s\",\"exp\":%" PRId64 "%s}", user, expires_s, wanted);
    ensure(length > 0 && (size_t)length < sizeof(signer->claims));
    signer->claims_length = (size_t)length;
    signer->number_at = strlen("{\"sub\":\"") + strlen(user) - NUMBER_DIGITS;
    signer->token_length = HEAD_LENGTH + signer_encoded(signer->claims_length) + 1 +
                           signer_encoded(crypto_auth_hmacsha256_BYTES);
    ensure(signer->token_length < SIGNER_TOKEN_SIZE);
    return STATUS_OK;
}

void rush_signer_write(struct rush_signer *signer, uint32_t user, char *token)
{
    crypto_auth_hmacsha256_state state = signer->keyed;
    unsigned char mac[crypto_auth_hmacsha256_BYTES];
    char text[SIGNER_TOKEN_SIZE] = HEAD;
    size_t length = HEAD_LENGTH;

    for (int i = NUMBER_DIGITS - 1; i >= 0; i--, user /= 10)
        signer->claims[signer->number_at + (size_t)i] = (char)('0' + user % 10);
    sodium_bin2base64(text + length, sizeof(text) - length, (unsigned char *)signer->claims,
                      signer->claims_length, VARIANT);
    length += signer_encoded(signer->claims_length);
    crypto_auth_hmacsha256_update(&state, (unsigned char *)text, length);
    crypto_auth_hmacsha256_final(&state, mac);
    text[length++] = '.';
    sodium_bin2base64(text + length, sizeof(text) - length, mac, sizeof(mac), VARIANT);
    memcpy(token, text, signer->token_length);
}
