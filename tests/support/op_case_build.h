/* Shared by the files that build operator cases (op_case_layers.c, op_case_heads.c and op_case_experts.c): tensors
 * of a case, and the builders that op_cases.c lists. */
#pragma once

#include "support/op_cases.h"

/* Columns before and after a view in its base. */
enum { VIEW_BEFORE = 3, VIEW_AFTER = 2 };

static inline bool has(const struct op_case *op_case, unsigned flag) { return (op_case->flags & flag) != 0; }

static inline struct tensor *activation(struct graph *graph, const struct op_case *op_case, const char *name,
                                        int64_t columns) {
    struct shape shape = shape_make(graph->dtype, 3, graph->micro_batch_sequences, graph->sequence_length, columns);
    if (!has(op_case, CASE_VIEWS)) return graph_tensor(graph, TENSOR_ACTIVATION, name, shape);
    shape.dims[2] += VIEW_BEFORE + VIEW_AFTER;
    struct tensor *base = graph_tensor(graph, TENSOR_ACTIVATION, graph_format(graph, "%s.base", name), shape);
    struct tensor *view = graph_view(graph, base, VIEW_BEFORE, columns);
    if (view) view->name = graph_format(graph, "%s", name);
    return view;
}

static inline struct tensor *integers(struct graph *graph, const char *name) {
    return graph_tensor(graph, TENSOR_INPUT, name,
                        shape_make(DTYPE_I32, 2, graph->micro_batch_sequences, graph->sequence_length, 1));
}

static inline struct tensor *row_values(struct graph *graph, const char *name, int64_t count) {
    return graph_tensor(graph, TENSOR_ACTIVATION, name,
                        shape_make(DTYPE_F32, 3, graph->micro_batch_sequences, graph->sequence_length, count));
}

static inline struct tensor *accumulator(struct graph *graph, const char *name, int rank, int64_t d0, int64_t d1) {
    return graph_tensor(graph, TENSOR_GRADIENT, name, shape_make(DTYPE_F32, rank, d0, d1, 1));
}

/* A macro, so that a tensor which is not wanted is not made. */
#define IF_WANTED(wanted, tensor) ((wanted) ? (tensor) : NULL)

static inline void add(struct graph *graph, const struct op *op, const char *name, const void *attributes,
                       struct tensor *const in[OP_INPUTS_MAX], struct tensor *const out[OP_OUTPUTS_MAX]) {
    graph_add(graph, op, name, in, attributes, out);
}

/* Tokens before and behind those that the table has; rows behind those of tokens. */
enum { PART_FIRST = 3, PART_BEHIND = 2 };

/* For operators that have `inputs` activations in and `outputs` out, all alike. */
static inline void add_alike(struct graph *graph, const struct op_case *op_case, const struct op *op, int64_t columns,
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

/* Each adds a case's nodes to a graph. */
typedef void op_case_builder(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes);
op_case_builder build_embedding, build_embedding_grad, build_linear, build_linear_dx, build_linear_dw, build_norm,
    build_norm_grad, build_rope_table, build_rope, build_attention, build_select_heads, build_select_heads_grad,
    build_attention_cache, build_last_token, build_attention_grad, build_attention_sinks_grad, build_activation,
    build_gated, build_add, build_add_bias, build_scale, build_convert, build_parts, build_cut, build_cut_tokens,
    build_bias_grad, build_head_statistics, build_join_statistics, build_head_loss, build_head_log_probability,
    build_preference, build_head_logits, build_gradient_sum, build_squared_sums, build_squared_norm, build_clip_factor,
    build_update, build_route, build_dispatch, build_combine, build_token_gate, build_expert_load, build_balanced_loss,
    build_count_slots, build_expert, build_expert_glu;
