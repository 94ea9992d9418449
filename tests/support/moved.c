#include "support/moved.h"

#include <string.h>

#include "support/unit.h"

/* Or the lower halves of masters. */
static const struct tensor *master_of(const struct graph *graph, const struct tensor *parameter) {
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        bool of_it = tensor->kind == TENSOR_STATE && tensor->parameter == parameter;
        if (of_it && strncmp(tensor->role, "master", strlen("master")) == 0) return tensor;
    }
    return parameter;
}

/* What the rank has of one parameter. */
struct run {
    const struct tensor *parameter, *stored_as;
    int64_t first, elements, element_bytes;
};

static int list_runs(const struct harness *harness, struct run *runs) {
    const struct graph *graph = harness_graph(harness);
    int count = 0;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *parameter = graph->tensors.items[i];
        if (parameter->kind != TENSOR_PARAMETER) continue;
        assert_true(count < MOVED_MAX);
        struct run *run = &runs[count++];
        *run = (struct run){.parameter = parameter, .stored_as = master_of(graph, parameter)};
        run->element_bytes = dtype_bytes(run->stored_as->shape.dtype);
        runner_local_shard(harness->runner, run->stored_as, &run->first, &run->elements);
    }
    return count;
}

/* In fresh memory. */
static unsigned char *read_run(struct harness *harness, const struct run *run) {
    int64_t bytes = run->elements * run->element_bytes;
    unsigned char *copy = mem_array((size_t)bytes + 1, 1);
    assert_non_null(copy);
    if (bytes > 0)
        assert_int_equal(runner_read(harness->runner, run->stored_as, run->first * run->element_bytes, bytes, copy),
                         STATUS_OK);
    return copy;
}

void moved_begin(struct harness *harness, struct moved_start *out) {
    struct run runs[MOVED_MAX];
    int count = list_runs(harness, runs);
    for (int i = 0; i < count; i++)
        out->bytes[i] = read_run(harness, &runs[i]);
}

static int64_t count_moved(const struct run *run, const unsigned char *before, const unsigned char *after) {
    int64_t moved = 0;
    for (int64_t e = 0; e < run->elements; e++)
        moved +=
            memcmp(before + e * run->element_bytes, after + e * run->element_bytes, (size_t)run->element_bytes) != 0;
    return moved;
}

/* Held and moved elements, of one rank. */
struct counts {
    int64_t held[MOVED_MAX], moved[MOVED_MAX];
};

static enum status add_ranks(struct comm *comm, struct counts *counts) {
    static struct counts each[64];
    struct comm_group all = comm_group_all(comm);
    TRY(comm_all_gather(comm, &all, counts, sizeof *counts, each));
    *counts = each[0];
    for (int rank = 1; rank < all.count; rank++)
        for (int i = 0; i < MOVED_MAX; i++) {
            counts->held[i] += each[rank].held[i];
            counts->moved[i] += each[rank].moved[i];
        }
    return STATUS_OK;
}

static enum status take_one_replica(const struct run *run, int64_t held, int64_t *moved) {
    int64_t elements = shape_elements(&run->parameter->shape), replicas = held / elements;
    if (replicas == 0 || held % elements != 0)
        return status_set(STATUS_FAILED, "%s: ranks have %lld elements, it has %lld", run->parameter->name,
                          (long long)held, (long long)elements);
    if (*moved % replicas != 0)
        return status_set(STATUS_FAILED, "%s: %lld elements of %lld replicas moved", run->parameter->name,
                          (long long)*moved, (long long)replicas);
    *moved /= replicas;
    return STATUS_OK;
}

enum status moved_end(struct harness *harness, struct moved_start *start, struct moved *out) {
    struct run runs[MOVED_MAX];
    struct counts counts = {.held = {0}};
    memset(out, 0, sizeof *out);
    out->count = list_runs(harness, runs);
    for (int i = 0; i < out->count; i++) {
        unsigned char *after = read_run(harness, &runs[i]);
        counts.held[i] = runs[i].elements;
        counts.moved[i] = count_moved(&runs[i], start->bytes[i], after);
        mem_free(after);
        mem_free(start->bytes[i]);
    }
    if (harness->options.comm) TRY(add_ranks(harness->options.comm, &counts));
    for (int i = 0; i < out->count; i++) {
        out->trained[i] = runs[i].parameter->trainable;
        out->elements[i] = shape_elements(&runs[i].parameter->shape);
        TRY(take_one_replica(&runs[i], counts.held[i], &counts.moved[i]));
        out->moved[i] = counts.moved[i];
    }
    return STATUS_OK;
}
