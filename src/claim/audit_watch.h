/* audit_watch.h: audits every policy again and again, and pauses one whose first guarantee is
 * broken.
 *
 * Of all workers one audits at a time.
 *
 * Threads: one of its own; start and stop from the owner, the others from any.
 */
#ifndef CLAIM_AUDIT_WATCH_H
#define CLAIM_AUDIT_WATCH_H

#include "base/error.h"
#include "claim/audit.h"

struct audit_watch;

/* `*watch` is NULL when this process has nothing to audit, or is told not to. */
enum status audit_watch_start(struct audit_watch **watch, struct service *service,
                              struct error *error) MUST_CHECK;
void audit_watch_stop(struct audit_watch *watch);

/* False: not this process. */
bool audit_watch_count(struct audit_watch *watch, struct audit_numbers *numbers);

/* What people have to know of, "" as a rule. */
void audit_watch_words(struct audit_watch *watch, char *words, size_t size);

#endif
