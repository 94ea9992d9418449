/* cuDNN's fused attention and its gradient, by its graph interface: plain causal attention in bf16. The forward saves
 * what the backend's own kernel saves, the log of each query's sum of exponentials, so the gradient of either works
 * with the other's forward.
 *
 * A plan is made from shapes and the device's properties alone, so that its workspace is known when a program is
 * compiled; the first engine that the library's rules put forward is taken, unless they call it nondeterministic, so
 * one shape has one engine on one GPU with one version of the library. Of its engines for attention cuDNN 9.19 says
 * neither; the gradient's graph is the one by which NVIDIA's own front end asks for the deterministic engine. */
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

/* The forward writes y and lse, from which the gradient makes dq, dk and dv. */
struct attention_cudnn_operands {
    void *q, *k, *v, *y;     /* 16-byte aligned */
    float *lse;              /* [sequences][heads][length] */
    void *dy, *dq, *dk, *dv; /* the gradient's alone; 16-byte aligned */
    float scale;
};

struct attention_cudnn;

/* Whether the user asks for it (BALLAST_ATTENTION=cudnn, or cudnn-both: with the gradient) and the build has it. */
bool attention_cudnn_wanted(void);
bool attention_cudnn_grad_wanted(void);
/* "+cudnn9.19.0", or "+cudnn-both9.19.0", since results then depend on the library; "" where it is not wanted. */
const char *attention_cudnn_version(void);
/* `device`: a JSON text of the library's for its properties, or NULL: the current device. *out is NULL where cuDNN has
 * no engine for the shape, with the library's words in the thread's status message. FAILED when it cannot
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

/* Kernels by such plans (attention_library.c). *out is NULL where they are not wanted, do not suit the node or have no
 * engine: the backend's own kernel is then used. */
enum status attention_library_create(const struct node *node, struct kernel **out);
enum status attention_library_grad_create(const struct node *node, struct kernel **out);

#ifdef __cplusplus
}
#endif
