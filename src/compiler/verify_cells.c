#include "compiler/verify_cells.h"

#include <stdlib.h>

#include "plan/chunks.h"

static const struct tensor *parameter_of(const struct tensor *tensor) {
    return tensor->kind == TENSOR_PARAMETER ? tensor : tensor->parameter;
}

static bool is_followed(const struct tensor *tensor) {
    bool kind = tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_GRADIENT || tensor->kind == TENSOR_STATE ||
                (tensor->kind == TENSOR_RESULT && tensor->parameter);
    return kind && !tensor->base;
}

/* A buffer's tensors: those of its pack, or its only one, for which `single` has space. */
static const struct pack_member *members_of(const struct buffer *buffer, struct pack_member *single, int32_t *count) {
    *count = buffer->pack ? buffer->pack->count : buffer->tensor ? 1 : 0;
    if (buffer->pack) return buffer->pack->members;
    if (buffer->tensor)
        *single = (struct pack_member){.tensor = buffer->tensor, .elements = shape_elements(&buffer->tensor->shape)};
    return single;
}

/* ---- borders ---- */

struct borders {
    VEC(int64_t) list;
};

static enum status add_border(struct borders *of, const struct pack_member *member, int64_t element) {
    const struct tensor *parameter = parameter_of(member->tensor);
    int64_t at = element * tensor_elements_per(member->tensor), all = shape_elements(&parameter->shape);
    return at > 0 && at < all ? vec_push(&of[parameter->id].list, at) : STATUS_OK;
}

/* A byte of a buffer, in all members that have it inside. */
static enum status add_byte(const struct buffer *buffer, int64_t byte, struct borders *of) {
    struct pack_member single;
    int32_t count;
    const struct pack_member *members = members_of(buffer, &single, &count);
    for (int32_t m = 0; m < count; m++) {
        int64_t size = dtype_bytes(members[m].tensor->shape.dtype), from = byte - members[m].offset;
        if (!is_followed(members[m].tensor) || from <= 0 || from >= members[m].elements * size) continue;
        TRY(add_border(of, &members[m], members[m].first + from / size));
    }
    return STATUS_OK;
}

static enum status add_blocks(const struct program *program, const struct instruction *instruction,
                              struct borders *of) {
    const struct program_collective *operation = &program->collectives.items[instruction->collective];
    const struct operand *data = &instruction->operands[OP_INPUTS_MAX];
    if (operation->block_bytes <= 0) return STATUS_OK;
    for (int64_t at = operation->block_bytes; at < operation->bytes; at += operation->block_bytes)
        TRY(add_byte(&program->buffers.items[data->buffer], data->offset + at, of));
    return STATUS_OK;
}

static enum status add_program(const struct program *program, struct borders *of) {
    for (size_t b = 0; b < program->buffers.count; b++) {
        struct pack_member single;
        int32_t count;
        const struct pack_member *members = members_of(&program->buffers.items[b], &single, &count);
        for (int32_t m = 0; m < count; m++) {
            if (!is_followed(members[m].tensor) || members[m].elements == 0) continue;
            TRY(add_border(of, &members[m], members[m].first));
            TRY(add_border(of, &members[m], members[m].first + members[m].elements));
        }
    }
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        for (int k = 0; k < OPERAND_WORKSPACE; k++) {
            const struct operand *operand = &instruction->operands[k];
            if (operand->buffer < 0 || operand->row_bytes > 0) continue;
            TRY(add_byte(&program->buffers.items[operand->buffer], operand->offset, of));
            TRY(add_byte(&program->buffers.items[operand->buffer], operand->offset + operand->bytes, of));
        }
        if (opcode_is_collective(instruction->opcode)) TRY(add_blocks(program, instruction, of));
    }
    return STATUS_OK;
}

static int compare_borders(const void *a, const void *b) {
    int64_t first = *(const int64_t *)a, second = *(const int64_t *)b;
    return (first > second) - (first < second);
}

/* Ascending, each once, with the first and the last. */
static enum status settle(struct borders *of, const struct tensor *parameter) {
    TRY(vec_push(&of->list, 0));
    TRY(vec_push(&of->list, shape_elements(&parameter->shape)));
    qsort(of->list.items, of->list.count, sizeof *of->list.items, compare_borders);
    size_t kept = 0;
    for (size_t i = 0; i < of->list.count; i++)
        if (kept == 0 || of->list.items[kept - 1] != of->list.items[i]) of->list.items[kept++] = of->list.items[i];
    of->list.count = kept;
    return STATUS_OK;
}

static enum status number_cells(struct cells *cells, struct borders *of) {
    for (size_t t = 0; t < cells->graph->tensors.count; t++) {
        const struct tensor *tensor = cells->graph->tensors.items[t];
        struct tensor_cells *own = &cells->of[t];
        own->first = -1;
        if (tensor->kind == TENSOR_PARAMETER && is_followed(tensor)) TRY(settle(&of[t], tensor));
        if (!is_followed(tensor)) continue;
        struct borders *borders = &of[parameter_of(tensor)->id];
        own->first = cells->count;
        own->count = (int32_t)borders->list.count - 1;
        own->borders = borders->list.items;
        cells->count += own->count;
    }
    return STATUS_OK;
}

/* A parameter's list is the cells' from now on; other tensors share it. */
static void drop_borders(struct borders *of, const struct graph *graph, bool all) {
    for (size_t t = 0; of && t < graph->tensors.count; t++)
        if (all || !is_followed(graph->tensors.items[t])) vec_free(&of[t].list);
    mem_free(of);
}

enum status cells_create(const struct program *const *programs, int ranks, struct cells *out) {
    const struct graph *graph = programs[0]->graph;
    struct borders *of = mem_array(graph->tensors.count + 1, sizeof *of);
    *out = (struct cells){.graph = graph, .of = mem_array(graph->tensors.count + 1, sizeof *out->of)};
    enum status status = of && out->of ? STATUS_OK : STATUS_FAILED;
    for (int r = 0; r < ranks && status == STATUS_OK; r++)
        status = add_program(programs[r], of);
    if (status == STATUS_OK) status = number_cells(out, of);
    if (status != STATUS_OK) {
        mem_free(out->of);
        out->of = NULL;
    }
    drop_borders(of, graph, status != STATUS_OK);
    return status;
}

void cells_free(struct cells *cells) {
    for (size_t t = 0; cells->of && t < cells->graph->tensors.count; t++)
        if (cells->graph->tensors.items[t]->kind == TENSOR_PARAMETER) mem_free((void *)(uintptr_t)cells->of[t].borders);
    mem_free(cells->of);
    cells->of = NULL;
}

/* ---- values ---- */

/* The cells [*first, *end) of a tensor that a member has whole: those of its run. */
static void cells_of_member(const struct cells *cells, const struct pack_member *member, int32_t *first, int32_t *end) {
    const struct tensor_cells *own = &cells->of[member->tensor->id];
    int64_t per = tensor_elements_per(member->tensor);
    int64_t begin = member->first * per, stop = (member->first + member->elements) * per;
    for (*first = 0; *first < own->count && own->borders[*first] < begin;)
        ++*first;
    for (*end = *first; *end < own->count && own->borders[*end] < stop && member->elements > 0;)
        ++*end;
}

static bool follows(const struct cells *cells, const struct pack_member *member) {
    return cells->of[member->tensor->id].first >= 0;
}

static int64_t count_values(const struct cells *cells, const struct buffer *buffer) {
    struct pack_member single;
    int32_t count, first, end;
    int64_t sum = 0;
    const struct pack_member *members = members_of(buffer, &single, &count);
    for (int32_t m = 0; m < count; m++) {
        if (!follows(cells, &members[m])) continue;
        cells_of_member(cells, &members[m], &first, &end);
        sum += end - first;
    }
    return sum;
}

enum status cell_values_create(const struct program *program, const struct cells *cells, struct cell_values *out) {
    *out = (struct cell_values){program, cells, mem_array(program->buffers.count + 1, sizeof *out->of)};
    if (!out->of) return STATUS_FAILED;
    for (size_t b = 0; b < program->buffers.count; b++) {
        int64_t count = count_values(cells, &program->buffers.items[b]);
        if (count > 0) out->of[b] = mem_array((size_t)count, sizeof **out->of);
        if (count > 0 && !out->of[b]) return STATUS_FAILED;
    }
    return STATUS_OK;
}

void cell_values_free(struct cell_values *values) {
    for (size_t b = 0; values->of && b < values->program->buffers.count; b++)
        mem_free(values->of[b]);
    mem_free(values->of);
    values->of = NULL;
}

enum status cell_values_list(const struct cell_values *values, int32_t buffer, int64_t begin, int64_t end,
                             struct cell_list *out) {
    const struct cells *cells = values->cells;
    struct pack_member single;
    int32_t count, first, stop;
    value *at = values->of[buffer];
    const struct pack_member *members = members_of(&values->program->buffers.items[buffer], &single, &count);
    out->places.count = 0;
    for (int32_t m = 0; m < count && at; m++) {
        const struct pack_member *member = &members[m];
        if (!follows(cells, member)) continue;
        const struct tensor_cells *own = &cells->of[member->tensor->id];
        int64_t per = tensor_elements_per(member->tensor), size = dtype_bytes(member->tensor->shape.dtype);
        cells_of_member(cells, member, &first, &stop);
        for (int32_t c = first; c < stop; c++, at++) {
            int64_t byte = member->offset + (own->borders[c] / per - member->first) * size;
            if (byte < begin || byte >= end) continue;
            TRY(vec_push(&out->places, (struct cell_place){member->tensor, own->first + c, byte, at}));
        }
    }
    return STATUS_OK;
}
