#include "support/fault_sweep.h"

#include "support/unit.h"

/* Runs the body with the nth operation of the kind hit; true when it got that far. */
static bool run_hit(enum fault_kind kind, int nth, bool sticky, enum status (*body)(void *payload), void *payload,
                    enum status *status) {
    int64_t before = fault_count(kind);
    status_clear();
    fault_arm(kind, nth, sticky);
    *status = body(payload);
    fault_arm(kind, 0, false);
    return fault_count(kind) - before >= nth;
}

int fault_sweep(enum fault_kind kind, bool sticky, enum status (*body)(void *payload), void *payload) {
    for (int nth = 1;; nth++) {
        enum status status;
        bool met = run_hit(kind, nth, sticky, body, payload, &status);
        if (!met && status == STATUS_OK) return nth - 1;
        if (!met) fail_msg("without a fault: %s", status_message());
        if (status == STATUS_OK) fail_msg("fault %d of kind %d was not reported", nth, (int)kind);
        if (status_message()[0] == '\0') fail_msg("fault %d of kind %d left no message", nth, (int)kind);
    }
}

int fault_sweep_harmless(enum fault_kind kind, bool sticky, enum status (*body)(void *payload), void *payload) {
    for (int nth = 1;; nth++) {
        enum status status;
        bool met = run_hit(kind, nth, sticky, body, payload, &status);
        if (status != STATUS_OK) fail_msg("operation %d of kind %d hit: %s", nth, (int)kind, status_message());
        if (!met) return nth - 1;
    }
}
