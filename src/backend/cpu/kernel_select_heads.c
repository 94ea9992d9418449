/* Key-value heads that a part of the query heads reads, and the sums of their gradients. */
#include <string.h>

#include "backend/cpu/cpu_kernel.h"
#include "base/half.h"

static const struct select_heads_attributes *selection_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, select_heads_attributes);
}

static void select_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    const struct select_heads_attributes *own = selection_of(node);
    int64_t bytes = own->head_dim * dtype_bytes(dtype_of(node));
    for (int64_t row = begin; row < end; row++)
        for (int64_t i = 0; i < own->selected; i++)
            memcpy((char *)out_row(node, call, 0, row) + i * bytes,
                   (const char *)in_row(node, call, 0, row) + select_heads_find(own, i) * bytes, (size_t)bytes);
}

enum status cpu_select_heads_create(const struct node *node, struct kernel **out) {
    return cpu_rows_create(node, select_rows, out);
}

/* Of `count` heads, side by side. */
static void sum_heads_bf16(const uint16_t *dy, int64_t count, int64_t head_dim, uint16_t *dx) {
    for (int64_t c = 0; c < head_dim; c++) {
        float sum = 0;
        for (int64_t i = 0; i < count; i++)
            sum += bf16_to_float(dy[i * head_dim + c]);
        dx[c] = bf16_from_float(sum);
    }
}

static void sum_heads_fp32(const float *dy, int64_t count, int64_t head_dim, float *dx) {
    for (int64_t c = 0; c < head_dim; c++) {
        float sum = 0;
        for (int64_t i = 0; i < count; i++)
            sum += dy[i * head_dim + c];
        dx[c] = sum;
    }
}

/* The uses of a head lie side by side. */
static void select_grad_row(const struct node *node, const void *dy, void *dx) {
    const struct select_heads_attributes *own = selection_of(node);
    int64_t i = 0;
    for (int64_t head = 0; head < own->heads; head++) {
        int64_t first = i, to = head * own->head_dim, from = first * own->head_dim;
        while (i < own->selected && select_heads_find(own, i) == head)
            i++;
        if (dtype_of(node) == DTYPE_BF16)
            sum_heads_bf16((const uint16_t *)dy + from, i - first, own->head_dim, (uint16_t *)dx + to);
        else
            sum_heads_fp32((const float *)dy + from, i - first, own->head_dim, (float *)dx + to);
    }
}

static void select_grad_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
        select_grad_row(node, in_row(node, call, 0, row), out_row(node, call, 0, row));
}

enum status cpu_select_heads_grad_create(const struct node *node, struct kernel **out) {
    return cpu_rows_create(node, select_grad_rows, out);
}
