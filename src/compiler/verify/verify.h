/* Proves that compiled programs implement graph, plan and recipe: program_verify and program_verify_ranks of
 * compiler/program.h. It shares no code with the passes that make programs.
 *
 * Files, in the order to read them: verify (this), form (each buffer, section and instruction by itself), accesses
 * (conflicting uses of memory are ordered, by its own clocks), ranks (the operations of all ranks match), definition
 * (the values that a step must compute), sums (every element has the recipe's value). */
#pragma once

#include "collective/lane_tree.h"
#include "compiler/program.h"

/* ---- form.c ---- */

/* FAILED "program: instruction 12 (layer 0.q): buffer x: rule". */
#define FAULT(program, index, operand, ...)                                                                            \
    verify_fault(program, index, operand, status_set(STATUS_FAILED, __VA_ARGS__))
enum status verify_fault(const struct program *program, int32_t index, const struct operand *operand,
                         enum status status);

/* Buffers, sections and instructions, each by itself. */
enum status program_verify_form(const struct program *program);

/* Whether a buffer is gathered from shards, so that it is not a plain copy. Its original is this rank's shard. */
static inline bool buffer_is_gathered(const struct program *program, const struct buffer *buffer) {
    return buffer->original >= 0 && program->buffers.items[buffer->original].pack != buffer->pack;
}

/* ---- ranks.c ---- */

/* Walks a step of all ranks' programs, including deferred updates. Each turn makes the operations that are next on all
 * ranks of their groups. `visitor` gets, by rank, the index of its operation, or -1 if the rank waits for a later turn.
 * FAILED, naming the rank, in three cases:
 * - A rank's next operation differs from that of its group's other ranks.
 * - Ranks deadlock, in a step or when they create their operations before it.
 * - Operations match that were not created together. */
typedef enum status matching_visitor(void *payload, const int32_t *operations);
enum status program_verify_matching(const struct program *const *programs, int ranks, matching_visitor *visitor,
                                    void *payload);

/* ---- sums.c ---- */

/* A part of program_verify_ranks: gradients are the recipe's sums, and parameters are the results of updates by these,
 * wherever their parts are. */

/* Executes two steps of all ranks' programs symbolically. The value of a range of elements is a number that depends on
 * every micro-batch added to it, on the order of all additions, and on every update. The programs' operations match
 * (ranks.c). FAILED, naming rank and instruction, in these cases:
 * - A norm or an update reads a gradient other than the recipe's definition: each lane's micro-batches in order, lanes
 *   by the tree, rounds in order.
 * - Forward or backward reads a parameter that was not updated by exactly these gradients once a step.
 * - A step ends with parameters or states that were not updated so.
 * - No rank has some range of a state.
 * - Data moves to another tensor's place.
 * - A loss is added to another share's. */
enum status program_verify_sums(const struct program *const *programs, int ranks, const struct recipe *recipe);

/* ---- definition.c ---- */

/* The values that a step must compute, from the definitions of recipe and graph alone: for sums.c. */

/* Cells: ranges of elements that every program of all ranks treats alike. The borders of all shards, operands and
 * blocks of operations cut a tensor into cells. A parameter's gradients, states and block sums are cut like the
 * parameter. For sums.c alone. */

/* A cell's value: a number that depends on everything added to it, and on the order. 0: nothing. */
typedef uint64_t value;

struct tensor_cells {
    int64_t first; /* its first cell's number; -1: the tensor is not followed */
    int32_t count;
    const int64_t *borders; /* count + 1, in the parameter's elements, from 0 on */
};

struct cells {
    const struct graph *graph;
    struct tensor_cells *of; /* by tensor id */
    int64_t count;           /* of all tensors */
};

/* Cells of parameters, gradients, states and block sums. The programs have the same graph. The caller frees, also after
 * a failure. */
enum status cells_create(const struct program *const *programs, int ranks, struct cells *out);
void cells_free(struct cells *cells);

/* A cell as a rank's buffer has it. */
struct cell_place {
    const struct tensor *tensor;
    int64_t cell; /* its number */
    int64_t byte; /* of the buffer */
    value *value;
};

/* The values of one rank, by buffer and there by member and cell. */
struct cell_values {
    struct scratch memory;
    const struct program *program;
    const struct cells *cells;
    value **of; /* by buffer; NULL: nothing of it is followed */
};
/* The caller frees out->memory, also after a failure. */
enum status cell_values_create(const struct program *program, const struct cells *cells, struct cell_values *out);

struct cell_list {
    VEC(struct cell_place) places;
};
/* The cells that lie in [begin, end) of a buffer, in the order of its members. Replaces what is in the list. */
enum status cell_values_list(const struct cell_values *values, int32_t buffer, int64_t begin, int64_t end,
                             struct cell_list *out);
static inline enum status cell_values_list_operand(const struct cell_values *values, const struct operand *operand,
                                                   struct cell_list *out) {
    return cell_values_list(values, operand->buffer, operand->offset, operand->offset + operand->bytes, out);
}

enum { DEFINITION_STEPS = 2 };

/* ---- values ---- */

static inline value value_mix(value a, value b) {
    value x = (a ^ b >> 32) * 0x9e3779b97f4a7c15u + b;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9u;
    return (x ^ x >> 29) | 1;
}

static inline value value_add(value left, value right) { return value_mix(value_mix(left, '+'), right); }
static inline value value_round(value sum) { return sum ? value_mix(sum, 'r') : 0; }
static inline value value_add_use(value sum, value use) { return value_mix(value_mix(sum, 'u'), use); }
static inline value value_add_micro_batch(value sum, const struct node *node, int64_t micro_batch) {
    return value_mix(value_mix(sum, (value)node->id + 1), (value)micro_batch + 1);
}

static inline value value_zero(int64_t step, int64_t cell) {
    return value_mix(value_mix((value)step + 1, 'z'), (value)cell + 1);
}

static inline value value_squares(value gradient) { return value_mix(gradient, 's'); }
/* The value of a parameter or one of its states after an update. */
static inline value value_updated(value old, value gradient) { return value_mix(value_mix(old, 'w'), gradient); }

/* The value of a parameter that an update overwrites: it depends on the new master, not on the old parameter. */
static inline value value_rounded(value master, value gradient) { return value_round(value_updated(master, gradient)); }
/* The output from whose old value an update makes output i: i itself, or for what is overwritten the master. */
int definition_source(const struct node *update, int i);

/* The value of a tree's node, whose edges may round, from each lane's, `stride` apart; 0: the lane has nothing. */
value value_tree_sum(const struct lane_tree *tree, int node, bool rounds, const value *lanes, size_t stride);

/* ---- steps ---- */

struct definition {
    struct scratch memory;
    const struct cells *cells;
    struct lane_tree tree; /* the recipe's lanes */
    bool edges_round;      /* to bf16 */
    int64_t micro_batches, in_lane, in_share, rounds;
    value *gradients[DEFINITION_STEPS]; /* by cell: finished, in each step */
    value *kept[DEFINITION_STEPS + 1];  /* by cell: parameters and states when so many steps are done */
};

/* The caller frees, also after a failure. */
enum status definition_create(const struct cells *cells, const struct recipe *recipe, struct definition *out);
void definition_free(struct definition *definition);

/* How many micro-batches a lane adds up in a round, and the step's number of the first. */
int64_t definition_micro_batches(const struct definition *definition, int lane, int64_t round, int64_t *first);
