/* Fault injection: tests make the n-th allocation or file operation fail and check what follows. FAULT_SUBMIT: a thread
 * is started or a request goes to the kernel's ring. FAULT_DEVICE: a call of a device's runtime or libraries (or the
 * tests' substitutes). FAULT_COMM: a collective is started. FAULT_SHORT and FAULT_SLOW do not fail: a transfer moves
 * fewer bytes than requested, or is late.
 *
 * Disarmed (the normal state) a fault point costs one relaxed atomic load and increment. Counters run in every build,
 * so that tests can also count allocations. */
#pragma once

#include "base/base.h"

enum fault_kind {
    FAULT_ALLOCATE,
    FAULT_OPEN,
    FAULT_READ,
    FAULT_WRITE,
    FAULT_SYNC,
    FAULT_RENAME,
    FAULT_SUBMIT,
    FAULT_DEVICE,
    FAULT_COMM,
    FAULT_SHORT,
    FAULT_SLOW,
    FAULT_KINDS
};

/* True when this operation is to fail. File operations that fail so set errno to ENOSPC for FAULT_WRITE, else EIO. */
bool fault_point(enum fault_kind kind);
/* Makes the `nth` operation of this kind from now on fail (1 = the next), and all later ones too if `sticky`; nth 0
 * disarms. */
void fault_arm(enum fault_kind kind, int64_t nth, bool sticky);
/* The same, but the process ends by SIGKILL in place of the operation. */
void fault_arm_kill(enum fault_kind kind, int64_t nth);
/* Operations of this kind since the process began. */
int64_t fault_count(enum fault_kind kind);
