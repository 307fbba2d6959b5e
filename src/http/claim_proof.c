/* claim_proof.c: shows a coupon that was there before to a stranger who claims openly, with its
 * code if they prove by their Idempotency-Key that it is theirs. */
#include "claim/service.h"
#include "http/call.h"
#include "http/handlers.h"
#include "http/render.h"

struct proof_call {
    struct call call;
    struct wish wish;
};

/* A key that was bound to the claim later answers with it, too, so what counts is the one that the
 * coupon was made with. While that is not in the ledger yet, nothing is proven. */
static void work_prove(struct call *call, struct service *service)
{
    struct proof_call *self = (struct proof_call *)(void *)call;
    const struct wish *wish = &self->wish;
    struct coupon coupon;
    struct error error;
    enum status status = service_coupon_get(service, wish->policy_id, wish->seq, &coupon, &error);
    if (status != STATUS_OK && status != STATUS_NOT_FOUND) {
        call_failed(call, status, &error, PROBLEM_UNAVAILABLE);
        return;
    }
    bool proven = status == STATUS_OK &&
                  memcmp(&coupon.claim.request_id, &wish->request_id, sizeof wish->request_id) == 0;
    struct buffer *out = call_json(call, 200);
    render_claim_location(out, wish->policy_id, &wish->user);
    if (out->length < sizeof call->location) {
        memcpy(call->location, out->bytes, out->length + 1);
    }
    render_claim(call_json(call, 200), service, wish, proven ? CODE_SHOWN : CODE_HIDDEN);
}

void claim_proof_answer(struct api_loop *loop, struct http_exchange *exchange,
                        const struct wish *wish)
{
    struct proof_call *self = call_new(loop, exchange, sizeof *self, work_prove);
    if (self != NULL) {
        self->wish = *wish;
        call_submit_or_refuse(&self->call);
    }
}
