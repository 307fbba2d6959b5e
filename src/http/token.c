/* token.c: HS256 over two base64url parts, and the few fields inside that count. */
#include "http/token.h"

#include <yyjson.h>

#include "base/error.h"
#include "base/json.h"

#define SIGNATURE_SIZE crypto_auth_hmacsha256_BYTES

/* base64url makes 3 bytes of 4 characters. */
#define PART_SIZE (TOKEN_LENGTH_MAX / 4 * 3)
/* What yyjson may need for a document of PART_SIZE bytes; checked when a verifier is made. */
#define POOL_SIZE (48 * 1024)

/* The fields of the payload that count. */
struct token_claims {
    yyjson_val *sub;
    yyjson_val *exp;
    yyjson_val *nbf;
    yyjson_val *aud;
};

void token_verifier_init(struct token_verifier *verifier, struct span key, struct span audience)
{
    ensure(key.length >= TOKEN_KEY_MIN);
    ensure(yyjson_read_max_memory_usage(PART_SIZE, YYJSON_READ_NOFLAG) <= POOL_SIZE - 1024);
    crypto_auth_hmacsha256_init(&verifier->keyed, (const unsigned char *)key.bytes, key.length);
    verifier->audience = audience;
}

void token_verifier_release(struct token_verifier *verifier)
{
    sodium_memzero(&verifier->keyed, sizeof verifier->keyed);
}

/* Strict: no padding, no other alphabet, no bits left over. */
static bool decode_part(struct span text, char *bytes, size_t size, size_t *length)
{
    return sodium_base642bin((unsigned char *)bytes, size, text.bytes, text.length, NULL, length,
                             NULL, sodium_base64_VARIANT_URLSAFE_NO_PADDING) == 0;
}

/* Cuts "header.payload.signature"; false unless there are exactly two dots. */
static bool split_token(struct span token, struct span *header, struct span *payload,
                        struct span *signature)
{
    const char *end = token.bytes + token.length;
    const char *first = memchr(token.bytes, '.', token.length);
    if (first == NULL) {
        return false;
    }
    const char *second = memchr(first + 1, '.', (size_t)(end - first - 1));
    if (second == NULL || memchr(second + 1, '.', (size_t)(end - second - 1)) != NULL) {
        return false;
    }
    *header = (struct span){token.bytes, (size_t)(first - token.bytes)};
    *payload = (struct span){first + 1, (size_t)(second - first - 1)};
    *signature = (struct span){second + 1, (size_t)(end - second - 1)};
    return true;
}

static bool signature_right(const struct token_verifier *verifier, struct span signed_part,
                            struct span signature)
{
    char given[SIGNATURE_SIZE];
    size_t given_length;
    if (!decode_part(signature, given, sizeof given, &given_length) ||
        given_length != SIGNATURE_SIZE) {
        return false;
    }
    crypto_auth_hmacsha256_state state = verifier->keyed;
    unsigned char right[SIGNATURE_SIZE];
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)signed_part.bytes,
                                  signed_part.length);
    crypto_auth_hmacsha256_final(&state, right);
    bool same = sodium_memcmp(given, right, SIGNATURE_SIZE) == 0;
    sodium_memzero(&state, sizeof state);
    sodium_memzero(right, sizeof right);
    return same;
}

/* Decodes one part into a JSON object inside `pool`; NULL when it is none. */
static yyjson_val *read_part(struct span part, char *pool)
{
    char text[PART_SIZE];
    size_t length;
    yyjson_alc allocator;
    if (!decode_part(part, text, sizeof text, &length) ||
        !yyjson_alc_pool_init(&allocator, pool, POOL_SIZE)) {
        return NULL;
    }
    yyjson_doc *document = yyjson_read_opts(text, length, YYJSON_READ_NOFLAG, &allocator, NULL);
    yyjson_val *root = yyjson_doc_get_root(document);
    return yyjson_is_obj(root) ? root : NULL;
}

/* Which of two equal keys would count is a matter of the reader, so neither does. */
static bool take_once(yyjson_val **place, yyjson_val *value)
{
    if (*place != NULL) {
        return false;
    }
    *place = value;
    return true;
}

static enum token_verdict check_header(struct span part)
{
    char pool[POOL_SIZE];
    yyjson_val *root = read_part(part, pool);
    if (root == NULL) {
        return TOKEN_MALFORMED;
    }
    yyjson_val *algorithm = NULL;
    yyjson_obj_iter members = yyjson_obj_iter_with(root);
    for (yyjson_val *key; (key = yyjson_obj_iter_next(&members)) != NULL;) {
        if (yyjson_equals_str(key, "alg") && !take_once(&algorithm, yyjson_obj_iter_get_val(key))) {
            return TOKEN_MALFORMED;
        }
        /* "crit" lists extensions that must be understood; none are. */
        if (yyjson_equals_str(key, "crit")) {
            return TOKEN_MALFORMED;
        }
    }
    return yyjson_equals_str(algorithm, "HS256") ? TOKEN_VALID : TOKEN_WRONG_ALGORITHM;
}

static bool gather_claims(yyjson_val *root, struct token_claims *claims)
{
    yyjson_obj_iter members = yyjson_obj_iter_with(root);
    for (yyjson_val *key; (key = yyjson_obj_iter_next(&members)) != NULL;) {
        yyjson_val *value = yyjson_obj_iter_get_val(key);
        yyjson_val **place = yyjson_equals_str(key, "sub")   ? &claims->sub
                             : yyjson_equals_str(key, "exp") ? &claims->exp
                             : yyjson_equals_str(key, "nbf") ? &claims->nbf
                             : yyjson_equals_str(key, "aud") ? &claims->aud
                                                             : NULL;
        if (place != NULL && !take_once(place, value)) {
            return false;
        }
    }
    return true;
}

static bool audience_matches(yyjson_val *aud, struct span wanted)
{
    if (yyjson_is_str(aud)) {
        return yyjson_equals_strn(aud, wanted.bytes, wanted.length);
    }
    yyjson_arr_iter items = yyjson_arr_iter_with(aud);
    for (yyjson_val *item; (item = yyjson_arr_iter_next(&items)) != NULL;) {
        if (yyjson_equals_strn(item, wanted.bytes, wanted.length)) {
            return true;
        }
    }
    return false;
}

static enum token_verdict check_claims(const struct token_verifier *verifier, struct span part,
                                       int64_t now_ms, struct user_id *user)
{
    char pool[POOL_SIZE];
    struct token_claims claims = {0};
    yyjson_val *root = read_part(part, pool);
    if (root == NULL || !gather_claims(root, &claims) || !yyjson_is_num(claims.exp) ||
        (claims.nbf != NULL && !yyjson_is_num(claims.nbf))) {
        return TOKEN_MALFORMED;
    }
    double now_s = (double)now_ms / 1000.0;
    if (now_s >= yyjson_get_num(claims.exp) + TOKEN_SKEW_S) {
        return TOKEN_EXPIRED;
    }
    if (claims.nbf != NULL && now_s + TOKEN_SKEW_S < yyjson_get_num(claims.nbf)) {
        return TOKEN_TOO_EARLY;
    }
    if (verifier->audience.length > 0 && !audience_matches(claims.aud, verifier->audience)) {
        return TOKEN_WRONG_AUDIENCE;
    }
    struct span sub = {yyjson_get_str(claims.sub), yyjson_get_len(claims.sub)};
    if (!yyjson_is_str(claims.sub) || !json_id_valid(sub)) {
        return TOKEN_WRONG_SUBJECT;
    }
    *user = user_id_of(sub);
    return TOKEN_VALID;
}

enum token_verdict token_verify(const struct token_verifier *verifier, struct span token,
                                int64_t now_ms, struct user_id *user)
{
    struct span header;
    struct span payload;
    struct span signature;
    if (token.length > TOKEN_LENGTH_MAX || !split_token(token, &header, &payload, &signature)) {
        return TOKEN_MALFORMED;
    }
    struct span signed_part = {token.bytes, header.length + 1 + payload.length};
    if (!signature_right(verifier, signed_part, signature)) {
        return TOKEN_WRONG_SIGNATURE;
    }
    enum token_verdict verdict = check_header(header);
    return verdict == TOKEN_VALID ? check_claims(verifier, payload, now_ms, user) : verdict;
}

const char *token_verdict_words(enum token_verdict verdict)
{
    static const char *const words[] = {
        [TOKEN_VALID] = "The token is valid.",
        [TOKEN_MALFORMED] = "The token cannot be read.",
        [TOKEN_WRONG_SIGNATURE] = "The token is not one of ours.",
        [TOKEN_WRONG_ALGORITHM] = "The token must be signed with HS256.",
        [TOKEN_EXPIRED] = "The token has expired.",
        [TOKEN_TOO_EARLY] = "The token is not valid yet.",
        [TOKEN_WRONG_AUDIENCE] = "The token is for another audience.",
        [TOKEN_WRONG_SUBJECT] = "The token's sub is not a user id.",
    };
    return words[verdict];
}
