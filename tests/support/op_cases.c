#include "support/op_cases.h"

#include <string.h>

/* Columns before and after a view in its base. */
enum { VIEW_BEFORE = 3, VIEW_AFTER = 2 };

static bool has(const struct op_case *op_case, unsigned flag) { return (op_case->flags & flag) != 0; }

static struct tensor *activation(struct graph *graph, const struct op_case *op_case, const char *name,
                                 int64_t columns) {
    struct shape shape = shape_make(graph->dtype, 3, graph->grain_sequences, graph->sequence_length, columns);
    if (!has(op_case, CASE_VIEWS)) return graph_tensor(graph, TENSOR_ACTIVATION, name, shape);
    shape.dims[2] += VIEW_BEFORE + VIEW_AFTER;
    struct tensor *base = graph_tensor(graph, TENSOR_ACTIVATION, graph_format(graph, "%s.base", name), shape);
    struct tensor *view = graph_view(graph, base, VIEW_BEFORE, columns);
    if (view) view->name = graph_format(graph, "%s", name);
    return view;
}

static struct tensor *integers(struct graph *graph, const char *name) {
    return graph_tensor(graph, TENSOR_INPUT, name,
                        shape_make(DTYPE_I32, 2, graph->grain_sequences, graph->sequence_length, 1));
}

static struct tensor *row_values(struct graph *graph, const char *name, int64_t count) {
    return graph_tensor(graph, TENSOR_ACTIVATION, name,
                        shape_make(DTYPE_F32, 3, graph->grain_sequences, graph->sequence_length, count));
}

static struct tensor *accumulator(struct graph *graph, const char *name, int rank, int64_t d0, int64_t d1) {
    return graph_tensor(graph, TENSOR_GRADIENT, name, shape_make(DTYPE_F32, rank, d0, d1, 1));
}

/* A macro, so that a tensor which is not wanted is not made. */
#define IF_WANTED(wanted, tensor) ((wanted) ? (tensor) : NULL)

static void add(struct graph *graph, const struct op *op, const char *name, const void *attributes,
                struct tensor *const in[OP_INPUTS_MAX], struct tensor *const out[OP_OUTPUTS_MAX]) {
    graph_add(graph, op, name, in, attributes, out);
}

/* For operators that have `inputs` activations in and `outputs` out, all alike. */
static void add_alike(struct graph *graph, const struct op_case *op_case, const struct op *op, int64_t columns,
                      const void *attributes, const char *const in_names[], const char *const out_names[]) {
    struct tensor *in[OP_INPUTS_MAX] = {0}, *out[OP_OUTPUTS_MAX] = {0};
    for (int i = 0; in_names[i]; i++) {
        in[i] = op_case_tensor(graph, in_names[i]);
        if (!in[i]) in[i] = activation(graph, op_case, in_names[i], columns);
    }
    for (int i = 0; out_names[i]; i++)
        out[i] = activation(graph, op_case, out_names[i], columns);
    add(graph, op, op->name, attributes, in, out);
}

/* Rows of the table that stand for no token. */
static int64_t first_row(const struct op_case *op_case) { return has(op_case, CASE_FROM) ? 2 : 0; }

/* Tokens before and behind those that the table has; rows behind those of tokens. */
enum { PART_FIRST = 3, PART_BEHIND = 2 };

static struct embedding_attributes embedding_of(const struct op_case *op_case, const struct op_sizes *sizes) {
    if (has(op_case, CASE_PART)) return (struct embedding_attributes){.first_row = -PART_FIRST, .tokens = sizes->vocab};
    return (struct embedding_attributes){.first_row = first_row(op_case)};
}

static int64_t table_rows(const struct op_case *op_case, const struct op_sizes *sizes) {
    return has(op_case, CASE_PART) ? sizes->vocab - PART_FIRST - PART_BEHIND : sizes->vocab + first_row(op_case);
}

static void build_embedding(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct embedding_attributes attributes = embedding_of(op_case, sizes);
    struct tensor *in[OP_INPUTS_MAX] = {
        integers(graph, "tokens"), graph_parameter(graph, "weight", 2, table_rows(op_case, sizes), sizes->columns)};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", sizes->columns)};
    add(graph, &op_embedding, "embedding", &attributes, in, out);
}

static void build_embedding_grad(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    build_embedding(graph, op_case, sizes);
    struct embedding_attributes of = embedding_of(op_case, sizes);
    struct embedding_grad_attributes attributes = {
        .rows = table_rows(op_case, sizes), .first_row = of.first_row, .tokens = of.tokens};
    struct tensor *in[OP_INPUTS_MAX] = {op_case_tensor(graph, "tokens"),
                                        activation(graph, op_case, "dy", sizes->columns)};
    struct tensor *out[OP_OUTPUTS_MAX] = {accumulator(graph, "d.weight", 2, attributes.rows, sizes->columns)};
    add(graph, &op_embedding_grad, "embedding.grad", &attributes, in, out);
}

static struct tensor *linear_weight(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    return has(op_case, CASE_KN) ? graph_parameter(graph, "weight", 2, sizes->columns, sizes->inner)
                                 : graph_parameter(graph, "weight", 2, sizes->inner, sizes->columns);
}

static void build_linear(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct linear_attributes attributes = {.weight_is_kn = has(op_case, CASE_KN)};
    struct tensor *in[OP_INPUTS_MAX] = {
        activation(graph, op_case, "x", sizes->columns), linear_weight(graph, op_case, sizes),
        IF_WANTED(has(op_case, CASE_BIAS), graph_parameter(graph, "bias", 1, sizes->inner, 1)),
        IF_WANTED(has(op_case, CASE_ADDEND), activation(graph, op_case, "residual", sizes->inner))};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", sizes->inner)};
    add(graph, &op_linear, "linear", &attributes, in, out);
}

static void build_linear_dx(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct op_case forward = *op_case;
    forward.flags &= ~(unsigned)(CASE_ADDEND | CASE_BIAS);
    build_linear(graph, &forward, sizes);
    struct linear_attributes attributes = {.weight_is_kn = has(op_case, CASE_KN)};
    struct tensor *in[OP_INPUTS_MAX] = {
        activation(graph, op_case, "dy", sizes->inner), op_case_tensor(graph, "weight"),
        IF_WANTED(has(op_case, CASE_ADDEND), activation(graph, op_case, "addend", sizes->columns))};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "d.x", sizes->columns)};
    add(graph, &op_linear_dx, "linear.dx", &attributes, in, out);
}

static void build_linear_dw(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    build_linear(graph, op_case, sizes);
    bool kn = has(op_case, CASE_KN);
    struct linear_dw_attributes attributes = {.weight_is_kn = kn, .has_bias = has(op_case, CASE_BIAS)};
    struct tensor *in[OP_INPUTS_MAX] = {op_case_tensor(graph, "x"), activation(graph, op_case, "dy", sizes->inner)};
    struct tensor *out[OP_OUTPUTS_MAX] = {
        accumulator(graph, "d.weight", 2, kn ? sizes->columns : sizes->inner, kn ? sizes->inner : sizes->columns),
        IF_WANTED(attributes.has_bias, accumulator(graph, "d.bias", 1, sizes->inner, 1))};
    add(graph, &op_linear_dw, "linear.dw", &attributes, in, out);
}

static bool is_layer_norm(const struct op_case *op_case) {
    return op_case->op == &op_layer_norm || op_case->op == &op_layer_norm_grad;
}

static int64_t norm_columns(const struct op_case *op_case, const struct op_sizes *sizes) {
    return has(op_case, CASE_HEADS) ? sizes->heads * sizes->head_dim : sizes->columns;
}

static int64_t norm_group(const struct op_case *op_case, const struct op_sizes *sizes) {
    return has(op_case, CASE_HEADS) ? sizes->head_dim : sizes->columns;
}

static void build_norm(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct norm_attributes attributes = {.epsilon = 1e-5, .one_plus = has(op_case, CASE_ONE_PLUS)};
    bool layer = is_layer_norm(op_case);
    int64_t columns = norm_columns(op_case, sizes), group = norm_group(op_case, sizes);
    struct tensor *in[OP_INPUTS_MAX] = {
        activation(graph, op_case, "x", columns), graph_parameter(graph, "norm", 1, group, 1),
        IF_WANTED(has(op_case, CASE_BIAS), graph_parameter(graph, "bias", 1, group, 1))};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", columns)};
    if (layer) out[1] = row_values(graph, "mean", columns / group);
    out[layer ? 2 : 1] = row_values(graph, "rstd", columns / group);
    add(graph, layer ? &op_layer_norm : &op_rms_norm, "norm.forward", &attributes, in, out);
}

static void build_norm_grad(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    build_norm(graph, op_case, sizes);
    bool layer = is_layer_norm(op_case), frozen = has(op_case, CASE_FROZEN);
    struct norm_grad_attributes attributes = {
        .dx = !has(op_case, CASE_NO_DX),
        .dweight = !frozen,
        .dbias = has(op_case, CASE_BIAS) && !frozen,
        .one_plus = has(op_case, CASE_ONE_PLUS),
    };
    int64_t columns = norm_columns(op_case, sizes), group = norm_group(op_case, sizes);
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "dy", columns), op_case_tensor(graph, "x"),
                                        op_case_tensor(graph, "norm")};
    int next = 3;
    if (layer) in[next++] = op_case_tensor(graph, "mean");
    in[next++] = op_case_tensor(graph, "rstd");
    if (has(op_case, CASE_ADDEND)) in[next] = activation(graph, op_case, "addend", columns);
    struct tensor *out[OP_OUTPUTS_MAX] = {IF_WANTED(attributes.dx, activation(graph, op_case, "d.x", columns)),
                                          IF_WANTED(attributes.dweight, accumulator(graph, "d.norm", 1, group, 1)),
                                          IF_WANTED(attributes.dbias, accumulator(graph, "d.bias", 1, group, 1))};
    add(graph, op_case->op, "norm.grad", &attributes, in, out);
}

static void build_rope_table(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct rope_table_attributes attributes = {.head_dim = sizes->head_dim, .theta = 10000};
    if (has(op_case, CASE_PARTIAL))
        attributes = (struct rope_table_attributes){.head_dim = sizes->head_dim / 4 * 2,
                                                    .theta = 100,
                                                    .scaling = ROPE_SCALING_YARN,
                                                    .factor = 4,
                                                    .original_context = 64};
    ops_rope_table(graph, "table", integers(graph, "positions"), attributes);
}

static void build_rope(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    build_rope_table(graph, op_case, sizes);
    struct rope_attributes attributes = {
        .heads = sizes->heads, .head_dim = sizes->head_dim, .sign = has(op_case, CASE_BACK) ? -1 : 1};
    int64_t columns = sizes->heads * sizes->head_dim;
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "x", columns), op_case_tensor(graph, "table")};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", columns)};
    add(graph, &op_rope, "rope", &attributes, in, out);
}

/* Most scores and logits are bent by these. */
static const double SCORES_CAP = 0.7, LOGITS_CAP = 1.5;

static struct attention_attributes attention_of(const struct op_case *op_case, const struct op_sizes *sizes) {
    return (struct attention_attributes){.heads = sizes->heads,
                                         .kv_heads = sizes->kv_heads,
                                         .head_dim = sizes->head_dim,
                                         .scale = 1.25 / (double)sizes->head_dim,
                                         .window = sizes->window,
                                         .softcap = has(op_case, CASE_CAPPED) ? SCORES_CAP : 0};
}

static struct tensor *sinks(struct graph *graph, const struct op_sizes *sizes) {
    return graph_parameter(graph, "sinks", 1, sizes->heads, 1);
}

static void build_attention(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct attention_attributes attributes = attention_of(op_case, sizes);
    int64_t q = sizes->heads * sizes->head_dim, kv = sizes->kv_heads * sizes->head_dim;
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "q", q), activation(graph, op_case, "k", kv),
                                        activation(graph, op_case, "v", kv),
                                        IF_WANTED(has(op_case, CASE_SEGMENTS), integers(graph, "segments")),
                                        IF_WANTED(has(op_case, CASE_SINKS), sinks(graph, sizes))};
    struct shape lse = shape_make(DTYPE_F32, 3, graph->grain_sequences, sizes->heads, graph->sequence_length);
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", q),
                                          graph_tensor(graph, TENSOR_ACTIVATION, "lse", lse)};
    add(graph, &op_attention, "attention", &attributes, in, out);
}

/* For the second half of the queries. */
static struct select_heads_attributes selection_of(const struct op_sizes *sizes) {
    const struct group_part part = {.parts = 2, .position = 1};
    return select_heads_of_queries(sizes->kv_heads, sizes->head_dim, sizes->heads, &part);
}

static void build_select_heads(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct select_heads_attributes attributes = selection_of(sizes);
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "x", attributes.heads * attributes.head_dim)};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", attributes.selected * attributes.head_dim)};
    add(graph, &op_select_heads, "select_heads", &attributes, in, out);
}

static void build_select_heads_grad(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    build_select_heads(graph, op_case, sizes);
    struct select_heads_attributes attributes = selection_of(sizes);
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "dy", attributes.selected * attributes.head_dim)};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "d.x", attributes.heads * attributes.head_dim)};
    add(graph, &op_select_heads_grad, "select_heads.grad", &attributes, in, out);
}

static void build_attention_cache(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct attention_cache_attributes attributes = {.attention = attention_of(op_case, sizes),
                                                    .texts = sizes->sequences + 1,
                                                    .positions = sizes->length + OP_CASE_CACHED + sizes->sequences};
    int64_t q = sizes->heads * sizes->head_dim, kv = sizes->kv_heads * sizes->head_dim;
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "q", q), activation(graph, op_case, "k", kv),
                                        activation(graph, op_case, "v", kv), integers(graph, "rows"),
                                        IF_WANTED(has(op_case, CASE_SINKS), sinks(graph, sizes))};
    struct shape cache = shape_make(graph->dtype, 3, attributes.texts, attributes.positions, kv);
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", q),
                                          graph_tensor(graph, TENSOR_CACHE, "keys", cache),
                                          graph_tensor(graph, TENSOR_CACHE, "values", cache)};
    add(graph, &op_attention_cache, "attention.cache", &attributes, in, out);
}

int64_t op_case_cache_row(const struct node *node, int64_t sequence, int64_t token) {
    const struct attention_cache_attributes *cache = NODE_ATTRIBUTES(node, attention_cache_attributes);
    int64_t length = node->in[0]->shape.dims[1];
    if (length > 1 && token == length - 1) return -1;
    return (sequence + 1) % cache->texts * cache->positions + OP_CASE_CACHED + sequence + token;
}

static void build_last_token(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    ops_last_token(graph, "y", activation(graph, op_case, "x", sizes->columns));
}

static void build_attention_grad(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    build_attention(graph, op_case, sizes);
    struct attention_attributes attributes = attention_of(op_case, sizes);
    int64_t q = sizes->heads * sizes->head_dim, kv = sizes->kv_heads * sizes->head_dim;
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "dy", q),
                                        op_case_tensor(graph, "q"),
                                        op_case_tensor(graph, "k"),
                                        op_case_tensor(graph, "v"),
                                        op_case_tensor(graph, "y"),
                                        op_case_tensor(graph, "lse"),
                                        IF_WANTED(has(op_case, CASE_SEGMENTS), op_case_tensor(graph, "segments"))};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "d.q", q), activation(graph, op_case, "d.k", kv),
                                          activation(graph, op_case, "d.v", kv)};
    add(graph, &op_attention_grad, "attention.grad", &attributes, in, out);
}

static void build_attention_sinks_grad(struct graph *graph, const struct op_case *op_case,
                                       const struct op_sizes *sizes) {
    build_attention(graph, op_case, sizes);
    struct attention_attributes attributes = attention_of(op_case, sizes);
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "dy", sizes->heads * sizes->head_dim),
                                        op_case_tensor(graph, "y"), op_case_tensor(graph, "lse"),
                                        op_case_tensor(graph, "sinks")};
    struct tensor *out[OP_OUTPUTS_MAX] = {accumulator(graph, "d.sinks", 1, sizes->heads, 1)};
    add(graph, &op_attention_sinks_grad, "attention.sinks.grad", &attributes, in, out);
}

static void build_activation(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct activation_attributes attributes = {.function = op_case->function};
    add_alike(graph, op_case, &op_activation, sizes->inner, &attributes, (const char *const[]){"x", NULL},
              (const char *const[]){"y", NULL});
    if (op_case->op == &op_activation_grad)
        add_alike(graph, op_case, &op_activation_grad, sizes->inner, &attributes,
                  (const char *const[]){"dy", "x", NULL}, (const char *const[]){"d.x", NULL});
}

static void build_gated(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct activation_attributes attributes = {.function = op_case->function};
    add_alike(graph, op_case, &op_gated_activation, sizes->inner, &attributes,
              (const char *const[]){"gate", "up", NULL}, (const char *const[]){"y", NULL});
    if (op_case->op == &op_gated_activation_grad)
        add_alike(graph, op_case, &op_gated_activation_grad, sizes->inner, &attributes,
                  (const char *const[]){"dy", "gate", "up", NULL}, (const char *const[]){"d.gate", "d.up", NULL});
}

static void build_add(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    add_alike(graph, op_case, &op_add, sizes->columns, NULL, (const char *const[]){"a", "b", NULL},
              (const char *const[]){"y", NULL});
}

static void build_add_bias(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct tensor *in[OP_INPUTS_MAX] = {
        activation(graph, op_case, "x", sizes->columns),
        IF_WANTED(has(op_case, CASE_BIAS), graph_parameter(graph, "bias", 1, sizes->columns, 1)),
        IF_WANTED(has(op_case, CASE_ADDEND), activation(graph, op_case, "residual", sizes->columns))};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", sizes->columns)};
    add(graph, &op_add_bias, "add_bias", NULL, in, out);
}

static void build_scale(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct scale_attributes attributes = {.factor = -1.75};
    add_alike(graph, op_case, &op_scale, sizes->columns, &attributes, (const char *const[]){"x", NULL},
              (const char *const[]){"y", NULL});
}

static void build_convert(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "x", sizes->columns)};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", sizes->columns)};
    const struct convert_attributes convert = {out[0] ? out[0]->shape : (struct shape){.rank = 0}};
    const struct exchange_attributes copy = {.part = {.parts = 2}};
    const void *attributes = op_case->op == &op_convert ? (const void *)&convert : (const void *)&copy;
    add(graph, op_case->op, op_case->op->name, attributes, in, out);
}

/* Three parts of a tensor, and one of them. */
enum { CASE_PARTS = 3, CASE_OWN_PART = 1 };

static struct tensor *whole_of_parts(struct graph *graph, const struct op_case *op_case, const char *name,
                                     int64_t columns) {
    int64_t length = graph->sequence_length;
    if (has(op_case, CASE_LENGTH)) graph->sequence_length *= CASE_PARTS;
    struct tensor *whole = activation(graph, op_case, name, columns * (has(op_case, CASE_LENGTH) ? 1 : CASE_PARTS));
    graph->sequence_length = length;
    return whole;
}

static struct tensor *stacked_parts(struct graph *graph, const struct op_case *op_case, const char *name,
                                    int64_t columns) {
    enum dtype other = graph->dtype == DTYPE_F32 ? DTYPE_BF16 : DTYPE_F32;
    struct shape shape = {has(op_case, CASE_CONVERTS) ? other : graph->dtype,
                          4,
                          {CASE_PARTS, graph->grain_sequences, graph->sequence_length, columns}};
    return graph_tensor(graph, TENSOR_ACTIVATION, name, shape);
}

static void build_parts(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    bool joins = op_case->op == &op_from_parts;
    struct tensor *whole = whole_of_parts(graph, op_case, joins ? "y" : "x", sizes->columns);
    struct tensor *parts = stacked_parts(graph, op_case, joins ? "x" : "y", sizes->columns);
    struct tensor *in[OP_INPUTS_MAX] = {joins ? parts : whole}, *out[OP_OUTPUTS_MAX] = {joins ? whole : parts};
    if (!whole || !parts) return;
    const struct parts_order order = {has(op_case, CASE_LENGTH) ? 1 : 2, CASE_PARTS, has(op_case, CASE_ZIGZAG)};
    const struct parts_attributes attributes = {order, out[0]->shape.dtype};
    add(graph, op_case->op, op_case->op->name, &attributes, in, out);
}

static void build_cut(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    const struct cut_attributes attributes = {.dimension = has(op_case, CASE_LENGTH) ? 1 : 2,
                                              .part = {CASE_PARTS, CASE_OWN_PART, 0, has(op_case, CASE_ZIGZAG)}};
    struct tensor *in[OP_INPUTS_MAX] = {whole_of_parts(graph, op_case, "x", sizes->columns)};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", sizes->columns)};
    add(graph, &op_cut, "cut", &attributes, in, out);
}

/* Of [S, T], whose positions are its columns. */
static void build_cut_tokens(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    (void)sizes;
    int64_t sequences = graph->grain_sequences, length = graph->sequence_length;
    const struct cut_attributes attributes = {.dimension = 1,
                                              .part = {CASE_PARTS, CASE_OWN_PART, 0, has(op_case, CASE_ZIGZAG)}};
    struct tensor *in[OP_INPUTS_MAX] = {
        graph_tensor(graph, TENSOR_INPUT, "x", shape_make(DTYPE_I32, 2, sequences, length * CASE_PARTS, 1))};
    struct tensor *out[OP_OUTPUTS_MAX] = {
        graph_tensor(graph, TENSOR_ACTIVATION, "y", shape_make(DTYPE_I32, 2, sequences, length, 1))};
    add(graph, &op_cut, "cut", &attributes, in, out);
}

static void build_bias_grad(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    build_linear(graph, op_case, sizes);
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "dy", sizes->inner)};
    struct tensor *out[OP_OUTPUTS_MAX] = {accumulator(graph, "d.bias", 1, sizes->inner, 1)};
    add(graph, &op_bias_grad, "bias.grad", NULL, in, out);
}

static void head_inputs(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes,
                        struct tensor *in[OP_INPUTS_MAX], bool targets) {
    int next = 0;
    in[next++] = activation(graph, op_case, "x", sizes->columns);
    in[next++] = graph_parameter(graph, "weight", 2, sizes->vocab, sizes->columns);
    if (targets) in[next++] = integers(graph, "targets");
    if (has(op_case, CASE_BIAS)) in[next] = graph_parameter(graph, "bias", 1, sizes->vocab, 1);
}

static struct head_attributes head_attributes_of(const struct op_case *op_case, const struct op_sizes *sizes) {
    struct head_attributes attributes = {.softcap = has(op_case, CASE_CAPPED) ? LOGITS_CAP : 0};
    if (has(op_case, CASE_PART))
        attributes.part = (struct vocabulary_part){
            .first = PART_FIRST, .rows = sizes->vocab - PART_FIRST - PART_BEHIND, .tokens = sizes->vocab};
    return attributes;
}

static void build_head_statistics(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct tensor *in[OP_INPUTS_MAX] = {0};
    head_inputs(graph, op_case, sizes, in, true);
    struct head_attributes head = head_attributes_of(op_case, sizes);
    add(graph, &op_head_statistics, "statistics", &head, in, NULL);
}

static struct tensor *last_made(const struct graph *graph) {
    return graph->nodes.items[graph->nodes.count - 1]->out[0];
}

static void build_join_statistics(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    enum { PARTS = 3 };
    (void)op_case, (void)sizes;
    struct shape shape = shape_make(DTYPE_F32, 3, PARTS, graph->grain_sequences, graph->sequence_length);
    shape.rank = 4, shape.dims[3] = HEAD_STATISTICS;
    struct tensor *in[OP_INPUTS_MAX] = {graph_tensor(graph, TENSOR_ACTIVATION, "parts", shape)};
    add(graph, &op_join_statistics, "joined", NULL, in, NULL);
}

/* Statistics of a vocabulary of one part. */
static struct tensor *statistics_of(struct graph *graph, struct tensor *const head[OP_INPUTS_MAX],
                                    const struct head_attributes *attributes) {
    add(graph, &op_head_statistics, "statistics", attributes, head, NULL);
    struct shape own = last_made(graph)->shape;
    struct convert_attributes stack = {{own.dtype, 4, {1, own.dims[0], own.dims[1], own.dims[2]}}};
    add(graph, &op_convert, "parts", &stack, (struct tensor *[OP_INPUTS_MAX]){last_made(graph)}, NULL);
    add(graph, &op_join_statistics, "joined", NULL, (struct tensor *[OP_INPUTS_MAX]){last_made(graph)}, NULL);
    return last_made(graph);
}

static void build_head_loss(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct tensor *in[OP_INPUTS_MAX] = {0};
    head_inputs(graph, op_case, sizes, in, true);
    struct tensor *out[OP_OUTPUTS_MAX] = {
        graph_tensor(graph, TENSOR_RESULT, "loss", shape_make(DTYPE_F64, 1, 1, 1, 1))};
    struct head_attributes head = head_attributes_of(op_case, sizes);
    if (has(op_case, CASE_PART)) in[4] = statistics_of(graph, in, &head);
    add(graph, &op_head_loss, "head", &head, in, out);
    if (op_case->op == &op_head_loss) return;
    bool frozen = has(op_case, CASE_FROZEN);
    struct head_loss_grad_attributes attributes = {
        .dx = !has(op_case, CASE_NO_DX),
        .dweight = !frozen,
        .dbias = has(op_case, CASE_BIAS) && !frozen,
        .softcap = head.softcap,
        .part = head.part,
    };
    struct tensor *made[OP_OUTPUTS_MAX] = {
        graph_tensor(graph, TENSOR_RESULT, "loss.again", shape_make(DTYPE_F64, 1, 1, 1, 1)),
        IF_WANTED(attributes.dx, activation(graph, op_case, "d.x", sizes->columns)),
        IF_WANTED(attributes.dweight, accumulator(graph, "d.weight", 2, sizes->vocab, sizes->columns)),
        IF_WANTED(attributes.dbias, accumulator(graph, "d.bias", 1, sizes->vocab, 1))};
    add(graph, &op_head_loss_grad, "head.grad", &attributes, in, made);
}

static void build_head_log_probability(struct graph *graph, const struct op_case *op_case,
                                       const struct op_sizes *sizes) {
    struct tensor *in[OP_INPUTS_MAX] = {0};
    head_inputs(graph, op_case, sizes, in, true);
    struct head_attributes head = head_attributes_of(op_case, sizes);
    if (has(op_case, CASE_PART)) in[4] = statistics_of(graph, in, &head);
    add(graph, &op_head_log_probability, "y", &head, in, NULL);
    if (op_case->op == &op_head_log_probability) return;
    bool frozen = has(op_case, CASE_FROZEN);
    struct head_loss_grad_attributes attributes = {.dx = !has(op_case, CASE_NO_DX),
                                                   .dweight = !frozen,
                                                   .dbias = has(op_case, CASE_BIAS) && !frozen,
                                                   .softcap = head.softcap,
                                                   .part = head.part};
    in[5] = row_values(graph, "dy", 1);
    struct tensor *made[OP_OUTPUTS_MAX] = {
        IF_WANTED(attributes.dx, activation(graph, op_case, "d.x", sizes->columns)),
        IF_WANTED(attributes.dweight, accumulator(graph, "d.weight", 2, sizes->vocab, sizes->columns)),
        IF_WANTED(attributes.dbias, accumulator(graph, "d.bias", 1, sizes->vocab, 1))};
    add(graph, &op_head_log_probability_grad, "head.grad", &attributes, in, made);
}

static struct tensor *figures(struct graph *graph, const char *name) {
    return graph_tensor(graph, TENSOR_RESULT, name, shape_make(DTYPE_F64, 1, PREFERENCE_FIGURES, 1, 1));
}

static void build_preference(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct preference_attributes attributes = op_case->pairs;
    if (attributes.beta <= 0) attributes.beta = 0.3;
    struct tensor *in[OP_INPUTS_MAX] = {
        row_values(graph, "y", 1), integers(graph, "targets"),
        graph_tensor(graph, TENSOR_INPUT, "reference", shape_make(DTYPE_F64, 2, sizes->sequences, 1, 1))};
    add(graph, &op_preference_loss, "preference", &attributes, in,
        (struct tensor *[OP_OUTPUTS_MAX]){figures(graph, "loss")});
    if (op_case->op == &op_preference_loss) return;
    struct tensor *made[OP_OUTPUTS_MAX] = {figures(graph, "loss.again"), row_values(graph, "d.y", 1)};
    add(graph, &op_preference_loss_grad, "preference.grad", &attributes, in, made);
}

static void build_head_logits(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct tensor *in[OP_INPUTS_MAX] = {0};
    head_inputs(graph, op_case, sizes, in, false);
    struct head_attributes head = head_attributes_of(op_case, sizes);
    add(graph, &op_head_logits, "logits", &head, in, NULL);
}

static void build_gradient_sum(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    (void)op_case;
    struct tensor *in[OP_INPUTS_MAX] = {accumulator(graph, "a", 2, sizes->vocab, sizes->columns),
                                        accumulator(graph, "b", 2, sizes->vocab, sizes->columns)};
    add(graph, &op_gradient_sum, "sum", NULL, in, NULL);
}

static void build_squared_sums(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    (void)op_case;
    struct tensor *in[OP_INPUTS_MAX] = {accumulator(graph, "gradient", 2, sizes->vocab, sizes->columns)};
    add(graph, &op_squared_sums, "squares", NULL, in, NULL);
}

/* Of a vector of so many blocks. */
static void build_squared_norm(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    (void)op_case;
    struct tensor *in[OP_INPUTS_MAX] = {
        graph_tensor(graph, TENSOR_RESULT, "squares", shape_make(DTYPE_F64, 1, sizes->columns, 1, 1))};
    add(graph, &op_squared_norm, "norm", NULL, in, NULL);
}

static void build_clip_factor(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    (void)op_case;
    struct tensor *in[OP_INPUTS_MAX] = {
        graph_tensor(graph, TENSOR_RESULT, "squared_norms", shape_make(DTYPE_F64, 1, sizes->columns, 1, 1))};
    struct clip_attributes attributes = {.limit = 1};
    add(graph, &op_clip_factor, "clip_factor", &attributes, in, NULL);
}

static enum dtype moments_of(const struct op_case *op_case) {
    if (op_case->flags & CASE_INT8_STATE) return DTYPE_U8;
    return op_case->flags & CASE_BF16_STATE ? DTYPE_BF16 : DTYPE_F32;
}

static struct tensor *add_scales(struct graph *graph, const char *moment, int64_t elements) {
    int64_t blocks = (elements + UPDATE_SCALE_BLOCK - 1) / UPDATE_SCALE_BLOCK;
    struct tensor *scales = graph_tensor(graph, TENSOR_STATE, graph_format(graph, "%s_absmax", moment),
                                         shape_make(DTYPE_F32, 1, blocks, 1, 1));
    if (scales) scales->block_elements = UPDATE_SCALE_BLOCK;
    return scales;
}

static void build_update(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    enum update_rule rule = update_rule_of(op_case->op);
    int moments = update_rule_moments(rule);
    bool master = graph->dtype == DTYPE_BF16 && !(op_case->flags & CASE_NO_MASTER);
    struct update_attributes attributes = {.beta1 = 0.9,
                                           .beta2 = 0.95,
                                           .epsilon = 1e-8,
                                           .weight_decay = 0.1,
                                           .parameter = graph->dtype,
                                           .moments = moments_of(op_case),
                                           .has_master = master,
                                           .seed = UINT64_C(0x123456789abcdef),
                                           .number = 5};
    struct shape moment = shape_make(attributes.moments, 2, sizes->vocab, sizes->columns, 1), state = moment;
    state.dtype = DTYPE_F32;
    struct tensor *in[OP_INPUTS_MAX] = {
        accumulator(graph, "gradient", 2, sizes->vocab, sizes->columns),
        IF_WANTED(!has(op_case, CASE_UNCLIPPED),
                  graph_tensor(graph, TENSOR_RESULT, "clip", shape_make(DTYPE_F64, 1, 2, 1, 1)))};
    struct tensor *out[OP_OUTPUTS_MAX] = {graph_parameter(graph, "weight", 2, sizes->vocab, sizes->columns)};
    for (int i = 0; i < moments; i++)
        out[1 + i] = graph_tensor(graph, TENSOR_STATE, update_rule_moment(rule, i), moment);
    if (master) out[1 + moments] = graph_tensor(graph, TENSOR_STATE, "master", state);
    for (int i = 0; i < moments && attributes.moments == DTYPE_U8; i++)
        out[2 + moments + i] = add_scales(graph, update_rule_moment(rule, i), shape_elements(&moment));
    add(graph, op_case->op, update_rule_name(rule), &attributes, in, out);
}

/* Experts of the cases of routing, and how many of them a token takes. */
static int64_t experts_of(const struct op_sizes *sizes) { return sizes->heads; }
static int64_t chosen_of(const struct op_sizes *sizes) { return sizes->heads / 4 + 1; }

static void build_route(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct route_attributes attributes = {.chosen = chosen_of(sizes), .normalised = has(op_case, CASE_ONE_PLUS)};
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "logits", experts_of(sizes))};
    add(graph, &op_route, "route", &attributes, in, NULL);
    if (op_case->op != &op_route_grad) return;
    const struct node *forward = graph->nodes.count > 0 ? graph->nodes.items[0] : NULL;
    if (!forward) return;
    struct tensor *back[OP_INPUTS_MAX] = {row_values(graph, "dy", attributes.chosen), in[0], forward->out[0],
                                          forward->out[1], forward->out[2]};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "d.logits", experts_of(sizes))};
    add(graph, &op_route_grad, "route.grad", &attributes, back, out);
}

static struct tensor *expert_rows(struct graph *graph, const char *name, const struct op_sizes *sizes) {
    int64_t slots = sizes->sequences * sizes->length * chosen_of(sizes);
    int64_t rows = routing_rows(sizes->sequences, slots, experts_of(sizes));
    return graph_tensor(graph, TENSOR_ACTIVATION, name,
                        shape_make(graph->dtype, 3, sizes->sequences, rows, sizes->columns));
}

/* The routing that the node before a case's own gives; NULL where it could not be added. */
static const struct node *add_route(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct op_case forward = *op_case;
    forward.op = &op_route;
    forward.flags &= ~(unsigned)CASE_VIEWS;
    build_route(graph, &forward, sizes);
    return graph->nodes.count > 0 ? graph->nodes.items[0] : NULL;
}

static void build_dispatch(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    const struct node *route = add_route(graph, op_case, sizes);
    if (!route) return;
    struct dispatch_attributes attributes = {.experts = experts_of(sizes)};
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "x", sizes->columns), route->out[1]};
    add(graph, &op_dispatch, "dispatch", &attributes, in, NULL);
    if (op_case->op != &op_dispatch_grad) return;
    struct tensor *back[OP_INPUTS_MAX] = {
        expert_rows(graph, "dy", sizes), route->out[1],
        IF_WANTED(has(op_case, CASE_ADDEND), activation(graph, op_case, "addend", sizes->columns))};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "d.x", sizes->columns)};
    add(graph, &op_dispatch_grad, "dispatch.grad", &attributes, back, out);
}

static void build_combine(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    const struct node *route = add_route(graph, op_case, sizes);
    if (!route) return;
    struct dispatch_attributes attributes = {.experts = experts_of(sizes)};
    struct tensor *in[OP_INPUTS_MAX] = {
        expert_rows(graph, "x", sizes), row_values(graph, "weights", chosen_of(sizes)), route->out[1],
        IF_WANTED(has(op_case, CASE_ADDEND), activation(graph, op_case, "residual", sizes->columns))};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", sizes->columns)};
    add(graph, &op_combine, "combine", &attributes, in, out);
    if (op_case->op != &op_combine_grad) return;
    struct tensor *back[OP_INPUTS_MAX] = {activation(graph, op_case, "dy", sizes->columns), in[0], in[1], in[2]};
    struct tensor *into[OP_OUTPUTS_MAX] = {expert_rows(graph, "d.x", sizes),
                                           row_values(graph, "d.weights", chosen_of(sizes))};
    add(graph, &op_combine_grad, "combine.grad", &attributes, back, into);
}

static void build_token_gate(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct tensor *in[OP_INPUTS_MAX] = {
        activation(graph, op_case, "x", sizes->columns), activation(graph, op_case, "gate", 1),
        IF_WANTED(has(op_case, CASE_ADDEND), activation(graph, op_case, "residual", sizes->columns))};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", sizes->columns)};
    add(graph, &op_token_gate, "token_gate", NULL, in, out);
    if (op_case->op != &op_token_gate_grad) return;
    struct tensor *back[OP_INPUTS_MAX] = {activation(graph, op_case, "dy", sizes->columns), in[0], in[1]};
    struct tensor *into[OP_OUTPUTS_MAX] = {activation(graph, op_case, "d.x", sizes->columns),
                                           activation(graph, op_case, "d.gate", 1)};
    add(graph, &op_token_gate_grad, "token_gate.grad", NULL, back, into);
}

static struct tensor *load_of(struct graph *graph, const char *name, const struct op_sizes *sizes) {
    return graph_tensor(graph, TENSOR_ACTIVATION, name, shape_make(DTYPE_F32, 2, LOAD_ROWS, experts_of(sizes), 1));
}

/* Tokens go where other logits send them, so that differences of these change no slot. */
static void build_expert_load(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    const struct node *route = add_route(graph, op_case, sizes);
    if (!route) return;
    bool previous = has(op_case, CASE_ADDEND);
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "x", experts_of(sizes)), route->out[2],
                                        IF_WANTED(previous, load_of(graph, "previous", sizes))};
    add(graph, &op_expert_load, "load", NULL, in, NULL);
    if (op_case->op != &op_expert_load_grad) return;
    struct tensor *back[OP_INPUTS_MAX] = {load_of(graph, "dy", sizes), in[0]};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "d.x", experts_of(sizes))};
    add(graph, &op_expert_load_grad, "load.grad", NULL, back, out);
}

static void build_balanced_loss(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    const struct balance_grad_attributes attributes = {
        .balance = {.coefficient = 0.3, .rows = sizes->sequences * sizes->length}, .dload = !has(op_case, CASE_FROZEN)};
    struct tensor *in[OP_INPUTS_MAX] = {row_values(graph, "y", 1), integers(graph, "targets"),
                                        load_of(graph, "load", sizes)};
    struct tensor *loss[OP_OUTPUTS_MAX] = {
        graph_tensor(graph, TENSOR_RESULT, "loss", shape_make(DTYPE_F64, 1, 1, 1, 1))};
    add(graph, &op_balanced_loss, "loss", &attributes.balance, in, loss);
    if (op_case->op == &op_balanced_loss) return;
    struct tensor *made[OP_OUTPUTS_MAX] = {
        graph_tensor(graph, TENSOR_RESULT, "loss.again", shape_make(DTYPE_F64, 1, 1, 1, 1)),
        row_values(graph, "d.y", 1), IF_WANTED(attributes.dload, load_of(graph, "d.load", sizes))};
    add(graph, &op_balanced_loss_grad, "loss.grad", &attributes, in, made);
}

static void build_count_slots(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    const struct node *route = add_route(graph, op_case, sizes);
    if (!route) return;
    struct tensor *in[OP_INPUTS_MAX] = {route->out[2]};
    struct tensor *slots[OP_OUTPUTS_MAX] = {
        graph_tensor(graph, TENSOR_RESULT, "slots", shape_make(DTYPE_F64, 1, experts_of(sizes), 1, 1))};
    add(graph, &op_count_slots, "slots", NULL, in, slots);
}

/* The second expert. With CASE_ADDEND others' rows are there before. */
static void build_expert(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    const struct node *route = add_route(graph, op_case, sizes);
    if (!route) return;
    bool previous = has(op_case, CASE_ADDEND), trains = !has(op_case, CASE_FROZEN), dx = !has(op_case, CASE_NO_DX);
    struct expert_grad_attributes attributes = {
        .expert = {.expert = 1,
                   .experts = experts_of(sizes),
                   .slots = sizes->sequences * sizes->length * chosen_of(sizes),
                   .function = op_case->function},
        .dx = dx,
        .dweight = {trains, trains, trains},
    };
    struct tensor *in[OP_INPUTS_MAX] = {
        expert_rows(graph, "x", sizes),
        route->out[2],
        graph_parameter(graph, "gate", 2, sizes->inner, sizes->columns),
        graph_parameter(graph, "up", 2, sizes->inner, sizes->columns),
        graph_parameter(graph, "down", 2, sizes->columns, sizes->inner),
        IF_WANTED(previous && op_case->op == &op_expert_mlp, expert_rows(graph, "previous", sizes))};
    add(graph, &op_expert_mlp, "expert", &attributes.expert, in, NULL);
    if (op_case->op != &op_expert_mlp_grad) return;
    struct tensor *back[OP_INPUTS_MAX] = {expert_rows(graph, "dy", sizes),
                                          in[0],
                                          in[1],
                                          in[2],
                                          in[3],
                                          in[4],
                                          IF_WANTED(previous, expert_rows(graph, "previous", sizes))};
    struct tensor *out[OP_OUTPUTS_MAX] = {
        IF_WANTED(dx, expert_rows(graph, previous ? "dx" : "d.x", sizes)),
        IF_WANTED(trains, accumulator(graph, "d.gate", 2, sizes->inner, sizes->columns)),
        IF_WANTED(trains, accumulator(graph, "d.up", 2, sizes->inner, sizes->columns)),
        IF_WANTED(trains, accumulator(graph, "d.down", 2, sizes->columns, sizes->inner))};
    add(graph, &op_expert_mlp_grad, "expert.grad", &attributes, back, out);
}

/* Clamps hold for some numbers. */
static struct expert_glu_attributes glu_of(const struct op_case *op_case, const struct op_sizes *sizes) {
    return (struct expert_glu_attributes){.expert = {.expert = 1,
                                                     .experts = experts_of(sizes),
                                                     .slots = sizes->sequences * sizes->length * chosen_of(sizes)},
                                          .alpha = 1.5,
                                          .limit =
                                              op_case->op == &op_expert_glu ? 0.4 : 6, /* differences meet no kink */
                                          .weights_are_kn = has(op_case, CASE_KN)};
}

static void build_expert_glu(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    const struct node *route = add_route(graph, op_case, sizes);
    if (!route) return;
    bool previous = has(op_case, CASE_ADDEND), trains = !has(op_case, CASE_FROZEN), dx = !has(op_case, CASE_NO_DX);
    bool kn = has(op_case, CASE_KN), forward = op_case->op == &op_expert_glu;
    int64_t c = sizes->columns, f = sizes->inner;
    struct expert_glu_grad_attributes attributes = {
        .glu = glu_of(op_case, sizes), .dx = dx, .dweight = {trains, trains, trains, trains}};
    struct tensor *in[OP_INPUTS_MAX] = {expert_rows(graph, "x", sizes),
                                        route->out[2],
                                        graph_parameter(graph, "gate_up", 2, kn ? c : 2 * f, kn ? 2 * f : c),
                                        graph_parameter(graph, "down", 2, kn ? f : c, kn ? c : f),
                                        graph_parameter(graph, "gate_up_bias", 1, 2 * f, 1),
                                        graph_parameter(graph, "down_bias", 1, c, 1),
                                        IF_WANTED(previous && forward, expert_rows(graph, "previous", sizes))};
    add(graph, &op_expert_glu, "expert", &attributes.glu, in, NULL);
    if (forward) return;
    struct tensor *back[OP_INPUTS_MAX] = {expert_rows(graph, "dy", sizes),
                                          in[0],
                                          in[1],
                                          in[2],
                                          in[3],
                                          in[4],
                                          IF_WANTED(previous, expert_rows(graph, "previous", sizes))};
    struct tensor *out[OP_OUTPUTS_MAX] = {
        IF_WANTED(dx, expert_rows(graph, previous ? "dx" : "d.x", sizes)),
        IF_WANTED(trains, accumulator(graph, "d.gate_up", 2, kn ? c : 2 * f, kn ? 2 * f : c)),
        IF_WANTED(trains, accumulator(graph, "d.down", 2, kn ? f : c, kn ? c : f)),
        IF_WANTED(trains, accumulator(graph, "d.gate_up_bias", 1, 2 * f, 1)),
        IF_WANTED(trains, accumulator(graph, "d.down_bias", 1, c, 1))};
    add(graph, &op_expert_glu_grad, "expert.grad", &attributes, back, out);
}

const struct op_sizes op_sizes_gpt2 = {.sequences = 1,
                                       .length = 1024,
                                       .columns = 768,
                                       .inner = 3072,
                                       .heads = 12,
                                       .kv_heads = 12,
                                       .head_dim = 64,
                                       .vocab = 50257};

/* Sizes of tests. */
#define ODD_BUT(...)                                                                                                   \
    { .sequences = 3, .columns = 45, .inner = 77, .heads = 6, .kv_heads = 2, .head_dim = 10, .vocab = 131, __VA_ARGS__ }
#define ODD ODD_BUT(.length = 29)
#define EVEN ODD_BUT(.length = 28)
/* Several tiles of positions; a head that is no whole number of vectors. */
#define LONG(window_)                                                                                                  \
    { .sequences = 2, .length = 131, .heads = 6, .kv_heads = 2, .head_dim = 10, .window = window_ }
/* Half of the queries read 2 of 4 heads; or 2 of 3, of which one serves twice as many queries. */
#define TRIPLES                                                                                                        \
    { .sequences = 2, .length = 29, .heads = 12, .kv_heads = 4, .head_dim = 10 }
#define QUADRUPLES                                                                                                     \
    { .sequences = 2, .length = 29, .heads = 12, .kv_heads = 3, .head_dim = 6 }
/* Heads of several vectors, and of no whole number of them. */
#define WIDE                                                                                                           \
    { .sequences = 1, .length = 71, .heads = 3, .kv_heads = 1, .head_dim = 85 }
/* More than one block of the packed matrix product in each direction; more than one block of rows. */
#define LARGE                                                                                                          \
    { .sequences = 2, .length = 101, .columns = 281, .inner = 203, .vocab = 300 }
/* Few tokens of an expert, and several tiles of them. */
#define MANY_TOKENS                                                                                                    \
    { .sequences = 2, .length = 331, .columns = 45, .inner = 77, .heads = 4 }
#define WIDE_MATRIX                                                                                                    \
    { .sequences = 1, .length = 1, .columns = 201, .vocab = 131 }
#define PAIRS                                                                                                          \
    { .sequences = 4, .length = 37, .columns = 1 }
#define CASE(name_, kind, build_, sizes_, ...)                                                                         \
    { .name = name_, .op = &op_##kind, .build = build_, .sizes = sizes_, __VA_ARGS__ }

const struct op_case op_cases[] = {
    CASE("embedding", embedding, build_embedding, ODD, .flags = CASE_TIMED),
    CASE("embedding.from", embedding, build_embedding, LARGE, .flags = CASE_FROM | CASE_VIEWS),
    CASE("embedding_grad", embedding_grad, build_embedding_grad, ODD, .flags = CASE_TIMED),
    CASE("embedding_grad.views", embedding_grad, build_embedding_grad, LARGE, .flags = CASE_VIEWS),
    CASE("embedding_grad.from", embedding_grad, build_embedding_grad, ODD, .flags = CASE_FROM),
    CASE("embedding.part", embedding, build_embedding, ODD, .flags = CASE_PART),
    CASE("embedding_grad.part", embedding_grad, build_embedding_grad, LARGE, .flags = CASE_PART | CASE_VIEWS),
    CASE("linear", linear, build_linear, ODD, .flags = CASE_TIMED),
    CASE("linear.bias", linear, build_linear, ODD, .flags = CASE_BIAS),
    CASE("linear.kn", linear, build_linear, ODD, .flags = CASE_KN | CASE_BIAS | CASE_ADDEND | CASE_TIMED),
    CASE("linear.views", linear, build_linear, LARGE, .flags = CASE_BIAS | CASE_ADDEND | CASE_VIEWS),
    CASE("linear.kn.views", linear, build_linear, LARGE, .flags = CASE_KN | CASE_VIEWS),
    CASE("linear_dx", linear_dx, build_linear_dx, ODD, .flags = CASE_TIMED),
    CASE("linear_dx.kn", linear_dx, build_linear_dx, LARGE, .flags = CASE_KN | CASE_ADDEND | CASE_TIMED),
    CASE("linear_dx.views", linear_dx, build_linear_dx, LARGE, .flags = CASE_ADDEND | CASE_VIEWS),
    CASE("linear_dw", linear_dw, build_linear_dw, ODD, .flags = CASE_TIMED),
    CASE("linear_dw.kn", linear_dw, build_linear_dw, LARGE, .flags = CASE_KN | CASE_BIAS | CASE_TIMED),
    CASE("linear_dw.views", linear_dw, build_linear_dw, LARGE, .flags = CASE_BIAS | CASE_VIEWS),
    CASE("rms_norm", rms_norm, build_norm, ODD, .flags = CASE_TIMED),
    CASE("rms_norm.views", rms_norm, build_norm, LARGE, .flags = CASE_VIEWS),
    CASE("rms_norm_grad", rms_norm_grad, build_norm_grad, ODD, .flags = CASE_ADDEND | CASE_TIMED),
    CASE("rms_norm_grad.views", rms_norm_grad, build_norm_grad, LARGE, .flags = CASE_VIEWS),
    CASE("rms_norm_grad.no_dx", rms_norm_grad, build_norm_grad, ODD, .flags = CASE_NO_DX),
    CASE("rms_norm.heads", rms_norm, build_norm, ODD, .flags = CASE_HEADS | CASE_TIMED),
    CASE("rms_norm.heads.views", rms_norm, build_norm, LONG(0), .flags = CASE_HEADS | CASE_VIEWS),
    CASE("rms_norm_grad.heads", rms_norm_grad, build_norm_grad, ODD, .flags = CASE_HEADS | CASE_TIMED),
    CASE("rms_norm_grad.heads.views", rms_norm_grad, build_norm_grad, LONG(0),
         .flags = CASE_HEADS | CASE_ADDEND | CASE_VIEWS),
    CASE("rms_norm.one_plus", rms_norm, build_norm, ODD, .flags = CASE_ONE_PLUS | CASE_HEADS),
    CASE("rms_norm_grad.one_plus", rms_norm_grad, build_norm_grad, LARGE,
         .flags = CASE_ONE_PLUS | CASE_ADDEND | CASE_VIEWS),
    CASE("layer_norm", layer_norm, build_norm, ODD, .flags = CASE_BIAS | CASE_TIMED),
    CASE("layer_norm.heads", layer_norm, build_norm, LONG(0), .flags = CASE_BIAS | CASE_HEADS | CASE_VIEWS),
    CASE("layer_norm_grad.heads", layer_norm_grad, build_norm_grad, LONG(0), .flags = CASE_BIAS | CASE_HEADS),
    CASE("layer_norm.plain", layer_norm, build_norm, LARGE, .flags = CASE_VIEWS),
    CASE("layer_norm_grad", layer_norm_grad, build_norm_grad, ODD, .flags = CASE_BIAS | CASE_ADDEND | CASE_TIMED),
    CASE("layer_norm_grad.views", layer_norm_grad, build_norm_grad, LARGE, .flags = CASE_BIAS | CASE_VIEWS),
    CASE("layer_norm_grad.frozen", layer_norm_grad, build_norm_grad, ODD, .flags = CASE_BIAS | CASE_FROZEN),
    CASE("rope_table", rope_table, build_rope_table, ODD, .flags = CASE_TIMED),
    CASE("rope_table.yarn", rope_table, build_rope_table, ODD, .flags = CASE_PARTIAL),
    CASE("rope.partial", rope, build_rope, ODD, .flags = CASE_PARTIAL),
    CASE("rope.partial.back", rope, build_rope, LONG(0), .flags = CASE_PARTIAL | CASE_BACK | CASE_VIEWS),
    CASE("rope", rope, build_rope, ODD, .flags = CASE_TIMED),
    CASE("rope.back", rope, build_rope, LONG(0), .flags = CASE_BACK | CASE_VIEWS),
    CASE("attention", attention, build_attention, LONG(0), .flags = CASE_TIMED),
    CASE("attention.window", attention, build_attention, LONG(50), .flags = CASE_VIEWS),
    CASE("attention.window_1", attention, build_attention, ODD_BUT(.length = 29, .window = 1), .flags = 0),
    CASE("attention.window_wide", attention, build_attention, ODD_BUT(.length = 29, .window = 4096), .flags = 0),
    CASE("attention.segments", attention, build_attention, LONG(0), .flags = CASE_SEGMENTS),
    CASE("attention.capped", attention, build_attention, LONG(0), .flags = CASE_CAPPED),
    CASE("attention.capped.window", attention, build_attention, LONG(50),
         .flags = CASE_CAPPED | CASE_SEGMENTS | CASE_VIEWS),
    CASE("attention.sinks", attention, build_attention, LONG(0), .flags = CASE_SINKS | CASE_VIEWS),
    CASE("attention.sinks.window", attention, build_attention, LONG(50), .flags = CASE_SINKS | CASE_CAPPED),
    CASE("attention.wide", attention, build_attention, WIDE, .flags = CASE_VIEWS),
    CASE("attention_grad.wide", attention_grad, build_attention_grad, WIDE, .flags = 0),
    CASE("attention_grad", attention_grad, build_attention_grad, LONG(0), .flags = CASE_TIMED),
    CASE("attention_grad.window", attention_grad, build_attention_grad, LONG(50), .flags = CASE_VIEWS),
    CASE("attention_grad.window_wide", attention_grad, build_attention_grad, ODD_BUT(.length = 29, .window = 4096),
         .flags = 0),
    CASE("attention_grad.segments", attention_grad, build_attention_grad, LONG(0), .flags = CASE_SEGMENTS),
    CASE("attention_grad.capped", attention_grad, build_attention_grad, LONG(0), .flags = CASE_CAPPED),
    CASE("attention_grad.capped.window", attention_grad, build_attention_grad, LONG(50),
         .flags = CASE_CAPPED | CASE_SEGMENTS | CASE_VIEWS),
    CASE("attention_grad.sinks", attention_grad, build_attention_grad, LONG(50), .flags = CASE_SINKS),
    CASE("attention_sinks_grad", attention_sinks_grad, build_attention_sinks_grad, LONG(50),
         .flags = CASE_SINKS | CASE_TIMED),
    CASE("attention_sinks_grad.views", attention_sinks_grad, build_attention_sinks_grad, WIDE,
         .flags = CASE_SINKS | CASE_VIEWS),
    CASE("attention_grad.short", attention_grad, build_attention_grad, ODD_BUT(.length = 1), .flags = 0),
    CASE("select_heads", select_heads, build_select_heads, ODD, .flags = CASE_TIMED),
    CASE("select_heads.many", select_heads, build_select_heads, TRIPLES, .flags = CASE_VIEWS),
    CASE("select_heads.uneven", select_heads, build_select_heads, QUADRUPLES, .flags = 0),
    CASE("select_heads_grad", select_heads_grad, build_select_heads_grad, ODD, .flags = CASE_TIMED),
    CASE("select_heads_grad.many", select_heads_grad, build_select_heads_grad, TRIPLES, .flags = CASE_VIEWS),
    CASE("select_heads_grad.uneven", select_heads_grad, build_select_heads_grad, QUADRUPLES, .flags = 0),
    CASE("attention_cache", attention_cache, build_attention_cache, LONG(0), .flags = CASE_TIMED),
    CASE("attention_cache.window", attention_cache, build_attention_cache, LONG(50), .flags = CASE_VIEWS),
    CASE("attention_cache.wide", attention_cache, build_attention_cache, WIDE, .flags = CASE_VIEWS),
    CASE("attention_cache.one", attention_cache, build_attention_cache, ODD_BUT(.length = 1, .window = 3), .flags = 0),
    CASE("attention_cache.sinks", attention_cache, build_attention_cache, LONG(50), .flags = CASE_SINKS),
    CASE("attention_cache.capped", attention_cache, build_attention_cache, LONG(50), .flags = CASE_CAPPED),
    CASE("last_token", last_token, build_last_token, ODD, .flags = 0),
    CASE("last_token.views", last_token, build_last_token, LARGE, .flags = CASE_VIEWS),
    CASE("gelu_tanh", activation, build_activation, ODD, .function = ACTIVATION_GELU_TANH, .flags = CASE_TIMED),
    CASE("gelu_erf", activation, build_activation, ODD, .function = ACTIVATION_GELU_ERF, .flags = CASE_TIMED),
    CASE("relu", activation, build_activation, LARGE, .function = ACTIVATION_RELU, .flags = CASE_VIEWS),
    CASE("silu", activation, build_activation, LARGE, .function = ACTIVATION_SILU),
    CASE("gelu_tanh_grad", activation_grad, build_activation, ODD, .function = ACTIVATION_GELU_TANH,
         .flags = CASE_TIMED),
    CASE("gelu_erf_grad", activation_grad, build_activation, ODD, .function = ACTIVATION_GELU_ERF, .flags = CASE_VIEWS),
    CASE("relu_grad", activation_grad, build_activation, LARGE, .function = ACTIVATION_RELU),
    CASE("silu_grad", activation_grad, build_activation, ODD, .function = ACTIVATION_SILU),
    CASE("swiglu", gated_activation, build_gated, ODD, .function = ACTIVATION_SILU, .flags = CASE_TIMED),
    CASE("geglu", gated_activation, build_gated, LARGE, .function = ACTIVATION_GELU_TANH, .flags = CASE_VIEWS),
    CASE("swiglu_grad", gated_activation_grad, build_gated, ODD, .function = ACTIVATION_SILU, .flags = CASE_TIMED),
    CASE("geglu_grad", gated_activation_grad, build_gated, LARGE, .function = ACTIVATION_GELU_TANH,
         .flags = CASE_VIEWS),
    CASE("add", add, build_add, ODD, .flags = CASE_TIMED),
    CASE("add.views", add, build_add, LARGE, .flags = CASE_VIEWS),
    CASE("add_bias", add_bias, build_add_bias, ODD, .flags = CASE_BIAS | CASE_ADDEND | CASE_TIMED),
    CASE("add_bias.alone", add_bias, build_add_bias, ODD, .flags = CASE_BIAS),
    CASE("add_bias.views", add_bias, build_add_bias, LARGE, .flags = CASE_BIAS | CASE_ADDEND | CASE_VIEWS),
    CASE("scale", scale, build_scale, ODD, .flags = CASE_TIMED),
    CASE("scale.views", scale, build_scale, LARGE, .flags = CASE_VIEWS),
    CASE("convert", convert, build_convert, ODD, .flags = 0),
    CASE("convert.views", convert, build_convert, LARGE, .flags = CASE_VIEWS),
    CASE("copy_in", copy_in, build_convert, ODD, .flags = 0),
    CASE("to_parts", to_parts, build_parts, ODD, .flags = CASE_TIMED),
    CASE("to_parts.views", to_parts, build_parts, LARGE, .flags = CASE_VIEWS | CASE_CONVERTS),
    CASE("to_parts.length", to_parts, build_parts, LARGE, .flags = CASE_LENGTH),
    CASE("to_parts.zigzag", to_parts, build_parts, EVEN, .flags = CASE_LENGTH | CASE_ZIGZAG),
    CASE("from_parts", from_parts, build_parts, ODD, .flags = CASE_VIEWS),
    CASE("from_parts.length", from_parts, build_parts, ODD, .flags = CASE_LENGTH | CASE_CONVERTS),
    CASE("from_parts.zigzag", from_parts, build_parts, EVEN, .flags = CASE_LENGTH | CASE_ZIGZAG | CASE_CONVERTS),
    CASE("cut", cut, build_cut, LARGE, .flags = CASE_VIEWS),
    CASE("cut.length", cut, build_cut, ODD, .flags = CASE_LENGTH),
    CASE("cut.zigzag", cut, build_cut, EVEN, .flags = CASE_LENGTH | CASE_ZIGZAG),
    CASE("cut.zigzag_tokens", cut, build_cut_tokens, EVEN, .flags = CASE_LENGTH | CASE_ZIGZAG),
    CASE("bias_grad", bias_grad, build_bias_grad, ODD, .flags = CASE_BIAS | CASE_TIMED),
    CASE("bias_grad.views", bias_grad, build_bias_grad, LARGE, .flags = CASE_BIAS | CASE_VIEWS),
    CASE("head_loss", head_loss, build_head_loss, ODD, .flags = CASE_TIMED),
    CASE("head_loss.bias", head_loss, build_head_loss, LARGE, .flags = CASE_BIAS | CASE_VIEWS),
    CASE("head_loss_grad", head_loss_grad, build_head_loss, ODD, .flags = CASE_TIMED),
    CASE("head_loss_grad.bias", head_loss_grad, build_head_loss, LARGE, .flags = CASE_BIAS | CASE_VIEWS),
    CASE("head_loss_grad.frozen", head_loss_grad, build_head_loss, ODD, .flags = CASE_FROZEN),
    CASE("head_loss_grad.no_dx", head_loss_grad, build_head_loss, ODD, .flags = CASE_NO_DX),
    CASE("head_loss.capped", head_loss, build_head_loss, LARGE, .flags = CASE_BIAS | CASE_CAPPED),
    CASE("head_loss_grad.capped", head_loss_grad, build_head_loss, ODD, .flags = CASE_CAPPED),
    CASE("head_loss_grad.capped.bias", head_loss_grad, build_head_loss, LARGE,
         .flags = CASE_BIAS | CASE_CAPPED | CASE_VIEWS),
    CASE("head_loss.part", head_loss, build_head_loss, ODD, .flags = CASE_PART),
    CASE("head_loss_grad.part", head_loss_grad, build_head_loss, ODD, .flags = CASE_PART),
    CASE("head_loss_grad.part.capped", head_loss_grad, build_head_loss, ODD,
         .flags = CASE_PART | CASE_BIAS | CASE_CAPPED | CASE_VIEWS),
    CASE("head_log_probability", head_log_probability, build_head_log_probability, ODD, .flags = CASE_TIMED),
    CASE("head_log_probability.capped", head_log_probability, build_head_log_probability, LARGE,
         .flags = CASE_BIAS | CASE_CAPPED | CASE_VIEWS),
    CASE("head_log_probability.part", head_log_probability, build_head_log_probability, ODD, .flags = CASE_PART),
    CASE("head_log_probability_grad", head_log_probability_grad, build_head_log_probability, ODD, .flags = CASE_TIMED),
    CASE("head_log_probability_grad.bias", head_log_probability_grad, build_head_log_probability, LARGE,
         .flags = CASE_BIAS | CASE_VIEWS),
    CASE("head_log_probability_grad.frozen", head_log_probability_grad, build_head_log_probability, ODD,
         .flags = CASE_FROZEN | CASE_CAPPED),
    CASE("head_log_probability_grad.no_dx", head_log_probability_grad, build_head_log_probability, ODD,
         .flags = CASE_NO_DX),
    CASE("head_log_probability_grad.part", head_log_probability_grad, build_head_log_probability, ODD,
         .flags = CASE_PART | CASE_CAPPED),
    CASE("preference_loss", preference_loss, build_preference, LARGE, .flags = CASE_TIMED),
    CASE("preference_loss_grad", preference_loss_grad, build_preference, PAIRS, .flags = CASE_TIMED),
    CASE("preference_loss_grad.smoothed", preference_loss_grad, build_preference, MANY_TOKENS,
         .pairs = {.label_smoothing = 0.2}),
    CASE("preference_loss_grad.robust", preference_loss_grad, build_preference, PAIRS,
         .pairs = {.loss = PAIR_LOSS_ROBUST, .label_smoothing = 0.1}),
    CASE("preference_loss_grad.hinge", preference_loss_grad, build_preference, PAIRS,
         .pairs = {.loss = PAIR_LOSS_HINGE}),
    CASE("preference_loss_grad.ipo", preference_loss_grad, build_preference, MANY_TOKENS,
         .pairs = {.loss = PAIR_LOSS_IPO}),
    CASE("head_statistics", head_statistics, build_head_statistics, ODD, .flags = CASE_PART | CASE_TIMED),
    CASE("head_statistics.capped", head_statistics, build_head_statistics, LARGE,
         .flags = CASE_PART | CASE_BIAS | CASE_CAPPED | CASE_VIEWS),
    CASE("join_statistics", join_statistics, build_join_statistics, ODD, .flags = 0),
    CASE("head_logits.capped", head_logits, build_head_logits, LARGE, .flags = CASE_BIAS | CASE_CAPPED),
    CASE("head_logits", head_logits, build_head_logits, ODD, .flags = 0),
    CASE("head_logits.bias", head_logits, build_head_logits, LARGE, .flags = CASE_BIAS | CASE_VIEWS),
    CASE("route", route, build_route, ODD, .flags = CASE_TIMED),
    CASE("route.normalised", route, build_route, ODD, .flags = CASE_ONE_PLUS | CASE_VIEWS),
    CASE("route_grad", route_grad, build_route, ODD, .flags = CASE_TIMED),
    CASE("route_grad.normalised", route_grad, build_route, ODD, .flags = CASE_ONE_PLUS | CASE_VIEWS),
    CASE("dispatch", dispatch, build_dispatch, ODD, .flags = CASE_TIMED),
    CASE("dispatch.views", dispatch, build_dispatch, MANY_TOKENS, .flags = CASE_VIEWS),
    CASE("dispatch_grad", dispatch_grad, build_dispatch, ODD, .flags = CASE_TIMED),
    CASE("dispatch_grad.addend", dispatch_grad, build_dispatch, MANY_TOKENS, .flags = CASE_ADDEND),
    CASE("combine", combine, build_combine, ODD, .flags = CASE_ADDEND | CASE_TIMED),
    CASE("combine.views", combine, build_combine, MANY_TOKENS, .flags = CASE_VIEWS),
    CASE("combine_grad", combine_grad, build_combine, ODD, .flags = CASE_TIMED),
    CASE("token_gate", token_gate, build_token_gate, ODD, .flags = CASE_ADDEND | CASE_TIMED),
    CASE("token_gate.views", token_gate, build_token_gate, LARGE, .flags = CASE_VIEWS),
    CASE("token_gate_grad", token_gate_grad, build_token_gate, ODD, .flags = CASE_TIMED),
    CASE("token_gate_grad.views", token_gate_grad, build_token_gate, LARGE, .flags = CASE_VIEWS),
    CASE("expert_mlp", expert_mlp, build_expert, ODD, .function = ACTIVATION_SILU, .flags = CASE_TIMED),
    CASE("expert_mlp.previous", expert_mlp, build_expert, MANY_TOKENS, .function = ACTIVATION_SILU,
         .flags = CASE_ADDEND),
    CASE("expert_mlp_grad", expert_mlp_grad, build_expert, ODD, .function = ACTIVATION_SILU, .flags = CASE_TIMED),
    CASE("expert_mlp_grad.tiles", expert_mlp_grad, build_expert, MANY_TOKENS, .function = ACTIVATION_SILU),
    CASE("expert_mlp_grad.previous", expert_mlp_grad, build_expert, MANY_TOKENS, .function = ACTIVATION_GELU_TANH,
         .flags = CASE_ADDEND),
    CASE("expert_mlp_grad.frozen", expert_mlp_grad, build_expert, ODD, .function = ACTIVATION_SILU,
         .flags = CASE_FROZEN),
    CASE("expert_mlp_grad.no_dx", expert_mlp_grad, build_expert, ODD, .function = ACTIVATION_SILU, .flags = CASE_NO_DX),
    CASE("expert_glu", expert_glu, build_expert_glu, ODD, .flags = CASE_TIMED),
    CASE("expert_glu.previous", expert_glu, build_expert_glu, MANY_TOKENS, .flags = CASE_ADDEND | CASE_KN),
    CASE("expert_glu_grad", expert_glu_grad, build_expert_glu, ODD, .flags = CASE_KN | CASE_TIMED),
    CASE("expert_glu_grad.tiles", expert_glu_grad, build_expert_glu, MANY_TOKENS, .flags = 0),
    CASE("expert_glu_grad.previous", expert_glu_grad, build_expert_glu, MANY_TOKENS, .flags = CASE_ADDEND | CASE_KN),
    CASE("expert_glu_grad.frozen", expert_glu_grad, build_expert_glu, ODD, .flags = CASE_FROZEN),
    CASE("expert_glu_grad.no_dx", expert_glu_grad, build_expert_glu, ODD, .flags = CASE_NO_DX),
    CASE("expert_load", expert_load, build_expert_load, MANY_TOKENS, .flags = CASE_ADDEND | CASE_TIMED),
    CASE("expert_load.views", expert_load, build_expert_load, ODD, .flags = CASE_VIEWS),
    CASE("expert_load_grad", expert_load_grad, build_expert_load, ODD, .flags = CASE_TIMED),
    CASE("expert_load_grad.views", expert_load_grad, build_expert_load, MANY_TOKENS, .flags = CASE_VIEWS),
    CASE("balanced_loss", balanced_loss, build_balanced_loss, ODD, .flags = CASE_TIMED),
    CASE("balanced_loss_grad", balanced_loss_grad, build_balanced_loss, ODD, .flags = CASE_TIMED),
    CASE("balanced_loss_grad.frozen", balanced_loss_grad, build_balanced_loss, ODD, .flags = CASE_FROZEN),
    CASE("count_slots", count_slots, build_count_slots, ODD, .flags = 0),
    CASE("gradient_sum", gradient_sum, build_gradient_sum, LARGE, .flags = CASE_TIMED),
    CASE("squared_sums", squared_sums, build_squared_sums, LARGE, .flags = CASE_TIMED),
    CASE("squared_norm", squared_norm, build_squared_norm, LARGE, .flags = CASE_TIMED),
    CASE("clip_factor", clip_factor, build_clip_factor, ODD, .flags = 0),
    CASE("adamw", adamw, build_update, LARGE, .flags = CASE_TIMED),
    CASE("adamw.bf16_state", adamw, build_update, LARGE, .flags = CASE_BF16_STATE | CASE_TIMED),
    CASE("adamw.no_master", adamw, build_update, LARGE, .flags = CASE_NO_MASTER | CASE_BF16_STATE | CASE_TIMED),
    CASE("adamw.no_master.fp32_state", adamw, build_update, ODD, .flags = CASE_NO_MASTER),
    CASE("adamw.int8_state", adamw, build_update, LARGE, .flags = CASE_INT8_STATE | CASE_TIMED),
    CASE("adamw.int8_state.no_master", adamw, build_update, ODD, .flags = CASE_INT8_STATE | CASE_NO_MASTER),
    CASE("adamw.unclipped", adamw, build_update, LARGE, .flags = CASE_UNCLIPPED),
    CASE("lion", lion, build_update, LARGE, .flags = CASE_TIMED),
    CASE("lion.no_master", lion, build_update, ODD, .flags = CASE_NO_MASTER | CASE_BF16_STATE),
    CASE("lion.int8_state", lion, build_update, ODD, .flags = CASE_INT8_STATE),
    CASE("lion.unclipped", lion, build_update, LARGE, .flags = CASE_UNCLIPPED),
    CASE("sgd", sgd, build_update, LARGE, .flags = CASE_TIMED),
    CASE("sgd.no_master", sgd, build_update, ODD, .flags = CASE_NO_MASTER | CASE_BF16_STATE),
    CASE("sgd.int8_state", sgd, build_update, ODD, .flags = CASE_INT8_STATE),
    CASE("sgd.unclipped", sgd, build_update, LARGE, .flags = CASE_UNCLIPPED),
    CASE("muon", muon, build_update, LARGE, .flags = CASE_TIMED),
    CASE("muon.wide", muon, build_update, WIDE_MATRIX, .flags = 0),
    CASE("muon.no_master", muon, build_update, ODD, .flags = CASE_NO_MASTER | CASE_BF16_STATE),
    CASE("muon.int8_state", muon, build_update, ODD, .flags = CASE_INT8_STATE),
    CASE("muon.unclipped", muon, build_update, LARGE, .flags = CASE_UNCLIPPED),
};
const int op_case_count = sizeof op_cases / sizeof *op_cases;

struct graph *op_case_build(const struct op_case *op_case, enum dtype dtype, const struct op_sizes *sizes) {
    struct graph *graph = graph_create(dtype, sizes->sequences, sizes->length);
    if (!graph) return NULL;
    graph_begin_block(graph, "case");
    op_case->build(graph, op_case, sizes);
    if (graph_status(graph) == STATUS_OK) return graph;
    graph_free(graph);
    return NULL;
}

struct tensor *op_case_tensor(const struct graph *graph, const char *name) {
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (strcmp(graph->tensors.items[i]->name, name) == 0) return graph->tensors.items[i];
    return NULL;
}
