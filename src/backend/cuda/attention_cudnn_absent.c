/* In place of attention_cudnn.c in a build without cuDNN. */
#include "backend/cuda/attention_cudnn.h"

const char *attention_cudnn_version(void) { return ""; }

enum status attention_cudnn_kernel(const struct node *node, struct kernel **out) {
    (void)node;
    *out = NULL;
    return STATUS_OK;
}

enum status attention_cudnn_grad_kernel(const struct node *node, struct kernel **out) {
    return attention_cudnn_kernel(node, out);
}
