/* Symbolic profile: the cost of each forward node in a training step, forward and backward. Costs are the bytes that
 * are made, saved and needed, and FLOPs. Nothing is executed: the operators' rules add the graph's gradients, and the
 * rest follows from shapes, FLOPs and last readers (Colossal-Auto, arXiv 2302.02599).
 *
 * The profile assumes the order of the graph's nodes, all activations kept, and one micro-batch at a time. A program
 * compiled so has exactly these activations live at every node, to the byte. It also has parameters, gradients, states,
 * inputs, results and the kernels' workspace. */
#pragma once

#include "ir/graph.h"

/* An activation that owns its bytes. Views have none. */
struct value_profile {
    const struct tensor *tensor; /* of the graph with gradients */
    int64_t bytes;               /* of one micro-batch */
    int32_t first, last;      /* nodes of that graph, by id, in which it is live; one whose bytes its reader takes over
                                 (node_in_place_input) ends before that */
    const struct node *owner; /* forward: what makes it; a gradient: what makes the value that it is the gradient of,
                                 or what its node belongs to where there is none */
    int output;               /* of the owner's, from 0 */
    bool gradient;            /* made by backward */
    bool saved;               /* made by forward, and read by backward */
    bool leaves_block;        /* made by forward, and read by the forward of another block */
};

/* A node of the forward graph, for one micro-batch. */
struct node_profile {
    struct op_cost forward, backward; /* a loss is made with its gradients: all in backward */
    uint32_t saved_outputs;           /* bits: outputs that any backward reads, or columns of them */
};

struct symbolic_profile {
    const struct graph *graph;        /* with gradients */
    struct graph *own;                /* the same where the profile made it; else NULL */
    int forward_nodes;                /* of the forward graph, the loss's among them */
    struct node_profile *nodes;       /* [forward_nodes] by id in the forward graph */
    VEC(struct value_profile) values; /* in the order in which they are made */
    int32_t *value_of;                /* by tensor id; -1: it has no bytes as an activation of its own */
};

/* Profiles a graph with gradients, which must outlive the profile. The loss stood last in it. Free with
 * symbolic_profile_free, also after a failure. */
enum status symbolic_profile_create(const struct graph *graph, struct symbolic_profile *out);
/* Profiles a forward graph, by adding gradients to a copy of it: the loss's, or without a loss those of a part of a
 * model (graph_differentiate_part). */
enum status symbolic_profile_forward(const struct graph *forward, struct symbolic_profile *out);
void symbolic_profile_free(struct symbolic_profile *profile);
