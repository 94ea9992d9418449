#include "search/policy_bound.h"

#include "collective/schedule.h"
#include "compiler/program.h"
#include "plan/plan.h"

/* If chunks may be cut into shards, each tensor's elements are rounded up (plan/chunks.h). */
static int64_t bytes_of(const struct states *states, const struct tensor *tensor, bool cut) {
    bool rounds = cut && states->chunks.within_blocks;
    const struct tensor *parameter = tensor->kind == TENSOR_PARAMETER ? tensor : tensor->parameter;
    if (!rounds) return buffer_aligned_bytes(shape_bytes(&tensor->shape));
    int64_t elements = tensor_elements_for(tensor, shard_aligned(shape_elements(&parameter->shape)));
    return elements * dtype_bytes(tensor->shape.dtype);
}

ORDER_BY_BOTH(compare_packs, struct gradient_pack, item->chunk, item->block)

/* A parameter's first accumulator includes those of its other uses. */
static bool is_first_use(const struct graph *graph, size_t gradient) {
    for (size_t i = 0; i < gradient; i++)
        if (graph->tensors.items[i]->kind == TENSOR_GRADIENT &&
            graph->tensors.items[i]->parameter == graph->tensors.items[gradient]->parameter)
            return false;
    return true;
}

static enum status add_tensors(const struct graph *graph, struct states *states) {
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        const struct tensor *parameter = tensor->kind == TENSOR_PARAMETER ? tensor : tensor->parameter;
        if (tensor->base || !parameter || states->chunks.chunk_of[parameter->id] < 0) continue;
        struct chunk_part part = chunks_part_of(&states->chunks, tensor);
        struct chunk_sum *sum = &states->from[part.chunk];
        bool first = tensor->kind == TENSOR_GRADIENT && is_first_use(graph, i);
        int64_t bytes = bytes_of(states, tensor, first || tensor->kind != TENSOR_GRADIENT);
        if (tensor->kind == TENSOR_PARAMETER) sum->parameters += bytes, sum->packs = 1;
        if (tensor->kind == TENSOR_PARAMETER && states->chunks.chunks.items[part.chunk].trained)
            sum->trained += bytes, sum->trained_packs = 1;
        if (tensor->kind == TENSOR_STATE) sum->optimizer += bytes, sum->optimizer_packs = 1;
        if (tensor->kind != TENSOR_GRADIENT) continue;
        int64_t summed = first ? bytes : 0;
        sum->gradients += bytes;
        sum->summed += summed;
        TRY(vec_push(&states->gradients, (struct gradient_pack){part.chunk, tensor->block, bytes, summed}));
    }
    return STATUS_OK;
}

/* Makes one pack for each chunk and block that adds to its gradients. */
static void join_gradients(struct states *states) {
    struct gradient_pack *packs = states->gradients.items;
    size_t kept = 0;
    if (states->gradients.count > 0) qsort(packs, states->gradients.count, sizeof *packs, compare_packs);
    for (size_t i = 0; i < states->gradients.count; i++) {
        if (kept > 0 && compare_packs(&packs[kept - 1], &packs[i]) == 0) {
            packs[kept - 1].bytes += packs[i].bytes;
            packs[kept - 1].summed += packs[i].summed;
            continue;
        }
        states->from[packs[i].chunk].gradient_packs++;
        packs[kept++] = packs[i];
    }
    states->gradients.count = kept;
    for (size_t i = 0; i < kept; i++)
        states->from[packs[i].chunk].summed_packs += packs[i].summed > 0;
}

static const struct tensor *updated_parameter(const struct node *node) {
    for (int i = 0; i < node->op->outputs; i++)
        if (node->out[i] && node->out[i]->kind == TENSOR_PARAMETER) return node->out[i];
    return NULL;
}

static void add_seconds(const struct costs *costs, const struct node *node, enum tier tier,
                        double sums[ACTIVITY_COUNT]) {
    struct kernel_cost cost = costs_of_kernel(costs, node, tier);
    sums[cost.activity] += cost.seconds + costs->rates.issue_s;
}

/* The chunk of a kernel that sums squares of a gradient; -1: it is no such kernel. */
static int32_t summed_chunk(const struct states *states, const struct node *node) {
    const struct tensor *gradient = node->phase == PHASE_FINISH && node->op->by_elements ? node->in[0] : NULL;
    return gradient && gradient->parameter ? states->chunks.chunk_of[gradient->parameter->id] : -1;
}

static enum status add_kernel(const struct costs *costs, const struct node *node, int32_t chunk, bool updates,
                              struct states *states) {
    const struct element_kernel kernel = {chunk, updates, updates ? updated_parameter(node) : node->in[0]->parameter,
                                          costs_of_kernel(costs, node, TIER_DEVICE),
                                          costs_of_kernel(costs, node, TIER_HOST)};
    struct chunk_sum *sum = &states->from[chunk];
    add_seconds(costs, node, TIER_DEVICE, updates ? sum->update_s : sum->finish_s);
    if (updates) add_seconds(costs, node, TIER_HOST, sum->host_update_s);
    return vec_push(&states->kernels, kernel);
}

static enum status add_kernels(const struct graph *graph, const struct costs *costs, struct states *states) {
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        if (node->phase <= PHASE_BACKWARD) continue;
        int32_t updated = node->phase == PHASE_UPDATE ? chunks_updated_by(&states->chunks, node) : -1;
        int32_t summed = summed_chunk(states, node);
        if (updated >= 0 || summed >= 0)
            TRY(add_kernel(costs, node, updated >= 0 ? updated : summed, updated >= 0, states));
        else
            add_seconds(costs, node, TIER_DEVICE, states->once_s);
    }
    return STATUS_OK;
}

static void sum_up(struct chunk_sum *from, int32_t chunks) {
    for (int32_t c = chunks; c-- > 0;) {
        struct chunk_sum *sum = &from[c];
        const struct chunk_sum *next = sum + 1;
#define CHUNK_SUM_ADD(type, name) sum->name += next->name;
        CHUNK_SUM_LIST(CHUNK_SUM_ADD)
        for (int activity = 0; activity < ACTIVITY_COUNT; activity++) {
            sum->update_s[activity] += next->update_s[activity];
            sum->host_update_s[activity] += next->host_update_s[activity];
            sum->finish_s[activity] += next->finish_s[activity];
        }
    }
}

static void find_largest(struct states *states) {
    int64_t chunks = states_count(states);
    for (int64_t c = chunks; c-- > 0;) {
        int64_t bytes = states_parameters(states, c), next = states->largest[c + 1];
        states->largest[c] = bytes > next ? bytes : next;
    }
}

ORDER_BY(compare_ints, int32_t, *item)

/* Sorts uses by (phase, block, chunk) as one number, without duplicates. */
static enum status find_users(const struct graph *graph, struct states *states) {
    AUTO_VEC VEC(int32_t) uses = {0};
    int32_t chunks = states_count(states);
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        int32_t row = (int32_t)node->phase * states->blocks + node->block;
        for (int i = 0; i < node->op->inputs && node->phase <= PHASE_BACKWARD; i++) {
            int32_t chunk = node->in[i] ? states->chunks.chunk_of[node->in[i]->id] : -1;
            if (chunk >= 0) TRY(vec_push(&uses, row * chunks + chunk));
        }
    }
    if (uses.count > 0) qsort(uses.items, uses.count, sizeof *uses.items, compare_ints);
    states->users_first = scratch_alloc(&states->memory, 2 * (size_t)states->blocks + 1, sizeof *states->users_first);
    states->users = scratch_alloc(&states->memory, uses.count + 1, sizeof *states->users);
    states->users_bytes = scratch_alloc(&states->memory, uses.count + 1, sizeof *states->users_bytes);
    bool allocated = states->users_first && states->users && states->users_bytes;
    TRY(allocated ? STATUS_OK : STATUS_FAILED);
    int32_t block = 0, count = 0;
    for (size_t i = 0; i < uses.count; i++) {
        if (i > 0 && uses.items[i] == uses.items[i - 1]) continue;
        while (block < uses.items[i] / chunks)
            states->users_first[++block] = count;
        states->users[count++] = uses.items[i] % chunks;
    }
    while (block < 2 * states->blocks)
        states->users_first[++block] = count;
    for (int32_t i = count; i-- > 0;)
        states->users_bytes[i] = states->users_bytes[i + 1] + states_parameters(states, states->users[i]);
    return STATUS_OK;
}

/* Number of a block's chunks in both phases, from `first` on. */
static int32_t count_users(const struct states *states, int32_t block, int64_t first) {
    int32_t count = 0;
    const int32_t *end[2], *at[2];
    for (int phase = 0; phase < 2; phase++) {
        at[phase] = states->users + states->users_first[phase * states->blocks + block];
        end[phase] = states->users + states->users_first[phase * states->blocks + block + 1];
    }
    while (at[0] < end[0] || at[1] < end[1]) {
        bool forward = at[1] == end[1] || (at[0] < end[0] && *at[0] <= *at[1]);
        int32_t chunk = forward ? *at[0] : *at[1];
        for (int phase = 0; phase < 2; phase++)
            at[phase] += at[phase] < end[phase] && *at[phase] == chunk;
        count += chunk >= first;
    }
    return count;
}

static void find_read_again(struct states *states) {
    int32_t first = states->users_first[states->blocks], end = states->users_first[2 * states->blocks];
    for (int32_t i = first; i < end; i++)
        states->read_again[states->users[i]] = true;
    for (int32_t c = states_count(states); c-- > 0;) {
        bool again = states->read_again[c];
        states->from[c].again = states->from[c + 1].again + (again ? states_parameters(states, c) : 0);
        states->from[c].again_packs = states->from[c + 1].again_packs + again;
    }
}

static void find_min_buffers(struct states *states) {
    int64_t chunks = states_count(states);
    for (int64_t first = 0; first <= chunks; first++) {
        states->min_buffers[first] = 1;
        for (int32_t block = 0; block < states->blocks; block++) {
            int32_t count = count_users(states, block, first);
            if (count > states->min_buffers[first]) states->min_buffers[first] = count;
        }
    }
}

/* ---- shards ---- */

/* The fraction of a parameter's elements that lies in a range of its chunk's elements. */
static double part_within(const struct chunk_list *chunks, const struct tensor *parameter, struct shard_range range) {
    int64_t elements = shape_elements(&parameter->shape), begin = chunks->first_element[parameter->id];
    int64_t end = begin + elements < range.end ? begin + elements : range.end;
    if (begin < range.begin) begin = range.begin;
    return end > begin && elements > 0 ? (double)(end - begin) / (double)elements : 0;
}

/* A chunk's bytes, scaled to so many of its elements; both are multiples of the block. */
static int64_t part_of(int64_t bytes, const struct shard_cut *cut, int64_t elements) {
    return bytes / (cut->elements / SHARD_BLOCK) * (elements / SHARD_BLOCK);
}

static void divide_chunk(const struct chunk_sum *whole, const struct shard_cut *cut, struct chunk_sum *out) {
    const struct partition *widths = &cut->partition;
    int gradients = partition_width(widths->gradients);
    *out = *whole;
    memset(out->update_s, 0, sizeof out->update_s);
    memset(out->host_update_s, 0, sizeof out->host_update_s);
    memset(out->finish_s, 0, sizeof out->finish_s);
    if (cut->elements == 0) return;
    int64_t parameters = shard_elements(cut, partition_width(widths->parameters));
    out->parameters = part_of(whole->parameters, cut, parameters);
    out->trained = part_of(whole->trained, cut, parameters);
    out->optimizer = part_of(whole->optimizer, cut, shard_elements(cut, partition_width(widths->optimizer)));
    if (gradients > 1) out->shards = part_of(whole->summed, cut, shard_elements(cut, gradients));
}

static void add_part(const struct kernel_cost *cost, double part, double issue_s, double sums[ACTIVITY_COUNT]) {
    if (part > 0) sums[cost->activity] += part * cost->seconds + issue_s;
}

static void divide(const struct states *states, const struct partition *partition, const struct rank_place *place,
                   double issue_s, struct chunk_sum *from) {
    int ranks = rank_place_data(place);
    const struct partition widths = {partition_width(partition->parameters), partition_width(partition->gradients),
                                     partition_width(partition->optimizer)};
    for (int32_t c = 0; c < states_count(states); c++) {
        const struct shard_cut cut = {widths, ranks, states->chunks.chunks.items[c].elements};
        struct chunk_sum whole = chunk_sum_of(states->from, c);
        divide_chunk(&whole, &cut, &from[c]);
    }
    for (size_t i = 0; i < states->kernels.count; i++) {
        const struct element_kernel *kernel = &states->kernels.items[i];
        const struct shard_cut cut = {widths, ranks, states->chunks.chunks.items[kernel->chunk].elements};
        int width = kernel->updates ? widths.optimizer : widths.gradients;
        double part =
            part_within(&states->chunks, kernel->parameter, shard_range_of(&cut, width, rank_place_data_rank(place)));
        struct chunk_sum *sum = &from[kernel->chunk];
        add_part(&kernel->device, part, issue_s, kernel->updates ? sum->update_s : sum->finish_s);
        if (kernel->updates) add_part(&kernel->host, part, issue_s, sum->host_update_s);
    }
    sum_up(from, states_count(states));
}

struct chunk_sum *states_divide(const struct states *states, const struct partition *partition,
                                const struct rank_place *place, double issue_s) {
    size_t count = (size_t)states_count(states) + 1;
    struct chunk_sum *from = mem_array(count, sizeof *from);
    if (from && partition_cuts(partition))
        divide(states, partition, place, issue_s, from);
    else if (from)
        memcpy(from, states->from, count * sizeof *from);
    return from;
}

enum status states_deal(const struct states *states, const struct partition *partition, const struct rank_place *place,
                        struct states *out) {
    *out = *states;
    TRY(chunks_copy_places(&states->chunks, &out->chunks));
    return chunks_deal(&out->chunks, partition, rank_place_data(place));
}

void states_free_dealt(struct states *dealt) { chunks_free_places(&dealt->chunks); }

enum status states_create(const struct graph *graph, const struct costs *costs, const struct policy *policy,
                          struct states *out) {
    *out = (struct states){.chunk_bytes = policy->chunk_bytes, .blocks = graph_count_blocks(graph)};
    TRY(chunks_of_policy(graph, policy, &out->chunks));
    size_t chunks = out->chunks.chunks.count + 1;
    TRY(scratch_items(&out->memory, &out->from, chunks));
    TRY(scratch_items(&out->memory, &out->largest, chunks));
    TRY(scratch_items(&out->memory, &out->read_again, chunks));
    TRY(scratch_items(&out->memory, &out->min_buffers, chunks));
    TRY(add_tensors(graph, out));
    join_gradients(out);
    TRY(add_kernels(graph, costs, out));
    sum_up(out->from, states_count(out));
    find_largest(out);
    TRY(find_users(graph, out));
    find_read_again(out);
    find_min_buffers(out);
    return STATUS_OK;
}

void states_free(struct states *states) {
    chunks_free(&states->chunks);
    scratch_free(&states->memory);
    vec_free(&states->gradients);
    vec_free(&states->kernels);
    *states = (struct states){0};
}

struct chunk_sum chunk_sum_of(const struct chunk_sum *from, int64_t chunk) {
    const struct chunk_sum *sum = &from[chunk], *next = sum + 1;
#define CHUNK_SUM_DIFFERENCE(type, name) .name = sum->name - next->name,
    return (struct chunk_sum){CHUNK_SUM_LIST(CHUNK_SUM_DIFFERENCE)};
}

static enum status count_reductions(struct step_cut *cut, const struct recipe *recipe) {
    int ranks = rank_place_data(&cut->place);
    AUTO_FREE bool *empty = mem_array((size_t)ranks, sizeof *empty);
    enum status status = empty ? STATUS_OK : STATUS_FAILED;
    for (int64_t round = 0; ranks > 1 && round < cut->shares.rounds && status == STATUS_OK; round++) {
        bool any = false;
        status = lane_shares_find_empty(recipe, &cut->place, round, empty);
        for (int rank = 0; rank < ranks && status == STATUS_OK; rank++)
            any |= empty[rank];
        cut->reductions += !any;
    }
    return status;
}

enum status step_cut_create(const struct graph *graph, const struct recipe *recipe, const struct rank_place *place,
                            struct step_cut *out) {
    *out = (struct step_cut){.deepest = -1, .lanes = recipe->lanes, .rounds_sums = recipe->reduce_dtype == DTYPE_BF16};
    if (graph_has_backward(graph)) out->place = *place;
    TRY(program_cut(graph, recipe, place, &out->shares));
    for (size_t i = 0; i < out->shares.list.count; i++) {
        const struct lane_share *share = &out->shares.list.items[i];
        if (share->micro_batches == 0) continue;
        out->computed++;
        if (share->level > step_cut_waiting(out) || out->deepest < 0) out->deepest = (int32_t)i;
    }
    for (size_t i = 0; i < out->shares.steps.count; i++)
        out->adds += out->shares.steps.items[i].kind != LANE_SUM_REDUCE;
    return graph_has_backward(graph) ? count_reductions(out, recipe) : STATUS_OK;
}

void step_cut_free(struct step_cut *cut) { lane_shares_free(&cut->shares); }

int64_t step_cut_waves(const struct step_cut *cut, int64_t micro_batches_per_wave) {
    int64_t waves = 0;
    for (size_t i = 0; i < cut->shares.list.count; i++)
        if (cut->shares.list.items[i].micro_batches > 0)
            waves += movement_split_waves(cut->shares.list.items[i].micro_batches, micro_batches_per_wave).count;
    return waves;
}

static int64_t opening_micro_batches(const struct lane_share *share, int64_t micro_batches_per_wave) {
    return share->micro_batches < micro_batches_per_wave ? share->micro_batches : micro_batches_per_wave;
}

struct cut_waves step_cut_largest(const struct step_cut *cut, int64_t micro_batches_per_wave) {
    struct cut_waves waves = {0};
    for (size_t i = 0; i < cut->shares.list.count; i++) {
        const struct lane_share *share = &cut->shares.list.items[i];
        if (share->micro_batches == 0) continue;
        struct wave_split split = movement_split_waves(share->micro_batches, micro_batches_per_wave);
        int64_t later = split.count == 1 ? 0 : split.count > 2 ? split.micro_batches : split.last_micro_batches;
        if (i == 0) waves.first = opening_micro_batches(share, micro_batches_per_wave);
        if (later > waves.later) waves.later = later;
    }
    if (step_cut_waiting(cut) > 0)
        waves.deepest = opening_micro_batches(&cut->shares.list.items[cut->deepest], micro_batches_per_wave);
    return waves;
}

/* Input of a collective, and its seconds. Chunks have few sizes, so most collectives are alike. */
struct operation {
    enum comm_kind kind;
    int coarse, fine; /* shards of width `coarse` from those of width `fine` */
    int64_t bytes;
    double seconds;
};

struct measurer {
    const struct step_cut *cut;
    const struct partition *partition;
    bool flat;
    const struct cluster_rates *rates;
    struct lane_tree tree; /* of ranks */
    int *owners;
    VEC(struct operation) known;
};

static enum status measure(struct measurer *measurer, struct operation *operation, int64_t block_bytes) {
    const struct rank_place *place = &measurer->cut->place;
    int ranks = rank_place_data(place);
    bool sums = operation->kind != COMM_ALL_GATHER;
    shard_owners(measurer->partition, ranks, rank_place_data_rank(place), operation->coarse, operation->fine,
                 measurer->owners);
    const struct comm_spec spec = {.kind = operation->kind,
                                   .group = shard_group_of(place, operation->coarse, operation->fine),
                                   .bytes = operation->bytes,
                                   .in_place = place->in_place,
                                   .on_device = place->on_device,
                                   .round_bf16 = sums && measurer->cut->rounds_sums,
                                   .block_bytes = block_bytes,
                                   .owner = measurer->owners,
                                   .flat = measurer->flat && !place->on_device,
                                   .tree = sums ? &measurer->tree : NULL};
    struct comm_schedule schedule;
    TRY(comm_schedule_create(&place->mesh, place->rank, rank_place_message_bytes(place), &spec, &schedule));
    const struct program_collective collective = {.kind = operation->kind,
                                                  .group = spec.group,
                                                  .bytes = operation->bytes,
                                                  .round_bf16 = spec.round_bf16,
                                                  .traffic = schedule.traffic};
    operation->seconds =
        costs_collective_s(measurer->rates, place, measurer->flat, &collective) + measurer->rates->issue_s;
    comm_schedule_free(&schedule);
    return vec_push(&measurer->known, *operation);
}

/* Adds the seconds of a collective. `bytes`: of the rank's shard of width `coarse`; each finer one has at most
 * `block_bytes`. */
static enum status add(struct measurer *measurer, enum comm_kind kind, int coarse, int fine, int64_t bytes,
                       int64_t block_bytes, double *sum) {
    struct operation operation = {kind, coarse, fine, bytes, 0};
    if (coarse == fine || bytes == 0) return STATUS_OK;
    for (size_t i = 0; i < measurer->known.count; i++) {
        const struct operation *known = &measurer->known.items[i];
        if (known->kind == kind && known->coarse == coarse && known->fine == fine && known->bytes == bytes) {
            *sum += known->seconds;
            return STATUS_OK;
        }
    }
    TRY(measure(measurer, &operation, block_bytes));
    *sum += operation.seconds;
    return STATUS_OK;
}

/* Adds a gather of the rank's shard of a chunk. */
static enum status add_gather(struct measurer *measurer, const struct shard_cut *cut, int coarse, int fine,
                              int64_t element_bytes, double *sum) {
    struct shard_range range = shard_range_of(cut, coarse, rank_place_data_rank(&measurer->cut->place));
    return add(measurer, COMM_ALL_GATHER, coarse, fine, (range.end - range.begin) * element_bytes,
               shard_piece_elements(cut) * (cut->ranks / fine) * element_bytes, sum);
}

static enum status add_chunk(struct measurer *measurer, const struct states *states, int32_t chunk, double *round_s,
                             struct collective_seconds *out) {
    const struct chunk_sum whole = chunk_sum_of(states->from, chunk);
    const struct shard_cut cut = {*measurer->partition, rank_place_data(&measurer->cut->place),
                                  states->chunks.chunks.items[chunk].elements};
    int p = cut.partition.parameters, g = cut.partition.gradients, o = cut.partition.optimizer;
    if (cut.elements == 0) return STATUS_OK;
    const struct chunk *packed = &states->chunks.chunks.items[chunk];
    int64_t parameter_bytes = dtype_bytes(states->chunks.parameters.items[packed->first]->shape.dtype);
    double gather_s = 0;
    TRY(add_gather(measurer, &cut, 1, p, parameter_bytes, &gather_s));
    out->gather_s += gather_s;
    if (states->read_again[chunk]) out->gather_again_s += gather_s;
    if (gather_s > out->largest_gather_s) out->largest_gather_s = gather_s;
    if (whole.summed == 0) return STATUS_OK;
    int64_t piece_bytes = shard_piece_elements(&cut) * (int64_t)sizeof(float);
    enum comm_kind kind = g > 1 ? COMM_REDUCE_SCATTER : COMM_ALL_REDUCE;
    TRY(add(measurer, kind, 1, cut.ranks, whole.summed, piece_bytes, round_s));
    if (g == 1) return add_gather(measurer, &cut, p, o, parameter_bytes, &out->once_s);
    TRY(add_gather(measurer, &cut, g, cut.ranks, (int64_t)sizeof(float), round_s));
    TRY(add(measurer, COMM_ALL_GATHER, 1, g, cut.elements / SHARD_BLOCK * (int64_t)sizeof(double),
            shard_piece_elements(&cut) / SHARD_BLOCK * (cut.ranks / g) * (int64_t)sizeof(double), &out->once_s));
    return add_gather(measurer, &cut, p, o, parameter_bytes, &out->once_s);
}

/* Without a partition, sums are as long as their packs, with the blocks of comm_block. */
static enum status add_reductions(struct measurer *measurer, const struct states *states, double *round_s) {
    int ranks = rank_place_data(&measurer->cut->place);
    for (size_t i = 0; i < states->gradients.count; i++)
        TRY(add(measurer, COMM_ALL_REDUCE, 1, ranks, states->gradients.items[i].summed, 0, round_s));
    return STATUS_OK;
}

static enum status open(struct measurer *measurer, int ranks) {
    AUTO(lane_tree_free) struct lane_tree lanes = {0};
    TRY(mem_items(&measurer->owners, (size_t)ranks));
    TRY(lane_tree_of_shape(&measurer->cut->lanes, &lanes));
    return lane_tree_top(&lanes, ranks, &measurer->tree);
}

static enum status measure_all(struct measurer *measurer, const struct states *states, struct collective_seconds *out) {
    double round_s = 0;
    TRY(open(measurer, rank_place_data(&measurer->cut->place)));
    if (partition_cuts(measurer->partition))
        for (int32_t c = 0; c < states_count(states); c++)
            TRY(add_chunk(measurer, states, c, &round_s, out));
    else
        TRY(add_reductions(measurer, states, &round_s));
    out->reduce_s = round_s * (double)measurer->cut->reductions;
    return STATUS_OK;
}

enum status collective_seconds_measure(const struct step_cut *cut, const struct states *states,
                                       const struct partition *partition, bool flat, const struct cluster_rates *rates,
                                       struct collective_seconds *out) {
    const struct partition widths = {partition_width(partition->parameters), partition_width(partition->gradients),
                                     partition_width(partition->optimizer)};
    struct measurer measurer = {.cut = cut, .partition = &widths, .flat = flat, .rates = rates};
    *out = (struct collective_seconds){.reduce_s = 0};
    if (rank_place_data(&cut->place) == 1) return STATUS_OK;
    enum status status = measure_all(&measurer, states, out);
    lane_tree_free(&measurer.tree);
    mem_free(measurer.owners);
    vec_free(&measurer.known);
    return status;
}
