#include "support/small_graph.h"

#include "base/random.h"
#include "ir/differentiate.h"
#include "ir/ops/ops.h"
#include "support/unit.h"

enum { HIDDEN = 20, HEADS = 2, HEAD_DIM = 10, FFN = 28, CONTEXT = 64 };

static struct tensor *weight(struct graph *graph, int layer, const char *name, int64_t rows, int64_t columns) {
    return graph_parameter(graph, graph_format(graph, "layer.%d.%s", layer, name), 2, rows, columns);
}

static struct tensor *named(struct graph *graph, int layer, const char *name, struct tensor *x, struct tensor *w,
                            struct tensor *residual, bool kn) {
    return ops_linear(graph, graph_format(graph, "layer.%d.%s", layer, name), x, w, NULL, residual,
                      (struct linear_attributes){.weight_is_kn = kn});
}

/* `table` NULL: no rotary embedding. */
static void attention_input(struct graph *graph, int layer, struct tensor *x, struct tensor *table, bool packed,
                            struct tensor *out[3]) {
    static const char *const names[] = {"q", "k", "v"};
    struct tensor *qkv = NULL;
    if (packed) qkv = named(graph, layer, "qkv", x, weight(graph, layer, "qkv", HIDDEN, 3 * HIDDEN), NULL, true);
    for (int i = 0; i < 3; i++) {
        out[i] = packed ? graph_view(graph, qkv, i * HIDDEN, HIDDEN)
                        : named(graph, layer, names[i], x, weight(graph, layer, names[i], HIDDEN, HIDDEN), NULL, false);
        if (i < 2 && table)
            out[i] = ops_rope(graph, graph_format(graph, "layer.%d.rope.%d", layer, i), out[i], table, HEADS, HEAD_DIM);
    }
}

static struct tensor *layer_build(struct graph *graph, int layer, struct tensor *x, struct tensor *table, bool packed) {
    graph_begin_block(graph, graph_format(graph, "layer %d", layer));
    struct tensor *norm = graph_parameter(graph, graph_format(graph, "layer.%d.norm1", layer), 1, HIDDEN, 1);
    struct tensor *h = ops_rms_norm(graph, graph_format(graph, "layer.%d.n1", layer), x, norm,
                                    (struct norm_attributes){.epsilon = 1e-5});
    struct tensor *qkv[3];
    attention_input(graph, layer, h, table, packed, qkv);
    struct attention_attributes attention = {.heads = HEADS, .kv_heads = HEADS, .head_dim = HEAD_DIM, .scale = 0.3};
    h = ops_attention(graph, graph_format(graph, "layer.%d.attention", layer), qkv[0], qkv[1], qkv[2], NULL, NULL,
                      attention);
    x = named(graph, layer, "o", h, weight(graph, layer, "o", HIDDEN, HIDDEN), x, false);
    struct tensor *scale = graph_parameter(graph, graph_format(graph, "layer.%d.norm2", layer), 1, HIDDEN, 1);
    h = ops_rms_norm(graph, graph_format(graph, "layer.%d.n2", layer), x, scale,
                     (struct norm_attributes){.epsilon = 1e-5});
    struct tensor *gate = named(graph, layer, "gate", h, weight(graph, layer, "gate", FFN, HIDDEN), NULL, false);
    struct tensor *up = named(graph, layer, "up", h, weight(graph, layer, "up", FFN, HIDDEN), NULL, false);
    h = ops_gated_activation(graph, graph_format(graph, "layer.%d.act", layer), gate, up, ACTIVATION_SILU);
    return named(graph, layer, "down", h, weight(graph, layer, "down", HIDDEN, FFN), x, false);
}

struct graph *small_graph_build(const struct small_graph_options *options) {
    struct graph *graph = graph_create(options->dtype, options->micro_batch_sequences, options->sequence_length);
    assert_non_null(graph);
    struct shape tokens_shape = shape_make(DTYPE_I32, 2, options->micro_batch_sequences, options->sequence_length, 1);
    graph_begin_block(graph, "embedding");
    struct tensor *tokens = graph_tensor(graph, TENSOR_INPUT, "tokens", tokens_shape);
    struct tensor *targets = graph_tensor(graph, TENSOR_INPUT, "targets", tokens_shape);
    struct tensor *positions = graph_tensor(graph, TENSOR_INPUT, "positions", tokens_shape);
    int64_t vocabulary = options->vocabulary > 0 ? options->vocabulary : 37;
    struct tensor *embedding = graph_parameter(graph, "embedding", 2, vocabulary, HIDDEN);
    struct tensor *places = graph_parameter(graph, "places", 2, CONTEXT, HIDDEN);
    struct rope_table_attributes rope = {.head_dim = HEAD_DIM, .theta = 10000};
    bool turned = !options->packed_qkv || options->packed_rotary;
    struct tensor *table = turned ? ops_rope_table(graph, "rope", positions, rope) : NULL;
    struct tensor *x = ops_add(graph, "embed", ops_embedding(graph, "token", tokens, embedding),
                               ops_embedding(graph, "place", positions, places));
    for (int layer = 0; layer < options->layers; layer++)
        x = layer_build(graph, layer, x, table, options->packed_qkv);
    graph_begin_block(graph, "head");
    struct tensor *scale = graph_parameter(graph, "norm", 1, HIDDEN, 1),
                  *bias = graph_parameter(graph, "shift", 1, HIDDEN, 1);
    x = ops_layer_norm(graph, "final", x, scale, bias, 1e-5);
    struct tensor *head = options->tied ? embedding : graph_parameter(graph, "head", 2, vocabulary, HIDDEN);
    struct tensor *loss = ops_head_loss(graph, "loss", x, head, targets, NULL, (struct head_attributes){0});
    assert_int_equal(graph_status(graph), STATUS_OK);
    if (options->forward_only) return graph;
    struct optimizer_options optimizer = {.beta1 = 0.9,
                                          .beta2 = 0.95,
                                          .epsilon = 1e-8,
                                          .weight_decay = 0.1,
                                          .clip_norm = !options->unclipped,
                                          .moments = DTYPE_F32};
    assert_int_equal(graph_differentiate(graph, loss), STATUS_OK);
    assert_int_equal(ops_add_optimizer(graph, &optimizer), STATUS_OK);
    return graph;
}

int64_t *small_graph_workspace(const struct graph *graph) {
    int64_t *bytes = mem_array(graph->nodes.count, sizeof *bytes);
    assert_non_null(bytes);
    for (size_t i = 0; i < graph->nodes.count; i++)
        bytes[i] = (int64_t)(i * 7919 % 5) * 700;
    return bytes;
}

struct plan small_plan(const struct graph *graph, int64_t micro_batches, int64_t micro_batches_per_wave) {
    return (struct plan){
        .recipe = {.dtype = graph->dtype,
                   .batch = micro_batches * graph->micro_batch_sequences,
                   .sequence_length = graph->sequence_length,
                   .micro_batch_sequences = graph->micro_batch_sequences,
                   .beta1 = 0.9,
                   .beta2 = 0.95,
                   .epsilon = 1e-8,
                   .weight_decay = 0.1,
                   .clip_norm = 1},
        .policy = {.micro_batches_per_wave = micro_batches_per_wave},
        .threads = 2,
    };
}

void small_scatter(struct program *program, int streams, uint64_t seed) {
    program->streams = streams;
    for (size_t i = 0; i < program->instructions.count; i++) {
        struct instruction *instruction = &program->instructions.items[i];
        uint64_t item = instruction->node ? (uint64_t)instruction->node->id : 1u << 20 | i;
        instruction->stream = (int)(random_u64(seed, RANDOM_TEST, 1, item) % (uint64_t)streams);
    }
}

/* Streams 0: as program_move deals them. */
static struct program *compile(const struct graph *graph, const struct plan *plan, int streams, uint64_t seed) {
    int64_t *bytes = small_graph_workspace(graph);
    struct workspace_table table = {.bytes = bytes, .count = (int)graph->nodes.count};
    struct program *program;
    assert_int_equal(program_schedule(graph, plan, &table, &program), STATUS_OK);
    mem_free(bytes);
    assert_int_equal(program_gather(program, &plan->policy), STATUS_OK);
    assert_int_equal(program_move(program, &plan->policy), STATUS_OK);
    if (streams > 0) small_scatter(program, streams, seed);
    assert_int_equal(program_place(program), STATUS_OK);
    assert_int_equal(program_synchronise(program), STATUS_OK);
    return program;
}

struct program *small_program(const struct graph *graph, int64_t micro_batches, int64_t micro_batches_per_wave,
                              int streams, uint64_t seed) {
    struct plan plan = small_plan(graph, micro_batches, micro_batches_per_wave);
    return compile(graph, &plan, streams, seed);
}

struct program *small_program_under(const struct graph *graph, int64_t micro_batches, const struct policy *policy) {
    struct plan plan = small_plan(graph, micro_batches, policy->micro_batches_per_wave);
    plan.policy = *policy;
    return compile(graph, &plan, 0, 0);
}
