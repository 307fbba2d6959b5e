/* code.h: coupon ids ("42-17") and the codes made from them ("42-17-K7Q2M9XDA3WPH").
 *
 * A code is the id and 13 characters (64 bits) of a keyed MAC over it, of policies that were made
 * before there were so many the first 8 (40 bits): nothing to store or index, hard to guess. The
 * alphabet has no I, L, O, U, so that people can read a code aloud.
 *
 * Threads: pure functions.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/hash.h"
#include "base/model.h"

#define CODE_MAC_LENGTH 13
#define CODE_MAC_SHORT  8  /* of a policy of old */
#define COUPON_ID_SIZE  40 /* both numbers, the dash and a NUL */
#define CODE_SIZE       (COUPON_ID_SIZE + CODE_MAC_LENGTH + 1)

struct service;

/* Append "42-17" and "42-17-K7Q2M9XDA3WPH". */
void code_append_id(struct buffer *out, int64_t policy_id, int64_t seq);
void code_append(struct buffer *out, const struct service *service, int64_t policy_id, int64_t seq);

enum code_kind { CODE_INVALID, CODE_ID, CODE_FULL, CODE_WRONG };

/* Reads an id or a code. CODE_FULL only when its MAC is right (compared in constant time, lower
 * case accepted); CODE_WRONG when it has the form of a code and the MAC is not. */
enum code_kind code_parse(const struct service *service, struct span text, int64_t *policy_id,
                          int64_t *seq);

/* The request id of a user's Idempotency-Key (quotes already taken off). */
struct request_id request_id_of_key(const struct id *user, struct span key);
