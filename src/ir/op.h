/* The properties of an operator, apart from hardware. Every property that other modules need is a field here, and no
 * other code knows operators by name. So a new operator is one file that defines its `struct op`, and a kernel of its
 * name in each backend that has it. Nodes point to their operator, so it need not be in any list either: OP_LIST
 * (ir/ops/list.h) is for tests that go through all operators. */
#pragma once

#include "base/base.h"
#include "ir/tensor.h"

enum { OP_INPUTS_MAX = 8, OP_OUTPUTS_MAX = 6, OP_ATTRIBUTES_BYTES_MAX = 1280 };

struct graph;
struct node;
struct gradients;

struct op_cost {
    double flops; /* multiplications and additions each count 1 */
    double bytes; /* read and written, each once */
};

/* The class of an operator's work: what its FLOPs are spent on. It says how time is estimated where nothing can be
 * measured (machine/kernel_cost.h), and how a large node is measured on a part of its operands (profile/points.h). */
enum op_work {
    OP_WORK_STREAM,           /* goes through its operands once; the default */
    OP_WORK_PRODUCT,          /* one GEMM, whose result is output 0 */
    OP_WORK_ATTENTION,        /* of a whole sequence; attributes begin with struct attention_attributes, */
    OP_WORK_ATTENTION_GRAD,   /* here too, */
    OP_WORK_ATTENTION_CACHED, /* and here: of new tokens over a cache */
    OP_WORK_NORM,
    OP_WORK_NORM_GRAD,
    OP_WORK_LOOKUP,      /* copies rows of the table, input 1, to output 0 */
    OP_WORK_LOOKUP_GRAD, /* adds the rows of input 1 to rows of the table, output 0 */
    OP_WORK_LOGITS,      /* the GEMMs of a head, whose weight [V,C] is input 1, */
    OP_WORK_LOSS,        /* the same, and the loss of each token's logits, */
    OP_WORK_LOSS_GRAD,   /* and their gradient */
    OP_WORK_SQUARED_NORM,
    OP_WORK_OPTIMIZER,
    OP_WORK_MATRIX_UPDATE, /* GEMMs of a matrix and the squares that are made of it */
    OP_WORK_EXPERT,        /* several GEMMs, of an expert's part of the rows */
    OP_WORK_COUNT
};

/* Operators that have no kernel: the ranks of a group make an operation together (collective/collective.h), in which a
 * tensor is cut into as many parts as the group has ranks, in its order. Input 0 is x, output 0 is y. */
enum op_collective {
    OP_COLLECTIVE_NONE,
    OP_COLLECTIVE_ALL_REDUCE,     /* y = the sum of all ranks' x, in whose place it is; fp32 */
    OP_COLLECTIVE_REDUCE_SCATTER, /* x [parts, …] -> y […]: this rank's part of the sum; fp32. x is lost */
    OP_COLLECTIVE_ALL_GATHER,     /* x […] -> y [parts, …]: part i is the x of rank i */
    OP_COLLECTIVE_ALL_TO_ALL /* x [parts, …] -> y [parts, …]: part i of x goes to rank i, part i of y is from it */
};

/* A text that is the same for two nodes exactly when they cost the same (operator_key of profile/operator_bench.h). */
enum { OP_KEY_BYTES = 4096 };
struct op_key {
    char text[OP_KEY_BYTES];
    size_t used;
};
void op_key_add(struct op_key *key, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The loops that an operator's work consists of, as far as they may be cut among devices (plan/layout/strategy.h). Each
 * index runs over a dimension of some operands. One that an operand lacks goes through all of it: an input is needed
 * whole by every part, and its gradient is the sum over the parts; an output is a sum over them. */
enum { OP_INDICES_MAX = 6, OP_OPERANDS_MAX = OP_INPUTS_MAX + OP_OUTPUTS_MAX, OP_INDEX_NONE = -1 };
struct op_index {
    char letter;             /* 's' sequences; positions: 't' in runs, 'z' in zigzag; others as the operator has them */
    int64_t size;            /* numbers of parts divide it: heads, where a dimension holds their features */
    double collective_bytes; /* by all parts with each other in forward, besides sums of outputs; 0 for most */
    double extra_flops;      /* of all parts together, only where it is cut; 0 for most */
    /* Parts have as many elements as the largest; behind the end of the dimension is nothing but zeros. Else the number
     * of parts must divide it. */
    bool padded;
    bool outside; /* of positions that are only cut outside the node: no axis takes it */
    /* The busiest part's share of the work, if the work is cut into `parts`. NULL: all parts have equal work. */
    double (*largest_share)(const struct node *node, int64_t parts);
};
struct op_loops {
    int count;
    struct op_index indices[OP_INDICES_MAX];
    int8_t of[OP_OPERANDS_MAX][TENSOR_RANK_MAX]; /* inputs, then outputs: each dimension's index, or OP_INDEX_NONE */
    uint32_t added; /* bits: inputs that join an output after its sums, so that indices it lacks are not theirs */
    /* Bits: operands of whose sum over indices that they lack, or whose gradient's, the ranks keep their parts, which
     * the nodes that make or read them next take too. So nobody adds up; what is no part of a sum is the same on all.
     */
    uint32_t apart;
    uint32_t whole; /* bits: inputs that are cut by positions, but of which every part reads all positions */
    uint32_t own;   /* bits: indices that some axis must take, since otherwise an earlier way is the same; 0: none */
};
/* Reduces the attributes to part `position` of `parts` of an index, for the ranks along an axis (struct group_axis). */
struct index_part {
    int64_t size, parts, position, stride;
};
/* Elements of each part, and of them those of this one that are not behind the end. */
static inline int64_t index_part_size(const struct index_part *part) {
    return (part->size + part->parts - 1) / part->parts;
}
static inline int64_t index_part_first(const struct index_part *part) { return part->position * index_part_size(part); }
int64_t index_part_used(const struct index_part *part);
/* An index of that letter. */
struct op_index *op_loops_add(struct op_loops *loops, char letter, int64_t size);
/* The index of that letter, or OP_INDEX_NONE. */
int op_loops_find(const struct op_loops *loops, char letter);
/* The dimension of an operand that has the index, or -1. */
int op_loops_dimension(const struct op_loops *loops, int operand, int index);
static inline bool op_loops_has(const struct op_loops *loops, int operand, int index) {
    return op_loops_dimension(loops, operand, index) >= 0;
}
/* The indices of the operands' dimensions by their letters, as einsum has them: "stk,nk,n->stn". A letter that is no
 * index, such as '.', stands for a dimension that is never cut. */
void op_loops_operands(struct op_loops *loops, const char *letters);

struct op {
    const char *name;
    size_t attribute_bytes; /* at most OP_ATTRIBUTES_BYTES_MAX */
    int inputs, optional;   /* how many inputs there can be, and how many of them, the last ones, may be left out */
    int outputs;
    /* Shapes of the outputs from those of the inputs; BAD_INPUT with a message when the inputs do not fit. */
    enum status (*infer)(const struct node *node, struct shape out[OP_OUTPUTS_MAX]);

    enum op_collective collective; /* attributes begin with struct collective_attributes */

    /* What it costs. */
    enum op_work work;
    /* NULL: no FLOPs worth counting. */
    double (*flops)(const struct node *node);
    /* The fraction of an operand (inputs, then outputs from OP_INPUTS_MAX on) that kernels read or write, with the
     * values of `example`. NULL: all of each operand. */
    double (*touched)(const struct node *node, int operand);
    /* Adds those attributes to the key that a node's time depends on and that its operands do not tell. NULL: every
     * byte of the attributes counts. op_key_nothing: none does. */
    void (*cost_key)(const struct node *node, struct op_key *key);
    /* A legal value for element `index` of one of its tensors, to measure it with. NULL: op_example_default. */
    double (*example)(const struct node *node, const struct tensor *tensor, int64_t index);
    /* Bits: operands (inputs, then outputs from OP_INPUTS_MAX on) of shape [S, …, T] instead of [S, T, …]. */
    uint32_t positions_last;
    /* Changes attributes to those of the same operator on a table of so many rows. NULL: no attribute depends on it. */
    void (*set_table_rows)(void *attributes, int64_t rows);

    /* Its gradient. */
    /* Adds the nodes that compute the gradients of the inputs that want one (ir/differentiate.h). NULL: no gradient.
     */
    void (*differentiate)(struct gradients *gradients, const struct node *node);
    uint32_t saved_inputs,
        saved_outputs; /* bits: operands that the gradient's nodes read; checked by differentiation */
    /* A loss: adds the node that makes the loss and all its gradients at once, in place of this one, since the loss's
     * own gradient is known to be 1. NULL for all others. */
    void (*differentiate_loss)(struct gradients *gradients, const struct node *node);

    /* How its work may be cut: the way of number `way` from 0 on, false where there is none. Written over `out` that
     * has no index yet and OP_INDEX_NONE everywhere. NULL: not at all. */
    bool (*loops)(const struct node *node, int way, struct op_loops *out);
    /* Changes attributes to those of a part of the index with this letter. NULL: none depends on it. */
    void (*take_part)(void *attributes, char letter, const struct index_part *part);
    /* Adds the nodes that a part of the index needs between its inputs and the node, whose inputs it then sets, with
     * attributes of the part. True: ranks have told each other by them what makes the outputs whole. NULL: none. */
    bool (*collective_parts)(struct graph *graph, const char *name, char letter, const struct index_part *part,
                             const void *attributes, struct tensor *in[OP_INPUTS_MAX]);

    /* For decoding (graph->cache_texts > 0), which computes a few tokens of a text at a time. Adds a node that replaces
     * this one: it appends data that later tokens need to caches (TENSOR_CACHE), and reads the data of earlier tokens
     * there. graph_add calls it instead of adding this node. NULL: each token is computed independently. */
    struct node *(*decode)(struct graph *graph, const char *name, struct tensor *const *in, const void *attributes);

    /* How kernels treat their operands. */
    uint32_t updates; /* bits: outputs that are added to or changed in place, not overwritten; see op_updates */
    /* Bits of `updates`: outputs that this node's attributes overwrite after all. NULL: none. */
    uint32_t (*overwrites)(const struct node *node);
    bool reads_scalars; /* kernels read values of the step (kernel_call.scalars) */
    /* Each element, or block of elements, is computed independently from that of input 0. So a kernel may be called on
     * a run of elements (kernel_call.elements). */
    bool by_elements;
    /* The same of a parameter: where ranks have shards of states, the one that has all of it calls the kernel, on all
     * of it, and the others do not (tensor.updated_whole). */
    bool by_parameter;
    /* Activations are processed row by row, one row a token, and rows are independent. Updated outputs are sums over
     * rows in their order, so that OP_ROWS_APART rows after the others may be added (rewrite.h). */
    bool by_rows;
    /* Costs little compared with the GEMMs that read output 0, so that backward may make it again
     * (ir/rewrite.h). No input's buffer is taken over. */
    bool light;
    int in_place_input; /* 1 + index of the input whose buffer output 0 may take over, bytes being equal; 0: none */
};

/* Backends whose sums do not depend on how many rows a call has add up so many by themselves. */
enum { OP_ROWS_APART = 1024 };

/* Whether ranks with shards of parameters each do the operator's work on their own shards. */
static inline bool op_is_divided(const struct op *op) { return op->by_elements || op->by_parameter; }

/* Bits: outputs that the node adds to or changes in place. The kernel writes all other outputs and reads none of their
 * previous contents. */
uint32_t op_updates(const struct node *node);

void op_cost(const struct node *node, struct op_cost *out);
/* The loops of a node by one of the ways of its operator; false where there is none. */
bool op_loops_of(const struct node *node, int way, struct op_loops *out);
/* Adds the operator's name and the attributes that its time depends on. */
void op_key_begin(const struct node *node, struct op_key *key);
/* For `cost_key`. */
void op_key_nothing(const struct node *node, struct op_key *key);

/* The value of `example`, or the default. */
double op_example(const struct node *node, const struct tensor *tensor, int64_t index);
/* Numbers of both signs below 1/2 for weights, gradients and activations; positive ones for what operators take as
 * variances or norms (optimizer states, results, and outputs other than the first). Integers, which are [S, T]: three
 * segments a sequence in "segments", counted in "positions", else 0. Bytes: of all values, which are codes. */
double op_example_default(const struct node *node, const struct tensor *tensor, int64_t index);
/* Ids in [0, limit), spread over it; counted in "positions". */
double op_example_id(const struct tensor *ids, int64_t index, int64_t limit);
