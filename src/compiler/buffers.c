#include "compiler/schedule.h"

struct packed_list {
    VEC(struct packed) list; /* pack by pack, each in its order */
};

static int compare(const void *a, const void *b) {
    const struct packed *x = a, *y = b;
    if (x->part.chunk != y->part.chunk) return x->part.chunk < y->part.chunk ? -1 : 1;
    if (x->part.block != y->part.block) return x->part.block < y->part.block ? -1 : 1;
    if (x->apart != y->apart) return y->apart ? -1 : 1;
    if (x->role != y->role) return x->role < y->role ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static bool is_held(const struct step_buffers *buffers, const struct tensor *tensor) {
    return !buffers->pipeline || pipeline_holds(buffers->pipeline, tensor, buffers->stage);
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
        if (!is_held(buffers, tensor)) continue;
        struct packed packed = {.part = chunks_part_of(buffers->chunks, tensor), .id = tensor->id, .order = tensor->id};
        packed.apart = buffers->sums && kind == TENSOR_GRADIENT && buffers->completed_by[i] < 0;
        if (cut) packed.order = buffers->chunks->first_element[tensor->parameter ? tensor->parameter->id : tensor->id];
        if (cut && kind == TENSOR_STATE) packed.role = roles[tensor->parameter->id]++;
        TRY(vec_push(&out->list, packed));
    }
    return STATUS_OK;
}

/* Tensors of a kind that belong to chunks: of results, those by parameter. The caller frees with vec_free, also after a
 * failure. */
static enum status packed_list_create(struct step_buffers *buffers, enum tensor_kind kind, struct packed_list *out) {
    int *roles;
    *out = (struct packed_list){.list = {0}};
    TRY(scratch_items(&buffers->memory, &roles, buffers->graph->tensors.count));
    TRY(list_packed(buffers, kind, roles, out));
    if (out->list.count > 0) qsort(out->list.items, out->list.count, sizeof *out->list.items, compare);
    return STATUS_OK;
}

/* The end of the pack that begins at `first`. If nothing is cut, a pack's other uses lie at its end; otherwise they are
 * a pack of their own. */
static size_t packed_list_end(const struct step_buffers *buffers, const struct packed_list *list, size_t first) {
    const struct packed *items = list->list.items;
    bool cut = step_buffers_cut(buffers);
    size_t end = first;
    while (end < list->list.count && items[end].part.chunk == items[first].part.chunk &&
           items[end].part.block == items[first].part.block && (!cut || items[end].apart == items[first].apart))
        end++;
    return end;
}

static enum status new_pack(const struct step_buffers *buffers, size_t count, struct pack **out) {
    TRY(scratch_items(&buffers->program->memory, out, 1));
    return scratch_items(&buffers->program->memory, &(*out)->members, count);
}

/* Whole tensors, each at a multiple of BUFFER_ALIGNMENT. */
static enum status pack_whole(const struct step_buffers *buffers, const struct packed *list, size_t count,
                              struct pack **out, int64_t *bytes) {
    TRY(new_pack(buffers, count, out));
    *bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const struct tensor *tensor = buffers->graph->tensors.items[list[i].id];
        (*out)->members[(*out)->count++] =
            (struct pack_member){.tensor = tensor, .offset = *bytes, .elements = shape_elements(&tensor->shape)};
        *bytes += buffer_aligned_bytes(shape_bytes(&tensor->shape));
    }
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

/* This rank's shard of `width` of the pack, role by role; width 1: all of it. Every rank has equally many bytes. */
static enum status pack_shard(const struct step_buffers *buffers, const struct packed *list, size_t count, int width,
                              struct pack **out, int64_t *bytes) {
    const struct shard_cut *cut = &buffers->of[list->part.chunk].cut;
    struct shard_range range = shard_range_of(cut, width, rank_place_data_rank(&buffers->plan->place));
    int64_t elements = shard_elements(cut, width), begin = 0, end = 0;
    TRY(new_pack(buffers, count, out));
    for (size_t i = 0; i < count; i++) {
        const struct tensor *tensor = buffers->graph->tensors.items[list[i].id];
        if (i == 0 || list[i].role != list[i - 1].role) { /* which may be of other dtypes, or by blocks */
            begin = end;
            end += tensor_elements_for(tensor, elements) * dtype_bytes(tensor->shape.dtype);
        }
        (*out)->members[(*out)->count++] = slice_of(buffers, tensor, &range, begin);
    }
    *bytes = end;
    return STATUS_OK;
}

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
    buffer.offset = buffer.original = -1;
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
    if (tensor->kind == TENSOR_INPUT) return buffers->micro_batches;
    return producer && step_buffers_sums_by_share(producer, tensor) ? buffers->shares : 1;
}

/* Adds buffers for tensors that are in no pack. */
static enum status add_single_buffers(struct step_buffers *buffers, enum tensor_kind kind) {
    for (size_t i = 0; i < buffers->graph->tensors.count; i++) {
        const struct tensor *tensor = buffers->graph->tensors.items[i];
        if (tensor->kind != kind || tensor->base || buffers->buffers[i] >= 0) continue;
        if (kind == TENSOR_CACHE && !is_held(buffers, tensor)) continue;
        TRY(program_add_tensor_buffer(buffers->program, tensor, count_of(buffers, tensor), TIER_DEVICE,
                                      &buffers->buffers[i]));
        buffers->update_places[i] =
            (struct tensor_place){buffers->buffers[i], {.elements = shape_elements(&tensor->shape)}};
    }
    return STATUS_OK;
}

static const char *name_of(const struct step_buffers *buffers, const char *of, int32_t chunk) {
    return scratch_format(&buffers->program->memory, "%s of chunk %d", of, chunk);
}

static const char *name_level(const struct step_buffers *buffers, const struct packed *first, int64_t round,
                              int level) {
    struct scratch *memory = &buffers->program->memory;
    struct chunk_part part = first->part;
    const char *what = level > 0 ? "partial sums" : first->apart ? "other uses' gradients" : "gradients";
    const char *name = name_of(buffers, what, part.chunk);
    if (name && !buffers->chunks->within_blocks) name = scratch_format(memory, "%s in block %d", name, part.block);
    if (name && buffers->rounds > 1) name = scratch_format(memory, "%s, round %lld", name, (long long)round);
    return !name || level == 0 ? name : scratch_format(memory, "%s, level %d", name, level);
}

static enum tier home_tier_of(const struct step_buffers *buffers, enum tensor_kind kind, int32_t chunk) {
    const struct policy *policy = &buffers->plan->policy;
    if (kind == TENSOR_RESULT) return TIER_DEVICE;
    if (kind == TENSOR_PARAMETER) return policy_home_tier(policy, chunk, policy->parameters);
    return policy_home_tier(policy, chunk, kind == TENSOR_GRADIENT ? policy->gradients : policy->optimizer);
}

/* Tensors side by side, at first nowhere. Those of a shard where `width` is not 0. */
static enum status make_packed(const struct step_buffers *buffers, const struct packed *list, size_t count, int width,
                               struct buffer *out) {
    struct pack *pack = NULL;
    enum tensor_kind kind = buffers->graph->tensors.items[list->id]->kind;
    *out = (struct buffer){.kind = kind_of(kind), .tier = home_tier_of(buffers, kind, list->part.chunk)};
    TRY(width > 0 ? pack_shard(buffers, list, count, width, &pack, &out->bytes)
                  : pack_whole(buffers, list, count, &pack, &out->bytes));
    out->pack = pack;
    return STATUS_OK;
}

/* The width by which a buffer of this kind is cut, 1 for whole ones; 0: in no order of shards. */
static int width_of(const struct step_buffers *buffers, int width) {
    return step_buffers_cut(buffers) ? partition_width(width) : 0;
}

static void set_places(const struct step_buffers *buffers, int32_t buffer) {
    const struct pack *pack = buffers->program->buffers.items[buffer].pack;
    for (int32_t m = 0; m < pack->count; m++) {
        buffers->buffers[pack->members[m].tensor->id] = buffer;
        buffers->offsets[pack->members[m].tensor->id] = pack->members[m].offset;
    }
}

static void set_update_places(const struct step_buffers *buffers, int32_t buffer) {
    const struct pack *pack = buffers->program->buffers.items[buffer].pack;
    for (int32_t m = 0; m < pack->count; m++) {
        const struct pack_member *member = &pack->members[m];
        buffers->update_places[member->tensor->id] =
            (struct tensor_place){buffer, {member->offset, member->first, member->elements}};
    }
}

/* Adds the buffer of a pack. */
static enum status add_packed(struct step_buffers *buffers, const struct packed *list, size_t count, int width,
                              const char *name, bool persistent, int32_t *out) {
    struct buffer added;
    TRY(make_packed(buffers, list, count, width, &added));
    added.name = name_of(buffers, name, list->part.chunk);
    added.persistent = persistent;
    return added.name ? program_add_buffer(buffers->program, added, out) : STATUS_FAILED;
}

/* ---- parameters, states, norms ---- */

typedef enum status add_pack(struct step_buffers *buffers, const struct packed *list, size_t count);

static enum status add_packs(struct step_buffers *buffers, enum tensor_kind kind, add_pack *add) {
    struct packed_list list;
    enum status status = packed_list_create(buffers, kind, &list);
    for (size_t i = 0, end; i < list.list.count && status == STATUS_OK; i = end) {
        end = packed_list_end(buffers, &list, i);
        status = add(buffers, &list.list.items[i], end - i);
    }
    vec_free(&list.list);
    return status;
}

/* A pack in which both forward and update find its tensors. */
static enum status add_persistent(struct step_buffers *buffers, const struct packed *list, size_t count,
                                  const char *name, int width, int32_t *out) {
    bool keeps = buffers->graph->tensors.items[list->id]->kind != TENSOR_RESULT;
    TRY(add_packed(buffers, list, count, width, name, keeps, out));
    set_places(buffers, *out);
    set_update_places(buffers, *out);
    return STATUS_OK;
}

static enum status add_parameters(struct step_buffers *buffers, const struct packed *list, size_t count) {
    int width = width_of(buffers, buffers->plan->policy.partition.parameters);
    return add_persistent(buffers, list, count, "parameters", width, &buffers->of[list->part.chunk].parameters);
}

static enum status add_states(struct step_buffers *buffers, const struct packed *list, size_t count) {
    int width = width_of(buffers, buffers->plan->policy.partition.optimizer);
    int32_t buffer;
    return add_persistent(buffers, list, count, "optimizer", width, &buffer);
}

static enum status add_norms(struct step_buffers *buffers, const struct packed *list, size_t count) {
    return add_persistent(buffers, list, count, "sums of squares", width_of(buffers, 1),
                          &buffers->of[list->part.chunk].norms);
}

/* Adds whole copies of parameters that are cut, for forward and backward: gathered from this rank's shards and those of
 * others. */
static enum status add_whole(struct step_buffers *buffers, const struct packed *list, size_t count) {
    struct chunk_buffers *of = &buffers->of[list->part.chunk];
    TRY(add_packed(buffers, list, count, 1, "whole parameters", false, &of->whole));
    struct buffer *whole = &buffers->program->buffers.items[of->whole];
    whole->tier = buffers->program->place.tier;
    whole->original = of->parameters;
    set_places(buffers, of->whole);
    return STATUS_OK;
}

/* ---- gradients ---- */

static struct gradient_pack_place place_of(struct step_buffers *buffers, const struct packed *list, size_t count,
                                           int64_t bytes) {
    struct gradient_pack_place place = {.completed_by = -1, .chunk = list->part.chunk};
    for (size_t i = 0; i < count; i++) {
        buffers->packs[list[i].id] = (int32_t)buffers->gradients.count;
        if (list[i].apart) continue;
        place.summed_bytes += buffer_aligned_bytes(shape_bytes(&buffers->graph->tensors.items[list[i].id]->shape));
        place.completed_by = buffers->completed_by[list[i].id]; /* that of all */
    }
    /* Between tensors of shards there are gaps. */
    if (step_buffers_cut(buffers) && place.completed_by >= 0) place.summed_bytes = bytes;
    return place;
}

/* Partial sums belong to one step. A tensor that is not summed is only used within its share, so one buffer serves all
 * levels. */
static enum status add_levels(struct step_buffers *buffers, const struct packed *list, struct buffer first,
                              int64_t summed_bytes, int64_t round, int32_t id) {
    TRY(vec_push(&buffers->level_buffers, id));
    first.persistent = false;
    for (int level = 1; level < buffers->levels; level++) {
        first.name = name_level(buffers, list, round, level);
        if (!first.name) return STATUS_FAILED;
        if (summed_bytes > 0) TRY(program_add_buffer(buffers->program, first, &id));
        TRY(vec_push(&buffers->level_buffers, id));
    }
    return STATUS_OK;
}

/* Gradients of a deferred update outlast the step that made them. */
static bool outlasts(const struct step_buffers *buffers, int32_t chunk) {
    return !buffers->early && policy_defers_update(&buffers->plan->policy, chunk);
}

static enum status add_shard(struct step_buffers *buffers, const struct packed *list, size_t count) {
    int32_t *sums = &buffers->of[list->part.chunk].sums;
    TRY(add_packed(buffers, list, count, buffers->plan->policy.partition.gradients, "sums of gradients",
                   outlasts(buffers, list->part.chunk), sums));
    set_update_places(buffers, *sums);
    return STATUS_OK;
}

static enum status add_gradients(struct step_buffers *buffers, const struct packed *list, size_t count) {
    bool cut = step_buffers_cut_gradients(buffers);
    struct buffer packed;
    TRY(make_packed(buffers, list, count, list->apart ? 0 : width_of(buffers, 1), &packed));
    if (cut) packed.kind = BUFFER_UNREDUCED;
    struct gradient_pack_place place = place_of(buffers, list, count, packed.bytes);
    packed.persistent = outlasts(buffers, list->part.chunk) && !cut;
    TRY(vec_push(&buffers->gradients, place));
    for (int64_t round = 0; round < buffers->rounds; round++) {
        int32_t buffer;
        packed.name = name_level(buffers, list, round, 0);
        if (!packed.name) return STATUS_FAILED;
        TRY(program_add_buffer(buffers->program, packed, &buffer));
        if (round == 0) set_places(buffers, buffer);
        if (round == 0) set_update_places(buffers, buffer);
        TRY(add_levels(buffers, list, packed, place.summed_bytes, round, buffer));
    }
    return cut && place.completed_by >= 0 ? add_shard(buffers, list, count) : STATUS_OK;
}

/* ---- all ---- */

static enum status make_arrays(struct step_buffers *buffers) {
    size_t tensors = buffers->graph->tensors.count + 1, chunks = buffers->chunks->chunks.count;
    TRY(scratch_items(&buffers->memory, &buffers->buffers, tensors));
    TRY(scratch_items(&buffers->memory, &buffers->offsets, tensors));
    TRY(scratch_items(&buffers->memory, &buffers->packs, tensors));
    TRY(scratch_items(&buffers->memory, &buffers->update_places, tensors));
    TRY(scratch_items(&buffers->memory, &buffers->of, chunks + 1));
    memset(buffers->buffers, -1, tensors * sizeof *buffers->buffers);
    memset(buffers->packs, -1, tensors * sizeof *buffers->packs);
    for (size_t i = 0; i < tensors; i++)
        buffers->update_places[i].buffer = -1;
    for (size_t c = 0; c < chunks; c++) {
        struct shard_cut cut = {.partition = buffers->plan->policy.partition,
                                .ranks = rank_place_data(&buffers->plan->place),
                                .elements = buffers->chunks->chunks.items[c].elements};
        buffers->of[c] = (struct chunk_buffers){cut, -1, -1, -1, -1};
    }
    return STATUS_OK;
}

/* Persistent buffers come first, parameters and caches before all, so that every program of a model has them in the
 * same order. */
enum status step_buffers_create(struct step_buffers *buffers) {
    struct program *program = buffers->program;
    TRY(make_arrays(buffers));
    TRY(add_packs(buffers, TENSOR_PARAMETER, add_parameters));
    TRY(add_single_buffers(buffers, TENSOR_CACHE));
    TRY(add_packs(buffers, TENSOR_STATE, add_states));
    TRY(add_single_buffers(buffers, TENSOR_INPUT));
    if (step_buffers_cut_parameters(buffers)) TRY(add_packs(buffers, TENSOR_PARAMETER, add_whole));
    TRY(add_packs(buffers, TENSOR_GRADIENT, add_gradients));
    TRY(add_packs(buffers, TENSOR_RESULT, add_norms));
    TRY(add_single_buffers(buffers, TENSOR_RESULT));
    /* Deferred updates read the clip factor of the step before. */
    for (size_t i = 0; i < program->buffers.count && program->defers; i++) {
        struct buffer *buffer = &program->buffers.items[i];
        buffer->persistent |= buffer->kind == BUFFER_RESULTS && buffer_is_kept(buffer);
    }
    return STATUS_OK;
}

void step_buffers_free(struct step_buffers *buffers) {
    scratch_free(&buffers->memory);
    vec_free(&buffers->gradients);
    vec_free(&buffers->level_buffers);
}
