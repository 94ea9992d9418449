/* The graph: tensors and nodes of one micro-batch of a model, in an order in which they can be executed.
 *
 * Files, in the order to read them:
 *     tensor: shapes, what a tensor is for, and whether numbers are finite;
 *     weight_format: frozen weights in fewer bits, their sections, and a rank's part of them;
 *     op: all properties of an operator; the operators are in ops;
 *     graph: nodes, adding them, and copies of a graph;
 *     differentiate: adds the nodes of the gradients, by the operators' rules;
 *     rewrite: makes parts of blocks work on some of a micro-batch's tokens at a time, and recomputes light operators
 *         in backward;
 *     symbolic_profile: what each node takes in a training step, without running it.
 *
 * Model builders call the functions of ir/ops/ops.h, which call graph_add. Nothing here knows of hardware: no tiers,
 * streams or offsets. Dimensions are constants. A graph owns everything in it and is freed as a whole. */
#pragma once

#include "base/base.h"
#include "ir/op.h"
#include "ir/tensor.h"

enum phase {
    PHASE_FORWARD,
    PHASE_BACKWARD,
    PHASE_FINISH, /* once a step, when a parameter's gradient has all its micro-batches: sums of its uses, squared norm
                   */
    PHASE_UPDATE, /* once a step, when all gradients are finished: clip factor, optimizer */
    PHASE_COUNT
};
const char *phase_name(enum phase phase);

struct node {
    int id; /* index in its graph; nodes are executed in this order unless the program says otherwise */
    const struct op *op;
    const char *name;
    const void *attributes;           /* op->attribute_bytes bytes, of the type that ops.h names for the operator */
    struct tensor *in[OP_INPUTS_MAX]; /* NULL where an optional input is left out */
    struct tensor *out[OP_OUTPUTS_MAX];
    enum phase phase;
    int block;
    const struct node *of; /* backward: the forward node whose gradient it belongs to, the loss's too; else NULL */
};

struct graph {
    struct scratch memory; /* of all tensors, nodes, names and attributes */
    VEC(struct tensor *) tensors;
    VEC(struct node *) nodes;
    VEC(const char *) blocks; /* names; a block is the unit of activation policy: embedding, layer, head */
    enum phase phase;         /* given to nodes as they are added */
    enum status status;       /* first error; see graph_status */
    /* Dimensions shared by all activations. */
    enum dtype dtype; /* compute dtype of parameters and activations */
    int64_t micro_batch_sequences;
    int64_t sequence_length;
    /* A step has no other micro-batch, on any rank: so the uses of a parameter may be added up as they come
     * (ir/differentiate.h). Set before gradients are added. */
    bool one_micro_batch;
    bool single_micro_batch; /* a step has one micro-batch, on whichever rank: what it adds to holds zeros before */
    /* Decoding: texts with key-value caches, and the rows of each; 0: there are none. */
    int64_t cache_texts, cache_positions;
};

/* An empty graph; NULL when out of memory. */
struct graph *graph_create(enum dtype dtype, int64_t micro_batch_sequences, int64_t sequence_length);
void graph_free(struct graph *graph);
static inline void graph_release(struct graph **graph) { graph_free(*graph); } /* for AUTO */
/* A copy of a forward graph, which depends on it in nothing; tensors and nodes have the same numbers. NULL when out of
 * memory. */
struct graph *graph_copy(const struct graph *graph);

/* Errors stick: after the first one all calls return NULL and do nothing, and NULL operands are passed on, so that a
 * builder is written without checks and asks here once. The message is set again if it was lost. */
enum status graph_status(const struct graph *graph);

/* Starts a block; nodes added from now on belong to it. */
void graph_begin_block(struct graph *graph, const char *name);

/* A tensor without producer. The name is copied. */
struct tensor *graph_tensor(struct graph *graph, enum tensor_kind kind, const char *name, struct shape shape);
/* A trainable parameter in the graph's dtype; rank 1 or 2. Decays when its rank is 2, as the training recipes of GPT-2
 * and Llama have it: matrices and embeddings decay, biases and norm weights do not. */
struct tensor *graph_parameter(struct graph *graph, const char *name, int rank, int64_t d0, int64_t d1);
/* Adds a frozen quantized matrix, stored as bytes. The graph's dtype replaces the data type in `code`. BAD_INPUT,
 * naming the matrix, if the format cannot store it. */
struct tensor *graph_quantized_parameter(struct graph *graph, const char *name, const struct weight_code *code);
/* Says that files have the parameter in a stack (ir/tensor.h), whose name is copied. */
void graph_stack(struct graph *graph, struct tensor *parameter, const char *name, int64_t index, int64_t count);
/* Says that files may have the parameter in this stack instead, whose name is copied. */
void graph_fuse(struct graph *graph, struct tensor *parameter, struct tensor_stack stack);
/* Columns [column, column + columns) of an activation, sharing its bytes. */
struct tensor *graph_view(struct graph *graph, struct tensor *base, int64_t column, int64_t columns);
/* Rows [row, row + rows) of an activation or of columns of one, as [1, rows, columns], sharing its bytes. */
struct tensor *graph_view_rows(struct graph *graph, struct tensor *tensor, int64_t row, int64_t rows);

/* The same columns and rows of another base as a view has of its own. */
struct tensor *graph_view_again(struct graph *graph, struct tensor *base, const struct tensor *view);

/* Adds a node. `in` holds OP_INPUTS_MAX pointers, NULL for left-out optional ones; `attributes` is copied. `into` is
 * NULL, or holds OP_OUTPUTS_MAX pointers: a non-NULL one is an existing tensor that the node writes (a view, an
 * accumulator, a state) and must have the inferred shape; others are created as activations named "NODE" or "NODE.k".
 * BAD_INPUT if shapes do not fit the operator, since they come from a config. In a graph that decodes, the operator's
 * `decode` adds the node, if it has one. */
struct node *graph_add(struct graph *graph, const struct op *op, const char *name, struct tensor *const *in,
                       const void *attributes, struct tensor *const *into);

/* The input whose bytes output 0 may overwrite if nothing reads that input later: both are whole activations of one
 * size, neither is kept, and no other operand of the node shares the bytes. -1 if there is none. */
int node_in_place_input(const struct node *node);

/* Blocks that have forward or backward nodes; the update's nodes are in none. */
int32_t graph_count_blocks(const struct graph *graph);
/* Whether the graph trains; others evaluate or generate. */
bool graph_has_backward(const struct graph *graph);

/* Decoding: the input "rows" [S,T] int32, created by the first call: each token's row in caches [N,P,…] of N texts,
 * text * P + position; -1 for a token that does not count. */
struct tensor *graph_cache_rows(struct graph *graph);

/* Whether two graphs do the same work: the same operators on the same kinds of tensors, of the same shapes, in the same
 * order. Names may differ. */
bool graph_same_work(const struct graph *a, const struct graph *b);

/* The parameter, input or result of that name, or NULL. */
struct tensor *graph_find(const struct graph *graph, const char *name);
/* Names "layer.3.attention" and the like, in the graph's memory. NULL when out of memory (the graph's status is then
 * set). */
const char *graph_format(struct graph *graph, const char *format, ...) __attribute__((format(printf, 2, 3)));
