/* What a program does before anything else, `ballast` and benchmarks alike. */
#pragma once

#include "base/base.h"

/* Opens /dev/null on each of the descriptors 0 to 2 that is closed: otherwise the next file that is opened gets that
 * number, and what is printed goes into it. It is opened against its direction (0 for writing, 1 and 2 for reading), so
 * that reading or printing there fails as on a closed descriptor. Also ignores SIGXFSZ: a write beyond `ulimit -f` then
 * fails with EFBIG, which is reported like any other failed write. FAILED where /dev/null cannot be opened: the
 * program should end. */
enum status process_begin(void);
