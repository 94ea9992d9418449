/* The gradient of attention's sinks: a head is a task, which goes through its queries in order. */
#include <math.h>

#include "backend/cpu/kernel_attention.h"

struct sinks_run {
    const struct node *node;
    const struct kernel_call *call;
};

static void sink_task(const void *context, int64_t head, int thread) {
    (void)thread;
    const struct sinks_run *run = context;
    const struct node *node = run->node;
    const struct shape *shape = &node->in[0]->shape;
    int64_t dim = attention_of(node)->head_dim, length = shape->dims[1];
    float sink = attention_sink(node->in[3], run->call->in[3], head);
    double sum = 0;
    for (int64_t s = 0; s < shape->dims[0]; s++) {
        struct head_place place = {s, head};
        const char *dy = attention_head_data(node->in[0], run->call->in[0], place, dim);
        const char *y = attention_head_data(node->in[1], run->call->in[1], place, dim);
        const float *lse = attention_row_values(node, run->call->in[2], length, place);
        int64_t size = dtype_bytes(shape->dtype), dy_row = tensor_row_stride(node->in[0]) * size,
                y_row = tensor_row_stride(node->in[1]) * size;
        for (int64_t t = 0; t < length; t++)
            sum += (double)(expf(sink - lse[t]) * dot_rows(shape->dtype, dim, dy + t * dy_row, y + t * y_row));
    }
    ((float *)run->call->out[0])[head] -= (float)sum;
}

static enum status sinks_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct sinks_run run = {kernel->node, call};
    parallel_tasks(attention_of(kernel->node)->heads, attention_threads(kernel), sink_task, &run);
    return STATUS_OK;
}

enum status cpu_attention_sinks_grad_create(const struct node *node, struct kernel **out) {
    return attention_kernel_create(node, sinks_grad_run, 0, 0, out);
}
