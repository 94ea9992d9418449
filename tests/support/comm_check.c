#include "support/comm_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "base/random.h"
#include "collective/lane_tree.h"
#include "collective/schedule.h"
#include "plan/chunks.h"

/* ---- The reference: one rank that adds the same lanes ---- */

static uint64_t draw(uint64_t seed, uint64_t what, uint64_t below) {
    return random_u64(seed, RANDOM_TEST, 7, what) % below;
}

/* Values of many sizes, both zeros among them, so that another order of adding shows. */
static float lane_value(uint64_t seed, int time, int lane, int64_t element) {
    uint64_t bits = random_u64(seed + 1000003u * (uint64_t)time, RANDOM_TEST, (uint32_t)lane, (uint64_t)element);
    if (bits % 16 == 0) return bits & 64 ? -0.0f : 0.0f;
    float value = (float)((double)(bits >> 20) * 0x1p-44 - 0.5);
    return ldexpf(value, (int)(bits % 13) - 6);
}

struct sum_recipe {
    int nodes, per_node;
    bool round_bf16;
    const bool *empty;
    uint64_t seed;
    int time;
};

static float edge(const struct sum_recipe *recipe, float value) {
    return recipe->round_bf16 ? bf16_to_float(bf16_from_float(value)) : value;
}

/* The sum of `units` units of `width` lanes from `first` on; false: none of them has anything. */
static bool plain_sum(const struct sum_recipe *recipe, int first, int units, int width, int64_t element, float *out) {
    if (units == 1 && width == 1) {
        *out = lane_value(recipe->seed, recipe->time, first, element);
        return !recipe->empty[first];
    }
    if (units == 1) return plain_sum(recipe, first, width, 1, element, out);
    int half = (units + 1) / 2;
    float left, right;
    bool has_left = plain_sum(recipe, first, half, width, element, &left);
    bool has_right = plain_sum(recipe, first + half * width, units - half, width, element, &right);
    if (has_left && has_right)
        *out = edge(recipe, left) + edge(recipe, right);
    else if (has_left || has_right)
        *out = edge(recipe, has_left ? left : right);
    return has_left || has_right;
}

/* ---- One operation ---- */

struct check {
    const struct backend *device; /* NULL: memory of the process */
    char *there;                  /* its memory, `part_bytes` bytes of each part */
    int64_t part_bytes;
    struct comm *comm;
    struct comm_spec spec;
    struct comm_shared_segment shared_segment;
    struct comm_operation *operation;
    struct sum_recipe recipe;
    struct lane_tree tree, top; /* reductions: of the recipe's lanes, and of the group's ranks */
    int subtree[64], owner[64];
    bool empty_lane[64], empty_rank[64];
    char *data, *out, *staging, *mine;
    int me;
    bool takes; /* its block of a gather is elsewhere */
};

static enum status wrong(const struct check *check, const char *what, int64_t at) {
    static const char *const names[] = {"all-gather", "reduce-scatter", "all-reduce", "broadcast", "all-to-all"};
    return status_set(STATUS_FAILED,
                      "seed %llu, time %d, rank %d: %s of %lld bytes in a group of %d from %d by %d, lanes "
                      "%dx%d%s%s%s%s%s, blocks of %lld: %s at %lld",
                      (unsigned long long)check->recipe.seed, check->recipe.time, check->comm->rank,
                      names[check->spec.kind], (long long)check->spec.bytes, check->spec.group.count,
                      check->spec.group.first, check->spec.group.stride, check->recipe.nodes, check->recipe.per_node,
                      check->spec.in_place ? ", in place" : "",
                      check->spec.round_sum    ? ", bf16 and the sum"
                      : check->spec.round_bf16 ? ", bf16"
                                               : "",
                      check->spec.flat ? ", flat" : "", check->spec.owner ? ", owners" : "",
                      check->spec.mine ? ", mine" : "", (long long)check->spec.block_bytes, what, (long long)at);
}

static bool reduces(const struct comm_spec *spec) {
    return spec->kind == COMM_REDUCE_SCATTER || spec->kind == COMM_ALL_REDUCE;
}

/* A divisor of `count`. */
static int draw_divisor(uint64_t seed, uint64_t what, int count) {
    int width = 1 + (int)draw(seed, what, (uint64_t)count);
    while (count % width != 0)
        width--;
    return width;
}

/* The ranks at this rank's place in all parts of `width` neighbours. */
static struct comm_group replicas_of(const struct comm_group *group, int rank, int width) {
    int first = mesh_group_position(group, rank) % width;
    return (struct comm_group){mesh_group_rank(group, first), group->stride * width, group->count / width};
}

static struct comm_group draw_group(const struct comm *comm, uint64_t seed) {
    struct comm_group group = mesh_group(&comm->mesh, comm->rank, (enum mesh_group_kind)draw(seed, 1, 3));
    if (draw(seed, 2, 2)) return group;
    int width = draw_divisor(seed, 3, group.count);
    return draw(seed, 4, 2) ? mesh_group_part(&group, comm->rank, width) : replicas_of(&group, comm->rank, width);
}

/* A recipe whose lanes the group can hold, by several lanes a rank at times. */
static void draw_lanes(struct check *check, uint64_t seed) {
    int count = check->spec.group.count, more = 1 << draw(seed, 5, 3);
    check->recipe.nodes = 1;
    check->recipe.per_node = count * (more * count <= 64 ? more : 1);
    if ((count & (count - 1)) != 0) check->recipe.per_node = count;
    int nodes = draw_divisor(seed, 6, check->recipe.per_node);
    if (draw(seed, 7, 2)) {
        check->recipe.nodes = nodes;
        check->recipe.per_node /= nodes;
    }
    int lanes = check->recipe.nodes * check->recipe.per_node;
    bool some_empty = draw(seed, 8, 3) == 0;
    int full = (int)draw(seed, 9, (uint64_t)lanes);
    for (int i = 0; i < lanes; i++)
        check->empty_lane[i] = some_empty && i != full && draw(seed, 100 + (uint64_t)i, 3) == 0;
    check->recipe.empty = check->empty_lane;
}

static enum status cut_lanes(struct check *check) {
    TRY(lane_tree_create(check->recipe.nodes, check->recipe.per_node, &check->tree));
    TRY(lane_tree_cut(&check->tree, check->spec.group.count, check->subtree));
    TRY(lane_tree_top(&check->tree, check->spec.group.count, &check->top));
    bool *absent = mem_array((size_t)check->tree.count, sizeof *absent);
    if (!absent) return STATUS_FAILED;
    lane_find_absent(&check->tree, check->empty_lane, absent);
    for (int i = 0; i < check->spec.group.count; i++)
        check->empty_rank[i] = absent[check->subtree[i]];
    mem_free(absent);
    check->spec.tree = &check->top;
    check->spec.empty = check->empty_rank;
    return STATUS_OK;
}

/* Blocks of another size, with space for all bytes, and with owners in any order: the same in the whole group. */
static void draw_blocks(struct check *check, uint64_t seed) {
    struct comm_spec *spec = &check->spec;
    int64_t each = (spec->bytes + spec->group.count - 1) / spec->group.count;
    spec->flat = draw(seed, 15, 2);
    if (!reduces(spec) && spec->kind != COMM_ALL_GATHER) return;
    if (draw(seed, 16, 2)) spec->block_bytes = (each + 3 + (int64_t)draw(seed, 17, 600)) / 4 * 4;
    for (int b = 0; b < spec->group.count; b++)
        check->owner[b] = (int)random_permute(seed, 3, (uint64_t)b, (uint64_t)spec->group.count);
    if (draw(seed, 18, 2)) spec->owner = check->owner;
}

/* Sums on devices begin at multiples of 64 bytes. */
static void suit_device(struct comm_spec *spec) {
    spec->in_place = spec->flat = false;
    if (reduces(spec)) spec->block_bytes = (spec->block_bytes + 63) / 64 * 64;
}

static void draw_spec(struct check *check, uint64_t seed) {
    static const int64_t elements[] = {0, 1, 5, 16, 17, 100, 1000, 4096, 5000, 20000};
    struct comm_spec *spec = &check->spec;
    *spec =
        (struct comm_spec){.kind = (enum comm_kind)draw(seed, 10, COMM_KINDS), .group = draw_group(check->comm, seed)};
    spec->bytes = elements[draw(seed, 11, 10)] * (int64_t)sizeof(float);
    if (spec->kind == COMM_ALL_TO_ALL) spec->bytes = spec->bytes * spec->group.count;
    spec->root = (int)draw(seed, 12, (uint64_t)spec->group.count);
    spec->in_place = draw(seed, 13, 2);
    spec->round_bf16 = reduces(spec) && draw(seed, 14, 2);
    spec->round_sum = spec->kind == COMM_ALL_REDUCE && spec->round_bf16 && draw(seed, 23, 2);
    check->recipe = (struct sum_recipe){.nodes = 1,
                                        .per_node = spec->group.count,
                                        .round_bf16 = spec->round_bf16,
                                        .empty = check->empty_lane,
                                        .seed = seed};
    if (reduces(spec)) draw_lanes(check, seed);
    draw_blocks(check, seed);
    if (check->device) suit_device(spec);
    check->takes = spec->kind == COMM_ALL_GATHER && draw(seed, 19 + (uint64_t)check->comm->rank, 2);
    check->me = mesh_group_position(&spec->group, check->comm->rank);
}

/* The block of a position of the group. */
static struct comm_range block_of(const struct comm_spec *spec, int position) {
    int block = 0;
    while (spec->owner && spec->owner[block] != position)
        block++;
    return comm_spec_block(spec, spec->owner ? block : position);
}

/* Data lies somewhat into the shared segment. */
enum { INTO_SHARED_SEGMENT = 192 };

static enum status take_memory(struct check *check) {
    struct comm_spec *spec = &check->spec;
    if (spec->in_place) {
        TRY(comm_shared_segment_open(check->comm, spec->bytes + INTO_SHARED_SEGMENT + 4096 * check->comm->rank,
                                     &check->shared_segment));
        spec->in_place = check->shared_segment.shared;
        spec->data = (char *)check->shared_segment.base + INTO_SHARED_SEGMENT;
    } else {
        spec->data = check->data = mem_aligned(64, (size_t)(spec->bytes + 64) / 64 * 64);
    }
    spec->out = check->out = mem_aligned(64, (size_t)(spec->bytes + 64) / 64 * 64);
    if (check->takes) spec->mine = check->mine = mem_aligned(64, (size_t)(spec->bytes + 64) / 64 * 64);
    if (check->takes && !spec->mine) return STATUS_FAILED;
    int64_t staging;
    TRY(comm_staging_bytes(check->comm, spec, &staging));
    spec->staging = check->staging = mem_aligned(64, (size_t)(staging + 64) / 64 * 64);
    return spec->data && spec->out && spec->staging ? STATUS_OK : STATUS_FAILED;
}

/* The same operation on the device, which has data, out, the own block, and staging. */
static enum status take_device_memory(struct check *check, struct comm_spec *there) {
    int64_t staging;
    void *base;
    check->part_bytes = (check->spec.bytes + 64) / 64 * 64;
    TRY(comm_staging_bytes(check->comm, &check->spec, &staging));
    TRY(check->device->memory->take(TIER_DEVICE, 3 * check->part_bytes + staging + 64, &base));
    check->there = base;
    *there = check->spec;
    there->on_device = true;
    there->data = check->there;
    there->out = check->there + check->part_bytes;
    if (check->takes) there->mine = check->there + 2 * check->part_bytes;
    there->staging = check->there + 3 * check->part_bytes;
    return STATUS_OK;
}

static enum status begin_check(struct comm *comm, struct check *check) {
    check->comm = comm;
    if (reduces(&check->spec)) TRY(cut_lanes(check));
    TRY(take_memory(check));
    if (!check->device) return comm_create(comm, &check->spec, &check->operation);
    struct comm_spec there;
    TRY(take_device_memory(check, &there));
    return comm_create(comm, &there, &check->operation);
}

static void end_check(struct check *check) {
    comm_free(check->operation);
    comm_shared_segment_close(check->comm, &check->shared_segment);
    lane_tree_free(&check->tree);
    lane_tree_free(&check->top);
    mem_free(check->data);
    mem_free(check->out);
    mem_free(check->staging);
    mem_free(check->mine);
    if (check->there) check->device->memory->give_back(TIER_DEVICE, check->there);
}

/* What this rank has before: the sum of its lanes by the product's own tree. Undefined bytes are 0xFF. */
static enum status fill_sum(struct check *check) {
    int64_t count = check->spec.bytes / (int64_t)sizeof(float);
    const struct lane_node *node = &check->tree.node[check->subtree[check->me]];
    if (check->empty_rank[check->me]) return STATUS_OK;
    struct lane_values lanes[64];
    bool *absent = mem_array((size_t)check->tree.count, sizeof *absent);
    float *values = mem_array((size_t)(count * node->lanes) + 1, sizeof *values);
    if (!absent || !values) return STATUS_FAILED;
    for (int i = 0; i < node->lanes; i++) {
        lanes[node->first + i] = (struct lane_values){.plain = values + count * i};
        for (int64_t e = 0; e < count; e++)
            values[count * i + e] = lane_value(check->recipe.seed, check->recipe.time, node->first + i, e);
    }
    lane_find_absent(&check->tree, check->empty_lane, absent);
    lane_tree_sum(&check->tree, check->subtree[check->me], absent, lanes, count, check->recipe.round_bf16,
                  check->spec.data);
    mem_free(absent);
    mem_free(values);
    return STATUS_OK;
}

/* The bytes of rank `from` of the group, as floats. */
static float own_value(const struct check *check, int from, int64_t element) {
    int64_t group = check->spec.group.first + 1000 * check->spec.group.stride;
    return lane_value(check->recipe.seed + (uint64_t)group, check->recipe.time, from, element);
}

static enum status fill(struct check *check, int time) {
    const struct comm_spec *spec = &check->spec;
    check->recipe.time = time;
    memset(spec->data, 0xFF, (size_t)spec->bytes);
    memset(spec->out, 0xFF, (size_t)spec->bytes);
    if (reduces(spec)) return fill_sum(check);
    struct comm_range range = {0, spec->bytes};
    if (spec->kind == COMM_ALL_GATHER) range = block_of(spec, check->me);
    if (spec->kind == COMM_BROADCAST && check->me != spec->root) return STATUS_OK;
    float *to = (float *)(check->takes ? check->mine - range.begin : spec->data);
    for (int64_t e = range.begin / 4; e < range.end / 4; e++)
        to[e] = own_value(check, check->me, e);
    return STATUS_OK;
}

static enum status expect(const struct check *check, const void *found, float value, int64_t element) {
    float got = ((const float *)found)[element];
    return float_bits(got) == float_bits(value) ? STATUS_OK : wrong(check, "other bits", element);
}

static enum status compare_sum(struct check *check) {
    const struct comm_spec *spec = &check->spec;
    struct comm_range range = {0, spec->bytes};
    if (spec->kind == COMM_REDUCE_SCATTER) range = block_of(spec, check->me);
    for (int64_t e = range.begin / 4; e < range.end / 4; e++) {
        float value;
        if (!plain_sum(&check->recipe, 0, check->recipe.nodes, check->recipe.per_node, e, &value))
            return wrong(check, "no lane has anything", e);
        TRY(expect(check, spec->data, spec->round_sum ? edge(&check->recipe, value) : value, e));
    }
    return STATUS_OK;
}

static enum status compare(struct check *check) {
    const struct comm_spec *spec = &check->spec;
    if (reduces(spec)) return compare_sum(check);
    if (spec->kind == COMM_BROADCAST) {
        for (int64_t e = 0; e < spec->bytes / 4; e++)
            TRY(expect(check, spec->data, own_value(check, spec->root, e), e));
        return STATUS_OK;
    }
    struct comm_range mine = block_of(spec, check->me);
    for (int from = 0; from < spec->group.count; from++) {
        struct comm_range range = block_of(spec, from);
        bool all_to_all = spec->kind == COMM_ALL_TO_ALL;
        for (int64_t e = range.begin / 4; e < range.end / 4; e++) {
            int64_t theirs = all_to_all ? mine.begin / 4 + (e - range.begin / 4) : e;
            TRY(expect(check, all_to_all ? spec->out : spec->data, own_value(check, from, theirs), e));
        }
    }
    return STATUS_OK;
}

/* ---- Traffic ---- */

static void subtract(struct comm_traffic *from, const struct comm_traffic *what) {
    for (int axis = 0; axis < MESH_AXES; axis++) {
        from->sent[axis] -= what->sent[axis];
        from->received[axis] -= what->received[axis];
    }
    from->read -= what->read;
}

static bool same_traffic(const struct comm_traffic *a, const struct comm_traffic *b, int times) {
    bool same = a->read == times * b->read;
    for (int axis = 0; axis < MESH_AXES; axis++)
        same = same && a->sent[axis] == times * b->sent[axis] && a->received[axis] == times * b->received[axis];
    return same;
}

static bool any_empty(const struct check *check) {
    for (int i = 0; reduces(&check->spec) && i < check->spec.group.count; i++)
        if (check->empty_rank[i]) return true;
    return false;
}

/* The closed formula: what all ranks of the group move together, and what of it between nodes. */
static enum status check_formula(const struct check *check, const struct comm_traffic *mine, int times) {
    const struct comm_spec *spec = &check->spec;
    int64_t count = spec->group.count, total = 0, across = 0, received = 0;
    struct comm_traffic all[64];
    TRY(comm_all_gather(check->comm, &spec->group, mine, sizeof *mine, all));
    for (int i = 0; i < count; i++) {
        total += all[i].sent[MESH_IN_NODE] + all[i].sent[MESH_ACROSS] + all[i].read;
        across += all[i].sent[MESH_ACROSS];
        received += all[i].received[MESH_IN_NODE] + all[i].received[MESH_ACROSS] + all[i].read;
    }
    if (total != received) return wrong(check, "more sent than received", total - received);
    if (any_empty(check) || spec->round_bf16) return STATUS_OK;
    int64_t waves = spec->kind == COMM_ALL_REDUCE ? 2 : 1, wanted = waves * (count - 1) * spec->bytes;
    if (total != times * wanted) return wrong(check, "bytes moved", total);
    int per_node = mesh_group_per_node(&check->comm->mesh, &spec->group);
    bool aligned = per_node > 0 && (spec->flat || !reduces(spec) || (count & (count - 1)) == 0);
    if (!aligned || spec->kind == COMM_ALL_TO_ALL) return STATUS_OK;
    int64_t whole = spec->flat ? count - per_node : count / per_node - 1;
    if (across != times * waves * whole * spec->bytes) return wrong(check, "bytes between nodes", across);
    return STATUS_OK;
}

static enum status check_traffic(const struct check *check, const struct comm_traffic *before, int times) {
    struct comm_traffic moved;
    struct comm_schedule schedule;
    comm_read_traffic(check->comm, &moved);
    subtract(&moved, before);
    TRY(comm_schedule_create(&check->comm->mesh, check->comm->rank, check->comm->message_bytes, &check->spec,
                             &schedule));
    bool same = same_traffic(&moved, &schedule.traffic, times);
    comm_schedule_free(&schedule);
    if (!same) return wrong(check, "traffic is not the schedule's", moved.sent[MESH_IN_NODE]);
    return check_formula(check, &moved, times);
}

/* ---- What tests call ---- */

static enum status bring_to_device(const struct check *check) {
    const struct comm_spec *spec = &check->spec;
    if (!check->device || spec->bytes == 0) return STATUS_OK;
    const struct backend_memory *memory = check->device->memory;
    TRY(memory->write(check->there, spec->data, spec->bytes));
    TRY(memory->write(check->there + check->part_bytes, spec->out, spec->bytes));
    return check->takes ? memory->write(check->there + 2 * check->part_bytes, check->mine, spec->bytes) : STATUS_OK;
}

static enum status fetch_from_device(const struct check *check) {
    const struct comm_spec *spec = &check->spec;
    if (!check->device || spec->bytes == 0) return STATUS_OK;
    const struct backend_memory *memory = check->device->memory;
    TRY(memory->read(spec->data, check->there, spec->bytes));
    return memory->read(spec->out, check->there + check->part_bytes, spec->bytes);
}

static enum status execute(struct check *check, int times) {
    struct comm_traffic before;
    comm_read_traffic(check->comm, &before);
    for (int time = 0; time < times; time++) {
        TRY(fill(check, time));
        TRY(bring_to_device(check));
        comm_start(check->operation);
        TRY(comm_wait(check->operation));
        TRY(fetch_from_device(check));
        TRY(compare(check));
    }
    return check_traffic(check, &before, times);
}

static enum status check_random(struct comm *comm, const struct backend *device, uint64_t seed, int times) {
    struct check check = {.comm = comm, .device = device};
    draw_spec(&check, seed);
    enum status status = begin_check(comm, &check);
    if (status == STATUS_OK) status = execute(&check, times);
    end_check(&check);
    return status;
}

enum status comm_check_random(struct comm *comm, uint64_t seed, int times) {
    return check_random(comm, NULL, seed, times);
}

enum status comm_check_on_device(struct comm *comm, const struct backend *device, uint64_t seed, int times) {
    return check_random(comm, device, seed, times);
}

static enum status run_together(struct check *checks, int count, uint64_t seed) {
    uint64_t round = (uint64_t)checks[0].comm->rank;
    for (int time = 0; time < 3; time++) {
        for (int i = 0; i < count; i++)
            TRY(fill(&checks[i], time));
        for (int i = 0; i < count; i++)
            comm_start(checks[random_permute(seed, (uint32_t)round, (uint64_t)i, (uint64_t)count)].operation);
        for (int i = 0; i < count; i++) {
            TRY(comm_wait(checks[i].operation));
            TRY(compare(&checks[i]));
        }
    }
    return STATUS_OK;
}

enum status comm_check_together(struct comm *comm, uint64_t seed, int count) {
    struct check *checks = mem_array((size_t)count, sizeof *checks);
    if (!checks) return STATUS_FAILED;
    enum status status = STATUS_OK;
    int begun = 0;
    for (; begun < count && status == STATUS_OK; begun++) {
        checks[begun].comm = comm;
        draw_spec(&checks[begun], seed * 1000 + (uint64_t)begun);
        status = begin_check(comm, &checks[begun]);
    }
    if (status == STATUS_OK) status = run_together(checks, count, seed);
    while (begun-- > 0)
        end_check(&checks[begun]);
    mem_free(checks);
    return status;
}

/* ---- partitions ---- */

/* Widths of shards between which states are gathered or reduced (plan/chunks.h). */
static void draw_widths(const struct partition *partition, int ranks, uint64_t seed, int *coarse, int *fine) {
    int p = partition->parameters, g = partition->gradients, o = partition->optimizer;
    const int pairs[][2] = {{1, p}, {p, o}, {g, ranks}, {1, g}};
    int pair = (int)draw(seed, 31, 4);
    *coarse = pairs[pair][0];
    *fine = pairs[pair][1];
}

static void set_shards(struct check *check, const struct shard_cut *cut, int coarse, int fine, int64_t element_bytes) {
    struct comm_spec *spec = &check->spec;
    int rank = check->comm->rank;
    shard_owners(&cut->partition, cut->ranks, rank, coarse, fine, check->owner);
    spec->owner = check->owner;
    struct shard_range range = shard_range_of(cut, coarse, rank);
    spec->bytes = (range.end - range.begin) * element_bytes;
    spec->block_bytes = shard_piece_elements(cut) * (cut->ranks / fine) * element_bytes;
}

/* A chunk of a few blocks, empty pieces among them; a gather of a group's shards, or the reduction over all ranks. */
static void draw_shards(struct check *check, const struct partition *partition, uint64_t seed) {
    struct comm_spec *spec = &check->spec;
    int ranks = mesh_ranks(&check->comm->mesh), coarse = 1, fine = ranks, rank = check->comm->rank;
    int64_t blocks = 1 + (int64_t)draw(seed, 30, 3 * (uint64_t)ranks);
    struct shard_cut cut = {.partition = *partition, .ranks = ranks, .elements = SHARD_BLOCK * blocks};
    enum comm_kind kinds[] = {COMM_ALL_GATHER, COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_ALL_REDUCE};
    *spec = (struct comm_spec){.kind = kinds[draw(seed, 32, 4)]};
    if (!reduces(spec)) draw_widths(partition, ranks, seed, &coarse, &fine);
    spec->group = shard_group(rank, coarse, fine);
    spec->in_place = draw(seed, 33, 2);
    spec->flat = draw(seed, 34, 2);
    spec->round_bf16 = reduces(spec) && draw(seed, 35, 2);
    set_shards(check, &cut, coarse, fine, reduces(spec) || draw(seed, 36, 2) ? 4 : 8);
    check->recipe = (struct sum_recipe){.nodes = 1,
                                        .per_node = spec->group.count,
                                        .round_bf16 = spec->round_bf16,
                                        .empty = check->empty_lane,
                                        .seed = seed};
    if (reduces(spec)) draw_lanes(check, seed);
    check->me = mesh_group_position(&spec->group, rank);
    check->takes = spec->kind == COMM_ALL_GATHER && draw(seed, 40 + (uint64_t)rank, 2);
}

static enum status check_partition(struct comm *comm, const struct partition *partition, uint64_t seed) {
    struct check check = {.comm = comm};
    draw_shards(&check, partition, seed);
    enum status status = begin_check(comm, &check);
    if (status == STATUS_OK) status = execute(&check, 2);
    end_check(&check);
    return status;
}

enum status comm_check_partitions(struct comm *comm, uint64_t seed, int of_each) {
    struct partition *partitions;
    int count;
    TRY(partition_list(&comm->mesh, &partitions, &count));
    enum status status = STATUS_OK;
    for (int i = 0; i < count * of_each && status == STATUS_OK; i++)
        status = check_partition(comm, &partitions[i % count], seed * 1000 + (uint64_t)i);
    mem_free(partitions);
    return status;
}

/* ---- recipes ---- */

static enum status check_recipe(struct comm *comm, uint64_t seed, int nodes, int per_node, int variant) {
    struct check check = {.comm = comm, .me = comm->rank};
    bool round = variant & 1;
    int64_t bytes = (1000 + 37 * (variant >> 3)) * (int64_t)sizeof(float);
    check.spec = (struct comm_spec){.kind = variant & 4 ? COMM_ALL_REDUCE : COMM_REDUCE_SCATTER,
                                    .bytes = bytes,
                                    .group = comm_group_all(comm),
                                    .round_bf16 = round,
                                    .in_place = variant & 8};
    check.recipe = (struct sum_recipe){nodes, per_node, round, check.empty_lane, seed + (uint64_t)variant, 0};
    for (int lane = 0; lane < nodes * per_node; lane++) /* fewer micro-batches than lanes: the last ones have none */
        check.empty_lane[lane] = variant & 2 && lane >= 1 + (int)seed % (nodes * per_node);
    enum status status = begin_check(comm, &check);
    if (status == STATUS_OK) status = execute(&check, 2);
    end_check(&check);
    return status;
}

enum status comm_check_lanes(struct comm *comm, uint64_t seed) {
    static const int recipes[][2] = {{1, 8}, {2, 4}, {1, 3}};
    for (int r = 0; r < 3; r++) {
        struct lane_tree tree;
        TRY(lane_tree_create(recipes[r][0], recipes[r][1], &tree));
        bool holds = lane_tree_holds(&tree, mesh_ranks(&comm->mesh));
        lane_tree_free(&tree);
        for (int variant = 0; variant < 16 && holds; variant++)
            TRY(check_recipe(comm, seed, recipes[r][0], recipes[r][1], variant));
    }
    return STATUS_OK;
}
