/* audit.h: audits and repairs as JSON, for the API and for a command that makes them itself.
 *
 * Threads: no state.
 */
#pragma once

#include "base/buffer.h"
#include "claim/audit.h"

#define AUDIT_HISTORY_MAX 100 /* repairs that are shown */

/* `next` is a cursor behind the last one when there are more. `board` may be NULL. */
void audit_write(struct buffer *out, struct service *service, const struct board_audit *board,
                 const struct policy_audit *audits, size_t count, bool has_more);

/* The policy id that such a cursor stands behind; 0: it is none. */
int64_t audit_read_cursor(const char *cursor);

void audit_write_repair(struct buffer *out, const struct audit_repair *done);
void audit_write_history(struct buffer *out, const struct ledger_repair_note *notes, size_t count);
