/* pending.c: the claims of a policy that are won and not yet coupons, oldest first; for admins. */
#include "claim/code.h"
#include "http/api/call.h"
#include "http/api/handlers.h"

#define CURSOR_KIND 'q'

static enum status read_list(const struct call *call, struct service *service, void *rows,
                             size_t max, size_t *count, struct error *error)
{
    return service_pending_claims(service, call->policy_id, call->page.after_first, rows, max,
                                  count, error);
}

static void render_row(struct buffer *out, const struct service *service, const void *row)
{
    const struct claim *claim = row;
    json_begin(out, '{');
    json_put(out, "seq", claim->seq);
    json_put(out, "user", id_span(&claim->user));
    json_put(out, "nth", claim->nth);
    buffer_append_literal(out, ",\"coupon_id\":\"");
    code_append_id(out, claim->policy_id, claim->seq);
    buffer_append_literal(out, "\"");
    json_put_time(out, "requested_at", claim->requested_at_ms);
    json_put(out, "attempts", claim->attempt);
    buffer_append_literal(out, "}");
}

static void place_row(const void *row, int64_t *first, int64_t *second)
{
    *first = ((const struct claim *)row)->seq;
    *second = 0;
}

static void work_list(struct call *call, struct service *service)
{
    static const struct call_rows rows = {
        sizeof(struct claim), CURSOR_KIND, read_list, render_row, place_row,
    };
    call_list(call, service, &rows);
}

void pending_list(struct ask *ask)
{
    if (ask_page(ask, CURSOR_KIND, NULL))
        call_start(ask, work_list);
}
