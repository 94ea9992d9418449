/* Attention of new tokens over the keys and values of all tokens before them, for generating texts. */
#include "ir/ops/check.h"

static const struct attention_cache_attributes *cache_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, attention_cache_attributes);
}

static struct shape cache_shape(const struct shape *kv, const struct attention_cache_attributes *cache) {
    struct shape shape = *kv;
    shape.dims[0] = cache->texts;
    shape.dims[1] = cache->positions;
    return shape;
}

static enum status infer_attention_cache(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct attention_attributes *attention = &cache_of(node)->attention;
    const struct shape *rows = &node->in[3]->shape;
    TRY(check_activation(node, 0));
    if (attention->heads < 1 || attention->kv_heads < 1 || attention->heads % attention->kv_heads != 0)
        return status_set(STATUS_BAD_INPUT, "%lld heads are no multiple of %lld key-value heads",
                          (long long)attention->heads, (long long)attention->kv_heads);
    struct shape q = with_columns(node->in[0]->shape, attention->heads * attention->head_dim);
    struct shape kv = with_columns(q, attention->kv_heads * attention->head_dim);
    TRY(check_shape(node, 0, &q));
    TRY(check_shape(node, 1, &kv));
    TRY(check_shape(node, 2, &kv));
    if (rows->dtype != DTYPE_I32 || rows->rank != 2 || rows->dims[0] != q.dims[0] || rows->dims[1] != q.dims[1])
        return status_set(STATUS_BAD_INPUT, "rows must be int32 [S, T]");
    if (cache_of(node)->positions < q.dims[1])
        return status_set(STATUS_BAD_INPUT, "%lld tokens do not fit into a cache of %lld", (long long)q.dims[1],
                          (long long)cache_of(node)->positions);
    struct shape sinks = vector_of(q.dtype, attention->heads);
    out[0] = q;
    out[1] = out[2] = cache_shape(&kv, cache_of(node));
    return check_optional(node, 4, &sinks);
}

/* With full caches, the most that a step can cost. */
static double flops_attention_cache(const struct node *node) {
    const struct attention_attributes *attention = &cache_of(node)->attention;
    int64_t seen = cache_of(node)->positions;
    if (attention->window > 0 && attention->window < seen) seen = attention->window;
    return 4.0 * (double)shape_elements(&node->in[0]->shape) * (double)seen;
}

static void key_attention_cache(const struct node *node, struct op_key *key) {
    key_heads(&cache_of(node)->attention, key);
}

/* Rows of new tokens whose text already fills half of its cache. */
static double example_attention_cache(const struct node *node, const struct tensor *tensor, int64_t index) {
    if (tensor->shape.dtype != DTYPE_I32) return op_example_default(node, tensor, index);
    const struct attention_cache_attributes *cache = cache_of(node);
    int64_t length = shape_columns(&tensor->shape), sequence = index / length, token = index % length;
    return (double)(sequence % cache->texts * cache->positions + (cache->positions - length) / 2 + token);
}

/* The fraction of cache rows that new tokens read or write; updates count twice. */
static double touched_attention_cache(const struct node *node, int operand) {
    if (operand <= OP_INPUTS_MAX) return 1;
    const struct attention_cache_attributes *cache = cache_of(node);
    int64_t length = node->in[0]->shape.dims[1], seen = (cache->positions - length) / 2 + length;
    int64_t texts = node->in[0]->shape.dims[0], window = cache->attention.window;
    if (texts > cache->texts) texts = cache->texts;
    if (window > 0 && window + length - 1 < seen) seen = window + length - 1;
    return (double)(texts * (seen + length)) / (2.0 * (double)(cache->texts * cache->positions));
}

/* Heads as attention has them (attention.c): by key-value groups with their queries, or by query heads. */
static bool loops_attention_cache(const struct node *node, int way, struct op_loops *out) {
    const struct attention_attributes *attention = &cache_of(node)->attention;
    bool grouped = way == 0, all_grouped = attention->heads == attention->kv_heads;
    if (way > (all_grouped ? 0 : 1)) return false;
    op_loops_add(out, grouped ? 'h' : 'q', grouped ? attention->kv_heads : attention->heads);
    const char *queries = grouped ? "..h" : "..q", *keys = grouped ? "..h" : "...";
    op_loops_operand(out, 0, queries);
    op_loops_operand(out, 1, keys);
    op_loops_operand(out, 2, keys);
    op_loops_operand(out, 4, grouped ? "h" : "q");
    op_loops_operand(out, OP_INPUTS_MAX, queries);
    op_loops_operand(out, OP_INPUTS_MAX + 1, keys);
    op_loops_operand(out, OP_INPUTS_MAX + 2, keys);
    return true;
}

/* Their attributes begin with attention's. */
static void take_part_attention_cache(void *attributes, char letter, const struct index_part *part) {
    op_attention.take_part(attributes, letter, part);
}

static bool collective_parts_attention_cache(struct graph *graph, const char *name, char letter,
                                             const struct index_part *part, const void *attributes,
                                             struct tensor *in[OP_INPUTS_MAX]) {
    return op_attention.collective_parts(graph, name, letter, part, attributes, in);
}

const struct op op_attention_cache = {
    .name = "attention_cache",
    .attribute_bytes = sizeof(struct attention_cache_attributes),
    .min_inputs = 4,
    .inputs = 5,
    .outputs = 3,
    .infer = infer_attention_cache,
    .work = OP_WORK_ATTENTION_CACHED,
    .cost_key = key_attention_cache,
    .example = example_attention_cache,
    .flops = flops_attention_cache,
    .touched = touched_attention_cache,
    .loops = loops_attention_cache,
    .take_part = take_part_attention_cache,
    .collective_parts = collective_parts_attention_cache,
    .updates = 1u << 1 | 1u << 2,
};

static enum status infer_last_token(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    out[0] = node->in[0]->shape;
    out[0].dims[1] = 1;
    return STATUS_OK;
}

static double touched_last_token(const struct node *node, int operand) {
    return operand == 0 ? 1 / (double)node->in[0]->shape.dims[1] : 1;
}

const struct op op_last_token = {
    .name = "last_token",
    .touched = touched_last_token,
    .min_inputs = 1,
    .inputs = 1,
    .outputs = 1,
    .infer = infer_last_token,
    .reads_scalars = true,
};

struct tensor *ops_attention_cache(struct graph *graph, const char *name, struct tensor *q, struct tensor *k,
                                   struct tensor *v, struct tensor *rows, struct tensor *sinks,
                                   struct attention_cache_attributes attributes) {
    if (!q || !k || !v || !rows) return NULL;
    struct shape kv = with_columns(q->shape, attributes.attention.kv_heads * attributes.attention.head_dim);
    struct shape shape = cache_shape(&kv, &attributes);
    struct tensor *in[OP_INPUTS_MAX] = {q, k, v, rows, sinks};
    struct tensor *into[OP_OUTPUTS_MAX] = {
        NULL, graph_tensor(graph, TENSOR_CACHE, graph_format(graph, "%s.keys", name), shape),
        graph_tensor(graph, TENSOR_CACHE, graph_format(graph, "%s.values", name), shape)};
    struct node *node = graph_add(graph, &op_attention_cache, name, in, &attributes, into);
    return node ? node->out[0] : NULL;
}

struct tensor *ops_last_token(struct graph *graph, const char *name, struct tensor *x) {
    if (!x) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {x};
    struct node *node = graph_add(graph, &op_last_token, name, in, NULL, NULL);
    return node ? node->out[0] : NULL;
}
