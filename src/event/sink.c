/* sink.c: the kinds of sinks, by the URLs that ask for them. */
#include "event/sink.h"

#include <string.h>

#define EVENT_SINK_ROW(scheme, outbox, open) {scheme, outbox, open},

static const struct event_sink_kind {
    const char *scheme;
    enum ledger_sink outbox;
    enum status (*open)(struct event_sink **sink, const struct event_sink_options *options,
                        struct error *error);
} event_sink_kinds[] = {EVENT_SINK_KINDS(EVENT_SINK_ROW)};

static const struct event_sink_kind *event_sink_kind_of(const char *url)
{
    size_t length = strcspn(url, ":");

    for (size_t i = 0; i < sizeof(event_sink_kinds) / sizeof(event_sink_kinds[0]); i++)
        if (strlen(event_sink_kinds[i].scheme) == length &&
            strncmp(url, event_sink_kinds[i].scheme, length) == 0)
            return &event_sink_kinds[i];
    return NULL;
}

bool event_sink_exists(const char *url, enum ledger_sink *outbox)
{
    const struct event_sink_kind *kind = event_sink_kind_of(url);

    if (kind != NULL)
        *outbox = kind->outbox;
    return kind != NULL;
}

enum status event_sink_open(struct event_sink **sink, const struct event_sink_options *options,
                            struct error *error)
{
    const struct event_sink_kind *kind = event_sink_kind_of(options->url);

    *sink = NULL;
    ensure(kind != NULL);
    return kind->open(sink, options, error);
}
