#include "backend/linear_products.h"

#include "ir/ops/ops.h"

/* Completes a GEMM, whose sizes and a's and b's strides are set, from its tensors. */
static struct linear_product complete(struct linear_product product) {
    struct matmul_spec *spec = &product.spec;
    spec->c_row = tensor_row_stride(product.c);
    spec->addend_row = product.addend ? tensor_row_stride(product.addend) : 0;
    spec->dtype = product.a->shape.dtype;
    spec->b_format = product.b->code.format;
    spec->b_block = product.b->code.block;
    spec->out_dtype = product.c->shape.dtype;
    return product;
}

struct linear_product linear_product(const struct node *node) {
    const struct tensor *x = node->in[0], *y = node->out[0];
    bool kn = NODE_ATTRIBUTES(node, linear_attributes)->weight_is_kn;
    int64_t k = shape_columns(&x->shape), n = shape_columns(&y->shape);
    return complete((struct linear_product){
        .spec = {.m = shape_rows(&x->shape),
                 .n = n,
                 .k = k,
                 .a_row = tensor_row_stride(x),
                 .a_k = 1,
                 .b_k = kn ? n : 1,
                 .b_column = kn ? 1 : k,
                 .bias = node->in[2] != NULL},
        .a = x,
        .b = node->in[1],
        .addend = node->in[3],
        .c = y,
    });
}

struct matmul_operands linear_operands(const struct kernel_call *call) {
    return (struct matmul_operands){call->in[0], call->in[1], call->in[2], call->in[3], call->out[0]};
}

struct linear_product linear_dx_product(const struct node *node) {
    const struct tensor *dy = node->in[0], *dx = node->out[0];
    bool kn = NODE_ATTRIBUTES(node, linear_attributes)->weight_is_kn;
    int64_t inputs = shape_columns(&dx->shape), outputs = shape_columns(&dy->shape);
    return complete((struct linear_product){
        .spec = {.m = shape_rows(&dy->shape),
                 .n = inputs,
                 .k = outputs,
                 .a_row = tensor_row_stride(dy),
                 .a_k = 1,
                 .b_k = kn ? 1 : inputs,
                 .b_column = kn ? outputs : 1},
        .a = dy,
        .b = node->in[1],
        .addend = node->in[2],
        .c = dx,
    });
}

struct matmul_operands linear_dx_operands(const struct kernel_call *call) {
    return (struct matmul_operands){call->in[0], call->in[1], NULL, call->in[2], call->out[0]};
}

struct linear_product linear_dw_product(const struct node *node) {
    bool kn = NODE_ATTRIBUTES(node, linear_dw_attributes)->weight_is_kn;
    const struct tensor *left = node->in[kn ? 0 : 1], *right = node->in[kn ? 1 : 0];
    return complete((struct linear_product){
        .spec = {.m = shape_columns(&left->shape),
                 .n = shape_columns(&right->shape),
                 .k = shape_rows(&left->shape),
                 .a_row = 1,
                 .a_k = tensor_row_stride(left),
                 .b_k = tensor_row_stride(right),
                 .b_column = 1},
        .a = left,
        .b = right,
        .addend = node->out[0],
        .c = node->out[0],
    });
}

struct matmul_operands linear_dw_operands(const struct node *node, const struct kernel_call *call) {
    bool kn = NODE_ATTRIBUTES(node, linear_dw_attributes)->weight_is_kn;
    return (struct matmul_operands){call->in[kn ? 0 : 1], call->in[kn ? 1 : 0], NULL, call->out[0], call->out[0]};
}
