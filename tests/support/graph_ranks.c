#include "support/graph_ranks.h"

#include "backend/backend.h"
#include "ir/ops/ops.h"
#include "plan/ranks.h"
#include "support/unit.h"

static void *data_of(const struct graph_ranks *ranks, int rank, const struct tensor *tensor) {
    return ranks->data[rank][tensor->id];
}

static void allocate(struct graph_ranks *ranks, int rank) {
    const struct graph *graph = ranks->graphs[rank];
    ranks->data[rank] = mem_array(graph->tensors.count, sizeof(void *));
    assert_non_null(ranks->data[rank]);
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->base) continue;
        ranks->data[rank][i] = mem_aligned(64, (size_t)(shape_bytes(&tensor->shape) + 63) / 64 * 64);
        assert_non_null(ranks->data[rank][i]);
        memset(ranks->data[rank][i], 0, (size_t)shape_bytes(&tensor->shape));
    }
    for (size_t i = 0; i < graph->tensors.count; i++) {
        struct tensor *tensor = graph->tensors.items[i];
        if (tensor->base)
            ranks->data[rank][i] = (char *)ranks->data[rank][tensor->base->id] + tensor_storage_offset(tensor);
    }
}

void graph_ranks_open(struct graph_ranks *ranks) {
    backend_cpu.set_threads(1);
    for (int r = 0; r < ranks->ranks; r++)
        allocate(ranks, r);
}

void graph_ranks_close(struct graph_ranks *ranks) {
    for (int r = 0; r < ranks->ranks; r++) {
        for (size_t i = 0; i < ranks->graphs[r]->tensors.count; i++)
            if (!ranks->graphs[r]->tensors.items[i]->base) mem_free(ranks->data[r][i]);
        mem_free(ranks->data[r]);
        graph_free(ranks->graphs[r]);
    }
}

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

static uint64_t hash_name(const char *name, uint64_t seed) {
    for (; *name; name++)
        seed = mix(seed + (unsigned char)*name);
    return seed;
}

static void fill_parameter(const struct tensor *tensor, uint64_t seed, float *to) {
    int64_t run;
    for (int64_t at = 0; at < shape_elements(&tensor->shape); at++) {
        int64_t whole = tensor_part_find(tensor, at, &run);
        if (whole == TENSOR_NOWHERE) continue;
        double uniform = (double)(mix(hash_name(tensor->name, seed) + (uint64_t)whole * 77) >> 11) * 0x1p-53 - 0.5;
        to[at] = (float)(uniform * (tensor->shape.rank == 1 ? 1 : 0.5));
    }
}

static void fill_input(const struct tensor *tensor, uint64_t seed, int limit, int32_t *to) {
    int64_t length = tensor->shape.dims[1];
    for (int64_t at = 0; at < shape_elements(&tensor->shape); at++) {
        uint64_t drawn = mix(hash_name(tensor->name, seed) + (uint64_t)at) % (uint64_t)limit;
        to[at] = strcmp(tensor->name, "positions") == 0  ? (int32_t)(at % length)
                 : strcmp(tensor->name, "segments") == 0 ? (int32_t)(at % length * 2 / length)
                                                         : (int32_t)drawn;
    }
    if (strcmp(tensor->name, "targets") == 0) to[1] = -1;
}

void graph_ranks_fill(struct graph_ranks *ranks, uint64_t seed, int limit) {
    for (int r = 0; r < ranks->ranks; r++)
        for (size_t i = 0; i < ranks->graphs[r]->tensors.count; i++) {
            const struct tensor *tensor = ranks->graphs[r]->tensors.items[i];
            if (tensor->kind == TENSOR_PARAMETER) fill_parameter(tensor, seed, ranks->data[r][i]);
            if (tensor->kind == TENSOR_INPUT) fill_input(tensor, seed, limit, ranks->data[r][i]);
        }
}

/* Input 0 of the node on a rank of a group, by its position. */
struct node_collective {
    const struct graph_ranks *ranks;
    size_t node;
    struct comm_group group;
};

static const void *input_of(const struct node_collective *of, int position) {
    int rank = mesh_group_rank(&of->group, position);
    return data_of(of->ranks, rank, of->ranks->graphs[rank]->nodes.items[of->node]->in[0]);
}

/* The sum over ranks of element `at`, by halves of the group. */
static float sum_over(const struct node_collective *of, int first, int count, int64_t at) {
    if (count == 1) return ((const float *)input_of(of, first))[at];
    int left = (count + 1) / 2;
    return sum_over(of, first, left, at) + sum_over(of, first + left, count - left, at);
}

/* What the rank at the position gets. */
static void receive(const struct node_collective *of, int position, const struct node *node, char *to) {
    int64_t in_bytes = shape_bytes(&node->in[0]->shape), out_bytes = shape_bytes(&node->out[0]->shape);
    int parts = of->group.count;
    for (int64_t e = 0; node->op->collective == OP_COLLECTIVE_ALL_REDUCE && e < out_bytes / 4; e++)
        ((float *)(void *)to)[e] = sum_over(of, 0, parts, e);
    for (int64_t e = 0; node->op->collective == OP_COLLECTIVE_REDUCE_SCATTER && e < out_bytes / 4; e++)
        ((float *)(void *)to)[e] = sum_over(of, 0, parts, position * (out_bytes / 4) + e);
    for (int p = 0; p < parts; p++) {
        const char *from = input_of(of, p);
        int64_t part = in_bytes / parts;
        if (node->op->collective == OP_COLLECTIVE_ALL_GATHER) memcpy(to + p * in_bytes, from, (size_t)in_bytes);
        if (node->op->collective == OP_COLLECTIVE_ALL_TO_ALL)
            memcpy(to + p * part, from + position * part, (size_t)part);
    }
}

/* What is in and out of a collective is apart: all ranks' inputs are there until all have their outputs. */
static void run_collective(struct graph_ranks *ranks, size_t n) {
    char *made[GRAPH_RANKS_MAX];
    for (int r = 0; r < ranks->ranks; r++) {
        const struct node *node = ranks->graphs[r]->nodes.items[n];
        const struct group_part *part = &NODE_ATTRIBUTES(node, collective_attributes)->part;
        const struct rank_place place = {.mesh = {1, ranks->ranks}, .rank = r, .tensor_parallel = ranks->ranks};
        int stride = part->stride > 0 ? (int)part->stride : 1;
        struct node_collective of = {ranks, n, rank_place_tensor_axis(&place, (int)part->parts, stride)};
        made[r] = mem_array((size_t)shape_bytes(&node->out[0]->shape), 1);
        assert_non_null(made[r]);
        receive(&of, (int)part->position, node, made[r]);
    }
    for (int r = 0; r < ranks->ranks; r++) {
        const struct tensor *out = ranks->graphs[r]->nodes.items[n]->out[0];
        memcpy(data_of(ranks, r, out), made[r], (size_t)shape_bytes(&out->shape));
        mem_free(made[r]);
    }
}

static void compute(const struct graph_ranks *ranks, int rank, const struct node *node, const double *scalars) {
    struct kernel *kernel;
    struct kernel_call call = {.scalars = scalars};
    if (backend_kernel_create(&backend_cpu, node, &kernel) != STATUS_OK) fail_msg("%s", status_message());
    for (int k = 0; k < OP_INPUTS_MAX; k++)
        if (node->in[k]) call.in[k] = data_of(ranks, rank, node->in[k]);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        if (node->out[i]) call.out[i] = data_of(ranks, rank, node->out[i]);
    call.workspace = mem_aligned(64, (size_t)(kernel->workspace_bytes + 64) / 64 * 64);
    assert_int_equal(kernel->run(kernel, &call), STATUS_OK);
    mem_free(call.workspace);
    kernel->release(kernel);
}

void graph_ranks_run(struct graph_ranks *ranks, enum phase last, const double *scalars) {
    for (size_t n = 0; n < ranks->graphs[0]->nodes.count; n++) {
        const struct node *any = ranks->graphs[0]->nodes.items[n];
        if (any->phase > last) continue;
        for (int r = 0; r < ranks->ranks; r++)
            assert_ptr_equal(ranks->graphs[r]->nodes.items[n]->op, any->op);
        if (any->op->collective)
            run_collective(ranks, n);
        else
            for (int r = 0; r < ranks->ranks; r++)
                compute(ranks, r, ranks->graphs[r]->nodes.items[n], scalars);
    }
}

const float *graph_ranks_values(const struct graph_ranks *ranks, int rank, const struct tensor *tensor) {
    return data_of(ranks, rank, tensor);
}
