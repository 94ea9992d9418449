#include "backend/cpu/expert.h"

#include "backend/cpu/kernel.h"
#include "backend/cpu/matmul/parts.h"
#include "backend/cpu/parallel.h"

static void add_fixed_sizes(struct expert_pieces *pieces, int64_t max) {
    for (int64_t rows = pieces->tile; pieces->wholes < PIECE_WHOLE_SIZES && (pieces->wholes == 0 || rows <= max);
         rows *= PIECE_WHOLE_STEP)
        pieces->whole[pieces->wholes++] = rows;
    for (int i = 0; i < pieces->wholes; i++) {
        int64_t rows = pieces->whole[i] - pieces->tile + PIECE_ROWS_STEP;
        for (; rows < pieces->whole[i]; rows += PIECE_ROWS_STEP)
            pieces->rows[pieces->sizes++] = rows;
        pieces->rows[pieces->sizes++] = pieces->whole[i];
    }
    pieces->max = pieces->rows[pieces->sizes - 1];
}

struct expert_pieces expert_pieces_of(int64_t tile, int64_t max, bool any) {
    struct expert_pieces pieces = {.any = any, .tile = tile, .step = smaller(tile, PIECE_ROWS_STEP)};
    if (any)
        pieces.max = smaller(PIECE_ROWS_MAX, rounded_up(max, pieces.step));
    else
        add_fixed_sizes(&pieces, max);
    return pieces;
}

static int fixed_size(const struct expert_pieces *pieces, int64_t rows) {
    int64_t tiles = rounded_up(rows, pieces->tile);
    int whole = pieces->wholes - 1, size = 0;
    while (pieces->whole[whole] > tiles)
        whole--;
    int64_t wanted = smaller(rows, pieces->whole[whole]);
    while (pieces->rows[size] < wanted)
        size++;
    return size;
}

int64_t expert_pieces_first(const struct expert_pieces *pieces, int64_t rows, int *size) {
    if (pieces->any) return equal_part(rows, pieces->max, pieces->step);
    *size = fixed_size(pieces, rows);
    return pieces->rows[*size];
}

static void count_bytes(struct expert_products *products, int64_t bytes) {
    if (bytes > products->workspace_bytes) products->workspace_bytes = bytes;
}

static enum status make_ready(struct expert_products *products, int product) {
    for (int size = 0; size < products->pieces.sizes; size++) {
        struct matmul_spec spec = products->spec(product, products->context, products->pieces.rows[size]);
        TRY(matmul_create(&spec, &products->ready[product][size]));
        count_bytes(products, matmul_workspace_bytes(products->ready[product][size]));
    }
    return STATUS_OK;
}

enum status expert_products_create(struct expert_products *out, int64_t tile, int64_t max) {
    struct matmul_spec first = out->spec(0, out->context, tile);
    out->threads = parallel_threads();
    out->pieces = expert_pieces_of(tile, max, matmul_is_ready(&first));
    for (int product = 0; product < out->count; product++) {
        TRY(make_ready(out, product));
        if (!out->pieces.any) continue;
        for (int64_t rows = out->pieces.step; rows <= out->pieces.max; rows += out->pieces.step) {
            struct matmul_spec spec = out->spec(product, out->context, rows);
            count_bytes(out, matmul_spec_workspace_bytes(&spec, out->threads));
        }
    }
    return STATUS_OK;
}

void expert_products_release(struct expert_products *products) {
    for (int product = 0; product < products->count; product++)
        for (int size = 0; size < products->pieces.sizes; size++)
            matmul_free(products->ready[product][size]);
}

void expert_products_run(const struct expert_products *products, int product, int64_t rows, int size,
                         const struct matmul_operands *operands, void *workspace) {
    if (!products->pieces.any) return matmul_run(products->ready[product][size], operands, workspace);
    struct matmul_spec spec = products->spec(product, products->context, rows);
    matmul_run_spec(&spec, products->threads, operands, workspace);
}

/* ---- an expert's MLP and its gradients, on the pieces of rows that the routing gave it ----
 *
 * Rows of the last tile that hold no slot are zeros, which GEMMs add nothing for. */

/* Those of forward come first. By their results: gate and up, y; the gradients of the activation, of x in two parts, of
 * gate and up, of down. */
enum expert_product {
    PRODUCT_IN,
    PRODUCT_OUT,
    PRODUCT_DACTIVE,
    PRODUCT_DX,
    PRODUCT_DX_MORE,
    PRODUCT_DIN,
    PRODUCT_DOUT
};
enum { FORWARD_PRODUCTS = PRODUCT_OUT + 1, EXPERT_PRODUCTS = PRODUCT_DOUT + 1 };

struct expert_kernel {
    struct kernel kernel;
    struct expert_products products;
    int64_t hidden_bytes; /* of a workspace: of one activation of the largest piece */
};

/* What both operators have, wherever their operands are. */
struct expert_view {
    const struct expert_attributes *attributes;
    const struct tensor *x, *gate, *result; /* gate, up and down are in one format */
    int ranges;                             /* the input; gate, up and down follow */
};

static struct expert_view view_of(const struct node *node) {
    if (node->op == &op_expert_mlp)
        return (struct expert_view){NODE_ATTRIBUTES(node, expert_attributes), node->in[0], node->in[2], node->out[0],
                                    1};
    return (struct expert_view){&NODE_ATTRIBUTES(node, expert_grad_attributes)->expert, node->in[1], node->in[3],
                                node->out[0], 2};
}

/* Rows of C features by a weight [F,C] and so on; `rows` is the piece's. */
static struct matmul_spec spec_of(int product, const void *node, int64_t rows) {
    const struct tensor *gate = view_of(node).gate;
    const struct shape *numbers = tensor_values(gate);
    int64_t f = numbers->dims[0], c = numbers->dims[1];
    struct matmul_spec spec = {.m = rows, .dtype = numbers->dtype, .out_dtype = numbers->dtype, .a_k = 1};
    switch ((enum expert_product)product) {
    case PRODUCT_IN: spec.n = f, spec.k = c, spec.b_k = 1, spec.b_column = c; break;
    case PRODUCT_OUT: spec.n = c, spec.k = f, spec.b_k = 1, spec.b_column = f; break;
    case PRODUCT_DACTIVE: spec.n = f, spec.k = c, spec.b_k = f, spec.b_column = 1; break;
    case PRODUCT_DX:
    case PRODUCT_DX_MORE: spec.n = c, spec.k = f, spec.b_k = c, spec.b_column = 1; break;
    case PRODUCT_DIN: spec.m = f, spec.n = c; break;
    case PRODUCT_DOUT: spec.m = c, spec.n = f; break;
    }
    spec.a_row = spec.k;
    spec.c_row = spec.n;
    if (product == PRODUCT_DX_MORE) spec.addend_row = c;
    if (product < PRODUCT_DIN) spec.b_format = gate->code.format, spec.b_block = gate->code.block;
    if (product < PRODUCT_DIN) return spec;
    spec.k = rows, spec.a_row = 1, spec.a_k = spec.m, spec.b_k = spec.n, spec.b_column = 1;
    spec.addend_row = spec.n;
    spec.out_dtype = DTYPE_F32;
    return spec;
}

static void expert_release(struct kernel *kernel) {
    expert_products_release(&((struct expert_kernel *)kernel)->products);
    mem_free(kernel);
}

/* `hidden` is how many activations of a piece the workspace holds. */
static enum status expert_create(const struct node *node, int products, int hidden, kernel_run *run,
                                 struct kernel **out) {
    struct expert_view view = view_of(node);
    struct expert_kernel *expert = kernel_new(node, sizeof *expert, run);
    if (!expert) return STATUS_FAILED;
    expert->kernel.release = expert_release;
    expert->products = (struct expert_products){.spec = spec_of, .context = node, .count = products};
    int64_t tile = routing_tile(view.attributes->slots, view.attributes->experts);
    enum status status = expert_products_create(&expert->products, tile, shape_rows(&view.x->shape));
    if (status != STATUS_OK) {
        expert_release(&expert->kernel);
        return status;
    }
    expert->hidden_bytes = workspace_align(expert->products.pieces.max * tensor_values(view.gate)->dims[0] *
                                           dtype_bytes(tensor_values(view.gate)->dtype));
    expert->kernel.workspace_bytes = hidden * expert->hidden_bytes + workspace_align(expert->products.workspace_bytes);
    *out = &expert->kernel;
    return STATUS_OK;
}

/* A piece of an expert's rows. */
struct expert_piece {
    const struct expert_kernel *kernel;
    const struct kernel_call *call;
    const struct expert_view *view;
    int size;
    int64_t row, rows;
    void *gate, *up, *active, *dactive, *workspace; /* the last: of GEMMs */
};

static void multiply(const struct expert_piece *piece, enum expert_product product, const void *a, const void *b,
                     void *c) {
    struct matmul_operands operands = {.a = a, .b = b, .c = c};
    if (product >= PRODUCT_DX_MORE) operands.addend = c;
    expert_products_run(&piece->kernel->products, product, piece->rows, piece->size, &operands, piece->workspace);
}

static void *rows_of(const struct expert_piece *piece, const struct tensor *tensor, void *data) {
    return operand_row(tensor, data, piece->row);
}

static void *weight_of(const struct expert_piece *piece, int number) {
    return piece->call->in[piece->view->ranges + 1 + number];
}

/* Where a row of an activation of the piece begins. */
static void *hidden_row(const struct expert_piece *piece, void *data, int64_t row) {
    const struct shape *gate = tensor_values(piece->view->gate);
    return (char *)data + row * gate->dims[0] * dtype_bytes(gate->dtype);
}

static void activate_rows(const void *context, int64_t begin, int64_t end) {
    const struct expert_piece *piece = context;
    const struct shape *gate = tensor_values(piece->view->gate);
    for (int64_t row = begin; row < end; row++)
        cpu_simd()->gated(gate->dtype, piece->view->attributes->function, gate->dims[0],
                          hidden_row(piece, piece->gate, row), hidden_row(piece, piece->up, row),
                          hidden_row(piece, piece->active, row));
}

/* Gate, up and what they make together. */
static void make_active(const struct expert_piece *piece, void *x) {
    multiply(piece, PRODUCT_IN, rows_of(piece, piece->view->x, x), weight_of(piece, 0), piece->gate);
    multiply(piece, PRODUCT_IN, rows_of(piece, piece->view->x, x), weight_of(piece, 1), piece->up);
    parallel_for(piece->rows, parallel_rows(tensor_values(piece->view->gate)->dims[0]), activate_rows, piece);
}

typedef void piece_run(const struct expert_piece *piece);

static void each_piece(const struct expert_kernel *kernel, const struct kernel_call *call,
                       const struct expert_view *view, piece_run *run) {
    const int32_t *range = (const int32_t *)call->in[view->ranges] + 2 * view->attributes->expert;
    char *own = call->workspace;
    int64_t step = kernel->hidden_bytes;
    struct expert_piece piece = {.kernel = kernel, .call = call, .view = view};
    bool gradient = kernel->kernel.node->op == &op_expert_mlp_grad;
    piece.gate = own, piece.up = own + step;
    piece.active = gradient ? own + 2 * step : own;
    piece.dactive = own + 3 * step;
    piece.workspace = own + (gradient ? 4 : 2) * step;
    for (piece.row = range[0]; piece.row < range[1]; piece.row += piece.rows) {
        piece.rows = expert_pieces_first(&kernel->products.pieces, range[1] - piece.row, &piece.size);
        run(&piece);
    }
}

/* The rows of other experts: those of input `previous`, or zeros. */
static void keep_others(const struct node *node, const struct kernel_call *call, int previous) {
    size_t bytes = (size_t)shape_bytes(&node->out[0]->shape);
    if (!call->in[previous])
        memset(call->out[0], 0, bytes);
    else if (call->in[previous] != call->out[0])
        memcpy(call->out[0], call->in[previous], bytes);
}

static void run_piece(const struct expert_piece *piece) {
    make_active(piece, piece->call->in[0]);
    multiply(piece, PRODUCT_OUT, piece->active, weight_of(piece, 2),
             rows_of(piece, piece->view->result, piece->call->out[0]));
}

static enum status expert_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct expert_view view = view_of(kernel->node);
    keep_others(kernel->node, call, 5);
    each_piece((const struct expert_kernel *)kernel, call, &view, run_piece);
    return STATUS_OK;
}

enum status cpu_expert_mlp_create(const struct node *node, struct kernel **out) {
    return expert_create(node, FORWARD_PRODUCTS, 2, expert_run, out);
}

/* The gradients of gate and up, in the places of these. */
static void differentiate_rows(const void *context, int64_t begin, int64_t end) {
    const struct expert_piece *piece = context;
    const struct shape *gate = tensor_values(piece->view->gate);
    for (int64_t row = begin; row < end; row++)
        cpu_simd()->gated_grad(gate->dtype, piece->view->attributes->function, gate->dims[0],
                               hidden_row(piece, piece->dactive, row), hidden_row(piece, piece->gate, row),
                               hidden_row(piece, piece->up, row), hidden_row(piece, piece->gate, row),
                               hidden_row(piece, piece->up, row));
}

static void grad_piece(const struct expert_piece *piece) {
    const struct kernel_call *call = piece->call;
    const struct tensor *x = piece->view->x;
    void *dy = rows_of(piece, x, call->in[0]);
    make_active(piece, call->in[1]);
    multiply(piece, PRODUCT_DACTIVE, dy, weight_of(piece, 2), piece->dactive);
    if (call->out[3]) multiply(piece, PRODUCT_DOUT, dy, piece->active, call->out[3]);
    parallel_for(piece->rows, parallel_rows(tensor_values(piece->view->gate)->dims[0]), differentiate_rows, piece);
    if (call->out[1]) multiply(piece, PRODUCT_DIN, piece->gate, rows_of(piece, x, call->in[1]), call->out[1]);
    if (call->out[2]) multiply(piece, PRODUCT_DIN, piece->up, rows_of(piece, x, call->in[1]), call->out[2]);
    if (!call->out[0]) return;
    void *dx = rows_of(piece, piece->view->result, call->out[0]);
    multiply(piece, PRODUCT_DX, piece->gate, weight_of(piece, 0), dx);
    multiply(piece, PRODUCT_DX_MORE, piece->up, weight_of(piece, 1), dx);
}

static enum status expert_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct expert_view view = view_of(kernel->node);
    if (call->out[0]) keep_others(kernel->node, call, 6);
    each_piece((const struct expert_kernel *)kernel, call, &view, grad_piece);
    return STATUS_OK;
}

enum status cpu_expert_mlp_grad_create(const struct node *node, struct kernel **out) {
    return expert_create(node, EXPERT_PRODUCTS, 4, expert_grad_run, out);
}
