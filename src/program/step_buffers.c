#include "program/step_buffers.h"

#include <stdlib.h>
#include <string.h>

static enum buffer_kind kind_of(enum tensor_kind kind) {
    switch (kind) {
    case TENSOR_ACTIVATION: return BUFFER_ACTIVATIONS;
    case TENSOR_INPUT: return BUFFER_INPUTS;
    case TENSOR_PARAMETER: return BUFFER_PARAMETERS;
    case TENSOR_GRADIENT: return BUFFER_GRADIENTS;
    case TENSOR_CACHE: return BUFFER_CACHE;
    case TENSOR_STATE: return BUFFER_OPTIMIZER;
    case TENSOR_RESULT: return BUFFER_RESULTS;
    }
    BUG("tensor kind %d", kind);
}

enum status program_add_buffer(struct program *program, struct buffer buffer, int32_t *out) {
    *out = buffer.id = (int)program->buffers.count;
    buffer.offset = buffer.home = -1;
    return vec_push(&program->buffers, buffer);
}

enum status program_add_tensor_buffer(struct program *program, const struct tensor *tensor, int64_t count,
                                      enum tier tier, int32_t *out) {
    bool persistent = tensor->kind == TENSOR_CACHE || tensor->kind == TENSOR_INPUT;
    struct buffer buffer = {.tensor = tensor,
                            .name = tensor->name,
                            .kind = kind_of(tensor->kind),
                            .tier = tier,
                            .bytes = shape_bytes(&tensor->shape) * count,
                            .persistent = persistent};
    return program_add_buffer(program, buffer, out);
}

bool step_buffers_sums_by_share(const struct node *node, const struct tensor *tensor) {
    return tensor->kind == TENSOR_RESULT && node->phase <= PHASE_BACKWARD;
}

static int64_t count_of(const struct step_buffers *buffers, const struct tensor *tensor) {
    const struct node *producer = tensor->producer;
    if (tensor->kind == TENSOR_INPUT) return buffers->grains;
    return producer && step_buffers_sums_by_share(producer, tensor) ? buffers->shares : 1;
}

/* Those that are in no pack. */
static enum status add_single_buffers(struct step_buffers *buffers, enum tensor_kind kind) {
    for (size_t i = 0; i < buffers->graph->tensors.count; i++) {
        const struct tensor *tensor = buffers->graph->tensors.items[i];
        if (tensor->kind != kind || tensor->base || buffers->buffers[i] >= 0) continue;
        TRY(program_add_tensor_buffer(buffers->program, tensor, count_of(buffers, tensor), TIER_DEVICE,
                                      &buffers->buffers[i]));
    }
    return STATUS_OK;
}

/* Tensors of a kind by the part of a chunk that they belong to, and by id. */
struct packed {
    struct chunk_part part;
    bool apart; /* no part of sums: a tied parameter's other use */
    int id;
};

static const char *pack_name(struct step_buffers *buffers, enum tensor_kind kind, struct chunk_part part, int level) {
    struct scratch *memory = &buffers->program->memory;
    const char *name = kind == TENSOR_RESULT ? "sums of squares" : buffer_kind_name(kind_of(kind));
    if (kind != TENSOR_GRADIENT) return scratch_format(memory, "%s of chunk %d", name, part.chunk);
    if (level == 0) return scratch_format(memory, "%s of chunk %d in block %d", name, part.chunk, part.block);
    return scratch_format(memory, "partial sums of chunk %d in block %d, level %d", part.chunk, part.block, level);
}

static enum tier home_of(const struct step_buffers *buffers, enum tensor_kind kind, int32_t chunk) {
    const struct policy *policy = &buffers->plan->policy;
    if (kind == TENSOR_RESULT) return TIER_DEVICE;
    if (kind == TENSOR_PARAMETER) return policy_home(policy, chunk, policy->parameters);
    return policy_home(policy, chunk, kind == TENSOR_GRADIENT ? policy->gradients : policy->optimizer);
}

static struct pack *make_pack(struct step_buffers *buffers, const struct packed *list, size_t count, int64_t *bytes) {
    struct scratch *memory = &buffers->program->memory;
    struct pack *pack = scratch_alloc(memory, 1, sizeof *pack);
    if (pack) pack->members = scratch_alloc(memory, count, sizeof *pack->members);
    if (!pack || !pack->members) return NULL;
    *bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const struct tensor *tensor = buffers->graph->tensors.items[list[i].id];
        pack->members[pack->count++] =
            (struct pack_member){.tensor = tensor, .offset = *bytes, .elements = shape_elements(&tensor->shape)};
        buffers->offsets[tensor->id] = *bytes;
        *bytes += buffer_aligned_bytes(shape_bytes(&tensor->shape));
    }
    return pack;
}

/* Partial sums are of one step. What is not summed has no use beyond its share, and thus one buffer for all levels. */
static enum status add_levels(struct step_buffers *buffers, const struct packed *list, size_t count,
                              struct buffer first, int32_t id) {
    struct gradient_pack_place place = {.completed_by = -1};
    int32_t pack = (int32_t)buffers->gradients.count;
    for (size_t i = 0; i < count; i++) {
        int32_t block = buffers->completed_by[list[i].id];
        buffers->packs[list[i].id] = pack;
        if (list[i].apart) continue;
        place.summed_bytes += buffer_aligned_bytes(shape_bytes(&buffers->graph->tensors.items[list[i].id]->shape));
        place.completed_by = block; /* that of all */
    }
    TRY(vec_push(&buffers->gradients, place));
    TRY(vec_push(&buffers->level_buffers, id));
    first.persistent = false;
    for (int level = 1; level < buffers->levels; level++) {
        first.name = pack_name(buffers, TENSOR_GRADIENT, list->part, level);
        if (!first.name) return STATUS_FAILED;
        if (place.summed_bytes > 0) TRY(program_add_buffer(buffers->program, first, &id));
        TRY(vec_push(&buffers->level_buffers, id));
    }
    return STATUS_OK;
}

static enum status add_pack(struct step_buffers *buffers, enum tensor_kind kind, const struct packed *list,
                            size_t count) {
    int32_t chunk = list->part.chunk, buffer;
    int64_t bytes = 0;
    const struct pack *pack = make_pack(buffers, list, count, &bytes);
    const char *name = pack_name(buffers, kind, list->part, 0);
    if (!pack || !name) return STATUS_FAILED;
    /* Gradients of a deferred update outlast the step that made them. */
    bool persistent =
        kind == TENSOR_GRADIENT ? policy_defers_update(&buffers->plan->policy, chunk) : kind != TENSOR_RESULT;
    struct buffer packed = {.pack = pack,
                            .name = name,
                            .kind = kind_of(kind),
                            .tier = home_of(buffers, kind, chunk),
                            .bytes = bytes,
                            .persistent = persistent};
    TRY(program_add_buffer(buffers->program, packed, &buffer));
    for (size_t i = 0; i < count; i++)
        buffers->buffers[list[i].id] = buffer;
    return kind == TENSOR_GRADIENT ? add_levels(buffers, list, count, packed, buffer) : STATUS_OK;
}

static int compare_packed(const void *a, const void *b) {
    const struct packed *x = a, *y = b;
    if (x->part.chunk != y->part.chunk) return x->part.chunk < y->part.chunk ? -1 : 1;
    if (x->part.block != y->part.block) return x->part.block < y->part.block ? -1 : 1;
    if (x->apart != y->apart) return y->apart ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static void list_packed(const struct step_buffers *buffers, enum tensor_kind kind, struct packed *list, size_t *count) {
    const struct graph *graph = buffers->graph;
    *count = 0;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        bool packed = tensor->kind == kind && !tensor->base && (kind != TENSOR_RESULT || tensor->parameter);
        if (!packed) continue;
        bool apart = buffers->sums && kind == TENSOR_GRADIENT && buffers->completed_by[i] < 0;
        list[(*count)++] = (struct packed){chunks_part_of(buffers->chunks, tensor), apart, tensor->id};
    }
    if (*count > 0) qsort(list, *count, sizeof *list, compare_packed);
}

static enum status add_packs(struct step_buffers *buffers, enum tensor_kind kind) {
    struct packed *list = mem_array(buffers->graph->tensors.count, sizeof *list);
    if (!list) return STATUS_FAILED;
    size_t count;
    list_packed(buffers, kind, list, &count);
    enum status status = STATUS_OK;
    for (size_t i = 0, end; i < count && status == STATUS_OK; i = end) {
        for (end = i;
             end < count && list[end].part.chunk == list[i].part.chunk && list[end].part.block == list[i].part.block;)
            end++;
        status = add_pack(buffers, kind, &list[i], end - i);
    }
    mem_free(list);
    return status;
}

static enum status make_arrays(struct step_buffers *buffers) {
    size_t tensors = buffers->graph->tensors.count + 1;
    buffers->buffers = mem_array(tensors, sizeof *buffers->buffers);
    buffers->offsets = mem_array(tensors, sizeof *buffers->offsets);
    buffers->packs = mem_array(tensors, sizeof *buffers->packs);
    if (!buffers->buffers || !buffers->offsets || !buffers->packs) return STATUS_FAILED;
    memset(buffers->buffers, -1, tensors * sizeof *buffers->buffers);
    memset(buffers->packs, -1, tensors * sizeof *buffers->packs);
    return STATUS_OK;
}

/* Persistent buffers come first, parameters and caches before all, so that every program of a model has them in the
 * same order. */
enum status step_buffers_create(struct step_buffers *buffers) {
    struct program *program = buffers->program;
    TRY(make_arrays(buffers));
    TRY(add_packs(buffers, TENSOR_PARAMETER));
    TRY(add_single_buffers(buffers, TENSOR_CACHE));
    TRY(add_packs(buffers, TENSOR_STATE));
    TRY(add_single_buffers(buffers, TENSOR_INPUT));
    TRY(add_packs(buffers, TENSOR_GRADIENT));
    TRY(add_packs(buffers, TENSOR_RESULT));
    TRY(add_single_buffers(buffers, TENSOR_RESULT));
    /* Deferred updates read the clip factor of the step before. */
    for (size_t i = 0; i < program->buffers.count && program->defers; i++) {
        struct buffer *buffer = &program->buffers.items[i];
        buffer->persistent |= buffer->kind == BUFFER_RESULTS && buffer_is_kept(buffer);
    }
    return STATUS_OK;
}

void step_buffers_free(struct step_buffers *buffers) {
    mem_free(buffers->buffers);
    mem_free(buffers->offsets);
    mem_free(buffers->packs);
    vec_free(&buffers->gradients);
    vec_free(&buffers->level_buffers);
}
