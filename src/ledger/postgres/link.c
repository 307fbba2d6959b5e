/* link.c: connecting, sending, awaiting answers, and what the server's errors mean. */
#include "ledger/postgres/link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

#define CONNECT_TIMEOUT_MIN_S 2
#define RESULTS_BINARY        1
#define REFUSAL_MS            1000
#define SQLSTATE_LENGTH       5

/* --- words --- */

/* libpq writes paragraphs; ours are one line. */
static void postgres_link_flatten(const char *text, char *line, size_t size)
{
    size_t length = 0;

    for (; *text != '\0' && length + 1 < size; text++) {
        bool is_space = *text == '\n' || *text == '\t' || *text == ' ';
        if (!is_space)
            line[length++] = *text;
        else if (length > 0 && line[length - 1] != ' ')
            line[length++] = ' ';
    }
    while (length > 0 && line[length - 1] == ' ')
        length--;
    line[length] = '\0';
}

static const char *postgres_link_setting(const char *word)
{
    return word != NULL && word[0] != '\0' ? word : "?";
}

/* The connection is of no use any more: says why, and closes it. */
static enum status postgres_link_lose(struct postgres_link *link, struct error *error)
{
    struct error failure;

    postgres_link_flatten(PQerrorMessage(link->connection), failure.text, sizeof(failure.text));
    enum status status =
        error_set(error, STATUS_UNAVAILABLE, "the connection to PostgreSQL at %s is lost: %s",
                  postgres_link_setting(PQhost(link->connection)), failure.text);
    postgres_link_close(link);
    return status;
}

static enum status postgres_link_time_out(struct postgres_link *link, struct error *error)
{
    enum status status = error_set(error, STATUS_UNAVAILABLE, "PostgreSQL at %s does not answer",
                                   postgres_link_setting(PQhost(link->connection)));
    postgres_link_close(link);
    link->timed_out = true;
    return status;
}

/* What the server says on the side: WARNING and above is for the operator. */
static void postgres_link_notice(void *context, const PGresult *result)
{
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    bool is_small = severity == NULL || strcmp(severity, "NOTICE") == 0 ||
                    strcmp(severity, "INFO") == 0 || strcmp(severity, "DEBUG") == 0 ||
                    strcmp(severity, "LOG") == 0;

    log_event(is_small ? LOG_DEBUG : LOG_WARN, "postgres_says",
              LOG_FIELD("severity", LOG_TEXT(postgres_link_setting(severity))),
              LOG_FIELD("words", LOG_TEXT(postgres_link_setting(text))));
}

/* --- connecting --- */

enum status postgres_target_check(const char *url, struct error *error)
{
    char *text = NULL;
    PQconninfoOption *options = PQconninfoParse(url, &text);

    if (options != NULL) {
        PQconninfoFree(options);
        return STATUS_OK;
    }
    /* What is quoted may be a password, except for the name of an option. */
    bool is_option = text != NULL && strncmp(text, "invalid URI query parameter", 27) == 0;
    int length = text == NULL ? 0 : (int)strcspn(text, is_option ? "\n" : "\"\n:");
    enum status status = error_set(error, STATUS_INVALID,
                                   "the ledger's URL cannot be read (%.*s); it looks like "
                                   "postgres://user@host:5432/database?sslmode=verify-full",
                                   length, text == NULL ? "" : text);
    PQfreemem(text);
    return status;
}

/* Seconds for each host; a shorter time in the URL stays. */
static void postgres_target_timeout(const struct postgres_target *target, char *text, size_t size)
{
    int64_t seconds = (target->timeout_ms + 999) / 1000;
    PQconninfoOption *options = PQconninfoParse(target->url, NULL);

    for (PQconninfoOption *option = options; option != NULL && option->keyword != NULL; option++) {
        if (strcmp(option->keyword, "connect_timeout") != 0 || option->val == NULL)
            continue;
        int64_t asked = strtol(option->val, NULL, 10);
        if (asked > 0 && asked < seconds)
            seconds = asked;
    }
    PQconninfoFree(options);
    if (seconds < CONNECT_TIMEOUT_MIN_S)
        seconds = CONNECT_TIMEOUT_MIN_S;
    snprintf(text, size, "%lld", (long long)seconds);
}

/* What does not pass by itself: no login, no such database, no right to it. */
static bool postgres_link_refuses_us(const char *text)
{
    static const char *const states[] = {"28", "3D000", "42501"};

    for (const char *at = strstr(text, ":  "); at != NULL; at = strstr(at + 3, ":  ")) {
        if (strspn(at + 3, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != SQLSTATE_LENGTH)
            continue;
        for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
            if (strncmp(at + 3, states[i], strlen(states[i])) == 0)
                return true;
    }
    return false;
}

/* The words of a connection that failed are in the server's language. Asked once more, they are the
 * SQLSTATE, unless the first try has taken long: then nobody has refused anything. */
static bool postgres_link_is_refused(PGconn *connection, int64_t took_ms)
{
    const char *text = PQerrorMessage(connection);

    if (PQconnectionNeedsPassword(connection) || strstr(text, "certificate") != NULL ||
        strstr(text, "does not support SSL") != NULL)
        return true;
    if (took_ms > REFUSAL_MS)
        return false;
    PQsetErrorVerbosity(connection, PQERRORS_SQLSTATE);
    PQreset(connection);
    return PQstatus(connection) != CONNECTION_OK &&
           postgres_link_refuses_us(PQerrorMessage(connection));
}

static enum status postgres_link_fail_to_open(struct postgres_link *link,
                                              const struct postgres_target *target, int64_t took_ms,
                                              struct error *error)
{
    struct error failure;

    postgres_link_flatten(PQerrorMessage(link->connection), failure.text, sizeof(failure.text));
    bool is_refused = target->is_first && postgres_link_is_refused(link->connection, took_ms);
    postgres_link_close(link);
    return error_set(error, is_refused ? STATUS_FAILED : STATUS_UNAVAILABLE,
                     "cannot connect to PostgreSQL: %s; %s", failure.text, LEDGER_CONNECT_ADVICE);
}

/* libpq's own connecting waits at most connect_timeout for each host and then tries the next;
 * its step-by-step way leaves deadlines to the caller, who cannot make it try the next host. */
enum status postgres_link_open(struct postgres_link *link, const struct postgres_target *target,
                               struct error *error)
{
    char connect_s[24];
    char idle_s[24];
    char unsent_ms[24];
    int64_t half_s = target->timeout_ms / 2000 + 1;
    /* What stands in front of dbname may be said otherwise by the URL, what stands behind may
     * not. */
    const struct {
        const char *name;
        const char *value;
    } options[] = {
        {"fallback_application_name", "dibs"},
        {"keepalives_idle", idle_s},
        {"keepalives_interval", idle_s},
        {"keepalives_count", "3"},
        {"tcp_user_timeout", unsent_ms},
        {"dbname", target->url},
        {"client_encoding", "UTF8"},
        {"connect_timeout", connect_s},
        {target->password != NULL ? "password" : NULL, target->password},
        {NULL, NULL},
    };
    const char *names[sizeof(options) / sizeof(options[0])];
    const char *values[sizeof(options) / sizeof(options[0])];

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        names[i] = options[i].name;
        values[i] = options[i].value;
    }
    ensure(link->connection == NULL);
    postgres_target_timeout(target, connect_s, sizeof(connect_s));
    snprintf(idle_s, sizeof(idle_s), "%lld", (long long)half_s);
    snprintf(unsent_ms, sizeof(unsent_ms), "%lld", (long long)target->timeout_ms);
    link->timed_out = false;
    int64_t began_ms = clock_monotonic_ms();
    link->connection = PQconnectdbParams(names, values, 1);
    if (link->connection == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a connection");
    if (PQstatus(link->connection) != CONNECTION_OK)
        return postgres_link_fail_to_open(link, target, clock_monotonic_ms() - began_ms, error);
    PQsetNoticeReceiver(link->connection, postgres_link_notice, NULL);
    if (PQsetnonblocking(link->connection, 1) != 0 || PQenterPipelineMode(link->connection) != 1)
        return postgres_link_lose(link, error);
    return STATUS_OK;
}

void postgres_link_close(struct postgres_link *link)
{
    PQfinish(link->connection);
    link->connection = NULL;
}

/* --- what an error means --- */

static const struct {
    const char *state; /* a SQLSTATE, or the beginning of several */
    enum status status;
    bool ends_link;
} postgres_link_errors[] = {
    {"40001", STATUS_BUSY, false},        /* serialization failure */
    {"40P01", STATUS_BUSY, false},        /* deadlock */
    {"55P03", STATUS_BUSY, false},        /* lock timeout */
    {"57014", STATUS_UNAVAILABLE, false}, /* statement timeout */
    {"53", STATUS_UNAVAILABLE, false},    /* disk full, out of memory, too many connections */
    {"58", STATUS_UNAVAILABLE, false},    /* input or output error */
    {"08P01", STATUS_FAILED, true},       /* we broke the protocol */
    {"08", STATUS_UNAVAILABLE, true},     /* connection trouble */
    {"57P", STATUS_UNAVAILABLE, true},    /* shutting down, crashed, starting, dropped */
    {"25P03", STATUS_UNAVAILABLE, true},  /* idle in a transaction for too long */
    {"25006", STATUS_UNAVAILABLE, true},  /* read-only: no longer the primary */
    {"26000", STATUS_UNAVAILABLE, true},  /* a prepared statement is gone: prepare all again */
    {"42P05", STATUS_UNAVAILABLE, true},  /* one is there that we did not prepare: a pooler's */
    {"0A000", STATUS_UNAVAILABLE, true},  /* the tables changed under a prepared statement */
};

/* Notes the first error of an exchange; what follows it was not done. */
static enum status postgres_link_fail(const PGresult *result, struct postgres_answer *answer,
                                      bool *ends_link, struct error *error)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);
    enum status status = STATUS_FAILED;
    struct error line;

    /* An error without a SQLSTATE is libpq's own: the connection broke. */
    *ends_link = state == NULL || (severity != NULL && strcmp(severity, "ERROR") != 0);
    if (*ends_link)
        status = STATUS_UNAVAILABLE;
    snprintf(answer->error_state, sizeof(answer->error_state), "%s", state == NULL ? "" : state);
    for (size_t i = 0; i < sizeof(postgres_link_errors) / sizeof(postgres_link_errors[0]); i++) {
        const char *known = postgres_link_errors[i].state;
        if (state == NULL || strncmp(state, known, strlen(known)) != 0)
            continue;
        status = postgres_link_errors[i].status;
        *ends_link = *ends_link || postgres_link_errors[i].ends_link;
        break;
    }
    postgres_link_flatten(text != NULL ? text : PQresultErrorMessage(result), line.text,
                          sizeof(line.text));
    return error_set(error, status, "PostgreSQL: %s%s%s%s%s", line.text, hint != NULL ? "; " : "",
                     hint != NULL ? hint : "", state != NULL ? " " : "",
                     state != NULL ? state : "");
}

/* --- asking --- */

static bool postgres_link_send(struct postgres_link *link, const struct postgres_step *step)
{
    static const struct postgres_parameters none;
    const struct postgres_parameters *given = step->parameters != NULL ? step->parameters : &none;

    switch (step->kind) {
    case STEP_PREPARE:
        return PQsendPrepare(link->connection, step->name, step->text, 0, NULL) == 1;
    case STEP_RUN_PREPARED:
        return PQsendQueryPrepared(link->connection, step->name, given->count, given->values,
                                   given->lengths, given->formats, RESULTS_BINARY) == 1;
    case STEP_RUN:
        break;
    }
    return PQsendQueryParams(link->connection, step->text, given->count, NULL, given->values,
                             given->lengths, given->formats, RESULTS_BINARY) == 1;
}

/* Waits until there is a result, which may be NULL: the end of a step. */
static enum status postgres_link_await(struct postgres_link *link, int64_t deadline_ms,
                                       PGresult **result, struct error *error)
{
    for (;;) {
        int unsent = PQflush(link->connection);
        if (unsent >= 0 && !PQisBusy(link->connection)) {
            *result = PQgetResult(link->connection);
            return STATUS_OK;
        }
        int64_t left_ms = deadline_ms - clock_monotonic_ms();
        struct pollfd wait = {.fd = PQsocket(link->connection), .events = POLLIN};
        if (unsent > 0)
            wait.events |= POLLOUT;
        int ready = left_ms <= 0 ? 0 : poll(&wait, 1, (int)left_ms);
        if (ready == 0)
            return postgres_link_time_out(link, error);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready < 0 || unsent < 0 ||
            ((wait.revents & ~POLLOUT) != 0 && PQconsumeInput(link->connection) == 0))
            return postgres_link_lose(link, error);
    }
}

static enum status postgres_link_rows(const PGresult *result, struct postgres_answer *answer,
                                      struct error *error)
{
    struct sql_value columns[SQL_COLUMNS_MAX];
    enum status status = STATUS_OK;
    int count = PQntuples(result);

    for (int i = 0; i < count && answer->row != NULL && status == STATUS_OK; i++) {
        status = postgres_values_read(result, i, columns, error);
        if (status != STATUS_OK)
            break;
        answer->row_count++;
        status = answer->row(answer->context, columns, error);
    }
    return status;
}

/* What a result of the last step brings. */
static enum status postgres_link_take(PGresult *result, struct postgres_answer *answer,
                                      struct error *error)
{
    if (PQresultStatus(result) != PGRES_SINGLE_TUPLE) {
        const char *command = PQcmdStatus(result);
        size_t length = strcspn(command, " ");
        snprintf(answer->command, sizeof(answer->command), "%.*s", (int)length, command);
        answer->changed = strtoll(PQcmdTuples(result), NULL, 10);
    }
    return postgres_link_rows(result, answer, error);
}

/* Reads the results of one step. Only `*status` OK goes on being told of rows. */
static enum status postgres_link_read_step(struct postgres_link *link, bool is_last,
                                           int64_t timeout_ms, struct postgres_answer *answer,
                                           enum status *status, struct error *error)
{
    int64_t deadline_ms = clock_monotonic_ms() + timeout_ms;
    bool streams = is_last && answer->streams && PQsetSingleRowMode(link->connection) == 1;

    for (;;) {
        PGresult *result = NULL;
        bool ends_link = false;
        enum status awaited = postgres_link_await(link, deadline_ms, &result, error);

        if (awaited != STATUS_OK)
            return awaited;
        if (result == NULL)
            return STATUS_OK;
        ExecStatusType kind = PQresultStatus(result);
        if (kind == PGRES_PIPELINE_SYNC) {
            PQclear(result);
            return STATUS_OK;
        }
        if (kind == PGRES_FATAL_ERROR && *status == STATUS_OK)
            *status = postgres_link_fail(result, answer, &ends_link, error);
        else if (kind != PGRES_FATAL_ERROR && is_last && *status == STATUS_OK)
            *status = postgres_link_take(result, answer, error);
        PQclear(result);
        /* A caller that wants no more rows of a stream does not wait for the rest of it. */
        if (ends_link || (streams && *status != STATUS_OK)) {
            postgres_link_close(link);
            return *status;
        }
        if (PQstatus(link->connection) == CONNECTION_BAD)
            return postgres_link_lose(link, error);
        if (streams)
            deadline_ms = clock_monotonic_ms() + timeout_ms;
    }
}

enum status postgres_link_ask(struct postgres_link *link, const struct postgres_step *steps,
                              size_t count, int64_t timeout_ms, struct postgres_answer *answer,
                              struct error *error)
{
    enum status status = STATUS_OK;
    bool sent = true;

    ensure(link->connection != NULL);
    answer->row_count = 0;
    answer->changed = 0;
    answer->command[0] = '\0';
    answer->error_state[0] = '\0';
    answer->failed_at = count;
    for (size_t i = 0; i < count && sent; i++)
        sent = postgres_link_send(link, &steps[i]);
    if (!sent || PQpipelineSync(link->connection) != 1)
        return postgres_link_lose(link, error);
    /* The step behind the last is the end of the exchange. */
    for (size_t i = 0; i <= count && link->connection != NULL; i++) {
        enum status read =
            postgres_link_read_step(link, i + 1 == count, timeout_ms, answer, &status, error);
        if (status != STATUS_OK && answer->failed_at > i)
            answer->failed_at = i;
        if (read != STATUS_OK)
            return read;
    }
    return status;
}

enum status postgres_link_script(struct postgres_link *link, const char *text, int64_t timeout_ms,
                                 struct error *error)
{
    struct postgres_answer answer = {0};
    enum status status = STATUS_OK;

    ensure(link->connection != NULL);
    if (PQexitPipelineMode(link->connection) != 1 || PQsendQuery(link->connection, text) != 1)
        return postgres_link_lose(link, error);
    enum status read = postgres_link_read_step(link, true, timeout_ms, &answer, &status, error);
    if (read == STATUS_OK && PQenterPipelineMode(link->connection) != 1)
        return postgres_link_lose(link, error);
    return read != STATUS_OK ? read : status;
}
