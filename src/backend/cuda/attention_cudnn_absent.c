/* In place of attention_cudnn.c in a build without cuDNN. */
#include "backend/cuda/attention_cudnn.h"

bool attention_cudnn_wanted(void) { return false; }
bool attention_cudnn_grad_wanted(void) { return false; }

const char *attention_cudnn_version(void) { return ""; }

enum status attention_cudnn_create(const struct attention_cudnn_shape *shape, const char *device,
                                   struct attention_cudnn **out) {
    (void)shape, (void)device;
    *out = NULL;
    return STATUS_OK;
}

int64_t attention_cudnn_workspace_bytes(const struct attention_cudnn *plan) {
    (void)plan;
    return 0;
}

void attention_cudnn_run(const struct attention_cudnn *plan, const struct attention_cudnn_operands *operands,
                         void *workspace, cudaStream_t stream) {
    (void)plan, (void)operands, (void)workspace, (void)stream;
    BUG("a plan of a library that is not there");
}

void attention_cudnn_free(struct attention_cudnn *plan) { (void)plan; }
