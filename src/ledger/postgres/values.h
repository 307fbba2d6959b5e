/* values.h: values on their way to and from PostgreSQL.
 *
 * Numbers and texts travel as text, which the server reads as whatever type it expects there; bytes
 * and arrays travel in binary. Results come in binary.
 *
 * Threads: values only.
 */
#pragma once

#include <libpq-fe.h>

#include "ledger/driver.h"

#define POSTGRES_PARAMETERS_MAX 20

/* The arguments of a statement as libpq takes them. */
struct postgres_parameters {
    int count;
    const char *values[POSTGRES_PARAMETERS_MAX];
    int lengths[POSTGRES_PARAMETERS_MAX];
    int formats[POSTGRES_PARAMETERS_MAX];
    struct buffer texts; /* what needs a NUL behind it */
};

void postgres_parameters_init(struct postgres_parameters *parameters);
void postgres_parameters_release(struct postgres_parameters *parameters);

/* The call's values take the place of what was there. Bytes are borrowed; the rest is copied.
 * UNAVAILABLE: no memory for so much text. */
enum status postgres_parameters_set(struct postgres_parameters *parameters,
                                    const struct sql_call *call, struct error *error) MUST_CHECK;

/* The columns of coupon_insert for these rows, one array each. UNAVAILABLE: no memory. */
enum status postgres_parameters_set_coupons(struct postgres_parameters *parameters,
                                            const struct coupon_row *rows, size_t count,
                                            struct error *error) MUST_CHECK;

/* Reads a row; texts and bytes stay in the result. FAILED: a column has a type that none of ours
 * has. */
enum status postgres_values_read(const PGresult *result, int row, struct sql_value *columns,
                                 struct error *error) MUST_CHECK;
