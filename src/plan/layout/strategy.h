/* Strategies: the ways to cut one node among the devices of a mesh, and their costs.
 *
 * Each axis of the mesh takes one index of the operator's loops (struct op_loops, ir/op.h), or none: then its devices
 * do the same work. The indices give the layouts of all operands and the communication. An output that lacks an index
 * is summed over the axes that took it, and so is the gradient of an input that lacks it. Where such an operand has
 * positions ('t'), an axis may also leave them cut outside the node (sequence sharding between regions of tensor
 * parallelism, Korthikanti et al., arXiv 2205.05198): the output is then reduced and scattered instead of reduced, and
 * the input gathered before.
 *
 * Attention that is cut by positions reads the keys and values of all of them. They are gathered before, or passed
 * round from device to device while each works on what it has (ring attention, Liu et al., arXiv 2310.01889): then as
 * much is moved, in more messages, but overlapped with the work and without space for all. */
#pragma once

#include "ir/symbolic_profile.h"
#include "plan/layout/sharding.h"

/* A device's rates, and how many of a step's waves share one sum of a parameter's gradient. */
struct device_rates {
    double flops_per_s, bytes_per_s;
    double micro_batches; /* of a step, over which that sum is made once; at least 1 */
};

struct strategy {
    int way;                                /* of the operator's loops */
    int8_t index[DEVICE_MESH_AXES_MAX];     /* that each axis took, or OP_INDEX_NONE */
    bool positions[DEVICE_MESH_AXES_MAX];   /* the axis leaves positions cut outside */
    bool passes[DEVICE_MESH_AXES_MAX];      /* the axis took positions, and passes whole operands round a ring */
    struct layout operand[OP_OPERANDS_MAX]; /* inputs, then outputs from OP_INPUTS_MAX on, as they are outside */
    double compute_s;                       /* of one device, forward and backward */
    double forward_s, backward_s;           /* communication that is not overlapped with the work */
    int64_t saved_bytes;                    /* of one device: activations that backward needs and this node makes */
    int64_t gathered_bytes;                 /* of one device: beyond its operands, while the node works */
    int64_t parameter_bytes;                /* of one device: those of its parameters */
};

/* Why an axis may not take an index. */
struct strategy_dropped {
    int way, axis, index;
    int64_t size, parts; /* the index's numbers of parts, and the axis's devices, which do not divide it */
};

struct strategies {
    VEC(struct strategy) kept; /* the first is the replicated one */
    VEC(struct strategy_dropped) dropped;
};
/* All strategies of a forward node, whose work forward and backward is `profile`, in a fixed order. A node that may not
 * be cut has the replicated one alone. Free with strategies_free, also after a failure. */
enum status strategies_make(const struct node *node, const struct node_profile *profile, const struct device_mesh *mesh,
                            const struct device_rates *rates, struct strategies *out);
void strategies_free(struct strategies *strategies);

/* Sizes of an operand. */
struct layout_shape strategy_shape(const struct tensor *tensor);
/* "heads: 12 do not divide by 8 devices of axis 0" */
enum { STRATEGY_TEXT = 128 };
/* "heads", of an index of that letter. */
const char *strategy_index_name(char letter);
char *strategy_print_dropped(const struct node *node, const struct strategy_dropped *dropped, char text[STRATEGY_TEXT]);

/* --- strategies that ranks execute --- */

enum { SHARD_AXES_MAX = TENSOR_CUTS_MAX };
/* The axes of more than one device that took an index, as bits. */
unsigned strategy_axes_taken(const struct strategy *strategy, const struct device_mesh *mesh);
/* Why ranks do not execute a strategy of the node; NULL: they do. */
const char *strategy_why_not(const struct node *node, const struct strategy *strategy, const struct device_mesh *mesh);
/* Removes strategies that ranks do not execute. The first one stays: it takes no index. */
void strategies_keep_executable(const struct node *node, const struct device_mesh *mesh, struct strategies *strategies);

/* How a node's strategy takes a parameter, which all of its uses must do alike: each has its own sum of gradients, but
 * these are added up before ranks add theirs. */
struct parameter_use {
    struct layout layout;
    unsigned partial; /* axes along which each rank has a part of its gradient's sum, as bits */
};
/* The axes along which ranks keep their parts of an operand's sum, or its gradient's, apart (struct op_loops), as bits:
 * who makes an activation and who reads it must have the same. */
unsigned strategy_apart_axes(const struct node *node, const struct strategy *strategy, int operand);
bool parameter_use_equal(const struct parameter_use *a, const struct parameter_use *b);
struct parameter_use strategy_parameter_use(const struct node *node, const struct strategy *strategy, int operand);

/* Whether the strategy takes an operand's columns in segments. They continue as columns of the node's output, each view
 * of which (queries, keys, values) is cut separately. No conversion makes such parts, so the operand's producer has
 * to. */
bool strategy_takes_segments(const struct graph *graph, const struct node *node, const struct strategy *strategy,
                             int operand);
/* Whether the index runs over the columns of an activation. */
bool strategy_cuts_columns(const struct op_loops *loops, int operand, const struct tensor *tensor, int index);
