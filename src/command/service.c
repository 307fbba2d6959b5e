/* service.c: settings as a service takes them. */
#include "command/service.h"

#include <sodium.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

/* Threads for calls that block. Those that write share their commits, so more of them than cores
 * means more per commit. */
#define CLERKS 8

struct service_options command_service_options(const struct config *config, enum service_role role)
{
    static const enum ledger_integrity integrity[] = {
        [CONFIG_INTEGRITY_QUICK] = LEDGER_CHECK_QUICK,
        [CONFIG_INTEGRITY_FULL] = LEDGER_CHECK_FULL,
        [CONFIG_INTEGRITY_OFF] = LEDGER_CHECK_OFF,
    };
    struct service_options options = {
        .role = role,
        .gate_url = config->gate,
        .gate_password = config->gate_password.bytes,
        .gate_timeout_ms = config->gate_timeout_ms,
        .ack = strcmp(config->ack, "ledger") == 0 ? GATE_ACK_LEDGER : GATE_ACK_GATE,
        .replicas = (int)config->replicas,
        .sync_interval_ms = config->sync_interval_ms,
        .audit_interval_ms = config->audit_interval_ms,
        .fallback = strcmp(config->fallback, "ledger") == 0 ? FALLBACK_LEDGER : FALLBACK_REJECT,
        .stop_timeout_ms = config->stop_timeout_ms,
        /* Whoever only looks is told at once that nothing is there. */
        .start_timeout_ms = role == SERVICE_AUDITS ? 0 : config->start_timeout_ms,
        .ledger_url = config->ledger,
        .ledger_password = config->ledger_password.bytes,
        /* A gate in this process's memory has its ledger to itself. */
        .ledger_use = strcmp(config->gate, "local") == 0 ? LEDGER_OWN : LEDGER_SHARE,
        .ledger_timeout_ms = config->ledger_timeout_ms,
        .relay_url = config->relay,
        .relay_password = config->relay_password.bytes,
        .integrity = integrity[config->integrity_check],
        .board = strcmp(config->board, "local") == 0   ? BOARD_LOCAL
                 : strcmp(config->board, "redis") == 0 ? BOARD_REDIS
                                                       : BOARD_WITH_GATE,
        .timezone = config->timezone,
        .ranking_half_life_ms = config->ranking_half_life_ms,
        .ranking_weights = config->ranking_weights,
        .pending_max = (size_t)config->pending_max,
        .ack_timeout_ms = config->ack_timeout_ms,
        .clerks = CLERKS,
        .has_code_key = config->code_key.bytes != NULL,
    };
    if (options.has_code_key) {
        crypto_generichash((unsigned char *)&options.code_key, sizeof options.code_key,
                           (const unsigned char *)config->code_key.bytes, config->code_key.length,
                           NULL, 0);
    }
    return options;
}

void command_warn(const struct config *config)
{
    for (size_t index = 0; index < config->warnings.count; index++) {
        log_event(LOG_WARN, "settings",
                  LOG_FIELD("words", LOG_TEXT(config->warnings.items[index])));
    }
    if (geteuid() == 0) {
        log_event(
            LOG_WARN, "running_as_root",
            LOG_FIELD("words", LOG_TEXT("nothing here needs it; run it as a user of its own")));
    }
}
