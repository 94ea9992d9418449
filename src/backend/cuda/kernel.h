/* Host-side helpers that the kernels of the CUDA backend share. Each family of operators is one file: its device code
 * and the functions that make its kernels.
 *
 * Operands are in device memory; a kernel's `run` queues work on the call's stream and returns cuda_outcome(). The same
 * kernel on the same GPU always gives the same bits: no sum depends on the order in which threads finish.
 *
 * Files, in the order to read them:
 *     kernel: this; the list of operators, kernels loaded, failures within a call;
 *     backend: the backend's table: the GPU in use, its memory, streams and events, graphs captured from streams;
 *     library: NVIDIA's libraries, opened when a device is first used;
 *     matmul: GEMMs by cuBLASLt and their algorithms as text, of weights in fewer bits too; linear layers;
 *     cudnn_graph: graphs of cuDNN's operations; attention_cudnn, attention_cudnn_absent: kernels of attention and its
 *         gradient by such graphs, or none.
 * Device code is in kernels/:
 *     device: elements, vectors, sums over threads, launches;
 *     mma: inline-assembly instructions;
 *     stochastic_rounding: stochastic rounding;
 *     elementwise: elementwise operators; also sums rows, and packs sums that travel between devices as bf16;
 *     activation: the functions of elementwise and experts;
 *     group_collectives, norm, embedding (with rope), head, preference, optimizer, muon, attention: their operators;
 *     attention_cache: attention by keys and values in a cache, and selected key-value heads;
 *     routing, balance, expert: mixture-of-experts layers;
 *     unpack: values of quantized weights. */
#pragma once

#include <cuda_runtime_api.h>

#ifdef __cplusplus
#define _Noreturn [[noreturn]]
extern "C" {
#endif

#include "backend/cuda_constants.h"
#include "backend/kernel_parts.h"
#include "base/base.h"
#include "ir/ops/ops.h"

#define CUDA_DECLARE(name) enum status cuda_##name##_create(const struct node *node, struct kernel **out);
CUDA_OP_LIST(CUDA_DECLARE)
#undef CUDA_DECLARE
/* Defines cuda_NAME_create of an operator by a maker that several share, or for kernels that are `run` and no more. */
#define CUDA_KERNEL_MAKER(name, maker)                                                                                 \
    enum status cuda_##name##_create(const struct node *node, struct kernel **out) { return maker(node, out); }
#define CUDA_KERNEL(name, run)                                                                                         \
    enum status cuda_##name##_create(const struct node *node, struct kernel **out) {                                   \
        return kernel_plain(node, run, 0, out);                                                                        \
    }
/* The backend's (backend.h). */
kernel_maker *cuda_maker(const struct op *op);
extern const struct backend_graphs cuda_graphs;

/* Registers a kernel when the program starts (device.cuh); returns true. */
bool cuda_kernels_add(const void *kernel);
/* Loads the code of all kernels into device memory; without it the driver loads each at its first launch. */
enum status cuda_kernels_load(void);

/* OK, or FAILED "CUDA: WHAT: the runtime's words", with how to find the place when the GPU itself found the fault. */
enum status cuda_status(cudaError_t error, const char *what);
/* For use in `run`, which need not check each call: notes the thread's first failure. */
void cuda_require(cudaError_t error, const char *what);
/* Notes that a library refused a call, in its words; or, if the device had failed before, the device's failure. */
void cuda_refused(cudaStream_t stream, const char *what, const char *message);
/* The status to return from `run`: OK, or FAILED with the noted message. Clears the note. */
enum status cuda_outcome(void);

static inline cudaStream_t stream_of(const struct kernel_call *call) { return (cudaStream_t)call->stream; }

/* Addresses of buffers are multiples of this. */
enum { CUDA_ALIGN = 64 };
/* The power of two, at most CUDA_ALIGN, that divides the address of the operand's first element. */
int64_t cuda_alignment(const struct tensor *tensor);

/* Sums over rows (elementwise.cu): blocks of rows have partial sums [blocks][columns] in fp32, which are then added up
 * in order. How many rows a block has depends on their number alone. */
int64_t cuda_sum_block_rows(int64_t rows);
int64_t cuda_sum_blocks(int64_t rows);
/* Bytes of the partial sums. */
int64_t cuda_sum_workspace(int64_t rows, int64_t columns);
/* out (fp32) += the partial sums. */
void cuda_sum_combine(cudaStream_t stream, int64_t blocks, int64_t columns, const float *partials, float *out);
/* out (fp32) += the sum of all rows; row_stride in elements. */
void cuda_sum_columns(cudaStream_t stream, enum dtype dtype, int64_t rows, int64_t columns, const void *data,
                      int64_t row_stride, void *workspace, float *out);

/* to = to + from, `count` fp32 numbers each (backend.h). */
void cuda_add_sums(void *to, const void *from, int64_t count, bool round_bf16, void *stream);
/* backend_peers says what these do (elementwise.cu). */
void cuda_pack_bf16(void *to, const float *from, int64_t count, void *stream);
void cuda_unpack_bf16(float *to, const void *from, int64_t count, bool adds, void *stream);

/* Parts of the update of elements (optimizer.cu) that the update of whole matrices (muon.cu) uses. */
/* Changes the moment of all of a matrix, and writes the fp32 direction, where the clip factor is a number. */
enum status cuda_muon_move(const struct kernel *kernel, const struct kernel_call *call, float *direction);
/* *out = the sum of the squares of `count` numbers, whose address is a multiple of 16; `sums` gets those of blocks of
 * GRADIENT_NORM_BLOCK. */
void cuda_squared_norm_of(const float *data, int64_t count, double *sums, double *out, void *stream);

#ifdef __cplusplus
}
#endif
