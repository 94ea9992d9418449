/* Kernels that put tensors into the parts of collectives, and back: copies of runs of rows, from one dtype to another.
 */

#include "backend/cpu/kernel.h"

/* Elements of rows: of integers only copies. */
static void copy_elements(enum dtype from, const void *x, enum dtype to, void *y, int64_t count) {
    if (from == to)
        memmove(y, x, (size_t)(count * dtype_bytes(to)));
    else
        cpu_simd()->scale(count, from, x, 1.0F, to, y);
}

static void convert_elements(const void *context, int64_t begin, int64_t end) {
    const struct node_call *conversion = context;
    enum dtype from = conversion->node->in[0]->shape.dtype, to = dtype_of(conversion->node);
    const char *x = (const char *)conversion->call->in[0] + begin * dtype_bytes(from);
    char *y = (char *)conversion->call->out[0] + begin * dtype_bytes(to);
    copy_elements(from, x, to, y, end - begin);
}

static void convert_rows(const void *context, int64_t begin, int64_t end) {
    const struct node_call *conversion = context;
    const struct node *node = conversion->node;
    for (int64_t row = begin; row < end; row++)
        copy_elements(node->in[0]->shape.dtype, in_row(node, conversion->call, 0, row), dtype_of(node),
                      out_row(node, conversion->call, 0, row), columns_of(node));
}

/* Columns of wider tensors are copied row by row. All other tensors are one run, and in-place conversions copy
 * nothing. */
static enum status convert_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    const struct node_call conversion = {node, call};
    const struct shape *shape = &node->out[0]->shape;
    int64_t block = parallel_rows(columns_of(node));
    if (call->in[0] == call->out[0]) return STATUS_OK;
    if (node->in[0]->base || node->out[0]->base)
        parallel_for(shape_rows(shape), block, convert_rows, &conversion);
    else
        parallel_for(shape_elements(shape), block * columns_of(node), convert_elements, &conversion);
    return STATUS_OK;
}

CPU_KERNEL(convert, convert_run)

CPU_KERNEL(copy_in, convert_run)

/* ---- parts ---- */

/* Rows of parts, part by part from `first` on, and where their pieces are in the whole. */
struct parts_copy {
    const struct tensor *whole, *part;
    void *whole_data, *part_data;
    struct parts_order order;
    int64_t first, rows_of_each;
    bool joins; /* from the parts to the whole */
};

static void copy_part_rows(const void *context, int64_t begin, int64_t end) {
    const struct parts_copy *copy = context;
    enum dtype whole = copy->whole->shape.dtype, part = copy->part->shape.dtype;
    int64_t pieces = parts_pieces_of_row(&copy->whole->shape, &copy->order);
    int64_t columns = shape_columns(&copy->part->shape) / pieces;
    for (int64_t i = begin * pieces; i < end * pieces; i++) {
        int64_t of_each = copy->rows_of_each * pieces;
        struct parts_place place =
            parts_find(&copy->whole->shape, &copy->order, copy->first + i / of_each, i % of_each);
        char *in_whole = operand_row(copy->whole, copy->whole_data, place.row);
        char *in_part = operand_row(copy->part, copy->part_data, i / pieces);
        in_whole += place.column * dtype_bytes(whole);
        in_part += i % pieces * columns * dtype_bytes(part);
        if (copy->joins)
            copy_elements(part, in_part, whole, in_whole, columns);
        else
            copy_elements(whole, in_whole, part, in_part, columns);
    }
}

static enum status parts_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    bool joins = node->op == &op_from_parts;
    struct parts_copy copy = {.whole = joins ? node->out[0] : node->in[0],
                              .part = joins ? node->in[0] : node->out[0],
                              .whole_data = joins ? call->out[0] : call->in[0],
                              .part_data = joins ? call->in[0] : call->out[0],
                              .joins = joins};
    copy.rows_of_each = shape_rows(&copy.part->shape);
    if (node->op == &op_cut) {
        const struct cut_attributes *cut = NODE_ATTRIBUTES(node, cut_attributes);
        copy.order = parts_order_of(&cut->part, cut->dimension);
        copy.first = cut->part.position;
    } else {
        copy.order = NODE_ATTRIBUTES(node, parts_attributes)->order;
        copy.rows_of_each /= copy.order.parts;
    }
    parallel_for(shape_rows(&copy.part->shape), parallel_rows(shape_columns(&copy.part->shape)), copy_part_rows, &copy);
    return STATUS_OK;
}

CPU_KERNEL(to_parts, parts_run)
CPU_KERNEL(from_parts, parts_run)
CPU_KERNEL(cut, parts_run)
