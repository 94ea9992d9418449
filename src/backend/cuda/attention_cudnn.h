/* cuDNN's fused attention and its gradient, by its graph interface: plain causal attention in bf16. Like the backend's
 * own kernel, the forward saves the log of each query's sum of exponentials, so the gradient of either works with the
 * other's forward.
 *
 * A plan is made from shapes and the device's properties alone, so that its workspace is known when a program is
 * compiled; It uses the first engine of the library's heuristics that is not marked nondeterministic. So one shape has
 * one engine on one GPU with one version of the library. cuDNN 9.19 does not mark its attention engines either way. The
 * gradient's graph is the one with which NVIDIA's own front end requests the deterministic engine. */
#pragma once

#include "backend/cuda/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* q, y and their gradients are [sequences][length][heads][head_dim], k, v and theirs the same with kv_heads; rows:
 * elements from one position to the next. Sizes of at least 1; heads is a multiple of kv_heads. */
struct attention_cudnn_shape {
    int64_t sequences, length, heads, kv_heads, head_dim;
    int64_t q_row, k_row, v_row, y_row;
    int64_t dy_row, dq_row, dk_row, dv_row; /* all 0: the forward; else the gradient */
};

struct attention_cudnn;

/* "+cudnn9.19.0", or "+cudnn-both9.19.0", since results then depend on the library; "" where the user does not ask for
 * it (BALLAST_ATTENTION=cudnn, or cudnn-both: with the gradient) or the build does not have it. */
const char *attention_cudnn_version(void);
/* Kernels of attention and its gradient. *out is NULL where they are not wanted, do not suit the node or have no
 * engine: the backend's own kernel is then used. */
enum status attention_cudnn_kernel(const struct node *node, struct kernel **out);
enum status attention_cudnn_grad_kernel(const struct node *node, struct kernel **out);

/* For tests; only in a build with cuDNN. `device`: a JSON text of the library's for its properties, or NULL: the
 * current device. *out is NULL where cuDNN has no engine for the shape, with the library's words in the thread's status
 * message. FAILED when it cannot be used at all. */
enum status attention_cudnn_create(const struct attention_cudnn_shape *shape, const char *device,
                                   struct attention_cudnn **out);
/* NULL is fine. */
void attention_cudnn_free(struct attention_cudnn *plan);

#ifdef __cplusplus
}
#endif
