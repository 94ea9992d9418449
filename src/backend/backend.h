/* A backend: kernels for the operators, and the moves that programs make, behind one table of functions.
 *
 * Files, in the order to read them:
 *     backend: the table; the backends of this build, and the versions that their kernels have had;
 *     cuda_absent: in place of cuda in a build without CUDA;
 *     cuda_constants: what plans for a target device and the CUDA backend must agree on;
 *     kernel_parts: what all kernels have in common: how operators are cut into GEMMs and tiles, the numbers of an
 *         update, and moments in 8 bits, whose numbers are in moment_numbers.
 *
 * There are two kinds of backend. On a processor a call returns when its work is done, in memory of the process:
 * `streams` and `memory` are NULL. On a GPU a call queues its work on a stream and returns; the GPU does the work
 * later, in the stream's order, in memory that the CPU cannot address. The two kinds differ in these two tables alone:
 * the runtime (runtime/runner.h) looks at the tables and never at the backend's name. */
#pragma once

#include "base/base.h"
#include "ir/graph.h"
#include "machine/cluster.h"
#include "machine/rates.h"

/* Arguments of a kernel call. Pointers are to first elements; shapes and row strides are the node's (tensor_row_stride,
 * for views). Absent optional operands are NULL. Outputs that the operator `updates` hold their old values; all others
 * hold garbage and are written in full. When out[0] is the buffer of the operator's in_place_input, the two pointers
 * are equal. */
struct kernel_call {
    void *in[OP_INPUTS_MAX];
    void *out[OP_OUTPUTS_MAX];
    void *workspace; /* workspace_bytes, 64-byte aligned, contents undefined */
    /* SCALAR_COUNT values, indexed by enum scalar of ops.h, in the same memory as the operands. A device reads them
     * when it does the work, so a graph uses the values of the step that launches it. Operators without `reads_scalars`
     * do not read them: NULL will do. */
    const double *scalars;
    void *stream; /* of the backend's streams; NULL where it has none */
    /* Operators `by_elements`: works on a run of `elements` elements, which begins at `first_element` of input 0 (a
     * multiple of GRADIENT_NORM_BLOCK). Pointers are to the run's first elements; squared_sums' output is to the run's
     * first block. 0: on all of them. */
    int64_t first_element, elements;
};

enum { KERNELS_TOGETHER = 32 };

/* Does the work, or queues it on the call's stream. FAILED when the device or a library refuses; a device may also
 * report the failure of earlier work (backend_streams). */
struct kernel;
typedef enum status kernel_run(const struct kernel *kernel, const struct kernel_call *call);
/* For 1 to KERNELS_TOGETHER kernels. */
typedef enum status kernel_run_together(const struct kernel *const *kernels, const struct kernel_call *calls,
                                        int count);

/* A kernel made ready for one node: allocation and compilation are done when it is created. It may hold state, so only
 * one stream calls it, one call at a time (program_verify checks this). */
struct kernel {
    kernel_run *run;
    /* Has the effect of calling `run` of each kernel in turn. All kernels have this same function, and their calls the
     * same stream; none writes what another reads or writes. Only where workspace_bytes is 0. NULL: there is no such
     * function. */
    kernel_run_together *run_together;
    void (*release)(struct kernel *kernel); /* frees the kernel itself too */
    const struct node *node;
    int64_t workspace_bytes;
};

/* Makes the kernel of one node. */
typedef enum status kernel_maker(const struct node *node, struct kernel **out);

/* Streams and events of a backend whose calls return before their work is done. A stream does its work in the order in
 * which it was queued; events order streams among each other and let threads wait. Any number of threads may call all
 * functions at once, each after it called `enter`. Only the functions that create something allocate.
 *
 * A failure is FAILED with the system's words, and it stays: all later calls fail too. Work fails after the call that
 * queued it returned, so a call may report the failure of an earlier one. */
struct backend_streams {
    /* Makes the device current for the calling thread. */
    enum status (*enter)(void);
    enum status (*create)(void **stream);
    void (*free)(void *stream); /* with nothing under way */
    enum status (*create_event)(void **event);
    /* An event that also records the device's time. Costs more to record than the other kind. */
    enum status (*create_timed_event)(void **event);
    void (*free_event)(void *event);
    /* Records the event at this point of the stream: it is done when all work queued so far is. Replaces the event's
     * earlier record. */
    enum status (*record)(void *event, void *stream);
    /* Later work on the stream waits for the event's latest record; an event that was never recorded delays nothing.
     * The caller does not wait. */
    enum status (*wait)(void *stream, void *event);
    /* Blocks until the event's latest record is done. */
    enum status (*await)(void *event);
    /* Blocks until all work queued on the stream is done. */
    enum status (*finish)(void *stream);
    /* Reports a failure of earlier work that is known by now. Does not wait. */
    enum status (*check)(void);
    /* Seconds between two timed events, both recorded and done. */
    enum status (*elapsed)(void *begin, void *end, double *seconds);
};

/* Graphs of a backend with streams: calls are captured once, with their arguments, and then launched as a whole. The
 * calling threads must have entered; one thread makes a capture from `begin` to `end`. */
struct backend_graphs {
    /* Captures the calls that this thread makes on the stream from now on, instead of executing them. Until `end` the
     * thread may call kernels, zero and copy on this stream, and nothing else. FAILED when no capture can begin now;
     * the stream is then unchanged. */
    enum status (*begin)(void *stream);
    /* Ends the capture in any case: the stream executes calls again. No captured call was executed. FAILED when a call
     * cannot be part of a graph or graphs would take too much memory; unlike other failures this one does not stay. */
    enum status (*end)(void *stream, void **graph);
    /* Queues all captured calls on the stream, in their order. */
    enum status (*launch)(void *graph, void *stream);
    void (*free)(void *graph); /* when no launch of it is under way */
};

/* Memory of a backend whose device tier is no memory of the process. */
struct backend_memory {
    /* One zeroed block of `bytes` > 0. Device tier: the device's own memory, aligned to 256 bytes, whose addresses only
     * kernels and copies may use. Host tier: pinned memory of the process, aligned to 4096 bytes as the disk tier needs
     * it, which the device copies from and to directly. FAILED; the message says how much memory there is. */
    enum status (*take)(enum tier tier, int64_t bytes, void **out);
    void (*give_back)(enum tier tier, void *base);
    /* Copies between the device's memory and any memory of the process; done on return. They use no stream: work on
     * streams does not wait for them, nor they for it. Any thread may call them. */
    enum status (*read)(void *to, const void *from_device, int64_t bytes);
    enum status (*write)(void *to_device, const void *from, int64_t bytes);
};

/* Backend functions for collectives between the memories of several devices (comm/nccl_comm.h). Streams and device
 * addresses are CUDA's, as NCCL expects. Data begins at multiples of 16 bytes. */
struct backend_peers {
    /* to = from rounded to bf16, `count` numbers. */
    void (*pack_bf16)(void *to, const float *from, int64_t count, void *stream);
    /* to = from, or with `adds` to = (to rounded to bf16) + from. */
    void (*unpack_bf16)(float *to, const void *from, int64_t count, bool adds, void *stream);
};

struct backend {
    /* The name for `--device`: NAME, or NAME:N for device N of the backend. */
    const char *name;
    /* Prefix of the names of its instruction sets (`isa`); "": takes every name that no other backend's prefix fits. */
    const char *isa_prefix;
    /* Prefix of the part of such a name that gives the libraries' versions. Only a machine with the device knows these,
     * so plans for described devices leave the part out. NULL: names have no such part. */
    const char *isa_libraries;
    /* Selects the device to use, by its number from 0. Called once, before all else. BAD_INPUT where there is no such
     * device. NULL: the backend has one device. */
    enum status (*select)(int device);
    /* OK where the backend can be used. BAD_INPUT for a wrong setting or a missing device, FAILED for a machine that it
     * does not support. */
    enum status (*check)(void);
    /* Instruction set in use ("avx512", "avx2", "generic"; "sm_90-132sm+cublaslt-13.0.2"): part of the recipe, since
     * results depend on it. */
    const char *(*isa)(void);
    /* The dtype that it computes fastest: bf16 where the hardware multiplies bf16 matrices, else fp32. */
    enum dtype (*fastest_dtype)(void);
    /* Bytes that arenas may take, by tier; 0: there is no such tier. The host tier counts only where it is memory apart
     * from the device's; callers ignore the disk's entry. FAILED where the system does not tell. */
    enum status (*capacity)(int64_t bytes[TIER_COUNT]);
    /* Bytes that device arenas may take once every kernel was called, and so has its code and local memory on the
     * device (session/engine.h). NULL: code takes no device memory. */
    enum status (*left_bytes)(int64_t *device_bytes);
    /* The machine as this backend uses it: all but the rates (src/profile). */
    enum status (*measure)(struct cluster *out);
    /* Text that distinguishes the device from others of another speed: the GPU, its slot, its libraries. NULL: the
     * device is the processor. */
    enum status (*describe)(char *text, size_t bytes);
    /* Bytes of the largest cache between kernels and the device's memory; 0 where the system does not tell. */
    int64_t (*cache_bytes)(void);
    /* Part of the recipe: raised when kernels give other bits than before (kernel_version). */
    int kernels_version;
    /* Default tokens of a micro-batch. With fewer the device does not reach its rate. */
    int64_t micro_batch_tokens;
    /* Tokens of a micro-batch for a model with so many layers of this width, if the device's arena may have
     * `device_bytes` (0: what the device has). The same for equal devices, whatever else uses them. NULL:
     * micro_batch_tokens for all. */
    int64_t (*choose_micro_batch_tokens)(int64_t layers, int64_t width, int64_t device_bytes);
    /* Sets the number of compute threads of the calling thread's kernels and starts them; kernels are created and run
     * with one number. */
    void (*set_threads)(int threads);
    /* The function that makes the operator's kernels, for operands in the device tier, in fp32 and bf16; NULL where the
     * backend does not implement the operator. Kernels of equal nodes may share compiled code. To add an operator from
     * outside, copy the backend and set a function that answers for the new operator and asks the backend's own for all
     * others (tests/ops/test_add_operator.c). */
    kernel_maker *(*maker)(const struct op *op);
    /* Called before a kernel is created, by the thread that creates it: BAD_INPUT or FAILED where the device cannot be
     * used. NULL: there is nothing to do. */
    enum status (*prepare)(void);
    /* The algorithm of the device's library for each GEMM, as a recipe records it (plan/recipe.h).
     * `pin_products`: kernels created from now on use the algorithms in `lines` (NULL: none), and the library's own
     * choice for GEMMs that the lines lack; backend_kernel_create returns BAD_INPUT where the library refuses one.
     * `list_products`: the algorithms of all existing kernels, a text that recipe_lines_keep owns. Both NULL: the
     * backend has no algorithms to choose from. */
    enum status (*pin_products)(const char *lines);
    enum status (*list_products)(const char **lines);
    /* bytes of zeros, in the device tier; used for accumulators */
    void (*zero)(void *to, int64_t bytes, void *stream);
    /* to = to + from, `count` fp32 numbers in the device tier, each sum rounded to the nearest by itself. With
     * `round_bf16` both are rounded to bf16 first; `from` may then be NULL: to = to so rounded. */
    void (*add)(void *to, const void *from, int64_t count, bool round_bf16, void *stream);
    /* Copies between the device and the host tier, or within the device tier, where the two do not overlap. Within the
     * host tier the backend `host` copies. */
    void (*copy)(void *to, const void *from, int64_t bytes, void *stream);
    const struct backend_streams *streams; /* NULL: every call returns when its work is done */
    const struct backend_graphs *graphs;   /* NULL: there are no graphs */
    const struct backend_memory *memory;   /* NULL: device and host tier are memory of the process */
    const struct backend_peers *peers;     /* NULL: collectives work on what is in memory of the process */
    /* The backend for kernels whose operands are in the host tier; it has no streams. Kernels that round each element
     * by itself give the same bits on both. NULL: this backend itself. */
    const struct backend *host;
};

extern const struct backend backend_cpu, backend_cuda;
/* All backends, the preferred one first; the last is on every machine. A new backend is an entry here. */
extern const struct backend *const backends[];
extern const int backend_count;

bool backend_has_kernel(const struct backend *backend, const struct op *op);
/* Creates the kernel of one node; the caller calls kernel->release. Messages begin with the node's and the operator's
 * names. BAD_INPUT where this backend has no kernel for the operator; the hint names the backends that do. */
enum status backend_kernel_create(const struct backend *backend, const struct node *node, struct kernel **out);

/* The backend that `device` names, as NAME or NAME:N (its N-th device from 0); NULL: the first of the list that can be
 * used. BAD_INPUT when there is none of that name or it cannot be used. A process uses one device: the choice is made
 * once, before any other use, and by one thread. */
enum status backend_find(const char *device, const struct backend **out);
/* The kind of backend that made results with this instruction set. */
const struct backend *backend_of_isa(const char *isa);
/* Whether this backend can execute a plan for the instruction set `planned`: the same name, or that of a described
 * device, which lacks the libraries' part. */
bool backend_runs_isa(const struct backend *backend, const char *planned);

/* The history of each backend's kernels_version, so that a run of an older version is refused with the release, or the
 * commit, that resumes it.
 *
 * CHANGELOG.md has the same table, with the reason for each raise; backend.kernel_versions compares the two. */
struct kernel_version {
    const char *backend; /* its name */
    int version;
    const char
        *last; /* the last release with these kernels, or the last commit where no release has them; NULL: here */
    bool only_balance; /* it changed the loss that balances experts alone */
};
extern const struct kernel_version kernel_versions[]; /* by backend, versions ascending */
extern const int kernel_version_count;

/* `last` of that version; NULL for the backend's own version, and for one that is not in the table. */
const char *kernel_version_last(const char *backend, int version);
/* Whether a run of version `from` has the same bits with version `to`, unless its loss balances experts. */
bool kernel_versions_alike(const char *backend, int from, int to);
