/* cuDNN's fused attention, forward only, by its graph interface: plain causal attention in bf16. It saves what the
 * backend's own kernel saves, the log of each query's sum of exponentials, so the own gradient works with either.
 *
 * A plan is made from shapes and the device's properties alone, so that its workspace is known when a program is
 * compiled; the first engine that the library's rules put forward is taken, if it says that its results are
 * deterministic, so one shape has one engine on one card with one version of the library. */
#ifndef BALLAST_BACKEND_CUDA_ATTENTION_CUDNN_H
#define BALLAST_BACKEND_CUDA_ATTENTION_CUDNN_H

#include "backend/cuda/cuda_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* q and y are [sequences][length][heads][head_dim], k and v the same with kv_heads; rows: elements from one position to
 * the next. Sizes of at least 1; heads is a multiple of kv_heads. */
struct attention_cudnn_shape {
    int64_t sequences, length, heads, kv_heads, head_dim;
    int64_t q_row, k_row, v_row, y_row;
};

struct attention_cudnn_operands {
    void *q, *k, *v, *y; /* 16-byte aligned */
    float *lse;          /* [sequences][heads][length] */
    float scale;
};

struct attention_cudnn;

/* Whether the user asks for it (BALLAST_ATTENTION=cudnn) and the build has it. Never changes. */
bool attention_cudnn_wanted(void);
/* "+cudnn9.19.0", since results then depend on the library; "" where it is not wanted. */
const char *attention_cudnn_version(void);
/* `device`: a JSON text of the library's for its properties, or NULL: the current device. *out is NULL where cuDNN has
 * no deterministic engine for the shape, with the library's words in the thread's status message. FAILED when it cannot
 * be used at all. */
enum status attention_cudnn_create(const struct attention_cudnn_shape *shape, const char *device,
                                   struct attention_cudnn **out);
/* Bytes of workspace that a call needs, 64-byte aligned. */
int64_t attention_cudnn_workspace_bytes(const struct attention_cudnn *plan);
/* Queues the work on the stream. Not for a plan that was made for a described device. */
void attention_cudnn_run(const struct attention_cudnn *plan, const struct attention_cudnn_operands *operands,
                         void *workspace, cudaStream_t stream);
/* NULL is fine. */
void attention_cudnn_free(struct attention_cudnn *plan);

#ifdef __cplusplus
}
#endif

#endif
