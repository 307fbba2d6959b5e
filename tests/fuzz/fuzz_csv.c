/* fuzz_csv.c: any text as a cell of a CSV file: read as RFC 4180 has it, it is the same text, and
 * no spreadsheet takes it for a formula. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Reads one cell up to its comma into `out`; how many bytes it took, the comma not counted. */
static size_t read_cell(struct span file, struct buffer *out)
{
    size_t at = 0;

    if (file.bytes[0] != '"') {
        while (file.bytes[at] != ',') {
            ensure(strchr("\"\r\n", file.bytes[at]) == NULL || file.bytes[at] == '\0');
            at++;
        }
        buffer_append(out, file.bytes, at);
        return at;
    }
    for (at = 1;; at++) {
        ensure(at < file.length);
        if (file.bytes[at] == '"' && file.bytes[++at] != '"')
            return at;
        buffer_append(out, file.bytes + at, 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct span text = {(const char *)bytes, size};
    struct buffer file;
    struct buffer cell;

    buffer_init(&file, 4 * size + 16);
    buffer_init(&cell, 4 * size + 16);
    csv_append_text(&file, text);
    buffer_append_literal(&file, ",\"next\"");
    struct span whole = {file.bytes, file.length};
    size_t length = read_cell(whole, &cell);
    ensure(length + strlen(",\"next\"") == file.length && file.bytes[length] == ',');
    struct span read = {cell.bytes, cell.length};
    if (read.length > 0)
        ensure(strchr("=+-@\t\r", read.bytes[0]) == NULL || read.bytes[0] == '\0');
    if (read.length == size + 1 && read.bytes[0] == '\'')
        read = (struct span){read.bytes + 1, size};
    ensure(span_equal(read, text));
    buffer_release(&file);
    buffer_release(&cell);
    return 0;
}
