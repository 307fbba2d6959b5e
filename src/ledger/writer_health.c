/* writer_health.c: what the writer thinks of its database, and who is told. */
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "ledger/writer_inside.h"

/* A gate whose ledger another process has taken over knows less than the ledger does: whatever it
 * answered from now on could be wrong. */
void writer_die(const struct error *error)
{
    log_event(
        LOG_ERROR, "ledger_taken_over", LOG_FIELD("error", LOG_TEXT(error->text)),
        LOG_FIELD("next", LOG_TEXT("the process ends; start it again when the other is gone")));
    log_flush();
    _exit(1);
}

/* Those who wait behind the trouble were not tried: nothing of theirs was done. */
void writer_set_health(struct writer *writer, enum status status, const struct error *error)
{
    bool healthy = status == STATUS_OK;
    bool was_healthy = atomic_load(&writer->healthy);

    atomic_store(&writer->behind, !healthy && writer->mark.is_behind);
    if (healthy && was_healthy)
        return;
    pthread_mutex_lock(&writer->lock);
    bool is_news = was_healthy || healthy || strcmp(writer->trouble.text, error->text) != 0;
    writer->trouble = *error;
    atomic_store(&writer->healthy, healthy);
    if (!healthy)
        writer_finish_writes(writer, &writer->gathering, STATUS_UNAVAILABLE, error);
    pthread_mutex_unlock(&writer->lock);
    if (healthy)
        log_event(LOG_INFO, "ledger_recovered", LOG_FIELD("pending", LOG_I64(writer->pending)));
    else if (is_news)
        log_event(LOG_ERROR, "ledger_refuses", LOG_FIELD("error", LOG_TEXT(error->text)),
                  LOG_FIELD("next", LOG_TEXT("claims get 503; trying again")));
}

void writer_lost(struct writer *writer)
{
    struct error error;

    if (!atomic_load(&writer->healthy)) /* or not started yet */
        return;
    error_set(&error, STATUS_UNAVAILABLE,
              "the connection to the database was lost, and with it the ownership of the ledger");
    writer_set_health(writer, STATUS_UNAVAILABLE, &error);
}
