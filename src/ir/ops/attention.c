/* Causal attention of a sequence to itself, and its gradient. */
#include <math.h>

#include "ir/ops/check.h"

static const struct attention_attributes *attention_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, attention_attributes);
}

static int64_t query_parts(const struct attention_attributes *attributes) {
    return attributes->queries.parts > 1 ? attributes->queries.parts : 1;
}

/* Inputs first, first + 1 and first + 2 are q, k and v, with a cache too, whose attributes begin with these. */
static enum status check_heads(const struct node *node, int first, struct shape *q, struct shape *kv) {
    const struct attention_attributes *attributes = attention_of(node);
    if (attributes->heads < 1 || attributes->kv_heads < 1 || attributes->heads % attributes->kv_heads != 0)
        return status_set(STATUS_BAD_INPUT, "%lld heads are no multiple of %lld key-value heads",
                          (long long)attributes->heads, (long long)attributes->kv_heads);
    TRY(check_activation(node, first));
    *q = with_columns(node->in[first]->shape, attributes->heads * attributes->head_dim);
    *kv = with_columns(*q, attributes->kv_heads * attributes->head_dim);
    kv->dims[1] *= query_parts(attributes);
    if (attributes->queries.zigzag && q->dims[1] % 2 != 0)
        return status_set(STATUS_BAD_INPUT, "%lld positions are no two runs of a zigzag", (long long)q->dims[1]);
    TRY(check_shape(node, first, *q));
    TRY(check_shape(node, first + 1, *kv));
    return check_shape(node, first + 2, *kv);
}

static struct shape lse_shape(const struct node *node, const struct shape *q) {
    return shape_make(DTYPE_F32, 3, q->dims[0], attention_of(node)->heads, q->dims[1]);
}

/* Query-key pairs of queries [0, end) that a causal mask with this window leaves, of one head and sequence. */
static double pairs_before(const struct node *node, double end) {
    double window = (double)attention_of(node)->window, pairs = end * (end + 1) / 2;
    return window > 0 && window < end ? pairs - (end - window) * (end - window + 1) / 2 : pairs;
}

struct query_runs query_runs_of(const struct query_part *part, int64_t length) {
    struct query_runs runs = {1, {0, 0}, length};
    if (part->parts <= 1) return runs;
    if (part->zigzag) runs.count = 2, runs.length = length / 2;
    runs.begin[0] = part->position * runs.length;
    runs.begin[1] = (2 * part->parts - 1 - part->position) * runs.length;
    return runs;
}

/* Over all heads and sequences of a micro-batch. */
static double attended_pairs(const struct node *node, const struct shape *q) {
    const struct attention_attributes *attributes = attention_of(node);
    struct query_runs runs = query_runs_of(&attributes->queries, q->dims[1]);
    double pairs = 0, length = (double)runs.length;
    for (int r = 0; r < runs.count; r++)
        pairs += pairs_before(node, (double)runs.begin[r] + length) - pairs_before(node, (double)runs.begin[r]);
    return pairs * (double)q->dims[0] * (double)attributes->heads;
}

/* The attributes that attention's time depends on, with or without a cache. */
static void key_attention(const struct node *node, struct op_key *key) {
    const struct attention_attributes *attributes = attention_of(node);
    op_key_add(key, " heads=%" PRId64 "/%" PRId64 "x%" PRId64 " window=%" PRId64, attributes->heads,
               attributes->kv_heads, attributes->head_dim, attributes->window);
    if (attributes->softcap > 0) op_key_add(key, " capped");
    if (query_parts(attributes) > 1)
        op_key_add(key, " queries=%" PRId64 "/%" PRId64 "%s", attributes->queries.position, attributes->queries.parts,
                   attributes->queries.zigzag ? " zigzag" : "");
}

static double flops_attention(const struct node *node) {
    return 4.0 * attended_pairs(node, &node->in[0]->shape) * (double)attention_of(node)->head_dim;
}

/* Five GEMMs: the scores again, dP, dV, dQ, dK. */
static double flops_attention_grad(const struct node *node) {
    return 10.0 * attended_pairs(node, &node->in[0]->shape) * (double)attention_of(node)->head_dim;
}

static enum status infer_attention(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    struct shape q, kv;
    TRY(check_heads(node, 0, &q, &kv));
    out[0] = q;
    out[1] = lse_shape(node, &q);
    TRY(check_shape(node, 3, tokens_of(&kv)));
    return check_shape(node, 4, vector_of(q.dtype, attention_of(node)->heads));
}

static void differentiate_attention(struct gradients *gradients, const struct node *node) {
    struct tensor *q = node->in[0], *k = node->in[1], *v = node->in[2], *dy = gradient_of(gradients, node->out[0]);
    /* The sink's score has dS = P (dP - dy . y), where the sink's dP is 0. */
    gradient_add_rule(gradients, &op_attention_sinks_grad, node, OPERANDS(dy, node->out[0], node->out[1], node->in[4]),
                      node->attributes, OPERANDS(node->in[4]));
    gradient_add_rule(gradients, &op_attention_grad, node,
                      OPERANDS(dy, q, k, v, node->out[0], node->out[1], node->in[3]), node->attributes,
                      OPERANDS(q, k, v));
}

/* Keys and values of all tokens go to two caches. */
static struct node *decode_attention(struct graph *graph, const char *name, struct tensor *const *in,
                                     const void *attributes) {
    const struct attention_attributes *own = attributes;
    BUG_IF(in[3], "%s: segments in a cache", name ? name : "?");
    struct tensor *y =
        ops_attention_cache(graph, name, in[0], in[1], in[2], graph_cache_rows(graph), in[4],
                            (struct attention_cache_attributes){*own, graph->cache_texts, graph->cache_positions});
    return y ? y->producer : NULL;
}

/* The fraction of pairs in run `run` of `runs` equal runs. */
static double share_of_run(const struct node *node, int64_t run, int64_t runs) {
    double length = (double)node->in[0]->shape.dims[1], each = length / (double)runs;
    double pairs = pairs_before(node, each * (double)(run + 1)) - pairs_before(node, each * (double)run);
    return pairs / pairs_before(node, length);
}

/* A run of positions each: the last sees most. */
static double largest_share_in_runs(const struct node *node, int64_t parts) {
    double largest = 0;
    for (int64_t part = 0; part < parts; part++)
        largest = fmax(largest, share_of_run(node, part, parts));
    return largest;
}

/* Part i has the i-th run from the front and the i-th from the back of 2 * parts: under a causal mask all see as much
 * (Brandon et al., arXiv 2311.09431, balance ring attention in stripes; Llama 3, arXiv 2407.21783, in two runs). */
static double largest_share_in_zigzag(const struct node *node, int64_t parts) {
    double largest = 0;
    for (int64_t part = 0; part < parts; part++) {
        double front = share_of_run(node, part, 2 * parts), back = share_of_run(node, 2 * parts - 1 - part, 2 * parts);
        largest = fmax(largest, front + back);
    }
    return largest;
}

/* Heads by key-value groups with their queries, or by query heads, each part with all keys and values; positions of the
 * queries in zigzag, or in runs where these do not divide. Keys and values lie cut by positions as queries do, and
 * every part reads all of them. */
enum attention_way { BY_GROUPS, BY_HEADS, BY_GROUPS_IN_RUNS, BY_HEADS_IN_RUNS, ATTENTION_WAYS };

static bool loops_attention(const struct node *node, int number, struct op_loops *out) {
    const struct attention_attributes *attributes = attention_of(node);
    bool all_grouped = attributes->heads == attributes->kv_heads;
    int64_t length = node->in[0]->shape.dims[1];
    int way = all_grouped ? 2 * number : number;
    bool grouped = way == BY_GROUPS || way == BY_GROUPS_IN_RUNS, zigzag = way < BY_GROUPS_IN_RUNS;
    if (way >= ATTENTION_WAYS) return false;
    op_loops_add(out, 's', node->in[0]->shape.dims[0]);
    op_loops_add(out, grouped ? 'h' : 'q', grouped ? attributes->kv_heads : attributes->heads);
    if (!grouped) out->own |= 1u << 1;
    struct op_index *positions =
        zigzag && length % 2 != 0 ? NULL : op_loops_add(out, zigzag ? 'z' : 't', zigzag ? length / 2 : length);
    if (positions) positions->largest_share = zigzag ? largest_share_in_zigzag : largest_share_in_runs;
    if (!zigzag) out->own |= 1u << 2;
    if (grouped)
        op_loops_operands(out, zigzag ? "szh,szh,szh,s.,h->szh,shz" : "sth,sth,sth,s.,h->sth,sht");
    else
        op_loops_operands(out, zigzag ? "szq,sz.,sz.,s.,q->szq,sqz" : "stq,st.,st.,s.,q->stq,sqt");
    out->whole = 1u << 1 | 1u << 2;
    return true;
}

static struct select_heads_attributes heads_of_part(const struct index_part *part, int64_t kv_heads, int64_t head_dim) {
    return select_heads_of_queries(kv_heads, head_dim, part->size,
                                   &(struct group_part){.parts = part->parts, .position = part->position});
}

/* Takes a part of the heads or the queries: key-value groups with their queries, query heads with the key-value heads
 * that they read, or a run of the queries. */
static void take_part_attention(void *attributes, char letter, const struct index_part *part) {
    struct attention_attributes *own = attributes;
    if (letter == 't' || letter == 'z') own->queries = (struct query_part){part->parts, part->position, letter == 'z'};
    if (letter == 'h') own->kv_heads /= part->parts;
    if (letter == 'q') own->kv_heads = heads_of_part(part, own->kv_heads, own->head_dim).selected;
    if (letter == 'h' || letter == 'q') own->heads /= part->parts;
}

/* A part of the query heads reads some of the keys and values, which it gets whole. */
static bool collective_parts_attention(struct graph *graph, const char *name, char letter,
                                       const struct index_part *part, const void *attributes,
                                       struct tensor *in[OP_INPUTS_MAX]) {
    int64_t head_dim = ((const struct attention_attributes *)attributes)->head_dim;
    if (letter != 'q' || !in[1] || !in[2]) return false;
    struct select_heads_attributes heads = heads_of_part(part, shape_columns(&in[1]->shape) / head_dim, head_dim);
    in[1] = ops_apply(graph, &op_select_heads, graph_format(graph, "%s.keys", name), OPERANDS(in[1]), &heads);
    in[2] = ops_apply(graph, &op_select_heads, graph_format(graph, "%s.values", name), OPERANDS(in[2]), &heads);
    return false;
}

const struct op op_attention = {
    .name = "attention",
    .attribute_bytes = sizeof(struct attention_attributes),
    .inputs = 5,
    .optional = 2,
    .outputs = 2,
    .infer = infer_attention,
    .work = OP_WORK_ATTENTION,
    .cost_key = key_attention,
    .positions_last = 1u << (OP_INPUTS_MAX + 1),
    .decode = decode_attention,
    .flops = flops_attention,
    .differentiate = differentiate_attention,
    .loops = loops_attention,
    .take_part = take_part_attention,
    .collective_parts = collective_parts_attention,
    .saved_inputs = 0x1f,
    .saved_outputs = 1u << 0 | 1u << 1,
};

static enum status infer_attention_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    struct shape q, kv;
    TRY(check_heads(node, 1, &q, &kv));
    TRY(check_shape(node, 0, q));
    TRY(check_shape(node, 4, q));
    TRY(check_shape(node, 5, lse_shape(node, &q)));
    out[0] = q;
    out[1] = out[2] = kv;
    return check_shape(node, 6, tokens_of(&kv));
}

const struct op op_attention_grad = {
    .name = "attention_grad",
    .attribute_bytes = sizeof(struct attention_attributes),
    .inputs = 7,
    .optional = 1,
    .outputs = 3,
    .infer = infer_attention_grad,
    .work = OP_WORK_ATTENTION_GRAD,
    .cost_key = key_attention,
    .positions_last = 1u << 5,
    .flops = flops_attention_grad,
};

static enum status infer_attention_sinks_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct attention_attributes *attributes = attention_of(node);
    TRY(check_activation(node, 0));
    struct shape y = with_columns(node->in[0]->shape, attributes->heads * attributes->head_dim);
    struct shape sinks = vector_of(y.dtype, attributes->heads);
    TRY(check_shape(node, 0, y));
    TRY(check_shape(node, 1, y));
    TRY(check_shape(node, 2, lse_shape(node, &y)));
    out[0] = as_accumulator(sinks);
    return check_shape(node, 3, sinks);
}

static double flops_attention_sinks_grad(const struct node *node) {
    return 2 * (double)shape_elements(&node->in[0]->shape);
}

const struct op op_attention_sinks_grad = {
    .name = "attention_sinks_grad",
    .attribute_bytes = sizeof(struct attention_attributes),
    .inputs = 4,
    .outputs = 1,
    .infer = infer_attention_sinks_grad,
    .cost_key = key_attention,
    .positions_last = 1u << 2,
    .flops = flops_attention_sinks_grad,
    .updates = 1u << 0,
};

struct tensor *ops_attention(struct graph *graph, const char *name, struct tensor *q, struct tensor *k,
                             struct tensor *v, struct tensor *segments, struct tensor *sinks,
                             struct attention_attributes attributes) {
    return ops_apply(graph, &op_attention, name, OPERANDS(q, k, v, segments, sinks), &attributes);
}

/* Attention of new tokens over the keys and values of all tokens before them, for generating texts. */

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
    const struct shape *rows = &node->in[3]->shape;
    struct shape q, kv;
    TRY(check_heads(node, 0, &q, &kv));
    if (rows->dtype != DTYPE_I32 || rows->rank != 2 || rows->dims[0] != q.dims[0] || rows->dims[1] != q.dims[1])
        return status_set(STATUS_BAD_INPUT, "rows must be int32 [S, T]");
    if (cache_of(node)->positions < q.dims[1])
        return status_set(STATUS_BAD_INPUT, "%lld tokens do not fit into a cache of %lld", (long long)q.dims[1],
                          (long long)cache_of(node)->positions);
    out[0] = q;
    out[1] = out[2] = cache_shape(&kv, cache_of(node));
    return check_shape(node, 4, vector_of(q.dtype, attention_of(node)->heads));
}

/* With full caches, the most that a step can cost. */
static double flops_attention_cache(const struct node *node) {
    int64_t seen = cache_of(node)->positions, window = attention_of(node)->window;
    if (window > 0 && window < seen) seen = window;
    return 4.0 * (double)shape_elements(&node->in[0]->shape) * (double)seen;
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

/* By key-value groups with their queries, or by query heads. */
static bool loops_attention_cache(const struct node *node, int way, struct op_loops *out) {
    const struct attention_attributes *attention = attention_of(node);
    bool grouped = way == 0, all_grouped = attention->heads == attention->kv_heads;
    if (way > (all_grouped ? 0 : 1)) return false;
    op_loops_add(out, grouped ? 'h' : 'q', grouped ? attention->kv_heads : attention->heads);
    op_loops_operands(out, grouped ? "..h,..h,..h,,h->..h,..h,..h" : "..q,...,...,,q->..q,...,...");
    return true;
}

const struct op op_attention_cache = {
    .name = "attention_cache",
    .attribute_bytes = sizeof(struct attention_cache_attributes),
    .inputs = 5,
    .optional = 1,
    .outputs = 3,
    .infer = infer_attention_cache,
    .work = OP_WORK_ATTENTION_CACHED,
    .cost_key = key_attention,
    .example = example_attention_cache,
    .flops = flops_attention_cache,
    .touched = touched_attention_cache,
    .loops = loops_attention_cache,
    .take_part = take_part_attention,
    .collective_parts = collective_parts_attention,
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
    return ops_apply(graph, &op_last_token, name, OPERANDS(x), NULL);
}

/* Key-value heads that some of the query heads read: what a rank has of attention where there are fewer key-value heads
 * than ranks. */

static const struct select_heads_attributes *selection_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, select_heads_attributes);
}

static int64_t greatest_divisor(int64_t a, int64_t b) {
    while (b > 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

struct select_heads_attributes select_heads_of_queries(int64_t heads, int64_t head_dim, int64_t queries,
                                                       const struct group_part *part) {
    int64_t group = queries / heads, own = queries / part->parts, each = greatest_divisor(group, own);
    return (struct select_heads_attributes){
        .heads = heads,
        .head_dim = head_dim,
        .selected = own / each,
        .first = own * part->position,
        .step = each,
        .group = group,
    };
}

int64_t select_heads_find(const struct select_heads_attributes *attributes, int64_t selected) {
    return (attributes->first + selected * attributes->step) / attributes->group;
}

/* All heads become the selected ones, or the reverse. */
static enum status infer_selection(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct select_heads_attributes *attributes = selection_of(node);
    int64_t all = attributes->heads * attributes->head_dim, selected = attributes->selected * attributes->head_dim;
    bool back = node->op == &op_select_heads_grad;
    TRY(check_activation(node, 0));
    if (attributes->selected < 1 || attributes->group < 1 ||
        select_heads_find(attributes, attributes->selected - 1) >= attributes->heads)
        return status_set(STATUS_BAD_INPUT, "%lld heads selected of %lld are not all there",
                          (long long)attributes->selected, (long long)attributes->heads);
    out[0] = with_columns(node->in[0]->shape, back ? all : selected);
    return check_shape(node, 0, with_columns(node->in[0]->shape, back ? selected : all));
}

static void differentiate_select_heads(struct gradients *gradients, const struct node *node) {
    gradient_add_rule(gradients, &op_select_heads_grad, node, OPERANDS(gradient_of(gradients, node->out[0])),
                      node->attributes, OPERANDS(node->in[0]));
}

static void key_selection(const struct node *node, struct op_key *key) {
    const struct select_heads_attributes *attributes = selection_of(node);
    op_key_add(key, " heads=%" PRId64 "/%" PRId64 "x%" PRId64, attributes->selected, attributes->heads,
               attributes->head_dim);
}

static double touched_select_heads(const struct node *node, int operand) {
    const struct select_heads_attributes *attributes = selection_of(node);
    if (operand != 0) return 1;
    int64_t different = 1;
    for (int64_t i = 1; i < attributes->selected; i++)
        different += select_heads_find(attributes, i) != select_heads_find(attributes, i - 1);
    return (double)different / (double)attributes->heads;
}

#define SELECT_OP(which, ...)                                                                                          \
    const struct op op_##which = {                                                                                     \
        .name = #which,                                                                                                \
        .attribute_bytes = sizeof(struct select_heads_attributes),                                                     \
        .inputs = 1,                                                                                                   \
        .outputs = 1,                                                                                                  \
        .infer = infer_selection,                                                                                      \
        .cost_key = key_selection,                                                                                     \
        __VA_ARGS__,                                                                                                   \
    };
SELECT_OP(select_heads, .touched = touched_select_heads, .differentiate = differentiate_select_heads)
SELECT_OP(select_heads_grad, .touched = NULL)
