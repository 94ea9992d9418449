/* Where a value first stopped being finite. */
#include <inttypes.h>
#include <math.h>

#include "base/half.h"
#include "train/engine.h"

struct search {
    const struct program *program;
    char *found;
};

static bool element_is_finite(const void *data, enum dtype dtype, int64_t index) {
    switch (dtype) {
    case DTYPE_F64: return isfinite(((const double *)data)[index]);
    case DTYPE_F32: return isfinite(((const float *)data)[index]);
    case DTYPE_BF16: return isfinite(bf16_to_float(((const uint16_t *)data)[index]));
    case DTYPE_I32:
    case DTYPE_NONE: break;
    }
    return true;
}

/* Weights and state, from wherever their homes are. */
static enum status examine_home(struct engine *engine, const struct tensor *tensor, void *room, bool *finite) {
    int64_t bytes = shape_bytes(&tensor->shape), element = dtype_bytes(tensor->shape.dtype);
    *finite = true;
    for (int64_t at = 0; at < bytes && *finite; at += BYTE_STORE_PIECE) {
        int64_t count = bytes - at < BYTE_STORE_PIECE ? bytes - at : BYTE_STORE_PIECE;
        TRY(runner_read(engine->main, tensor, at, count, room));
        for (int64_t i = 0; i < count / element && *finite; i++)
            *finite = element_is_finite(room, tensor->shape.dtype, i);
    }
    return STATUS_OK;
}

static bool tensor_is_finite(const struct tensor *tensor, const void *data) {
    int64_t rows = shape_rows(&tensor->shape), columns = shape_columns(&tensor->shape);
    int64_t stride = tensor_row_stride(tensor);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            if (!element_is_finite(data, tensor->shape.dtype, r * stride + c)) return false;
    return true;
}

/* What the instruction made, read into memory of its own where the CPU has no address for it. */
static bool output_is_finite(const struct runner *runner, const struct tensor *tensor, const struct operand *operand,
                             int64_t run) {
    const void *there = runner_operand(runner, operand, run);
    if (there) return tensor_is_finite(tensor, there);
    void *copy = mem_array((size_t)operand->bytes, 1);
    bool known = copy && runner_read_operand(runner, operand, run, copy) == STATUS_OK;
    bool finite = !known || tensor_is_finite(tensor, copy);
    mem_free(copy);
    return finite;
}

static void examine_outputs(void *payload, const struct runner *runner, int32_t index, int64_t run) {
    struct search *search = payload;
    const struct instruction *instruction = &search->program->instructions.items[index];
    if (search->found || instruction->opcode != OPCODE_KERNEL) return;
    const struct section *section = &search->program->sections.items[instruction->section];
    for (int i = 0; i < instruction->node->op->outputs; i++) {
        const struct tensor *tensor = instruction->node->out[i];
        const struct operand *operand = &instruction->operands[OP_INPUTS_MAX + i];
        if (!tensor || operand->buffer < 0 || output_is_finite(runner, tensor, operand, run)) continue;
        int64_t grain = section->first_grain + run * section->grains + instruction->grain;
        search->found = section->first_grain < 0
                            ? mem_format("%s (in the update)", tensor->name)
                            : mem_format("%s (block %s, grain %" PRId64 ")", tensor->name,
                                         search->program->graph->blocks.items[instruction->node->block], grain);
        return;
    }
}

static char *find_in_homes(struct engine *engine, void *room, bool *weight) {
    const struct graph *graph = engine->setup->main->graph;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != TENSOR_PARAMETER && tensor->kind != TENSOR_STATE) continue;
        bool finite;
        if (examine_home(engine, tensor, room, &finite) != STATUS_OK)
            return mem_format("not known, since %s", status_message());
        if (finite) continue;
        *weight = tensor->kind == TENSOR_PARAMETER;
        return mem_format("%s (%s)", tensor->name, *weight ? "a weight" : "optimizer state");
    }
    return NULL;
}

char *engine_find_nonfinite(struct engine *engine, bool *weight) {
    *weight = false;
    void *room = mem_array(BYTE_STORE_PIECE, 1);
    char *found = room ? find_in_homes(engine, room, weight) : NULL;
    mem_free(room);
    if (found) return found;
    struct search search = {.program = engine->setup->main->program};
    runner_set_observer(engine->main, examine_outputs, &search);
    enum status status = engine_repeat_step(engine);
    runner_set_observer(engine->main, NULL, NULL);
    if (status != STATUS_OK || search.found) return search.found;
    return mem_string("no tensor when the step was repeated");
}
