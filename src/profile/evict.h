/* Takes bytes out of the processor's caches, as they are when a step comes to them: reading others instead replaces
 * them only where it reads more than all caches hold, which may be hundreds of MB. */
#pragma once

#include "base/base.h"

/* Whether this processor can. */
bool evict_possible(void);
/* They keep their values. Where it is not possible nothing happens. */
void evict(const void *from, int64_t bytes);
