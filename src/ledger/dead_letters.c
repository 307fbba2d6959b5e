/* dead_letters.c: the table of dead letters. */
#include "ledger/dead_letters.h"

#include "ledger/inside.h"
#include "ledger/rows.h"

enum status dead_letters_write(struct sql *sql, const struct dead_letter *letter,
                               struct error *error)
{
    const struct claim *claim = &letter->claim;

    return SQL_WRITE(sql, STATEMENT_dead_letter_insert, error, sql_i64(claim->policy_id),
                     sql_i64(claim->seq), sql_text(id_span(&claim->user)), sql_i64(claim->nth),
                     sql_blob(claim->request_id.bytes, sizeof(claim->request_id.bytes)),
                     sql_i64(claim->requested_at_ms), sql_i64(letter->attempts),
                     sql_i64(letter->died_at_ms), sql_text(span_of(letter->reason)));
}

static enum status dead_letters_read_row(void *row, const struct sql_value *columns,
                                         struct error *error)
{
    struct dead_letter *letter = row;

    *letter = (struct dead_letter){
        .claim = {.policy_id = columns[0].number,
                  .seq = columns[1].number,
                  .user = rows_read_user(&columns[2]),
                  .nth = (int32_t)columns[3].number,
                  .request_id = rows_read_request_id(&columns[4]),
                  .requested_at_ms = columns[5].number},
        .attempts = (int32_t)columns[6].number,
        .died_at_ms = columns[7].number,
    };
    rows_read_text(&columns[8], letter->reason, sizeof(letter->reason));
    return STATUS_OK;
}

enum status dead_letters_read(struct sql *sql, int64_t policy_id, int64_t seq,
                              struct dead_letter *letter, struct error *error)
{
    size_t count;
    struct rows_page page = ROWS_PAGE(letter, dead_letters_read_row, &count);
    enum status status = SQL_RUN(sql, STATEMENT_dead_letter_by_seq, rows_take, &page, error,
                                 sql_i64(policy_id), sql_i64(seq));

    if (status == STATUS_OK && count == 0)
        return error_set(error, STATUS_NOT_FOUND, "there is no dead letter %lld-%lld",
                         (long long)policy_id, (long long)seq);
    return status;
}

enum status dead_letters_list(struct sql *sql, int64_t after_policy_id, int64_t after_seq,
                              struct dead_letter *letters, size_t max, size_t *count,
                              struct error *error)
{
    struct rows_page page = ROWS_PAGE(letters, dead_letters_read_row, count);

    return SQL_RUN(sql, STATEMENT_dead_letter_list, rows_take, &page, error,
                   sql_i64(after_policy_id), sql_i64(after_seq), sql_i64((int64_t)max));
}

enum status dead_letters_drop(struct sql *sql, void *argument, struct error *error)
{
    const struct drop_dead_letter *drop = argument;
    enum status status = dead_letters_read(sql, drop->policy_id, drop->seq, drop->letter, error);

    return status == STATUS_OK ? SQL_WRITE(sql, STATEMENT_dead_letter_delete, error,
                                           sql_i64(drop->policy_id), sql_i64(drop->seq))
                               : status;
}

/* --- the ledger's calls --- */

enum status ledger_dead_letters(struct ledger *ledger, int64_t after_policy_id, int64_t after_seq,
                                struct dead_letter *letters, size_t max, size_t *count,
                                struct error *error)
{
    struct sql sql = ledger_reader_take(ledger);
    enum status status =
        dead_letters_list(&sql, after_policy_id, after_seq, letters, max, count, error);
    return ledger_read_end(ledger, sql, status, error);
}

enum status ledger_dead_letter_get(struct ledger *ledger, int64_t policy_id, int64_t seq,
                                   struct dead_letter *letter, struct error *error)
{
    struct sql sql = ledger_reader_take(ledger);
    enum status status = dead_letters_read(&sql, policy_id, seq, letter, error);
    return ledger_read_end(ledger, sql, status, error);
}

enum status ledger_dead_letter_count(struct ledger *ledger, int64_t *count, struct error *error)
{
    *count = 0;
    return LEDGER_READ(ledger, STATEMENT_dead_letter_count, rows_take_i64, count, error);
}

struct write_letters {
    const struct dead_letter *letters;
    size_t count;
};

static enum status dead_letters_write_all(struct sql *sql, void *argument, struct error *error)
{
    const struct write_letters *write = argument;
    enum status status = STATUS_OK;

    for (size_t i = 0; i < write->count && status == STATUS_OK; i++)
        status = dead_letters_write(sql, &write->letters[i], error);
    return status;
}

enum status ledger_dead_letters_write(struct ledger *ledger, const struct dead_letter *letters,
                                      size_t count, struct error *error)
{
    struct write_letters write = {.letters = letters, .count = count};
    return ledger_write(ledger, dead_letters_write_all, &write, error);
}

enum status ledger_dead_letter_drop(struct ledger *ledger, int64_t policy_id, int64_t seq,
                                    struct dead_letter *letter, struct error *error)
{
    struct drop_dead_letter drop = {.policy_id = policy_id, .seq = seq, .letter = letter};
    return ledger_write(ledger, dead_letters_drop, &drop, error);
}
