#include "compiler/packs.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) {
    const struct packed *x = a, *y = b;
    if (x->part.chunk != y->part.chunk) return x->part.chunk < y->part.chunk ? -1 : 1;
    if (x->part.block != y->part.block) return x->part.block < y->part.block ? -1 : 1;
    if (x->apart != y->apart) return y->apart ? -1 : 1;
    if (x->role != y->role) return x->role < y->role ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

/* Shards have parameters, gradients and states in the order of their parameters' places, each at the same elements. A
 * parameter's states have their roles in the same order as those of all others: `roles` counts them, by parameter. */
static enum status list_packed(const struct step_buffers *buffers, enum tensor_kind kind, int *roles,
                               struct packed_list *out) {
    const struct graph *graph = buffers->graph;
    bool cut = step_buffers_cut(buffers);
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != kind || tensor->base || (kind == TENSOR_RESULT && !tensor->parameter)) continue;
        if (buffers->pipeline && !pipeline_holds(buffers->pipeline, tensor, buffers->stage)) continue;
        struct packed packed = {.part = chunks_part_of(buffers->chunks, tensor), .id = tensor->id, .order = tensor->id};
        packed.apart = buffers->sums && kind == TENSOR_GRADIENT && buffers->completed_by[i] < 0;
        if (cut) packed.order = buffers->chunks->first_element[tensor->parameter ? tensor->parameter->id : tensor->id];
        if (cut && kind == TENSOR_STATE) packed.role = roles[tensor->parameter->id]++;
        TRY(vec_push(&out->list, packed));
    }
    return STATUS_OK;
}

enum status packed_list_create(const struct step_buffers *buffers, enum tensor_kind kind, struct packed_list *out) {
    *out = (struct packed_list){.list = {0}};
    int *roles = mem_array(buffers->graph->tensors.count, sizeof *roles);
    if (!roles) return STATUS_FAILED;
    enum status status = list_packed(buffers, kind, roles, out);
    mem_free(roles);
    TRY(status);
    if (out->list.count > 0) qsort(out->list.items, out->list.count, sizeof *out->list.items, compare);
    return STATUS_OK;
}

size_t packed_list_end(const struct step_buffers *buffers, const struct packed_list *list, size_t first) {
    const struct packed *items = list->list.items;
    bool cut = step_buffers_cut(buffers);
    size_t end = first;
    while (end < list->list.count && items[end].part.chunk == items[first].part.chunk &&
           items[end].part.block == items[first].part.block && (!cut || items[end].apart == items[first].apart))
        end++;
    return end;
}

static struct pack *new_pack(const struct step_buffers *buffers, size_t count) {
    struct scratch *memory = &buffers->program->memory;
    struct pack *pack = scratch_alloc(memory, 1, sizeof *pack);
    if (pack) pack->members = scratch_alloc(memory, count, sizeof *pack->members);
    return pack && pack->members ? pack : NULL;
}

enum status pack_whole(const struct step_buffers *buffers, const struct packed *list, size_t count, struct pack **out,
                       int64_t *bytes) {
    struct pack *pack = new_pack(buffers, count);
    if (!pack) return STATUS_FAILED;
    *bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const struct tensor *tensor = buffers->graph->tensors.items[list[i].id];
        pack->members[pack->count++] =
            (struct pack_member){.tensor = tensor, .offset = *bytes, .elements = shape_elements(&tensor->shape)};
        *bytes += buffer_aligned_bytes(shape_bytes(&tensor->shape));
    }
    *out = pack;
    return STATUS_OK;
}

static int64_t clamp(int64_t value, int64_t min, int64_t max) { return value < min ? min : value > max ? max : value; }

/* A slice without elements lies where it would begin. */
static struct pack_member slice_of(const struct step_buffers *buffers, const struct tensor *tensor,
                                   const struct shard_range *range, int64_t role_offset) {
    const struct tensor *parameter = tensor->kind == TENSOR_PARAMETER ? tensor : tensor->parameter;
    int64_t at = buffers->chunks->first_element[parameter->id], element = dtype_bytes(tensor->shape.dtype);
    int64_t begin = clamp(at, range->begin, range->end), per = tensor_elements_per(tensor);
    int64_t end = clamp(at + shape_elements(&parameter->shape), range->begin, range->end);
    return (struct pack_member){.tensor = tensor,
                                .offset = role_offset + (begin - range->begin) / per * element,
                                .first = end > begin ? (begin - at) / per : 0,
                                .elements = tensor_elements_for(tensor, end - begin)};
}

enum status pack_shard(const struct step_buffers *buffers, const struct packed *list, size_t count, int width,
                       struct pack **out, int64_t *bytes) {
    const struct shard_cut *cut = &buffers->of[list->part.chunk].cut;
    struct shard_range range = shard_range_of(cut, width, rank_place_data_rank(&buffers->plan->place));
    int64_t elements = shard_elements(cut, width), begin = 0, end = 0;
    struct pack *pack = new_pack(buffers, count);
    if (!pack) return STATUS_FAILED;
    for (size_t i = 0; i < count; i++) {
        const struct tensor *tensor = buffers->graph->tensors.items[list[i].id];
        if (i == 0 || list[i].role != list[i - 1].role) { /* which may be of other dtypes, or by blocks */
            begin = end;
            end += tensor_elements_for(tensor, elements) * dtype_bytes(tensor->shape.dtype);
        }
        pack->members[pack->count++] = slice_of(buffers, tensor, &range, begin);
    }
    *bytes = end;
    *out = pack;
    return STATUS_OK;
}
