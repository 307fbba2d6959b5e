/* mysql_statement.c: prepares, binds, executes, fetches. */
#include "ledger/mysql_statement.h"

#include <ctype.h>
#include <errmsg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_LENGTH_MAX   8192
#define COLUMN_LENGTH_MAX 1024
#define CHARSET_BINARY    63

static void result_set(struct ledger_mysql_result *result, unsigned code, const char *sql_state,
                       const char *words)
{
    result->code = code;
    snprintf(result->sql_state, sizeof(result->sql_state), "%s", sql_state);
    (void)error_set(&result->words, STATUS_FAILED, "%s", words);
}

/* The client library does not always say on the statement what it noticed on the connection. */
void ledger_mysql_result_fail(struct ledger_mysql_result *result, MYSQL_STMT *handle, MYSQL *mysql)
{
    if (handle != NULL && mysql_stmt_errno(handle) != 0)
        result_set(result, mysql_stmt_errno(handle), mysql_stmt_sqlstate(handle),
                   mysql_stmt_error(handle));
    else if (mysql_errno(mysql) != 0)
        result_set(result, mysql_errno(mysql), mysql_sqlstate(mysql), mysql_error(mysql));
    else
        result_set(result, CR_SERVER_LOST, "HY000", "the answer ended early");
}

void ledger_mysql_result_no_memory(struct ledger_mysql_result *result)
{
    result_set(result, CR_OUT_OF_MEMORY, "HY001", "no memory for a statement");
}

/* --- preparing --- */

size_t ledger_mysql_take_numbers(struct buffer *text, struct span numbered, uint8_t *order,
                                 size_t order_max)
{
    const char *end = memrchr(numbered.bytes, ';', numbered.length);
    const char *next = numbered.bytes;
    size_t count = 0;

    ensure(end != NULL);
    while (next < end) {
        buffer_append(text, next, 1);
        if (*next++ != '?')
            continue;
        size_t number = 0;
        while (next < end && isdigit((unsigned char)*next))
            number = number * 10 + (size_t)(*next++ - '0');
        ensure(number >= 1 && number <= LEDGER_MYSQL_VALUES_MAX && count < order_max);
        order[count++] = (uint8_t)(number - 1);
    }
    return count;
}

static bool statement_is_number(const MYSQL_FIELD *field)
{
    switch (field->type) {
    case MYSQL_TYPE_TINY:
    case MYSQL_TYPE_SHORT:
    case MYSQL_TYPE_INT24:
    case MYSQL_TYPE_LONG:
    case MYSQL_TYPE_LONGLONG:
    case MYSQL_TYPE_DECIMAL:
    case MYSQL_TYPE_NEWDECIMAL:
        return true;
    default:
        return false;
    }
}

/* Numbers are fetched as 64 bits, everything else as its bytes. */
static void statement_lay_out(struct ledger_mysql_statement *statement, const MYSQL_FIELD *fields)
{
    for (size_t i = 0; i < statement->column_count; i++) {
        MYSQL_BIND *bind = &statement->binds[i];
        bool is_number = statement_is_number(&fields[i]);
        char *place = statement->bytes + i * COLUMN_LENGTH_MAX;

        *bind = (MYSQL_BIND){
            .buffer_type = is_number ? MYSQL_TYPE_LONGLONG : MYSQL_TYPE_STRING,
            .buffer = is_number ? (void *)&statement->numbers[i] : place,
            .buffer_length = is_number ? sizeof(int64_t) : COLUMN_LENGTH_MAX,
            .length = &statement->lengths[i],
            .is_null = &statement->nulls[i],
        };
        statement->columns[i] = (struct sql_value){
            .kind = is_number                               ? SQL_I64
                    : fields[i].charsetnr == CHARSET_BINARY ? SQL_BLOB
                                                            : SQL_TEXT,
            .bytes.bytes = place,
        };
    }
}

static bool statement_prepare(struct ledger_mysql_statement *statement, MYSQL *mysql,
                              const struct buffer *text, struct ledger_mysql_result *result)
{
    statement->mysql = mysql;
    statement->handle = mysql_stmt_init(mysql);
    if (statement->handle == NULL ||
        mysql_stmt_prepare(statement->handle, text->bytes, text->length) != 0) {
        ledger_mysql_result_fail(result, statement->handle, mysql);
        return false;
    }
    ensure(mysql_stmt_param_count(statement->handle) == statement->value_count);
    MYSQL_RES *metadata = mysql_stmt_result_metadata(statement->handle);
    if (metadata == NULL)
        return true;
    statement->column_count = mysql_num_fields(metadata);
    ensure(statement->column_count <= SQL_COLUMNS_MAX);
    statement->bytes = malloc(statement->column_count * COLUMN_LENGTH_MAX);
    if (statement->bytes != NULL)
        statement_lay_out(statement, mysql_fetch_fields(metadata));
    else
        ledger_mysql_result_no_memory(result);
    mysql_free_result(metadata);
    return statement->bytes != NULL;
}

struct ledger_mysql_statement *ledger_mysql_statement_new(MYSQL *mysql, struct span numbered,
                                                          struct ledger_mysql_result *result)
{
    struct ledger_mysql_statement *statement = calloc(1, sizeof(*statement));
    struct buffer text;
    bool prepared = false;

    buffer_init(&text, TEXT_LENGTH_MAX);
    if (statement != NULL)
        statement->value_count =
            ledger_mysql_take_numbers(&text, numbered, statement->order, LEDGER_MYSQL_VALUES_MAX);
    if (statement == NULL || text.overflowed)
        ledger_mysql_result_no_memory(result);
    else
        prepared = statement_prepare(statement, mysql, &text, result);
    buffer_release(&text);
    if (prepared)
        return statement;
    ledger_mysql_statement_free(statement);
    return NULL;
}

void ledger_mysql_statement_free(struct ledger_mysql_statement *statement)
{
    if (statement == NULL)
        return;
    if (statement->handle != NULL)
        mysql_stmt_close(statement->handle);
    free(statement->bytes);
    free(statement);
}

/* --- running --- */

static void statement_bind(MYSQL_BIND *bind, const struct sql_value *value)
{
    *bind = (MYSQL_BIND){.buffer_type = MYSQL_TYPE_NULL};
    switch (value->kind) {
    case SQL_I64:
        bind->buffer_type = MYSQL_TYPE_LONGLONG;
        bind->buffer = (void *)(uintptr_t)&value->number;
        break;
    case SQL_TEXT:
    case SQL_BLOB:
        bind->buffer_type = value->kind == SQL_TEXT ? MYSQL_TYPE_STRING : MYSQL_TYPE_BLOB;
        bind->buffer = (void *)(uintptr_t)value->bytes.bytes;
        bind->buffer_length = value->bytes.length;
        break;
    case SQL_NULL:
        break;
    }
}

static bool statement_execute(struct ledger_mysql_statement *statement,
                              const struct sql_value *values, size_t value_count)
{
    MYSQL_BIND binds[LEDGER_MYSQL_VALUES_MAX];

    for (size_t i = 0; i < statement->value_count; i++) {
        ensure(statement->order[i] < value_count);
        statement_bind(&binds[i], &values[statement->order[i]]);
    }
    if (statement->value_count > 0 && mysql_stmt_bind_param(statement->handle, binds) != 0)
        return false;
    return mysql_stmt_execute(statement->handle) == 0;
}

static enum status statement_call(struct ledger_mysql_statement *statement, sql_row_fn row,
                                  void *context, struct error *error)
{
    struct sql_value columns[SQL_COLUMNS_MAX];

    for (size_t i = 0; i < statement->column_count; i++) {
        columns[i] = statement->columns[i];
        columns[i].number = statement->numbers[i];
        columns[i].bytes.length = statement->lengths[i];
        if (statement->nulls[i])
            columns[i] = sql_null();
    }
    return row(context, columns, error);
}

/* Whatever ends the loop, what is left of the answer is read, so that the next one is the next. */
static void statement_fetch(struct ledger_mysql_statement *statement, sql_row_fn row, void *context,
                            struct ledger_mysql_result *result, struct error *error)
{
    MYSQL_STMT *handle = statement->handle;
    int fetched = mysql_stmt_bind_result(handle, statement->binds) == 0 ? 0 : 1;

    while (fetched == 0 && result->status == STATUS_OK) {
        fetched = mysql_stmt_fetch(handle);
        if (fetched == 0 && row != NULL)
            result->status = statement_call(statement, row, context, error);
        result->row_count += fetched == 0;
    }
    if (fetched == MYSQL_DATA_TRUNCATED)
        result->status =
            error_set(error, STATUS_FAILED, "a column has more than %d bytes", COLUMN_LENGTH_MAX);
    else if (fetched != 0 && fetched != MYSQL_NO_DATA)
        ledger_mysql_result_fail(result, handle, statement->mysql);
    mysql_stmt_free_result(handle);
}

void ledger_mysql_statement_run(struct ledger_mysql_statement *statement,
                                const struct sql_value *values, size_t value_count, sql_row_fn row,
                                void *context, struct ledger_mysql_result *result,
                                struct error *error)
{
    MYSQL_STMT *handle = statement->handle;

    *result = (struct ledger_mysql_result){.status = STATUS_OK};
    if (!statement_execute(statement, values, value_count)) {
        ledger_mysql_result_fail(result, handle, statement->mysql);
        return;
    }
    if (statement->column_count > 0) {
        statement_fetch(statement, row, context, result, error);
        return;
    }
    result->changed_count = (int64_t)mysql_stmt_affected_rows(handle);
    if (row != NULL) {
        struct sql_value id = sql_i64((int64_t)mysql_stmt_insert_id(handle));
        result->status = row(context, &id, error);
    }
}
