#include "base/fault.h"

#include <signal.h>
#include <stdatomic.h>

static atomic_llong counts[FAULT_KINDS];
static atomic_llong armed_at[FAULT_KINDS]; /* count at which to fail, 0 = disarmed */
static atomic_bool armed_sticky[FAULT_KINDS];
static atomic_bool armed_kill;

bool fault_point(enum fault_kind kind) {
    long long count = atomic_fetch_add_explicit(&counts[kind], 1, memory_order_relaxed) + 1;
    long long at = atomic_load_explicit(&armed_at[kind], memory_order_relaxed);
    if (at == 0 || count < at) return false;
    if (count > at && !atomic_load_explicit(&armed_sticky[kind], memory_order_relaxed)) return false;
    if (atomic_load_explicit(&armed_kill, memory_order_relaxed)) raise(SIGKILL);
    errno = kind == FAULT_WRITE ? ENOSPC : kind == FAULT_ALLOCATE ? ENOMEM : EIO;
    return true;
}

void fault_arm(enum fault_kind kind, int64_t nth, bool sticky) {
    atomic_store(&armed_kill, false);
    atomic_store(&armed_sticky[kind], sticky);
    atomic_store(&armed_at[kind], nth == 0 ? 0 : atomic_load(&counts[kind]) + nth);
}

void fault_arm_kill(enum fault_kind kind, int64_t nth) {
    fault_arm(kind, nth, false);
    atomic_store(&armed_kill, true);
}

int64_t fault_count(enum fault_kind kind) { return atomic_load(&counts[kind]); }
