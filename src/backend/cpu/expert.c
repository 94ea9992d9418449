/* Experts and their gradients, on the pieces of rows that the routing gave them: MLPs of gate, up and down, and
 * gpt-oss's, whose gate and up are one weight and which has biases.
 *
 * Rows of the last tile that hold no slot are zeros for an MLP, which GEMMs add nothing for. With biases they are not:
 * nothing reads their results, and their gradients are zeros. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/matmul/matmul.h"
#include "backend/cpu/matmul/parts.h"

struct expert_pieces expert_pieces_of(int64_t tile, int64_t max, bool any) {
    struct expert_pieces pieces = {.any = any, .tile = tile, .step = smaller(tile, PIECE_ROWS_STEP)};
    pieces.max = smaller(PIECE_ROWS_MAX, rounded_up(max, pieces.step));
    if (any) return pieces;
    for (int64_t rows = tile; pieces.wholes < PIECE_WHOLE_SIZES && (pieces.wholes == 0 || rows <= max);
         rows *= PIECE_WHOLE_STEP)
        pieces.whole[pieces.wholes++] = rows;
    for (int i = 0; i < pieces.wholes; i++) {
        int64_t rows = pieces.whole[i] - tile + PIECE_ROWS_STEP;
        for (; rows < pieces.whole[i]; rows += PIECE_ROWS_STEP)
            pieces.rows[pieces.sizes++] = rows;
        pieces.rows[pieces.sizes++] = pieces.whole[i];
    }
    pieces.max = pieces.rows[pieces.sizes - 1];
    return pieces;
}

int64_t expert_pieces_first(const struct expert_pieces *pieces, int64_t rows, int *size) {
    if (pieces->any) return equal_part(rows, pieces->max, pieces->step);
    int64_t tiles = rounded_up(rows, pieces->tile);
    int whole = pieces->wholes - 1;
    while (pieces->whole[whole] > tiles)
        whole--;
    int64_t wanted = smaller(rows, pieces->whole[whole]);
    for (*size = 0; pieces->rows[*size] < wanted;)
        ++*size;
    return pieces->rows[*size];
}

/* By their results: gate and up, y; the gradients of the activation, of x, of the first weights, of down; of x once
 * more, from up where that is apart. Those of forward come first. */
enum expert_product {
    PRODUCT_IN,
    PRODUCT_OUT,
    PRODUCT_DACTIVE,
    PRODUCT_DX,
    PRODUCT_DIN,
    PRODUCT_DOUT,
    PRODUCT_DX_MORE,
    EXPERT_PRODUCTS
};

struct expert_kernel {
    struct kernel kernel;
    enum expert_product products; /* those before it */
    int threads;
    struct expert_pieces pieces;
    int64_t products_bytes;                             /* of a workspace: the most that a GEMM needs */
    int64_t pairs_bytes, active_bytes;                  /* by the largest piece: gate and up; an activation */
    struct matmul *ready[EXPERT_PRODUCTS][PIECE_SIZES]; /* NULL: pieces are of any size */
};

/* A common view of the four operators, wherever their operands are. All attributes begin with an expert's. */
struct expert_view {
    const struct expert_attributes *attributes;
    const struct expert_glu_attributes *glu; /* NULL: gate and up are apart, and there are no biases */
    bool gradient;
    const struct tensor *x, *in, *result; /* in: the first weight; all weights are in one format */
    int ranges;                           /* the input; the weights follow, then biases */
    int down, previous;                   /* inputs */
    int64_t columns, width, in_width;     /* of the rows, of the activation, of the output of `in` */
};

static struct expert_view view_of(const struct node *node) {
    bool glu = node->op == &op_expert_glu || node->op == &op_expert_glu_grad;
    bool gradient = node->op == &op_expert_mlp_grad || node->op == &op_expert_glu_grad;
    int ranges = gradient ? 2 : 1;
    struct expert_view view = {.attributes = NODE_ATTRIBUTES(node, expert_attributes),
                               .glu = glu ? NODE_ATTRIBUTES(node, expert_glu_attributes) : NULL,
                               .gradient = gradient,
                               .x = node->in[ranges - 1],
                               .in = node->in[ranges + 1],
                               .result = node->out[0],
                               .ranges = ranges,
                               .down = ranges + (glu ? 2 : 3),
                               .previous = glu || gradient ? 6 : 5,
                               .width = expert_width(node)};
    view.columns = shape_columns(&view.x->shape);
    view.in_width = glu ? 2 * view.width : view.width;
    return view;
}

static bool weights_are_kn(const struct expert_view *view) { return view->glu && view->glu->weights_are_kn; }

/* b is a weight of a GEMM from `in` to `out` features, or turned. */
static void set_weight(struct matmul_spec *spec, const struct expert_view *view, int64_t out, int64_t in, bool turned) {
    bool kn = weights_are_kn(view);
    spec->n = turned ? in : out;
    spec->k = turned ? out : in;
    int64_t along_in = kn ? out : 1, along_out = kn ? 1 : in;
    spec->b_k = turned ? along_out : along_in;
    spec->b_column = turned ? along_in : along_out;
    spec->b_format = view->in->code.format;
    spec->b_block = view->in->code.block;
    spec->a_row = spec->k;
}

/* The gradient of a weight from `in` to `out` features, in its layout. */
static void set_gradient(struct matmul_spec *spec, const struct expert_view *view, int64_t out, int64_t in) {
    bool kn = weights_are_kn(view);
    spec->k = spec->m;
    spec->m = kn ? in : out, spec->n = kn ? out : in;
    spec->a_row = 1, spec->a_k = spec->m;
    spec->b_k = spec->n, spec->b_column = 1;
    spec->addend_row = spec->n;
    spec->out_dtype = DTYPE_F32;
}

/* The GEMM of a piece of so many rows. */
static struct matmul_spec spec_of(const struct node *node, enum expert_product product, int64_t rows) {
    struct expert_view view = view_of(node);
    enum dtype dtype = view.x->shape.dtype;
    int64_t c = view.columns, f = view.width;
    struct matmul_spec spec = {.m = rows, .dtype = dtype, .out_dtype = dtype, .a_k = 1};
    switch (product) {
    case PRODUCT_IN: set_weight(&spec, &view, view.in_width, c, false), spec.bias = view.glu != NULL; break;
    case PRODUCT_OUT:
        set_weight(&spec, &view, c, f, false);
        spec.bias = view.glu && !view.glu->down_bias_elsewhere;
        break;
    case PRODUCT_DACTIVE: set_weight(&spec, &view, c, f, true); break;
    case PRODUCT_DX_MORE: spec.addend_row = c; /* fallthrough */
    case PRODUCT_DX: set_weight(&spec, &view, view.in_width, c, true); break;
    case PRODUCT_DIN: set_gradient(&spec, &view, view.in_width, c); break;
    case PRODUCT_DOUT: set_gradient(&spec, &view, c, f); break;
    case EXPERT_PRODUCTS: break;
    }
    spec.c_row = spec.n;
    return spec;
}

static void count_bytes(struct expert_kernel *expert, int64_t bytes) {
    if (bytes > expert->products_bytes) expert->products_bytes = bytes;
}

static enum status create_products(struct expert_kernel *expert, int64_t tile, int64_t max) {
    const struct node *node = expert->kernel.node;
    struct matmul_spec first = spec_of(node, PRODUCT_IN, tile);
    expert->threads = parallel_threads();
    expert->pieces = expert_pieces_of(tile, max, matmul_is_ready(&first));
    const struct expert_pieces *pieces = &expert->pieces;
    for (enum expert_product product = 0; product < expert->products; product++) {
        for (int size = 0; size < pieces->sizes; size++) {
            struct matmul_spec spec = spec_of(node, product, pieces->rows[size]);
            TRY(matmul_create(&spec, &expert->ready[product][size]));
            count_bytes(expert, matmul_workspace_bytes(expert->ready[product][size]));
        }
        for (int64_t rows = pieces->step; pieces->any && rows <= pieces->max; rows += pieces->step) {
            struct matmul_spec spec = spec_of(node, product, rows);
            count_bytes(expert, matmul_spec_workspace_bytes(&spec, expert->threads));
        }
    }
    return STATUS_OK;
}

static void expert_release(struct kernel *kernel) {
    struct expert_kernel *expert = (struct expert_kernel *)kernel;
    for (enum expert_product product = 0; product < expert->products; product++)
        for (int size = 0; size < expert->pieces.sizes; size++)
            matmul_free(expert->ready[product][size]);
    mem_free(kernel);
}

/* A piece of an expert's rows. */
struct expert_piece {
    const struct expert_kernel *kernel;
    const struct kernel_call *call;
    const struct expert_view *view;
    int size;
    int64_t row, rows;
    void *in, *up, *active, *dactive, *workspace; /* in: gate, or gate and up; workspace: of GEMMs */
};

static void multiply(const struct expert_piece *piece, enum expert_product product, const void *a, const void *b,
                     const void *bias, void *c) {
    const struct expert_kernel *kernel = piece->kernel;
    struct matmul_operands operands = {.a = a, .b = b, .bias = bias, .c = c};
    if (product >= PRODUCT_DIN) operands.addend = c;
    if (!kernel->pieces.any) return matmul_run(kernel->ready[product][piece->size], &operands, piece->workspace);
    struct matmul_spec spec = spec_of(kernel->kernel.node, product, piece->rows);
    matmul_run_spec(&spec, kernel->threads, &operands, piece->workspace);
}

static void *rows_of(const struct expert_piece *piece, const struct tensor *tensor, void *data) {
    return operand_row(tensor, data, piece->row);
}

/* Weights by number, then biases. */
static void *weight_of(const struct expert_piece *piece, int number) {
    return piece->call->in[piece->view->ranges + 1 + number];
}

/* Row `row` of the piece's values of so many features. */
static void *row_at(const struct expert_piece *piece, void *data, int64_t width, int64_t row) {
    return (char *)data + row * width * dtype_bytes(piece->view->x->shape.dtype);
}

static void activate_rows(const void *context, int64_t begin, int64_t end) {
    const struct expert_piece *piece = context;
    const struct expert_view *view = piece->view;
    const struct expert_glu_attributes *glu = view->glu;
    enum dtype dtype = view->x->shape.dtype;
    for (int64_t row = begin; row < end; row++) {
        void *in = row_at(piece, piece->in, view->in_width, row),
             *active = row_at(piece, piece->active, view->width, row);
        if (glu)
            cpu_simd()->glu(dtype, view->width, (float)glu->alpha, (float)glu->limit, in, active);
        else
            cpu_simd()->gated(dtype, view->attributes->function, view->width, in,
                              row_at(piece, piece->up, view->width, row), active);
    }
}

/* Gate, up and what they make together. */
static void make_active(const struct expert_piece *piece, void *all) {
    void *x = rows_of(piece, piece->view->x, all);
    multiply(piece, PRODUCT_IN, x, weight_of(piece, 0), piece->view->glu ? weight_of(piece, 2) : NULL, piece->in);
    if (!piece->view->glu) multiply(piece, PRODUCT_IN, x, weight_of(piece, 1), NULL, piece->up);
    parallel_for(piece->rows, parallel_rows(piece->view->width), activate_rows, piece);
}

/* The gradients of gate and up, in the places of these. */
static void differentiate_rows(const void *context, int64_t begin, int64_t end) {
    const struct expert_piece *piece = context;
    const struct expert_view *view = piece->view;
    const struct expert_glu_attributes *glu = view->glu;
    enum dtype dtype = view->x->shape.dtype;
    for (int64_t row = begin; row < end; row++) {
        void *in = row_at(piece, piece->in, view->in_width, row), *up = row_at(piece, piece->up, view->width, row);
        const void *dactive = row_at(piece, piece->dactive, view->width, row);
        if (glu)
            cpu_simd()->glu_grad(dtype, view->width, (float)glu->alpha, (float)glu->limit, dactive, in, in);
        else
            cpu_simd()->gated_grad(dtype, view->attributes->function, view->width, dactive, in, up, in, up);
    }
}

/* The gradient of a weight, whose layout says which rows come first. */
static void add_gradient(const struct expert_piece *piece, enum expert_product product, const void *in,
                         const void *dout, void *to) {
    bool kn = weights_are_kn(piece->view);
    if (to) multiply(piece, product, kn ? in : dout, kn ? dout : in, NULL, to);
}

/* Outputs are the gradients of x, of the weights, and of biases. */
static void grad_piece(const struct expert_piece *piece) {
    const struct kernel_call *call = piece->call;
    const struct expert_view *view = piece->view;
    bool glu = view->glu != NULL;
    int64_t in_width = view->in_width;
    enum dtype dtype = view->x->shape.dtype;
    void *dy = rows_of(piece, view->x, call->in[0]), *x = rows_of(piece, view->x, call->in[1]);
    make_active(piece, call->in[1]);
    multiply(piece, PRODUCT_DACTIVE, dy, call->in[view->down], NULL, piece->dactive);
    add_gradient(piece, PRODUCT_DOUT, piece->active, dy, call->out[glu ? 2 : 3]);
    if (glu && call->out[4]) sum_columns(dtype, piece->rows, view->columns, dy, view->columns, call->out[4]);
    parallel_for(piece->rows, parallel_rows(view->width), differentiate_rows, piece);
    add_gradient(piece, PRODUCT_DIN, x, piece->in, call->out[1]);
    if (!glu) add_gradient(piece, PRODUCT_DIN, x, piece->up, call->out[2]);
    if (glu && call->out[3]) sum_columns(dtype, piece->rows, in_width, piece->in, in_width, call->out[3]);
    if (!call->out[0]) return;
    void *dx = rows_of(piece, view->result, call->out[0]);
    multiply(piece, PRODUCT_DX, piece->in, weight_of(piece, 0), NULL, dx);
    if (!glu) multiply(piece, PRODUCT_DX_MORE, piece->up, weight_of(piece, 1), NULL, dx);
}

/* The rows of other experts: those of input `previous`, or zeros. */
static void keep_others(const struct node *node, const struct kernel_call *call, int previous) {
    size_t bytes = (size_t)shape_bytes(&node->out[0]->shape);
    if (!call->in[previous])
        memset(call->out[0], 0, bytes);
    else if (call->in[previous] != call->out[0])
        memcpy(call->out[0], call->in[previous], bytes);
}

/* Activations of a piece in the workspace, besides gate and up: forward of an MLP writes its own over the gate. */
static int count_actives(const struct expert_view *view) { return view->gradient ? 2 : view->glu ? 1 : 0; }

static enum status expert_run(const struct kernel *of, const struct kernel_call *call) {
    const struct expert_kernel *kernel = (const struct expert_kernel *)of;
    struct expert_view view = view_of(of->node);
    const int32_t *range = (const int32_t *)call->in[view.ranges] + 2 * view.attributes->expert;
    int actives = count_actives(&view);
    char *own = call->workspace, *behind = own + kernel->pairs_bytes;
    struct expert_piece piece = {.kernel = kernel,
                                 .call = call,
                                 .view = &view,
                                 .in = own,
                                 .up = own + kernel->active_bytes,
                                 .active = actives > 0 ? behind : own,
                                 .dactive = behind + kernel->active_bytes,
                                 .workspace = behind + actives * kernel->active_bytes};
    if (call->out[0]) keep_others(of->node, call, view.previous);
    for (piece.row = range[0]; piece.row < range[1]; piece.row += piece.rows) {
        piece.rows = expert_pieces_first(&kernel->pieces, range[1] - piece.row, &piece.size);
        if (view.gradient) {
            grad_piece(&piece);
        } else {
            bool with_bias = view.glu && !view.glu->down_bias_elsewhere;
            make_active(&piece, call->in[0]);
            multiply(&piece, PRODUCT_OUT, piece.active, call->in[view.down], with_bias ? weight_of(&piece, 3) : NULL,
                     rows_of(&piece, view.result, call->out[0]));
        }
    }
    return STATUS_OK;
}

static enum status expert_create(const struct node *node, struct kernel **out) {
    struct expert_view view = view_of(node);
    struct expert_kernel *expert = kernel_new(node, sizeof *expert, expert_run);
    if (!expert) return STATUS_FAILED;
    expert->kernel.release = expert_release;
    expert->products = !view.gradient ? PRODUCT_OUT + 1 : view.glu ? PRODUCT_DOUT + 1 : EXPERT_PRODUCTS;
    int64_t tile = routing_tile(view.attributes->slots, view.attributes->experts);
    enum status status = create_products(expert, tile, shape_rows(&view.x->shape));
    int64_t bytes = expert->pieces.max * view.width * dtype_bytes(view.x->shape.dtype);
    expert->active_bytes = workspace_align(bytes);
    expert->pairs_bytes = view.glu ? workspace_align(2 * bytes) : 2 * expert->active_bytes;
    expert->kernel.workspace_bytes =
        expert->pairs_bytes + count_actives(&view) * expert->active_bytes + workspace_align(expert->products_bytes);
    return kernel_finish(&expert->kernel, status, out);
}

CPU_KERNEL_MAKER(expert_mlp, expert_create)
CPU_KERNEL_MAKER(expert_mlp_grad, expert_create)
CPU_KERNEL_MAKER(expert_glu, expert_create)
CPU_KERNEL_MAKER(expert_glu_grad, expert_create)
