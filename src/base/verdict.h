/* verdict.h: what can become of one press of the button: one row each, the only list of them.
 *
 * What a gate decides is a verdict; what the one who pressed is told is a result. Enums, metric
 * labels, problems and their pages, the outcomes that boards and `dibs rush` count and the letters
 * of redis.lua are made from these rows; tests hold the OpenAPI document and the words of the pages
 * against them.
 *
 * Threads: constants only.
 */
#pragma once

/* Results that carry a claim.
 * X(wire word, HTTP status, label in dibs_claims_total, outcome on boards, outcome in a rush) */
#define CLAIM_GRANTS(X)                       \
    X(ISSUED, 201, issued, ISSUED, WON)       \
    X(ACCEPTED, 202, accepted, ACCEPTED, WON) \
    X(ALREADY_ISSUED, 200, already_issued, ALREADY_ISSUED, HELD)

/* Results that refuse: a problem of the same name.
 * X(wire word, HTTP status, label, outcome on boards, outcome in a rush,
 *   title, detail, what it means, what to do) */
#define CLAIM_REFUSALS(X)                                                                          \
    X(SOLD_OUT, 409, sold_out, SOLD_OUT, SOLD_OUT, "Sold out",                                     \
      "Every coupon of this policy has been handed out.",                                          \
      "All units of the policy are taken, and every one of them is in the ledger.",                \
      "Nothing, unless a coupon is cancelled or the total is raised: then claiming works again "   \
      "within a second.")                                                                          \
    X(LIMIT_REACHED, 409, limit_reached, LIMIT_REACHED, LIMIT, "Limit reached",                    \
      "This user already holds as many coupons of this policy as one user may.",                   \
      "The user holds per_user_limit active coupons of this policy.",                              \
      "Show the user the coupons they hold: GET /v1/policies/{id}/claims/{user}.")                 \
    X(BLOCKED, 403, blocked, OTHER, REFUSED, "Blocked", "This user may not claim.",                \
      "An admin has blocked the user.",                                                            \
      "An admin can lift it with PUT /v1/users/{user} and blocked false.")                         \
    X(CLOSED, 410, closed, OTHER, REFUSED, "Closed", "This policy is closed.",                     \
      "The policy's closes_at has passed, or an admin has closed it.",                             \
      "Nothing: a closed policy gives out no more coupons.")                                       \
    X(PAUSED, 403, paused, OTHER, REFUSED, "Paused", "This policy is paused.",                     \
      "An admin has paused the policy. Claims already won are safe.",                              \
      "Try again later; an admin resumes it with PATCH and paused false.")                         \
    X(NOT_OPEN, 403, not_open, NOT_OPEN, REFUSED, "Not open yet", "Claiming has not begun yet.",   \
      "The policy's opens_at lies ahead; the answer carries it.",                                  \
      "Claim again at opens_at. Retry-After counts the seconds until then.")                       \
    X(POLICY_NOT_FOUND, 404, not_found, OTHER, REFUSED, "No such policy",                          \
      "There is no policy with this id.", "No policy has the id in the path.",                     \
      "Look it up with GET /v1/policies.")                                                         \
    X(UNAVAILABLE, 503, unavailable, OTHER, BUSY, "Unavailable right now",                         \
      "This cannot be answered right now. Nothing is lost: ask again.",                            \
      "A part that is needed for a truthful answer does not answer: the ledger cannot write, too " \
      "much is pending, the server is full or about to stop. If the claim was won after all, the " \
      "retry finds it.",                                                                           \
      "Retry after the seconds that Retry-After says, with the same Idempotency-Key. Operators: "  \
      "/readyz names the part.")                                                                   \
    X(INVALID_REQUEST, 400, invalid, OTHER, REFUSED, "Invalid request",                            \
      "The request is not valid.",                                                                 \
      "The request is malformed, or a field, parameter or header is missing, unknown, doubled, "   \
      "of the wrong type or out of range. field names it where there is one. Nothing was "         \
      "changed.",                                                                                  \
      "Correct the request; /openapi.json has every range.")                                       \
    X(UNAUTHORIZED, 401, unauthorized, OTHER, REFUSED, "Not authorized",                           \
      "A valid token is needed for this.",                                                         \
      "The Authorization header is missing, or its token is wrong, expired or not allowed to do "  \
      "this.",                                                                                     \
      "Send Authorization: Bearer with an admin, service or user token, as the call needs.")       \
    X(RATE_LIMITED, 429, rate_limited, OTHER, BUSY, "Too many requests",                           \
      "Too many requests in a short time.",                                                        \
      "This user or this address has used up its allowance of requests.",                          \
      "Wait for the seconds that Retry-After says. A retry with the same Idempotency-Key never "   \
      "claims twice.")

/* How a claim ended. */
#define CLAIM_RESULT_ENUM(WORD, ...) CLAIM_##WORD,
enum claim_result {
    CLAIM_GRANTS(CLAIM_RESULT_ENUM) CLAIM_REFUSALS(CLAIM_RESULT_ENUM) CLAIM_RESULT_COUNT
};

/* What a gate decides, in the order of the contract: the first that applies is the verdict.
 * X(verdict, its letter in redis.lua or a number of its own below 'A', result, why a dead letter
 *   cannot be retried or NULL) */
#define VERDICTS(X)                                                                         \
    X(UNDECIDED, 0, UNAVAILABLE, NULL)                                                      \
    X(WON, 'W', ISSUED, NULL) /* ACCEPTED while it is pending */                            \
    X(NO_POLICY, 1, POLICY_NOT_FOUND, "There is no such policy any more.")                  \
    X(HELD, 'H', ALREADY_ISSUED, NULL) /* the claim this user or this key already holds */  \
    /* The same, but no more keys can be bound to that claim. */                            \
    X(KEYS_FULL, 'F', INVALID_REQUEST,                                                      \
      "The user has as many coupons as the policy allows; drop the letter.")                \
    X(BLOCKED, 'B', BLOCKED, "The user is blocked; unblock them first.")                    \
    X(CLOSED, 'C', CLOSED, "The policy is closed.")                                         \
    X(PAUSED, 'P', PAUSED, "The policy is paused; resume it first.")                        \
    X(NOT_OPEN, 'N', NOT_OPEN, "The policy is not open yet.") /* `opens_at_ms` says when */ \
    X(LIMIT_REACHED, 'L', LIMIT_REACHED,                                                    \
      "The user has as many coupons as the policy allows; drop the letter.")                \
    X(SOLD_OUT, 'S', SOLD_OUT, "No stock is left; raise the total first.")                  \
    /* Nothing left here, but the ledger still has stock to lend. */                        \
    X(LEASE_WANTED, 'G', UNAVAILABLE, NULL)                                                 \
    X(UNAVAILABLE, 2, UNAVAILABLE, NULL) /* not decided; trying again is safe */

#define VERDICT_ENUM(VERDICT, LETTER, RESULT, WHY) VERDICT_##VERDICT,
enum verdict { VERDICTS(VERDICT_ENUM) VERDICT_COUNT };
