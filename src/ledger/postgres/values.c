/* values.c: parameters as libpq takes them, arrays in binary, columns of results. */
#include "ledger/postgres/values.h"

#include <endian.h>

#include "ledger/rows.h"

/* Oids of the system catalog; they never change. */
enum postgres_type {
    TYPE_BOOL = 16,
    TYPE_BYTEA = 17,
    TYPE_INT8 = 20,
    TYPE_INT2 = 21,
    TYPE_INT4 = 23,
    TYPE_TEXT = 25,
    TYPE_VARCHAR = 1043,
};

enum postgres_format { FORMAT_TEXT, FORMAT_BINARY };

/* A chunk of insert_coupons takes about 250 bytes a row. */
#define TEXTS_LENGTH_MAX ((size_t)64 << 20)

void postgres_parameters_init(struct postgres_parameters *parameters)
{
    *parameters = (struct postgres_parameters){0};
    buffer_init(&parameters->texts, TEXTS_LENGTH_MAX);
}

void postgres_parameters_release(struct postgres_parameters *parameters)
{
    buffer_release(&parameters->texts);
    *parameters = (struct postgres_parameters){0};
}

/* The buffer moves while it grows, so the places in it become addresses at the end. */
static enum status postgres_parameters_place(struct postgres_parameters *parameters,
                                             const size_t *offsets, struct error *error)
{
    if (parameters->texts.overflowed)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a statement's arguments");
    for (int i = 0; i < parameters->count; i++)
        if (offsets[i] != SIZE_MAX)
            parameters->values[i] = parameters->texts.bytes + offsets[i];
    return STATUS_OK;
}

enum status postgres_parameters_set(struct postgres_parameters *parameters,
                                    const struct sql_call *call, struct error *error)
{
    const struct sql_value *values = call->values;
    size_t count = call->value_count;
    struct buffer *texts = &parameters->texts;
    size_t offsets[POSTGRES_PARAMETERS_MAX] = {0};

    ensure(count <= POSTGRES_PARAMETERS_MAX);
    buffer_clear(texts);
    parameters->count = (int)count;
    for (size_t i = 0; i < count; i++) {
        offsets[i] = SIZE_MAX;
        parameters->values[i] = NULL;
        parameters->lengths[i] = (int)values[i].bytes.length;
        parameters->formats[i] = values[i].kind == SQL_BLOB ? FORMAT_BINARY : FORMAT_TEXT;
        if (values[i].kind == SQL_BLOB)
            parameters->values[i] = values[i].bytes.length > 0 ? values[i].bytes.bytes : "";
        if (values[i].kind != SQL_I64 && values[i].kind != SQL_TEXT)
            continue;
        offsets[i] = texts->length;
        if (values[i].kind == SQL_I64)
            buffer_append_i64(texts, values[i].number);
        else
            buffer_append_span(texts, values[i].bytes);
        buffer_append(texts, "", 1);
    }
    return postgres_parameters_place(parameters, offsets, error);
}

/* --- arrays --- */

static void postgres_array_put_i32(struct buffer *out, int32_t number)
{
    uint32_t wire = htobe32((uint32_t)number);
    buffer_append(out, &wire, sizeof(wire));
}

/* One dimension, counted from 1. */
static void postgres_array_begin(struct buffer *out, enum postgres_type type, size_t count)
{
    postgres_array_put_i32(out, 1);
    postgres_array_put_i32(out, 1); /* there may be NULLs */
    postgres_array_put_i32(out, (int32_t)type);
    postgres_array_put_i32(out, (int32_t)count);
    postgres_array_put_i32(out, 1);
}

static void postgres_array_put(struct buffer *out, const struct sql_value *value)
{
    struct {
        uint32_t length;
        uint64_t number;
    } __attribute__((packed)) wire;

    switch (value->kind) {
    case SQL_NULL:
        postgres_array_put_i32(out, -1);
        break;
    case SQL_I64:
        wire.length = htobe32(sizeof(wire.number));
        wire.number = htobe64((uint64_t)value->number);
        buffer_append(out, &wire, sizeof(wire));
        break;
    case SQL_TEXT:
    case SQL_BLOB:
        postgres_array_put_i32(out, (int32_t)value->bytes.length);
        buffer_append_span(out, value->bytes);
        break;
    }
}

/* --- coupons --- */

static enum postgres_type postgres_coupon_type(enum coupon_column column)
{
    switch (column) {
    case COUPON_COLUMN_USER_ID:
    case COUPON_COLUMN_STATE:
    case COUPON_COLUMN_REASON:
        return TYPE_TEXT;
    case COUPON_COLUMN_REQUEST_ID:
        return TYPE_BYTEA;
    default:
        return TYPE_INT8;
    }
}

enum status postgres_parameters_set_coupons(struct postgres_parameters *parameters,
                                            const struct coupon_row *rows, size_t count,
                                            struct error *error)
{
    struct buffer *texts = &parameters->texts;
    size_t offsets[COUPON_COLUMN_COUNT];

    buffer_clear(texts);
    parameters->count = COUPON_COLUMN_COUNT;
    for (enum coupon_column column = 0; column < COUPON_COLUMN_COUNT; column++) {
        offsets[column] = texts->length;
        postgres_array_begin(texts, postgres_coupon_type(column), count);
        for (size_t i = 0; i < count; i++) {
            struct sql_value value = rows_coupon_value(&rows[i], column);
            postgres_array_put(texts, &value);
        }
        parameters->formats[column] = FORMAT_BINARY;
        parameters->lengths[column] = (int)(texts->length - offsets[column]);
    }
    return postgres_parameters_place(parameters, offsets, error);
}

/* --- results --- */

static int64_t postgres_values_read_int(const char *bytes, int length)
{
    uint64_t number = 0;

    for (int i = 0; i < length; i++)
        number = number << 8 | (unsigned char)bytes[i];
    switch (length) {
    case 2:
        return (int16_t)number;
    case 4:
        return (int32_t)number;
    default:
        return (int64_t)number;
    }
}

enum status postgres_values_read(const PGresult *result, int row, struct sql_value *columns,
                                 struct error *error)
{
    int count = PQnfields(result);

    ensure(count <= SQL_COLUMNS_MAX);
    for (int i = 0; i < count; i++) {
        const char *bytes = PQgetvalue(result, row, i);
        int length = PQgetlength(result, row, i);

        if (PQgetisnull(result, row, i)) {
            columns[i] = sql_null();
            continue;
        }
        switch ((enum postgres_type)PQftype(result, i)) {
        case TYPE_BOOL:
        case TYPE_INT2:
        case TYPE_INT4:
        case TYPE_INT8:
            columns[i] = sql_i64(postgres_values_read_int(bytes, length));
            break;
        case TYPE_TEXT:
        case TYPE_VARCHAR:
            columns[i] = sql_text((struct span){.bytes = bytes, .length = (size_t)length});
            break;
        case TYPE_BYTEA:
            columns[i] = sql_blob(bytes, (size_t)length);
            break;
        default:
            return error_set(error, STATUS_FAILED,
                             "column %s has a type of its own (%u); was the table made by hand?",
                             PQfname(result, i), PQftype(result, i));
        }
    }
    return STATUS_OK;
}
