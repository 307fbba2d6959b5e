/* writer_inside.h: what the files of the writer share.
 *
 * Threads: the writer's only.
 */
#pragma once

#include "ledger/writer.h"

/* How often others in the way are waited out, and for how long at first, at most. */
#define WRITER_BUSY_TRIES    10
#define WRITER_BUSY_PAUSE_MS 5

/* Another process has taken the ledger over: says so and ends this one. */
void writer_die(const struct error *error);

/* Tells those who wait for the writes of a batch. Under the lock. */
void writer_finish_writes(struct writer *writer, struct write_batch *batch, enum status status,
                          const struct error *error);

void writer_sleep_ms(int64_t milliseconds);

/* What the last look at the database came to. Whoever waits behind trouble is told. */
void writer_set_health(struct writer *writer, enum status status, const struct error *error);

/* Does the repair that someone waits for. Called with the lock held, which it lets go meanwhile. */
void writer_serve_repair(struct writer *writer);
