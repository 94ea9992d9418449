/* Times one operator: the backend's kernel, with operands in memory like that of arenas. */
#pragma once

#include "backend/backend.h"
#include "base/base.h"
#include "ir/graph.h"
#include "ir/ops/ops.h"
#include "profile/measurement.h"
#include "runtime/store/arena.h"

/* A node's operands as a measurement sees them: which share bytes, which are cold, which output is in place; and the
 * text by which a measurement is kept. */

enum { OPERAND_COUNT = OP_INPUTS_MAX + OP_OUTPUTS_MAX };

/* A tensor with bytes of its own, used by one or several operands. */
struct operand_storage {
    const struct tensor *tensor;
    bool cold; /* no longer in the caches when the node begins: parameters, gradients, optimizer state, activations
                  of another phase */
};

struct operands {
    const struct node *node;
    struct operand_storage storages[OPERAND_COUNT];
    int storage_count;
    int storage[OPERAND_COUNT]; /* of each operand (inputs by index, then outputs); -1: there is none */
};

/* Output 0 is in place (node_in_place_input) where no later node reads the input, as in programs without recomputation.
 */
void operands_find(const struct graph *graph, const struct node *node, struct operands *out);
/* By tensor id: whether nodes of a later phase than the one that makes it read its bytes. The caller frees with
 * mem_free; NULL without memory. */
bool *operands_kept(const struct graph *graph);
/* Bits of the storages that are in no cache when a step reaches the node, if the step touches more bytes than the
 * caches hold. They are the cold storages, and the memory of outputs that are kept for another phase, which was last in
 * use as long ago. Memory with a shorter life is reused soon. */
uint32_t operands_out_of_caches(const struct operands *operands, const bool *kept);

/* NULL for an operand that is left out. */
const struct tensor *operand_tensor(const struct node *node, int operand);

/* Changes when the same text would stand for another measurement. */
enum { OPERATOR_KEY_VERSION = 3 };
/* Two nodes have the same text when they cost the same: the same operator, attributes, shapes, dtypes and row strides,
 * with the same operands sharing bytes and the same operands cold. For example
 * "linear kn=1 0w:fp32[1,1024,768] 1c:fp32[768,2304] … > 4w:fp32[1,1024,2304]": the number of the storage, w for warm
 * or c for cold; a view ends with "/" and the elements of its base's rows. In `memory`; NULL when there is none. */
const char *operator_key(const struct operands *operands, struct scratch *memory);

/* Values to measure operators with: finite, small, legal. Zeros, denormals and NaNs have speeds of their own. */

/* Fills all of a tensor of `node` with the operator's examples (op_example). */
void operator_values_fill(const struct node *node, const struct tensor *tensor, void *to);
/* Values for a training step, and for decoding in the middle of its cache. */
void operator_values_scalars(const struct node *node, double scalars[SCALAR_COUNT]);

/* Takes bytes out of the processor's caches, as they are when a step comes to them: reading others instead replaces
 * them only where it reads more than all caches hold, which may be hundreds of MB. */

/* Whether this processor can. */
bool evict_possible(void);
/* Evicts the bytes from the caches; they keep their values. Does nothing if that is impossible. */
void evict(const void *from, int64_t bytes);

/* Times calls of a backend: on a processor by the clock around them, on a device by its own clock between two events of
 * a stream. On a device several calls are queued in a row, as programs do, so that queueing one overlaps with the work
 * of another. */

struct work_clock {
    const struct backend *backend;
    void *stream;      /* queue the work on it; NULL where the backend has none */
    void *begin, *end; /* timed events */
};

/* Zero-initialise, close in any case, with nothing under way. Enters the device. FAILED when the device does. */
enum status work_clock_open(const struct backend *backend, struct work_clock *out);
void work_clock_close(struct work_clock *clock);

typedef enum status work_call(void *payload);
/* Calls `work` `calls` times and returns when all of it is done; *out is the time of one call. FAILED when a call or
 * the device does. */
enum status work_clock_time(const struct work_clock *clock, work_call *work, void *payload, int calls,
                            struct sample *out);
/* Blocks until all work queued on the clock's stream is done. */
enum status work_clock_finish(const struct work_clock *clock);

/* Memory that benches use in turn: it grows to the largest need. Zero-initialise; bench_memory_free. */
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

/* Prepares the kernel and fills its operands, in the backend's device tier. With `evicts`, cold operands are taken out
 * of the caches before each call. Otherwise they have several copies, which calls use in turn, so that a copy is in no
 * cache when its turn comes. The bench uses the memory until the next one is opened in it. The caller has set the
 * backend's threads. FAILED if out of memory; errors of backend_kernel_create. */
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
