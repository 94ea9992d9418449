/* A backend: kernels for the operators, and the moves that programs make, behind one table of functions.
 *
 * Files, in the order to read them:
 *     backend: the table; the backends of this build, and which operators each has kernels for;
 *     backend_cuda_absent: in place of cuda/ in a build without CUDA; cuda_facts: what plans for a described card and
 *         the CUDA backend must agree on;
 *     kernel_parts: what all kernels have in common;
 *     matmul_spec, linear_products, head_tiles, adamw_step: how operators are cut into products, tiles and steps, the
 *         same for every backend.
 *
 * Two kinds. On a processor a call returns when its work is done, in memory of the process: `streams` and `memory` are
 * NULL. On a GPU a call only asks for its work: that is done later, in the order of the stream that it was given, in
 * memory that the CPU has no address for. What differs between the two stands in these two tables and nowhere else;
 * whoever runs a program asks for them (runtime/runner.h) and never for the backend's name. */
#ifndef BALLAST_BACKEND_BACKEND_H
#define BALLAST_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "cluster/cluster.h"
#include "cluster/tier.h"
#include "graph/graph.h"

/* What a kernel is called with. Pointers are to first elements; shapes and row strides are the node's
 * (tensor_row_stride, for views). Absent optional operands are NULL. Outputs that the operator `updates` hold their old
 * values; all others hold garbage and are written in full. When out[0] is the buffer of the operator's in_place_input,
 * the two pointers are equal. */
struct kernel_call {
    void *in[OP_INPUTS_MAX];
    void *out[OP_OUTPUTS_MAX];
    void *workspace; /* workspace_bytes, 64-byte aligned, contents undefined */
    /* SCALAR_COUNT values, by enum scalar of ops.h, where the operands are: in the device's memory on a backend that
     * has memory of its own, and read when the work is done, so that a graph has those of the step that launches it.
     * Only for operators that `reads_scalars` says it of; NULL will do for all others. */
    const double *scalars;
    void *stream; /* of the backend's streams; NULL where it has none */
};

enum { KERNELS_TOGETHER = 32 };

/* Does its work, or asks the call's stream for it. FAILED where the device or a library refuses it; a device may also
 * report what was asked for earlier (backend_streams). */
struct kernel;
typedef enum status kernel_run(const struct kernel *kernel, const struct kernel_call *call);
/* For 1 to KERNELS_TOGETHER kernels. */
typedef enum status kernel_run_together(const struct kernel *const *kernels, const struct kernel_call *calls,
                                        int count);

/* A kernel made ready for one node: everything that needs memory or compilation was done when it was created. It may
 * hold state of its own, so one stream runs it, one call at a time (program_verify checks it). */
struct kernel {
    kernel_run *run;
    /* Does what `run` of each kernel would do one after the other, all of this function and
     * asked for on one stream; none writes what another reads or writes. Only where workspace_bytes is 0. NULL: there
     * is no such function. */
    kernel_run_together *run_together;
    void (*release)(struct kernel *kernel); /* frees the kernel itself too */
    const struct node *node;
    int64_t workspace_bytes;
};

/* Makes the kernel of one node. */
typedef enum status kernel_maker(const struct node *node, struct kernel **out);

struct kernel_entry {
    const struct op *op; /* NULL: every operator */
    kernel_maker *create;
};

/* The kernels of a backend by operator. An operator that is in none of the lists is one that the backend lacks. Whoever
 * brings an operator of its own gives a copy of a backend a list of its kernels, with the backend's own as `next`
 * (tests/ops/test_add_operator.c). */
struct kernel_list {
    const struct kernel_entry *entries;
    int count;
    const struct kernel_list *next; /* NULL: that is all */
};

/* Streams and events of a backend whose calls return before their work is done. Work on one stream is done in the order
 * in which it was asked for; events order streams among each other and hold back threads. All functions may be called
 * by any number of threads at once, by each after it called `enter`; those that create alone allocate.
 *
 * A failure is FAILED with the system's words and stays: whatever is asked for later fails alike. Work fails after the
 * call that asked for it, so a call may report the failure of an earlier one. */
struct backend_streams {
    /* Makes the device that of the calling thread. */
    enum status (*enter)(void);
    enum status (*create)(void **stream);
    void (*free)(void *stream); /* with nothing under way */
    enum status (*create_event)(void **event);
    /* One that notes when what it stands for was done, by the device's clock. Costs more than the other to record. */
    enum status (*create_timed_event)(void **event);
    void (*free_event)(void *event);
    /* The event now stands for all that the stream was asked for so far, and no longer for what it stood for before. */
    enum status (*record)(void *event, void *stream);
    /* What the stream is asked for from now on begins when what the event stands for at this moment is done: at once,
     * when it was never recorded. Does not hold back the caller. */
    enum status (*wait)(void *stream, void *event);
    /* Returns when what the event stands for is done. */
    enum status (*await)(void *event);
    /* Returns when all is done that the stream was asked for. */
    enum status (*finish)(void *stream);
    /* Whether what was asked for so far went well, as far as is known: waits for nothing. */
    enum status (*check)(void);
    /* Seconds from when one timed event was done until another was. Both are recorded and done. */
    enum status (*elapsed)(void *begin, void *end, double *seconds);
};

/* Graphs of a backend with streams: calls that are noted once, with their arguments, and asked for as a whole ever
 * after. By threads that entered; a capture from its beginning to its end by one thread. */
struct backend_graphs {
    /* What the stream is asked for from now on, by this thread, is noted instead of being done: kernels, zeros and
     * copies, and nothing else, neither of this stream nor in this thread. FAILED where that cannot be had now; the
     * stream is then as it was. */
    enum status (*begin)(void *stream);
    /* Ends it in any case: from here on the stream does again what it is asked for. Nothing that was noted has been
     * done. FAILED where something cannot be part of a graph, or where graphs would take too much memory: such a
     * failure is over with that. */
    enum status (*end)(void *stream, void **graph);
    /* Asks the stream for all that was noted, in its order. */
    enum status (*launch)(void *graph, void *stream);
    void (*free)(void *graph); /* with nothing of it under way */
};

/* Memory of a backend whose device tier is no memory of the process. */
struct backend_memory {
    /* One block of `bytes` > 0 that reads as zeros, aligned to 256 bytes at least: of the device's own memory, whose
     * addresses only kernels and copies may use, or (host tier) of memory that the CPU uses like any other and the
     * device copies from and to without help. FAILED with how much there is. */
    enum status (*take)(enum tier tier, int64_t bytes, void **out);
    void (*give_back)(enum tier tier, void *base);
    /* Copies between the device's memory and any of the CPU's, done when they return. On no stream: what is under way
     * on streams neither waits for them nor is waited for. By any thread. */
    enum status (*read)(void *to, const void *from_device, int64_t bytes);
    enum status (*write)(void *to_device, const void *from, int64_t bytes);
};

struct backend {
    /* What `--device` calls it: NAME, or NAME:N for the N-th of its devices. */
    const char *name;
    /* How the names of its instruction sets begin (`isa`); "": the backend of all that no other knows. */
    const char *isa_prefix;
    /* How the part of such a name begins that says which versions its libraries have: known where the device is, and
     * no part of a plan that was made for a described one. NULL: there is none. */
    const char *isa_libraries;
    /* Which of its devices it uses from now on, from 0: called once, before all else. BAD_INPUT where there is none of
     * that number, or none at all. NULL: there is one. */
    enum status (*select)(int device);
    /* Whether it can be used at all: BAD_INPUT for a wrong setting and where there is no such device, FAILED for a
     * machine that it does not know. */
    enum status (*check)(void);
    /* Instruction set in use ("avx512", "avx2", "generic"; "sm_90-132sm+cublaslt-13.0.2"): part of the recipe, since
     * results depend on it. */
    const char *(*isa)(void);
    /* The dtype that it is made for: bf16 where products of bf16 are done in hardware. */
    enum dtype (*fastest_dtype)(void);
    /* What arenas may take of the device and, where that is other memory, of the host; 0: no such tier. The disk's is
     * not looked at. FAILED where the system does not tell. */
    enum status (*capacity)(int64_t bytes[TIER_COUNT]);
    /* The machine as this backend uses it: all but the rates (src/profile). */
    enum status (*measure)(struct cluster *out);
    /* What tells the device from others whose speed may differ (the card, its place, its libraries), as text; NULL: it
     * is the processor. */
    enum status (*describe)(char *text, size_t bytes);
    /* Bytes of the largest cache between kernels and the device's memory; 0 where the system does not tell. */
    int64_t (*cache_bytes)(void);
    /* Part of the recipe: raised when kernels give other bits than before. */
    int kernels_version;
    /* Tokens of a grain, where nothing else is asked for, the fewest: fewer keep the device from its rate. */
    int64_t grain_tokens;
    /* Tokens of a grain for a model with so many layers of this width, if the device's arena may have `device_bytes`
     * (0: what the device has). The same for equal devices, whatever else uses them. NULL: grain_tokens for all. */
    int64_t (*choose_grain_tokens)(int64_t layers, int64_t width, int64_t device_bytes);
    /* Sets the number of compute threads of the calling thread's kernels and starts them; kernels are created and run
     * with one number. */
    void (*set_threads)(int threads);
    /* For operands in the device tier, in fp32 and bf16. Kernels of equal nodes may share their compiled part. */
    const struct kernel_list *kernels;
    /* Called before a kernel is created, by the thread that creates it: BAD_INPUT or FAILED where the device cannot be
     * used. NULL: there is nothing to do. */
    enum status (*prepare)(void);
    /* What the device's library takes for each product of matrices, as a recipe has it (plan/products.h): kernels that
     * are created from now on take what `lines` say (NULL: nothing), and what the library puts forward for products
     * that they lack. BAD_INPUT from backend_kernel_create where it refuses what is said. `list_products`: of all
     * kernels that there are, a text that products_keep has. NULL, both: there is nothing to choose. */
    enum status (*pin_products)(const char *lines);
    enum status (*list_products)(const char **lines);
    /* bytes of zeros, in the device tier; used for accumulators */
    void (*zero)(void *to, int64_t bytes, void *stream);
    /* Copies between the device and the host tier. */
    void (*copy)(void *to, const void *from, int64_t bytes, void *stream);
    const struct backend_streams *streams; /* NULL: every call returns when its work is done */
    const struct backend_graphs *graphs;   /* NULL: all is asked for call by call */
    const struct backend_memory *memory;   /* NULL: device and host tier are memory of the process */
    /* Runs what works on operands in the host tier: kernels of which each element is rounded by itself give the same
     * bits there. NULL: the backend itself. It has no streams. */
    const struct backend *host;
};

extern const struct backend backend_cpu, backend_cuda;
/* All of them, the one that is preferred first; the last can always be tried. A new backend is an entry here. */
extern const struct backend *const backends[];
extern const int backend_count;

bool backend_has_kernel(const struct backend *backend, const struct op *op);
/* The kernel of one node; the caller calls kernel->release. A message begins with the node's name and its operator's.
 * BAD_INPUT, with the backends that have one, where this backend has no kernel for the operator. */
enum status backend_kernel_create(const struct backend *backend, const struct node *node, struct kernel **out);

/* The backend that `device` names, as NAME or NAME:N (its N-th device from 0); NULL: the first of the list that can be
 * used. BAD_INPUT when there is none of that name or it cannot be used. A process uses one device: the choice is made
 * once, before any other use, and by one thread. */
enum status backend_find(const char *device, const struct backend **out);
/* The kind of backend that made results with this instruction set. */
const struct backend *backend_of_isa(const char *isa);
/* Whether a plan for `planned` can be run with what the backend has here: the same, or a described device's, whose
 * libraries the device itself adds. */
bool backend_runs_isa(const struct backend *backend, const char *planned);

#endif
