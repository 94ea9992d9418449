#include "backend/kernel_parts.h"

#include <math.h>

#include "backend/moment_numbers.h"

static void release(struct kernel *kernel) { mem_free(kernel); }

void *kernel_new(const struct node *node, size_t bytes, kernel_run *run) {
    struct kernel *kernel = mem_array(1, bytes);
    if (kernel) *kernel = (struct kernel){.run = run, .release = release, .node = node};
    return kernel;
}

enum status kernel_plain(const struct node *node, kernel_run *run, int64_t workspace_bytes, struct kernel **out) {
    struct kernel *kernel = kernel_new(node, sizeof *kernel, run);
    if (!kernel) return STATUS_FAILED;
    kernel->workspace_bytes = workspace_bytes;
    *out = kernel;
    return STATUS_OK;
}

enum status kernel_finish(struct kernel *kernel, enum status status, struct kernel **out) {
    if (status == STATUS_OK)
        *out = kernel;
    else
        kernel->release(kernel);
    return status;
}

int64_t kernel_elements(const struct kernel *kernel, const struct kernel_call *call) {
    return call->elements > 0 ? call->elements : shape_elements(&kernel->node->in[0]->shape);
}

void *operand_row(const struct tensor *tensor, void *data, int64_t row) {
    if (!data) return NULL;
    return (char *)data + row * tensor_row_stride(tensor) * dtype_bytes(tensor->shape.dtype);
}

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

/* c = a weight (+ addend); the weight is [k][n], or [n][k]. */
static struct linear_product weight_product(const struct tensor *a, const struct tensor *weight, bool kn,
                                            const struct tensor *addend, const struct tensor *c) {
    int64_t k = shape_columns(&a->shape), n = shape_columns(&c->shape);
    return complete((struct linear_product){
        .spec = {.m = shape_rows(&a->shape),
                 .n = n,
                 .k = k,
                 .a_row = tensor_row_stride(a),
                 .a_k = 1,
                 .b_k = kn ? n : 1,
                 .b_column = kn ? 1 : k},
        .a = a,
        .b = weight,
        .addend = addend,
        .c = c,
    });
}

struct linear_product linear_product(const struct node *node) {
    bool kn = NODE_ATTRIBUTES(node, linear_attributes)->weight_is_kn;
    struct linear_product product = weight_product(node->in[0], node->in[1], kn, node->in[3], node->out[0]);
    product.spec.bias = node->in[2] != NULL;
    return product;
}

struct matmul_operands linear_operands(const struct kernel_call *call) {
    return (struct matmul_operands){call->in[0], call->in[1], call->in[2], call->in[3], call->out[0]};
}

struct linear_product linear_dx_product(const struct node *node) {
    bool kn = NODE_ATTRIBUTES(node, linear_attributes)->weight_is_kn;
    return weight_product(node->in[0], node->in[1], !kn, node->in[2], node->out[0]);
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

enum { TILE_TOKENS_MIN = 32 };

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct head_tiles head_tiles_whole(const struct node *node) {
    int64_t rows = shape_rows(&node->in[0]->shape), vocab = node->in[1]->shape.dims[0];
    return (struct head_tiles){.rows = rows,
                               .vocab = vocab,
                               .columns = shape_columns(&node->in[0]->shape),
                               .logits_row = vocab,
                               .tile = rows,
                               .last = rows};
}

struct head_tiles head_tiles_of(const struct node *node, const struct head_limits *limits) {
    struct head_tiles tiles = head_tiles_whole(node);
    tiles.logits_row = divide_up(tiles.vocab, limits->logits_row) * limits->logits_row;
    int64_t max = limits->logits_bytes / (4 * tiles.logits_row);
    if (max < TILE_TOKENS_MIN) max = TILE_TOKENS_MIN;
    if (max > limits->tile_tokens) max = limits->tile_tokens;
    tiles.tile = divide_up(tiles.rows, divide_up(tiles.rows, max));
    tiles.last = tiles.rows - (tiles.rows - 1) / tiles.tile * tiles.tile;
    return tiles;
}

bool head_makes_gradients(const struct node *node) {
    return node->op == &op_head_loss_grad || node->op == &op_head_log_probability_grad;
}

struct head_settings head_settings_of(const struct node *node) {
    const struct head_loss_grad_attributes *of_gradient = node->attributes;
    const struct head_attributes *attributes = node->attributes;
    bool gradient = head_makes_gradients(node);
    int64_t vocab = node->in[1]->shape.dims[0];
    struct head_settings settings = {.softcap = (float)(gradient ? of_gradient->softcap : attributes->softcap),
                                     .part = gradient ? of_gradient->part : attributes->part};
    if (settings.part.tokens == 0) settings.part = (struct vocabulary_part){0, vocab, vocab};
    if (settings.part.rows > vocab) settings.part.rows = vocab; /* measured on a part of the weight */
    return settings;
}

struct matmul_spec head_logits_spec(const struct node *node, const struct head_tiles *tiles, int64_t tokens) {
    const struct tensor *x = node->in[0];
    return (struct matmul_spec){.m = tokens,
                                .n = tiles->vocab,
                                .k = tiles->columns,
                                .a_row = tensor_row_stride(x),
                                .a_k = 1,
                                .b_k = 1,
                                .b_column = tiles->columns,
                                .c_row = tiles->logits_row,
                                .dtype = x->shape.dtype,
                                .out_dtype = DTYPE_F32};
}

struct matmul_spec head_dx_spec(const struct node *node, const struct head_tiles *tiles, int64_t tokens) {
    const struct tensor *dx = node->out[head_output(node, HEAD_DX)];
    return (struct matmul_spec){.m = tokens,
                                .n = tiles->columns,
                                .k = tiles->vocab,
                                .a_row = tiles->logits_row,
                                .a_k = 1,
                                .b_k = tiles->columns,
                                .b_column = 1,
                                .c_row = tensor_row_stride(dx),
                                .dtype = dx->shape.dtype,
                                .out_dtype = dx->shape.dtype};
}

struct matmul_spec head_dweight_spec(const struct node *node, const struct head_tiles *tiles, int64_t tokens) {
    const struct tensor *x = node->in[0];
    return (struct matmul_spec){.m = tiles->vocab,
                                .n = tiles->columns,
                                .k = tokens,
                                .a_row = 1,
                                .a_k = tiles->logits_row,
                                .b_k = tensor_row_stride(x),
                                .b_column = 1,
                                .c_row = tiles->columns,
                                .addend_row = tiles->columns,
                                .dtype = x->shape.dtype,
                                .out_dtype = DTYPE_F32};
}

struct head_workspace head_workspace_of(const struct node *node, const struct head_tiles *tiles, bool gradient,
                                        bool in_rows) {
    int64_t elements = head_makes_logits(node, gradient) ? tiles->tile * tiles->logits_row : 0,
            logits_bytes = workspace_align(4 * elements);
    bool apart = gradient && !in_rows && node->in[0]->shape.dtype == DTYPE_BF16;
    struct head_workspace workspace = {.gradients = apart ? logits_bytes : 0};
    workspace.losses = logits_bytes + (apart ? workspace_align(2 * elements) : 0);
    workspace.end = workspace.losses + workspace_align(tiles->rows * (int64_t)sizeof(double));
    return workspace;
}

static bool is_tall(const struct muon_sizes *sizes) { return sizes->rows > sizes->columns; }

static int64_t take(int64_t bytes, int64_t *end) {
    int64_t at = *end;
    *end += workspace_align(bytes);
    return at;
}

struct muon_sizes muon_sizes_of(const struct node *node) {
    const int64_t *dims = node->in[0]->shape.dims;
    struct muon_sizes sizes = {
        .rows = dims[0], .columns = dims[1], .dtype = NODE_ATTRIBUTES(node, update_attributes)->parameter};
    int64_t count = dims[0] * dims[1], f32 = (int64_t)sizeof(float), each = dtype_bytes(sizes.dtype);
    sizes.side = is_tall(&sizes) ? sizes.columns : sizes.rows;
    sizes.x = take(count * each, &sizes.end);
    sizes.sums = take(count * f32, &sizes.end);
    sizes.square = take(sizes.side * sizes.side * each, &sizes.end);
    sizes.square_sums = take(sizes.side * sizes.side * f32, &sizes.end);
    sizes.norms = take((1 + gradient_norm_blocks(count)) * (int64_t)sizeof(double), &sizes.end);
    return sizes;
}

struct matmul_spec muon_product_spec(const struct muon_sizes *sizes, enum muon_product product) {
    int64_t n = product == MUON_PRODUCT ? sizes->columns : sizes->side, rows = sizes->rows, columns = sizes->columns;
    struct matmul_spec spec = {.m = product == MUON_PRODUCT ? rows : sizes->side,
                               .n = n,
                               .k = sizes->side,
                               .a_row = sizes->side,
                               .a_k = 1,
                               .b_k = n,
                               .b_column = 1,
                               .c_row = n,
                               .dtype = sizes->dtype,
                               .out_dtype = DTYPE_F32};
    if (product != MUON_SQUARE) return spec;
    bool tall = is_tall(sizes);
    spec.k = tall ? rows : columns;
    spec.a_row = spec.b_column = tall ? 1 : columns;
    spec.a_k = spec.b_k = tall ? columns : 1;
    return spec;
}

double update_step_factor(const struct shape *matrix) {
    int64_t longer = matrix->dims[0] > matrix->dims[1] ? matrix->dims[0] : matrix->dims[1];
    return 0.2 * sqrt((double)longer);
}

struct update_step update_step_of(const struct node *node, const struct kernel_call *call) {
    const struct update_attributes *attributes = NODE_ATTRIBUTES(node, update_attributes);
    enum update_rule rule = update_rule_of(node->op);
    double rate = call->scalars[SCALAR_LEARNING_RATE];
    double correction = rule == UPDATE_ADAMW  ? call->scalars[SCALAR_BIAS_CORRECTION]
                        : rule == UPDATE_MUON ? update_step_factor(&node->in[0]->shape)
                                              : 1;
    return (struct update_step){
        .decay = (float)(rule == UPDATE_SGD ? attributes->weight_decay : 1 - rate * attributes->weight_decay),
        .beta1 = (float)attributes->beta1,
        .beta2 = (float)attributes->beta2,
        .blend1 = (float)(1 - attributes->beta1),
        .blend2 = (float)(1 - attributes->beta2),
        .step = (float)(rate * correction),
        .root = (float)call->scalars[SCALAR_BIAS_CORRECTION_SQ],
        .epsilon = (float)attributes->epsilon,
        .seed = attributes->seed,
        .number = attributes->number,
        .count = (uint32_t)call->scalars[SCALAR_STEP],
    };
}

struct update_run update_run_of(const struct node *node, const struct kernel_call *call) {
    const struct update_attributes *attributes = NODE_ATTRIBUTES(node, update_attributes);
    int moments = update_rule_moments(update_rule_of(node->op));
    bool split = attributes->split_master, whole = attributes->has_master && !split;
    return (struct update_run){
        .gradient = call->in[0],
        .weight = split   ? NULL
                  : whole ? call->out[1 + moments]
                          : call->out[0],
        .moments = {call->out[1], moments > 1 ? call->out[2] : NULL},
        .scales = {call->out[2 + moments], moments > 1 ? call->out[3 + moments] : NULL},
        .rounded = whole ? call->out[0] : NULL,
        .upper = split ? call->out[0] : NULL,
        .lower = split ? call->out[1 + moments] : NULL,
        .first = call->first_element,
        .bf16_weight = !attributes->has_master && attributes->parameter == DTYPE_BF16,
        .bf16_moments = attributes->moments == DTYPE_BF16,
    };
}

static void *advance(void *data, enum dtype dtype, int64_t elements) {
    return (char *)data + elements * dtype_bytes(dtype);
}

struct update_run update_run_from(const struct update_run *run, int64_t begin) {
    struct update_run from = *run;
    from.gradient += begin;
    if (run->weight) from.weight = advance(run->weight, run->bf16_weight ? DTYPE_BF16 : DTYPE_F32, begin);
    enum dtype moments = run->scales[0] ? DTYPE_U8 : run->bf16_moments ? DTYPE_BF16 : DTYPE_F32;
    for (int i = 0; i < UPDATE_MOMENTS_MAX; i++) {
        if (run->moments[i]) from.moments[i] = advance(run->moments[i], moments, begin);
        if (run->scales[i]) from.scales[i] += begin / UPDATE_SCALE_BLOCK;
    }
    if (run->direction) from.direction += begin;
    if (run->rounded) from.rounded += begin;
    if (run->upper) from.upper += begin, from.lower += begin;
    from.first += begin;
    return from;
}

/* The maps of moments in 8 bits. The numbers of the signed one are also those of scales (ir/weight_format.h). */
static const float unsigned_numbers[MOMENT_CODES] = {MOMENT_UNSIGNED_NUMBERS};

const struct moment_map moment_map_signed = {.numbers = weight_scale_map, .zero = 127, .levels = MOMENT_LEVELS_OF(1)};
const struct moment_map moment_map_unsigned = {.numbers = unsigned_numbers, .zero = 0, .levels = MOMENT_LEVELS_OF(2)};
