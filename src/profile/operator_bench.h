/* Times one operator: the backend's kernel, with operands in memory like that of arenas. */
#pragma once

#include "backend/backend.h"
#include "ir/ops/ops.h"
#include "profile/measurement.h"
#include "profile/operands.h"
#include "profile/work_clock.h"
#include "runtime/store/arena.h"

/* Memory that benches use one after the other: it grows to what the largest takes. Zero-initialise; bench_memory_free.
 */
struct bench_memory {
    struct arena arena;
    int64_t
        max_bytes; /* that copies and what empties the caches may make it; an operator takes what it takes. 0: any */
};
void bench_memory_free(struct bench_memory *memory);
/* To at least so many bytes of the backend's device tier; what was there is lost. */
enum status bench_memory_grow(const struct backend *backend, struct bench_memory *memory, int64_t bytes);

struct operator_bench {
    struct work_clock clock;
    struct kernel *kernel;
    struct operands operands;
    char *base; /* in the memory: the warm operands, a step's values, the workspace, then copies of the cold ones */
    int64_t offset[OPERAND_COUNT]; /* by storage; of cold ones in their copy */
    int64_t scalars_offset, workspace_offset;
    int64_t cold_offset, cold_bytes; /* of the first copy; of each */
    bool evicts;                     /* the cold ones before each call that is timed, and one copy of them is enough */
    int copies;
    int next;                          /* copy that the next call works on */
    int64_t flush_offset, flush_bytes; /* what is read, or on a device cleared, before the first call */
};

/* Makes the kernel ready and fills its operands, in the backend's device tier. Those that are cold are taken out of the
 * caches before each call (`evicts`; evict.h), or else have several copies, which calls use in turn, and which are out
 * of the caches at first, so that a copy is in none when its turn comes. The bench uses the memory until the next one
 * is opened in it. The backend's threads must be set before. FAILED without memory; what backend_kernel_create says. */
enum status operator_bench_open(const struct backend *backend, const struct operands *operands, bool evicts,
                                struct bench_memory *memory, struct operator_bench *out);
void operator_bench_close(struct operator_bench *bench);
/* Takes cold operands out of the caches, where it `evicts`. */
void operator_bench_evict(const struct operator_bench *bench);
/* Calls the kernel once; a backend with streams queues it on the clock's. FAILED when the kernel does. */
enum status operator_bench_run(struct operator_bench *bench);

/* Calls until `budget_s` or 60 ms are spent or samples agree (measurement_settled), at most 6 times and at least twice,
 * but once where that takes over 0.15 s. The first call may take twice the time of those after it: it counts where they
 * are no lower. On a device the first two do not count, calls do not end early, and one of a millisecond or less is
 * repeated, so that up to 10 in a row are one sample. FAILED when the device does. */
enum status operator_bench_measure(struct operator_bench *bench, double budget_s, struct measurement *out);
