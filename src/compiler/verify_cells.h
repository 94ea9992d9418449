/* Cells: ranges of elements that every program of all ranks treats alike. What a tensor is cut into follows from the
 * borders of all shards, operands and blocks of operations; a parameter's gradients, states and block sums are cut
 * where it is. For verify_sums alone. */
#ifndef BALLAST_COMPILER_VERIFY_CELLS_H
#define BALLAST_COMPILER_VERIFY_CELLS_H

#include "compiler/program.h"

/* What a cell has: a number that depends on all that was added to it, and on the order. 0: nothing. */
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

/* Of parameters, gradients, states and block sums. The programs have the same graph. The caller frees, also after a
 * failure. */
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
    const struct program *program;
    const struct cells *cells;
    value **of; /* by buffer; NULL: nothing of it is followed */
};
enum status cell_values_create(const struct program *program, const struct cells *cells, struct cell_values *out);
void cell_values_free(struct cell_values *values);

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

#endif
