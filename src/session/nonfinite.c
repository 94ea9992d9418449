/* Where a value first stopped being finite. */
#include <inttypes.h>
#include <stdio.h>

#include "ir/finite.h"
#include "session/engine.h"

struct search {
    const struct program *program;
    char *found;
};

static bool values_are_finite(enum dtype dtype, const char *values, int64_t count) {
    enum { BLOCK = 1 << 20 };
    int64_t bytes = dtype_bytes(dtype);
    bool finite = true;
#pragma omp parallel for schedule(static) reduction(&& : finite) if (count > BLOCK)
    for (int64_t at = 0; at < count; at += BLOCK)
        finite =
            finite && values_find_nonfinite(dtype, values + at * bytes, count - at < BLOCK ? count - at : BLOCK) < 0;
    return finite;
}

/* What this rank has of weights and state, on whatever tier it is. */
static enum status examine_tensor(const struct engine *engine, const struct tensor *tensor, void *buffer,
                                  bool *finite) {
    int64_t first, elements, element = dtype_bytes(tensor->shape.dtype);
    const void *there = runner_local_shard(engine->main, tensor, &first, &elements);
    int64_t end = (first + elements) * element;
    *finite = !there || values_are_finite(tensor->shape.dtype, there, elements);
    for (int64_t at = first * element; !there && at < end && *finite; at += BYTE_STORE_PIECE) {
        int64_t count = end - at < BYTE_STORE_PIECE ? end - at : BYTE_STORE_PIECE;
        TRY(runner_read(engine->main, tensor, at, count, buffer));
        *finite = values_are_finite(tensor->shape.dtype, buffer, count / element);
    }
    return STATUS_OK;
}

/* The bytes that the operand uses, which may be a run of the tensor's elements. */
static bool operand_is_finite(enum dtype dtype, const struct operand *operand, const char *data) {
    int64_t row = operand->row_bytes > 0 ? operand->row_bytes : operand->bytes;
    for (int64_t at = 0; at<operand->bytes; at += operand->row_bytes> 0 ? operand->row_stride : row)
        if (values_find_nonfinite(dtype, data + at, row / dtype_bytes(dtype)) >= 0) return false;
    return true;
}

/* Looks at what the instruction wrote; at a copy where the CPU has no address for it. */
static bool output_is_finite(const struct runner *runner, enum dtype dtype, const struct operand *operand,
                             int64_t run) {
    const void *there = runner_operand(runner, operand, run);
    if (there) return operand_is_finite(dtype, operand, there);
    void *copy = mem_array((size_t)operand->bytes, 1);
    bool known = copy && runner_read_operand(runner, operand, run, copy) == STATUS_OK;
    bool finite = !known || operand_is_finite(dtype, operand, copy);
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
        if (!tensor || operand->buffer < 0) continue;
        if (output_is_finite(runner, tensor->shape.dtype, operand, run)) continue;
        int64_t micro_batch = section->first_micro_batch + run * section->micro_batches + instruction->micro_batch;
        search->found = section->first_micro_batch < 0
                            ? mem_format("%s (in the update)", tensor->name)
                            : mem_format("%s (block %s, micro-batch %" PRId64 ")", tensor->name,
                                         search->program->graph->blocks.items[instruction->node->block], micro_batch);
        return;
    }
}

static bool is_kept(const struct tensor *tensor) {
    return tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_STATE;
}

/* What checkpoints hold: with adapters not the weights of the model below. */
static bool is_written(const struct engine *engine, const struct tensor *tensor) {
    bool adapter = engine_model(engine)->config.adapter.rank > 0;
    return tensor->kind == TENSOR_STATE || (tensor->kind == TENSOR_PARAMETER && (tensor->trainable || !adapter));
}

/* The first weight or state that is not finite, of those that are `written` or of all; NULL when all are. */
static enum status find_in_tensors(const struct engine *engine, bool written, const struct tensor **found) {
    const struct graph *graph = engine_graph(engine);
    void *buffer = mem_array(BYTE_STORE_PIECE, 1);
    enum status status = buffer ? STATUS_OK : STATUS_FAILED;
    *found = NULL;
    for (size_t i = 0; i < graph->tensors.count && status == STATUS_OK && !*found; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        bool finite;
        if (written ? !is_written(engine, tensor) : !is_kept(tensor)) continue;
        status = examine_tensor(engine, tensor, buffer, &finite);
        if (status == STATUS_OK && !finite) *found = tensor;
    }
    mem_free(buffer);
    return status;
}

static const char *describe_tensor(const struct tensor *tensor) {
    return tensor->kind == TENSOR_PARAMETER ? "a weight" : "optimizer state";
}

enum status engine_require_finite(const struct engine *engine, const char *origin) {
    const struct tensor *found;
    TRY(find_in_tensors(engine, true, &found));
    if (!found) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s (%s) holds a value that is not finite", origin, found->name,
                      describe_tensor(found));
}

/* ---- Of all ranks ---- */

/* What a rank found. */
struct finding {
    enum status status;
    int32_t tensor; /* its id; -1: none */
    char text[240]; /* a place, or why it is not known */
};

/* Of the first tensor that was found by any rank; else of the first rank that found anything. */
static struct finding first_finding(const struct finding *all, int ranks) {
    const struct finding *first = NULL;
    for (int rank = 0; rank < ranks; rank++) {
        const struct finding *found = &all[rank];
        if (found->text[0] == '\0') continue;
        if (!first || (found->tensor >= 0 && found->tensor < first->tensor)) first = found;
    }
    return first ? *first : (struct finding){.tensor = -1};
}

static enum status share_finding(struct comm *comm, struct finding *finding) {
    struct comm_group all = comm_group_all(comm);
    struct finding *theirs = mem_array((size_t)all.count, sizeof *theirs);
    TRY(comm_agree(comm, theirs ? STATUS_OK : STATUS_FAILED));
    enum status status = comm_all_gather(comm, &all, finding, sizeof *finding, theirs);
    if (status == STATUS_OK) *finding = first_finding(theirs, all.count);
    mem_free(theirs);
    return status;
}

static void examine_tensors(const struct engine *engine, struct finding *out) {
    const struct tensor *found;
    *out = (struct finding){.status = find_in_tensors(engine, false, &found), .tensor = -1};
    if (out->status != STATUS_OK) snprintf(out->text, sizeof out->text, "not known, since %s", status_message());
    if (out->status != STATUS_OK || !found) return;
    out->tensor = found->id;
    snprintf(out->text, sizeof out->text, "%s (%s)", found->name, describe_tensor(found));
}

/* The ranks repeat the step together. */
static enum status look_at_step(struct engine *engine, struct finding *out) {
    struct search search = {.program = programs_main(&engine->plan->programs)->program};
    runner_set_observer(engine->main, examine_outputs, &search);
    enum status status = engine_repeat_step(engine);
    runner_set_observer(engine->main, NULL, NULL);
    *out = (struct finding){.tensor = -1};
    if (search.found) snprintf(out->text, sizeof out->text, "%s", search.found);
    mem_free(search.found);
    return status;
}

static enum status look(struct engine *engine, struct finding *out) {
    struct comm *comm = engine->plan->session->comm;
    examine_tensors(engine, out);
    TRY(share_finding(comm, out));
    if (out->text[0] != '\0') return STATUS_OK;
    TRY(look_at_step(engine, out));
    return share_finding(comm, out);
}

char *engine_find_nonfinite(struct engine *engine, bool *weight) {
    struct finding found;
    enum status status = look(engine, &found);
    *weight = found.tensor >= 0 && engine_graph(engine)->tensors.items[found.tensor]->kind == TENSOR_PARAMETER;
    if (found.text[0] != '\0') return mem_string(found.text);
    return status == STATUS_OK ? mem_string("no tensor when the step was repeated") : NULL;
}
