/* What the families' graph builders share. */
#ifndef BALLAST_MODEL_MODEL_BUILD_H
#define BALLAST_MODEL_MODEL_BUILD_H

#include "ir/ops/ops.h"
#include "model/model.h"

struct builder {
    struct graph *graph;
    const struct model_config *config;
    const char *prefix; /* of parameter names */
    const char *layers; /* of the names of layers' parameters, after the prefix: "h", "layers" */
    enum model_purpose purpose;
    /* For build_attention; may be NULL. */
    struct tensor *segments;
    struct tensor *targets; /* once build_targets made it; else NULL */
    int64_t layer;          /* being built; names of its nodes and parameters hold it */
    struct tensor *load;    /* of experts, in the layers so far, where their balance is a part of the loss; else NULL */
};

/* An int32 input [S,T]. */
struct tensor *build_input(struct builder *builder, const char *name);
/* The input "targets", the same for all callers; NULL where the purpose has none. */
struct tensor *build_targets(struct builder *builder);
/* The input "segments" where the purpose has it, else NULL. */
struct tensor *build_segments(struct builder *builder);
/* A parameter of the model, named PREFIX NAME; of rank 1 when d1 is 0. */
struct tensor *build_parameter(struct builder *builder, const char *name, int64_t d0, int64_t d1);
/* A parameter of the present layer, named PREFIX LAYERS.LAYER.NAME; NULL when not `wanted`. */
struct tensor *build_layer_parameter(struct builder *builder, const char *name, int64_t d0, int64_t d1, bool wanted);
/* A matrix of a linear layer or an expert, named PREFIX NAME, in the config's base_format. */
struct tensor *build_matrix(struct builder *builder, const char *name, int64_t rows, int64_t columns);
/* The same of the present layer. */
struct tensor *build_layer_matrix(struct builder *builder, const char *name, int64_t rows, int64_t columns);
/* A frozen matrix of the present layer in the config's base_format, which is not plain. */
struct tensor *build_layer_quantized(struct builder *builder, const char *name, int64_t rows, int64_t columns);
/* PREFIX LAYERS.LAYER.NAME */
const char *build_layer_name(struct builder *builder, const char *name);
struct linear_sizes {
    int64_t in, out;
    bool has_bias;
    bool weight_is_kn; /* the weight is [in,out], as in transformers' Conv1D */
};
/* y = W x [+ bias] [+ residual] by the model's NAME.weight and NAME.bias, and the adapter's part where config->adapter
 * asks for it. All linear layers but the head are made here. */
struct tensor *build_linear(struct builder *builder, const char *name, const char *node_name, struct tensor *x,
                            const struct linear_sizes *sizes, struct tensor *residual);
/* The same for the present layer's. */
struct tensor *build_layer_linear_of(struct builder *builder, const char *name, struct tensor *x,
                                     const struct linear_sizes *sizes, struct tensor *residual);
/* y = W x [+ bias] [+ residual] by the present layer's NAME.weight [out,in] and NAME.bias. */
struct tensor *build_layer_linear(struct builder *builder, const char *name, struct tensor *x, int64_t in, int64_t out,
                                  bool has_bias, struct tensor *residual);
/* Layer norm by the present layer's NAME.weight and NAME.bias. */
struct tensor *build_layer_norm(struct builder *builder, const char *name, struct tensor *x);
/* Attention of the present layer (`sinks` may be NULL): over the sequence, over segments where the purpose has them, or
 * over caches. */
struct tensor *build_attention(struct builder *builder, struct tensor *q, struct tensor *k, struct tensor *v,
                               struct tensor *sinks, struct attention_attributes attributes);
/* "layer.LAYER.NAME" for a node. */
const char *build_node_name(struct builder *builder, const char *name);
/* Starts the block "layer LAYER". */
void build_begin_layer(struct builder *builder);
/* The loss or the logits of x [S,T,embedding_width]; the head's weight is `embedding` [V,embedding_width] when the
 * config ties them, else the parameter "lm_head.weight", which takes no prefix. */
struct tensor *build_head(struct builder *builder, struct tensor *x, struct tensor *embedding);

/* Whether a name ends like this. */
bool name_ends(const char *name, const char *end);

#endif
