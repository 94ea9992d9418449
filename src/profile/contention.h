/* Measurements that several threads make at once, as many as a node has ranks. Ranks of a node share memory and the
 * last cache, and often a core's two hardware threads: an operator takes longer concurrently with them than alone. */
#pragma once

#include <sched.h>
#include <stdatomic.h>

#include "base/base.h"

enum { CONTENTION_MAX = 64 };

struct contention {
    int members;                     /* measurements at once: 0 and 1: one, alone */
    bool bound;                      /* each member has cores of its own: */
    cpu_set_t cores[CONTENTION_MAX]; /* by member; the first is the thread that measures */
};

/* What a measurement is made of, called with the payload of contention_measure. */
struct contention_work {
    enum status (*lead)(void *payload); /* whose times count */
    /* What member 1, 2, … does meanwhile, in a thread of its own. It goes on until *ended. */
    enum status (*beside)(void *payload, int member, const atomic_bool *ended);
};

static inline int contention_members(const struct contention *contention) {
    return contention->members > 1 ? contention->members : 1;
}

/* Whether the calling thread may run on the cores of every member: not where the launcher confined it to its own (a
 * cpuset). It stays on the cores that it had. */
bool contention_is_allowed(const struct contention *contention);

/* All begin together; returns when all have ended. The first failure, also where a thread could not be started or may
 * not run on its cores. */
enum status contention_measure(const struct contention *contention, const struct contention_work *work, void *payload);
