/* ledger_fixture.c: databases, ledgers on them, and what the tests do with them. */
#include "ledger_fixture.h"

#include <unistd.h>

#include "base/log.h"

static void on_issued(void *context, const struct claim *claims, const enum coupon_state *states,
                      size_t count)
{
    struct fixture *fixture = context;
    pthread_mutex_lock(&fixture->lock);
    ensure(fixture->issued_count + count <= CLAIMS_MAX);
    memcpy(fixture->claims + fixture->issued_count, claims, count * sizeof(*claims));
    memcpy(fixture->states + fixture->issued_count, states, count * sizeof(*states));
    fixture->issued_count += count;
    pthread_mutex_unlock(&fixture->lock);
}

static void on_durable(void *context)
{
    struct fixture *fixture = context;
    pthread_mutex_lock(&fixture->lock);
    pthread_cond_broadcast(&fixture->durable);
    pthread_mutex_unlock(&fixture->lock);
}

void check(struct fixture *fixture, enum status status)
{
    if (status != STATUS_OK)
        fail_msg("%s: %s", status_name(status), fixture->error.text);
}

struct fixture *fixture_new(const char *url, enum ledger_use use)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    pthread_mutex_init(&fixture->lock, NULL);
    pthread_cond_init(&fixture->durable, NULL);
    fixture->url = url;
    fixture->use = use;
    return fixture;
}

void fixture_free(struct fixture *fixture)
{
    pthread_cond_destroy(&fixture->durable);
    pthread_mutex_destroy(&fixture->lock);
    free(fixture);
}

struct ledger_options options_of(struct fixture *fixture)
{
    return (struct ledger_options){.url = fixture->url,
                                   .use = fixture->use,
                                   .integrity = LEDGER_CHECK_FULL,
                                   .readers = 2,
                                   .on_issued = on_issued,
                                   .on_durable = on_durable,
                                   .tells = {fixture->has_events, fixture->has_webhook},
                                   .on_events = fixture->on_events,
                                   .find_trace = fixture->find_trace,
                                   .context = fixture};
}

void open_ledger(struct fixture *fixture)
{
    struct ledger_options options = options_of(fixture);
    check(fixture, ledger_open(&fixture->ledger, &options, &fixture->error));
}

void reopen(struct fixture *fixture)
{
    ledger_close(fixture->ledger);
    open_ledger(fixture);
}

static int set_up_as(void **state, enum ledger_use use)
{
    log_configure(LOG_ERROR + 1, LOG_LOGFMT, STDERR_FILENO);
    struct fixture *fixture = fixture_new(ledger_suite_create(), use);
    open_ledger(fixture);
    fixture->session = ledger_suite_session_open();
    *state = fixture;
    return 0;
}

int set_up(void **state)
{
    return set_up_as(state, LEDGER_OWN);
}

int set_up_shared(void **state)
{
    return set_up_as(state, LEDGER_SHARE);
}

int tear_down(void **state)
{
    struct fixture *fixture = *state;
    for (size_t i = 0; i < fixture->session_count; i++)
        ledger_suite_session_close(fixture->sessions[i]);
    ledger_close(fixture->ledger);
    ledger_suite_session_close(fixture->session);
    ledger_suite_drop();
    fixture_free(fixture);
    return 0;
}

/* --- moves --- */

void wait_for(struct fixture *fixture, uint64_t ticket)
{
    pthread_mutex_lock(&fixture->lock);
    while (ledger_durable(fixture->ledger) < ticket)
        pthread_cond_wait(&fixture->durable, &fixture->lock);
    pthread_mutex_unlock(&fixture->lock);
}

struct policy create_with(struct fixture *fixture, int64_t total, int64_t reserve,
                          int32_t per_user_limit, struct lease *lease)
{
    struct policy policy = {.name = "Täglich 10 %",
                            .discount_type = DISCOUNT_FIXED,
                            .discount_value = 5000,
                            .total = total,
                            .reserve = reserve,
                            .per_user_limit = per_user_limit,
                            .created_at_ms = NOW};
    check(fixture, ledger_policy_create(fixture->ledger, &policy, lease, &fixture->error));
    return policy;
}

struct policy create(struct fixture *fixture, int64_t total, struct lease *lease)
{
    return create_with(fixture, total, 0, 5, lease);
}

struct claim claim_of(const struct lease *lease, int64_t seq, const char *user, int32_t nth)
{
    struct claim claim = {.policy_id = lease->policy_id,
                          .seq = seq,
                          .lease_id = lease->id,
                          .requested_at_ms = NOW,
                          .nth = nth,
                          .user = id_of(span_of(user))};
    memcpy(claim.request_id.bytes + 8, &seq, sizeof(seq));
    claim.request_id.bytes[7] = (uint8_t)nth;
    return claim;
}

enum coupon_state issue(struct fixture *fixture, const struct claim *claims, size_t count)
{
    wait_for(fixture, ledger_issue(fixture->ledger, claims, count, NULL, 0));
    return fixture->states[fixture->issued_count - 1];
}

enum coupon_state issue_one(struct fixture *fixture, const struct lease *lease, int64_t seq,
                            const char *user, int32_t nth)
{
    struct claim claim = claim_of(lease, seq, user, nth);
    return issue(fixture, &claim, 1);
}

struct coupon coupon_of(struct fixture *fixture, int64_t policy_id, int64_t seq)
{
    struct coupon coupon;
    check(fixture, ledger_coupon_get(fixture->ledger, policy_id, seq, &coupon, &fixture->error));
    return coupon;
}

struct policy policy_of(struct fixture *fixture, int64_t id)
{
    struct policy policy;
    check(fixture, ledger_policy_get(fixture->ledger, id, &policy, &fixture->error));
    assert_int_equal(imbalance_of(fixture->session, id), 0);
    return policy;
}

enum status change(struct fixture *fixture, int64_t id, struct policy_change what,
                   const struct lease_shrunk *shrunk, size_t shrunk_count)
{
    struct policy policy;
    what.now_ms = NOW;
    return ledger_policy_change(fixture->ledger, id, &what, shrunk, shrunk_count, &policy,
                                &fixture->error);
}

/* --- from beside --- */

struct ledger_suite_session *another_session(struct fixture *fixture)
{
    ensure(fixture->session_count < sizeof(fixture->sessions) / sizeof(fixture->sessions[0]));
    return fixture->sessions[fixture->session_count++] = ledger_suite_session_open();
}

int64_t ask(struct ledger_suite_session *session, const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    ensure(length > 0 && (size_t)length < sizeof(text));
    return ledger_suite_ask(session, text);
}

int64_t imbalance_of(struct ledger_suite_session *session, int64_t policy_id)
{
    return ask(session,
               "SELECT p.unleased - p.total"
               " + (SELECT COALESCE(SUM(l.count - (SELECT COUNT(*) FROM coupon c"
               "      WHERE c.policy_id = l.policy_id AND c.seq >= l.first_seq"
               "        AND c.seq < l.first_seq + l.count)"
               "      - (SELECT COUNT(*) FROM refused_claim r"
               "      WHERE r.policy_id = l.policy_id AND r.seq >= l.first_seq"
               "        AND r.seq < l.first_seq + l.count)), 0)"
               "    FROM lease l WHERE l.policy_id = p.id AND l.state = 'OPEN')"
               " + (SELECT COUNT(*) FROM coupon c WHERE c.policy_id = p.id AND c.slot IS NOT NULL)"
               " FROM policy p WHERE p.id = %lld",
               (long long)policy_id);
}
