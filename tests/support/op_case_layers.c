/* Cases of the operators of a layer: embeddings, GEMMs, norms, rotary positions, attention, activations, parts. */
#include "support/op_case_build.h"

/* Rows of the table that stand for no token. */
static int64_t first_row(const struct op_case *op_case) { return has(op_case, CASE_FROM) ? 2 : 0; }

static struct embedding_attributes embedding_of(const struct op_case *op_case, const struct op_sizes *sizes) {
    if (has(op_case, CASE_PART)) return (struct embedding_attributes){.first_row = -PART_FIRST, .tokens = sizes->vocab};
    return (struct embedding_attributes){.first_row = first_row(op_case)};
}

static int64_t table_rows(const struct op_case *op_case, const struct op_sizes *sizes) {
    return has(op_case, CASE_PART) ? sizes->vocab - PART_FIRST - PART_BEHIND : sizes->vocab + first_row(op_case);
}

void build_embedding(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct embedding_attributes attributes = embedding_of(op_case, sizes);
    struct tensor *in[OP_INPUTS_MAX] = {
        integers(graph, "tokens"), graph_parameter(graph, "weight", 2, table_rows(op_case, sizes), sizes->columns)};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", sizes->columns)};
    add(graph, &op_embedding, "embedding", &attributes, in, out);
}

void build_embedding_grad(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
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

void build_linear(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct linear_attributes attributes = {.weight_is_kn = has(op_case, CASE_KN)};
    struct tensor *in[OP_INPUTS_MAX] = {
        activation(graph, op_case, "x", sizes->columns), linear_weight(graph, op_case, sizes),
        IF_WANTED(has(op_case, CASE_BIAS), graph_parameter(graph, "bias", 1, sizes->inner, 1)),
        IF_WANTED(has(op_case, CASE_ADDEND), activation(graph, op_case, "residual", sizes->inner))};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", sizes->inner)};
    add(graph, &op_linear, "linear", &attributes, in, out);
}

void build_linear_dx(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
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

void build_linear_dw(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
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

void build_norm(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
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

void build_norm_grad(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
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

void build_rope_table(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct rope_table_attributes attributes = {.head_dim = sizes->head_dim, .theta = 10000};
    if (has(op_case, CASE_PARTIAL))
        attributes = (struct rope_table_attributes){.head_dim = sizes->head_dim / 4 * 2,
                                                    .theta = 100,
                                                    .scaling = ROPE_SCALING_YARN,
                                                    .factor = 4,
                                                    .original_context = 64};
    ops_rope_table(graph, "table", integers(graph, "positions"), attributes);
}

void build_rope(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    build_rope_table(graph, op_case, sizes);
    struct rope_attributes attributes = {
        .heads = sizes->heads, .head_dim = sizes->head_dim, .sign = has(op_case, CASE_BACK) ? -1 : 1};
    int64_t columns = sizes->heads * sizes->head_dim;
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "x", columns), op_case_tensor(graph, "table")};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", columns)};
    add(graph, &op_rope, "rope", &attributes, in, out);
}

/* Most scores are bent by it. */
static const double SCORES_CAP = 0.7;

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

void build_attention(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct attention_attributes attributes = attention_of(op_case, sizes);
    int64_t q = sizes->heads * sizes->head_dim, kv = sizes->kv_heads * sizes->head_dim;
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "q", q), activation(graph, op_case, "k", kv),
                                        activation(graph, op_case, "v", kv),
                                        IF_WANTED(has(op_case, CASE_SEGMENTS), integers(graph, "segments")),
                                        IF_WANTED(has(op_case, CASE_SINKS), sinks(graph, sizes))};
    struct shape lse = shape_make(DTYPE_F32, 3, graph->micro_batch_sequences, sizes->heads, graph->sequence_length);
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", q),
                                          graph_tensor(graph, TENSOR_ACTIVATION, "lse", lse)};
    add(graph, &op_attention, "attention", &attributes, in, out);
}

/* For the second half of the queries. */
static struct select_heads_attributes selection_of(const struct op_sizes *sizes) {
    const struct group_part part = {.parts = 2, .position = 1};
    return select_heads_of_queries(sizes->kv_heads, sizes->head_dim, sizes->heads, &part);
}

void build_select_heads(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct select_heads_attributes attributes = selection_of(sizes);
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "x", attributes.heads * attributes.head_dim)};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", attributes.selected * attributes.head_dim)};
    add(graph, &op_select_heads, "select_heads", &attributes, in, out);
}

void build_select_heads_grad(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    build_select_heads(graph, op_case, sizes);
    struct select_heads_attributes attributes = selection_of(sizes);
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "dy", attributes.selected * attributes.head_dim)};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "d.x", attributes.heads * attributes.head_dim)};
    add(graph, &op_select_heads_grad, "select_heads.grad", &attributes, in, out);
}

void build_attention_cache(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
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

void build_last_token(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    ops_last_token(graph, "y", activation(graph, op_case, "x", sizes->columns));
}

void build_attention_grad(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
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

void build_attention_sinks_grad(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    build_attention(graph, op_case, sizes);
    struct attention_attributes attributes = attention_of(op_case, sizes);
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "dy", sizes->heads * sizes->head_dim),
                                        op_case_tensor(graph, "y"), op_case_tensor(graph, "lse"),
                                        op_case_tensor(graph, "sinks")};
    struct tensor *out[OP_OUTPUTS_MAX] = {accumulator(graph, "d.sinks", 1, sizes->heads, 1)};
    add(graph, &op_attention_sinks_grad, "attention.sinks.grad", &attributes, in, out);
}

void build_activation(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct activation_attributes attributes = {.function = op_case->function};
    add_alike(graph, op_case, &op_activation, sizes->inner, &attributes, (const char *const[]){"x", NULL},
              (const char *const[]){"y", NULL});
    if (op_case->op == &op_activation_grad)
        add_alike(graph, op_case, &op_activation_grad, sizes->inner, &attributes,
                  (const char *const[]){"dy", "x", NULL}, (const char *const[]){"d.x", NULL});
}

void build_gated(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct activation_attributes attributes = {.function = op_case->function};
    add_alike(graph, op_case, &op_gated_activation, sizes->inner, &attributes,
              (const char *const[]){"gate", "up", NULL}, (const char *const[]){"y", NULL});
    if (op_case->op == &op_gated_activation_grad)
        add_alike(graph, op_case, &op_gated_activation_grad, sizes->inner, &attributes,
                  (const char *const[]){"dy", "gate", "up", NULL}, (const char *const[]){"d.gate", "d.up", NULL});
}

void build_add(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    add_alike(graph, op_case, &op_add, sizes->columns, NULL, (const char *const[]){"a", "b", NULL},
              (const char *const[]){"y", NULL});
}

void build_add_bias(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct tensor *in[OP_INPUTS_MAX] = {
        activation(graph, op_case, "x", sizes->columns),
        IF_WANTED(has(op_case, CASE_BIAS), graph_parameter(graph, "bias", 1, sizes->columns, 1)),
        IF_WANTED(has(op_case, CASE_ADDEND), activation(graph, op_case, "residual", sizes->columns))};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", sizes->columns)};
    add(graph, &op_add_bias, "add_bias", NULL, in, out);
}

void build_scale(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct scale_attributes attributes = {.factor = -1.75};
    add_alike(graph, op_case, &op_scale, sizes->columns, &attributes, (const char *const[]){"x", NULL},
              (const char *const[]){"y", NULL});
}

void build_convert(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "x", sizes->columns)};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", sizes->columns)};
    const struct convert_attributes convert = {out[0] ? out[0]->shape : (struct shape){.rank = 0}};
    const struct collective_attributes copy = {.part = {.parts = 2}};
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
                          {CASE_PARTS, graph->micro_batch_sequences, graph->sequence_length, columns}};
    return graph_tensor(graph, TENSOR_ACTIVATION, name, shape);
}

void build_parts(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    bool joins = op_case->op == &op_from_parts;
    struct tensor *whole = whole_of_parts(graph, op_case, joins ? "y" : "x", sizes->columns);
    struct tensor *parts = stacked_parts(graph, op_case, joins ? "x" : "y", sizes->columns);
    struct tensor *in[OP_INPUTS_MAX] = {joins ? parts : whole}, *out[OP_OUTPUTS_MAX] = {joins ? whole : parts};
    if (!whole || !parts) return;
    const struct parts_order order = {has(op_case, CASE_LENGTH) ? 1 : 2, CASE_PARTS, has(op_case, CASE_ZIGZAG)};
    const struct parts_attributes attributes = {order, out[0]->shape.dtype};
    add(graph, op_case->op, op_case->op->name, &attributes, in, out);
}

void build_cut(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    const struct cut_attributes attributes = {.dimension = has(op_case, CASE_LENGTH) ? 1 : 2,
                                              .part = {CASE_PARTS, CASE_OWN_PART, 0, has(op_case, CASE_ZIGZAG)}};
    struct tensor *in[OP_INPUTS_MAX] = {whole_of_parts(graph, op_case, "x", sizes->columns)};
    struct tensor *out[OP_OUTPUTS_MAX] = {activation(graph, op_case, "y", sizes->columns)};
    add(graph, &op_cut, "cut", &attributes, in, out);
}

/* Of [S, T], whose positions are its columns. */
void build_cut_tokens(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    (void)sizes;
    int64_t sequences = graph->micro_batch_sequences, length = graph->sequence_length;
    const struct cut_attributes attributes = {.dimension = 1,
                                              .part = {CASE_PARTS, CASE_OWN_PART, 0, has(op_case, CASE_ZIGZAG)}};
    struct tensor *in[OP_INPUTS_MAX] = {
        graph_tensor(graph, TENSOR_INPUT, "x", shape_make(DTYPE_I32, 2, sequences, length * CASE_PARTS, 1))};
    struct tensor *out[OP_OUTPUTS_MAX] = {
        graph_tensor(graph, TENSOR_ACTIVATION, "y", shape_make(DTYPE_I32, 2, sequences, length, 1))};
    add(graph, &op_cut, "cut", &attributes, in, out);
}

void build_bias_grad(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    build_linear(graph, op_case, sizes);
    struct tensor *in[OP_INPUTS_MAX] = {activation(graph, op_case, "dy", sizes->inner)};
    struct tensor *out[OP_OUTPUTS_MAX] = {accumulator(graph, "d.bias", 1, sizes->inner, 1)};
    add(graph, &op_bias_grad, "bias.grad", NULL, in, out);
}
