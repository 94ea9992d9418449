#include "support/fault_sweep.h"

#include "support/unit.h"

int fault_sweep(enum fault_kind kind, bool sticky, enum status (*body)(void *payload), void *payload) {
    for (int nth = 1;; nth++) {
        int64_t before = fault_count(kind);
        status_clear();
        fault_arm(kind, nth, sticky);
        enum status status = body(payload);
        fault_arm(kind, 0, false);
        bool met = fault_count(kind) - before >= nth;
        if (!met && status == STATUS_OK) return nth - 1;
        if (!met) fail_msg("without a fault: %s", status_message());
        if (status == STATUS_OK) fail_msg("fault %d of kind %d was not reported", nth, (int)kind);
        if (status_message()[0] == '\0') fail_msg("fault %d of kind %d left no message", nth, (int)kind);
    }
}
