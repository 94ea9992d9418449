/* gpt-oss's expert and its gradients, on the rows that the routing gave it (expert.h). Rows of the last tile
 * that hold no slot are no zeros here, because of the biases: nothing reads what they give, and their gradients are
 * zeros. */

#include "backend/cpu/expert.h"
#include "backend/cpu/kernel.h"

/* Those of forward come first. By their results: gate and up, y; the gradients of the activation, of x, of gate_up, of
 * down. */
enum glu_product { PRODUCT_IN, PRODUCT_OUT, PRODUCT_DACTIVE, PRODUCT_DX, PRODUCT_DIN, PRODUCT_DOUT };
enum { FORWARD_PRODUCTS = PRODUCT_OUT + 1, GLU_PRODUCTS = PRODUCT_DOUT + 1 };

struct glu_kernel {
    struct kernel kernel;
    struct expert_products products;
    int64_t pairs_bytes, active_bytes; /* of a workspace, by the largest piece */
};

/* What both operators have, wherever their operands are. */
struct glu_view {
    const struct expert_glu_attributes *attributes;
    const struct tensor *x, *gate_up, *down, *result; /* both weights are in one format */
    int ranges;                                       /* the input; gate_up, down and biases follow */
    int64_t columns, width;
};

static struct glu_view view_of(const struct node *node) {
    bool gradient = node->op == &op_expert_glu_grad;
    int first = gradient ? 2 : 1;
    struct glu_view view = {.attributes = gradient ? &NODE_ATTRIBUTES(node, expert_glu_grad_attributes)->glu
                                                   : NODE_ATTRIBUTES(node, expert_glu_attributes),
                            .x = node->in[first - 1],
                            .gate_up = node->in[first + 1],
                            .down = node->in[first + 2],
                            .result = node->out[0],
                            .ranges = first};
    view.columns = shape_columns(&view.x->shape);
    view.width = tensor_values(view.down)->dims[view.attributes->weights_are_kn ? 0 : 1];
    return view;
}

/* b is a weight of a GEMM from `in` to `out` features, or turned. */
static void set_weight(struct matmul_spec *spec, const struct glu_view *view, int64_t out, int64_t in, bool turned) {
    bool kn = view->attributes->weights_are_kn;
    spec->n = turned ? in : out;
    spec->k = turned ? out : in;
    int64_t along_in = kn ? out : 1, along_out = kn ? 1 : in;
    spec->b_k = turned ? along_out : along_in;
    spec->b_column = turned ? along_in : along_out;
    spec->b_format = view->gate_up->code.format;
    spec->a_row = spec->k;
}

/* The gradient of such a weight: rows^t [first] rows [second], where that is its layout. */
static void set_gradient(struct matmul_spec *spec, int64_t rows, int64_t first, int64_t second) {
    spec->m = first, spec->n = second, spec->k = rows;
    spec->a_row = 1, spec->a_k = first;
    spec->b_k = second, spec->b_column = 1;
    spec->addend_row = second;
    spec->out_dtype = DTYPE_F32;
}

static struct matmul_spec spec_of(int product, const void *node, int64_t rows) {
    struct glu_view own = view_of(node);
    const struct glu_view *view = &own;
    enum dtype dtype = view->x->shape.dtype;
    int64_t c = view->columns, f = view->width;
    bool kn = view->attributes->weights_are_kn;
    struct matmul_spec spec = {.m = rows, .dtype = dtype, .out_dtype = dtype, .a_k = 1};
    switch ((enum glu_product)product) {
    case PRODUCT_IN: set_weight(&spec, view, 2 * f, c, false), spec.bias = true; break;
    case PRODUCT_OUT: set_weight(&spec, view, c, f, false), spec.bias = !view->attributes->down_bias_elsewhere; break;
    case PRODUCT_DACTIVE: set_weight(&spec, view, c, f, true); break;
    case PRODUCT_DX: set_weight(&spec, view, 2 * f, c, true); break;
    case PRODUCT_DIN: set_gradient(&spec, rows, kn ? c : 2 * f, kn ? 2 * f : c); break;
    case PRODUCT_DOUT: set_gradient(&spec, rows, kn ? f : c, kn ? c : f); break;
    }
    spec.c_row = spec.n;
    return spec;
}

static void glu_release(struct kernel *kernel) {
    expert_products_release(&((struct glu_kernel *)kernel)->products);
    mem_free(kernel);
}

/* The workspace holds gate and up, and `actives` as wide as the activation. */
static enum status glu_create(const struct node *node, int products, int actives, kernel_run *run,
                              struct kernel **out) {
    struct glu_view view = view_of(node);
    const struct expert_attributes *expert = &view.attributes->expert;
    struct glu_kernel *glu = kernel_new(node, sizeof *glu, run);
    if (!glu) return STATUS_FAILED;
    glu->kernel.release = glu_release;
    glu->products = (struct expert_products){.spec = spec_of, .context = node, .count = products};
    enum status status = expert_products_create(&glu->products, routing_tile(expert->slots, expert->experts),
                                                shape_rows(&view.x->shape));
    if (status != STATUS_OK) {
        glu_release(&glu->kernel);
        return status;
    }
    int64_t bytes = glu->products.pieces.max * view.width * dtype_bytes(view.x->shape.dtype);
    glu->active_bytes = workspace_align(bytes);
    glu->pairs_bytes = workspace_align(2 * bytes);
    glu->kernel.workspace_bytes =
        glu->pairs_bytes + actives * glu->active_bytes + workspace_align(glu->products.workspace_bytes);
    *out = &glu->kernel;
    return STATUS_OK;
}

/* A piece of an expert's rows. */
struct glu_piece {
    const struct glu_kernel *kernel;
    const struct kernel_call *call;
    const struct glu_view *view;
    int size;
    int64_t row, rows;
    void *pairs, *active, *dactive, *workspace; /* the last: of GEMMs */
};

static void multiply(const struct glu_piece *piece, enum glu_product product, const void *a, const void *b,
                     const void *bias, void *c) {
    struct matmul_operands operands = {.a = a, .b = b, .bias = bias, .c = c};
    if (product >= PRODUCT_DIN) operands.addend = c;
    expert_products_run(&piece->kernel->products, product, piece->rows, piece->size, &operands, piece->workspace);
}

static void *rows_of(const struct glu_piece *piece, const struct tensor *tensor, void *data) {
    return operand_row(tensor, data, piece->row);
}

/* gate_up, down and their biases, by number. */
static void *weight_of(const struct glu_piece *piece, int number) {
    return piece->call->in[piece->view->ranges + 1 + number];
}

static void *row_at(const struct glu_piece *piece, void *data, int64_t width, int64_t row) {
    return (char *)data + row * width * dtype_bytes(piece->view->x->shape.dtype);
}

static void activate_rows(const void *context, int64_t begin, int64_t end) {
    const struct glu_piece *piece = context;
    const struct expert_glu_attributes *attributes = piece->view->attributes;
    int64_t width = piece->view->width;
    for (int64_t row = begin; row < end; row++)
        cpu_simd()->glu(piece->view->x->shape.dtype, width, (float)attributes->alpha, (float)attributes->limit,
                        row_at(piece, piece->pairs, 2 * width, row), row_at(piece, piece->active, width, row));
}

static void make_active(const struct glu_piece *piece, void *x) {
    multiply(piece, PRODUCT_IN, rows_of(piece, piece->view->x, x), weight_of(piece, 0), weight_of(piece, 2),
             piece->pairs);
    parallel_for(piece->rows, parallel_rows(piece->view->width), activate_rows, piece);
}

typedef void piece_run(const struct glu_piece *piece);

static void each_piece(const struct glu_kernel *kernel, const struct kernel_call *call, const struct glu_view *view,
                       piece_run *run) {
    const int32_t *range = (const int32_t *)call->in[view->ranges] + 2 * view->attributes->expert.expert;
    char *own = call->workspace;
    bool gradient = kernel->kernel.node->op == &op_expert_glu_grad;
    struct glu_piece piece = {.kernel = kernel, .call = call, .view = view, .pairs = own};
    piece.active = own + kernel->pairs_bytes;
    piece.dactive = (char *)piece.active + kernel->active_bytes;
    piece.workspace = (char *)piece.active + (gradient ? 2 : 1) * kernel->active_bytes;
    for (piece.row = range[0]; piece.row < range[1]; piece.row += piece.rows) {
        piece.rows = expert_pieces_first(&kernel->products.pieces, range[1] - piece.row, &piece.size);
        run(&piece);
    }
}

/* The rows of other experts: those of input 6, or zeros. */
static void keep_others(const struct node *node, const struct kernel_call *call) {
    size_t bytes = (size_t)shape_bytes(&node->out[0]->shape);
    if (!call->in[6])
        memset(call->out[0], 0, bytes);
    else if (call->in[6] != call->out[0])
        memcpy(call->out[0], call->in[6], bytes);
}

static void run_piece(const struct glu_piece *piece) {
    make_active(piece, piece->call->in[0]);
    bool with_bias = !piece->view->attributes->down_bias_elsewhere;
    multiply(piece, PRODUCT_OUT, piece->active, weight_of(piece, 1), with_bias ? weight_of(piece, 3) : NULL,
             rows_of(piece, piece->view->result, piece->call->out[0]));
}

static enum status glu_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct glu_view view = view_of(kernel->node);
    keep_others(kernel->node, call);
    each_piece((const struct glu_kernel *)kernel, call, &view, run_piece);
    return STATUS_OK;
}

enum status cpu_expert_glu_create(const struct node *node, struct kernel **out) {
    return glu_create(node, FORWARD_PRODUCTS, 1, glu_run, out);
}

/* The gradients of gate and up, in the place of these. */
static void differentiate_rows(const void *context, int64_t begin, int64_t end) {
    const struct glu_piece *piece = context;
    const struct expert_glu_attributes *attributes = piece->view->attributes;
    int64_t width = piece->view->width;
    for (int64_t row = begin; row < end; row++) {
        void *pairs = row_at(piece, piece->pairs, 2 * width, row);
        cpu_simd()->glu_grad(piece->view->x->shape.dtype, width, (float)attributes->alpha, (float)attributes->limit,
                             row_at(piece, piece->dactive, width, row), pairs, pairs);
    }
}

/* The gradient of a weight, whose layout says which rows come first. */
static void add_gradient(const struct glu_piece *piece, enum glu_product product, const void *in, const void *dout,
                         void *to) {
    bool kn = piece->view->attributes->weights_are_kn;
    if (to) multiply(piece, product, kn ? in : dout, kn ? dout : in, NULL, to);
}

static void grad_piece(const struct glu_piece *piece) {
    const struct kernel_call *call = piece->call;
    const struct glu_view *view = piece->view;
    enum dtype dtype = view->x->shape.dtype;
    int64_t width = view->width;
    void *dy = rows_of(piece, view->x, call->in[0]), *x = rows_of(piece, view->x, call->in[1]);
    make_active(piece, call->in[1]);
    multiply(piece, PRODUCT_DACTIVE, dy, weight_of(piece, 1), NULL, piece->dactive);
    add_gradient(piece, PRODUCT_DOUT, piece->active, dy, call->out[2]);
    if (call->out[4]) sum_columns(dtype, piece->rows, view->columns, dy, view->columns, call->out[4]);
    parallel_for(piece->rows, parallel_rows(width), differentiate_rows, piece);
    add_gradient(piece, PRODUCT_DIN, x, piece->pairs, call->out[1]);
    if (call->out[3]) sum_columns(dtype, piece->rows, 2 * width, piece->pairs, 2 * width, call->out[3]);
    if (call->out[0])
        multiply(piece, PRODUCT_DX, piece->pairs, weight_of(piece, 0), NULL, rows_of(piece, view->x, call->out[0]));
}

static enum status glu_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct glu_view view = view_of(kernel->node);
    if (call->out[0]) keep_others(kernel->node, call);
    each_piece((const struct glu_kernel *)kernel, call, &view, grad_piece);
    return STATUS_OK;
}

enum status cpu_expert_glu_grad_create(const struct node *node, struct kernel **out) {
    return glu_create(node, GLU_PRODUCTS, 2, glu_grad_run, out);
}
