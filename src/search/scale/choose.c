#include "search/scale/choose.h"

#include <math.h>

#include "search/scale/forecast.h"

/* A layout before it is simulated. */
struct candidate {
    struct layout layout;
    double bytes; /* of a device at its peak */
    double min_s; /* lower bound on its step */
};

struct candidates {
    const struct choice_request *request;
    const struct calibration *calibration;
    VEC(struct candidate) list;
    int64_t layouts;
    double fewest_bytes; /* over all layouts, including those that do not fit */
};

static struct training job_of(const struct choice_request *request, const struct layout *layout) {
    struct training job = {
        .model = request->model, .cluster = request->cluster, .system = training_system_ballast, .layout = *layout};
    job.layout.sequence = layout->tensor > 1;
    return job;
}

/* Counts only the busiest stage's kernels and the filling of a pipeline: collectives and sends only add to them. */
static double bound_s(const struct job_costs *costs) {
    double pass = pass_s(&costs->layers.layer), layers = 0;
    for (int32_t chunk = 0; chunk < costs->pipeline.chunks; chunk++)
        layers += (double)stage_layers(costs, 0, chunk);
    double passes =
        (double)costs->pipeline.waves + (double)(costs->pipeline.stages - 1) / (double)costs->pipeline.chunks;
    return pass * layers * passes;
}

static enum status consider(const struct layout *layout, struct candidates *out) {
    const struct choice_request *request = out->request;
    struct training job = job_of(request, layout);
    struct job_costs costs;
    out->layouts++;
    if (training_check(&job) != STATUS_OK) {
        status_clear();
        return STATUS_OK;
    }
    job_costs_find(&job, out->calibration, &costs);
    struct candidate one = {job.layout, rank_memory_max(&costs).total, bound_s(&costs)};
    out->fewest_bytes = fmin(out->fewest_bytes, one.bytes);
    if (one.bytes > (double)request->cluster.device.tiers[0].capacity_bytes) return STATUS_OK;
    return vec_push(&out->list, one);
}

/* Partitions: nothing cut; optimizer states over all ranks or in the node; also gradients and parameters with them. */
static enum status consider_partitions(struct layout layout, struct candidates *out) {
    const struct choice_request *request = out->request;
    int64_t all = layout.data, node = request->cluster.network.devices / layout.tensor;
    if (node < 1 || all % node != 0) node = 1;
    if (node > all) node = all;
    const struct partition_triple triples[] = {{1, 1, 1},          {1, 1, node},      {1, 1, all},
                                               {node, node, node}, {node, node, all}, {all, all, all}};
    for (size_t i = 0; i < sizeof triples / sizeof *triples; i++) {
        const struct partition_triple *cut = &triples[i];
        if (i > 0 && cut->optimizer == triples[i - 1].optimizer && cut->parameters == triples[i - 1].parameters)
            continue;
        if (layout.pipeline > 1 && cut->parameters > 1) continue; /* each pass would gather its stage again */
        layout.partition = *cut;
        for (enum recomputation kind = RECOMPUTE_NONE; kind < RECOMPUTE_COUNT; kind++) {
            if (kind == RECOMPUTE_ATTENTION) continue; /* no scores are kept */
            layout.recomputation = kind;
            TRY(consider(&layout, out));
        }
    }
    return STATUS_OK;
}

static enum status consider_micro_batches(struct layout layout, struct candidates *out) {
    const struct choice_request *request = out->request;
    int64_t rank_batch = request->batch / layout.data, layers = request->model.layers / layout.pipeline;
    for (int64_t size = 1; size <= rank_batch && size <= 16; size *= 2) {
        if (rank_batch % size != 0) break;
        layout.micro_batch = size;
        layout.micro_batches = rank_batch / size;
        layout.virtual_stages = 1;
        TRY(consider_partitions(layout, out));
        bool groups = layout.pipeline > 1 && layout.micro_batches % layout.pipeline == 0;
        if (!groups || request->model.layers % layout.pipeline != 0) continue;
        for (int64_t chunks = 2; chunks <= 4 && chunks <= layers; chunks++) {
            layout.virtual_stages = chunks;
            if (layers % chunks == 0) TRY(consider_partitions(layout, out));
        }
    }
    return STATUS_OK;
}

static enum status consider_meshes(struct candidates *out) {
    const struct choice_request *request = out->request;
    int64_t node = request->cluster.network.devices;
    for (int64_t tensor = 1; tensor <= node && tensor <= request->model.heads; tensor *= 2)
        for (int64_t pipeline = 1; pipeline <= 64 && pipeline <= request->model.layers; pipeline++) {
            int64_t data = request->devices / (tensor * pipeline);
            if (data < 1 || data * tensor * pipeline != request->devices || request->batch % data != 0) continue;
            struct layout layout = {.tensor = tensor,
                                    .pipeline = pipeline,
                                    .context = 1,
                                    .data = data,
                                    .sequence_length = request->sequence_length};
            TRY(consider_micro_batches(layout, out));
        }
    return STATUS_OK;
}

ORDER_BY_BOTH(by_bound, struct candidate, item->min_s, item->bytes)

/* Whether a point of the Pareto front is as small and at most as slow. */
static bool is_beaten(const struct choices *pareto_front, double seconds, double bytes) {
    for (size_t i = 0; i < pareto_front->list.count; i++) {
        const struct forecast *other = &pareto_front->list.items[i].forecast;
        if (other->step_s <= seconds && (double)other->peak_bytes <= bytes) return true;
    }
    return false;
}

/* Adds a point and removes those that it dominates. */
static enum status put_on_pareto_front(struct choices *pareto_front, struct choice choice) {
    size_t kept = 0;
    for (size_t i = 0; i < pareto_front->list.count; i++) {
        const struct forecast *other = &pareto_front->list.items[i].forecast;
        bool beaten = choice.forecast.step_s <= other->step_s && choice.forecast.peak_bytes <= other->peak_bytes;
        if (!beaten) pareto_front->list.items[kept++] = pareto_front->list.items[i];
    }
    pareto_front->list.count = kept;
    return vec_push(&pareto_front->list, choice);
}

/* Simulates in the order of bounds. Skips layouts that cannot reach the Pareto front any more. */
static enum status simulate_candidates(const struct candidates *candidates, struct choices *out) {
    const struct choice_request *request = candidates->request;
    for (size_t i = 0; i < candidates->list.count; i++) {
        const struct candidate *one = &candidates->list.items[i];
        struct choice choice = {.devices = request->devices, .layout = one->layout};
        if (is_beaten(out, one->min_s, one->bytes)) continue;
        struct training job = job_of(request, &one->layout);
        TRY(forecast_step(&job, candidates->calibration, &choice.forecast));
        out->simulated++;
        if (is_beaten(out, choice.forecast.step_s, (double)choice.forecast.peak_bytes)) continue;
        TRY(put_on_pareto_front(out, choice));
    }
    return STATUS_OK;
}

ORDER_BY(slowest_first, struct choice, -item->forecast.step_s)

static enum status refuse(const struct candidates *candidates) {
    const struct choice_request *request = candidates->request;
    if (candidates->layouts == 0)
        return status_set(STATUS_BAD_INPUT, "batch: %lld sequences cannot be cut for %lld devices",
                          (long long)request->batch, (long long)request->devices);
    return status_set(STATUS_NO_FIT, "no layout fits %lld devices: the smallest takes %.1f GB of the %.1f GB of each",
                      (long long)request->devices, candidates->fewest_bytes / 1e9,
                      (double)request->cluster.device.tiers[0].capacity_bytes / 1e9);
}

enum status choose_layouts(const struct choice_request *request, const struct calibration *calibration,
                           struct choices *out) {
    struct candidates candidates = {.request = request, .calibration = calibration, .fewest_bytes = INFINITY};
    struct choices choices = {0};
    enum status status;
    TRY_GOTO(status, consider_meshes(&candidates), done);
    if (candidates.list.count == 0) {
        status = refuse(&candidates);
        goto done;
    }
    qsort(candidates.list.items, candidates.list.count, sizeof *candidates.list.items, by_bound);
    choices.layouts = candidates.layouts;
    TRY_GOTO(status, simulate_candidates(&candidates, &choices), done);
    qsort(choices.list.items, choices.list.count, sizeof *choices.list.items, slowest_first);
    *out = choices;
    choices = (struct choices){0};
done:
    choices_free(&choices);
    vec_free(&candidates.list);
    return status;
}

void choices_free(struct choices *choices) { vec_free(&choices->list); }

const struct choice *choices_fastest(const struct choices *choices) {
    return &choices->list.items[choices->list.count - 1];
}

/* 8, 16, 24, 32, 48, 64, ... for nodes of 8. */
static int64_t next_size(int64_t devices, int64_t node) {
    int64_t power = node;
    while (power * 2 <= devices)
        power *= 2;
    return devices == power && power > node ? power + power / 2 : power * 2;
}

enum status choose_fastest(const struct choice_request *request, const struct calibration *calibration, int64_t devices,
                           struct choice *out, bool *fits) {
    struct choice_request at = *request;
    struct choices choices;
    at.devices = devices;
    enum status status = choose_layouts(&at, calibration, &choices);
    *fits = status == STATUS_OK;
    if (status == STATUS_FAILED) return status;
    if (*fits) {
        *out = *choices_fastest(&choices);
        choices_free(&choices);
    } else {
        status_clear();
    }
    return STATUS_OK;
}

enum status choose_curve(const struct choice_request *request, const struct calibration *calibration, int64_t min,
                         int64_t max, struct choice out[CHOICE_CURVE_MAX], int *count) {
    *count = 0;
    for (int64_t size = request->cluster.network.devices; size <= max && *count < CHOICE_CURVE_MAX;
         size = next_size(size, request->cluster.network.devices)) {
        bool fits;
        if (size < min) continue;
        TRY(choose_fastest(request, calibration, size, &out[*count], &fits));
        *count += fits;
    }
    return STATUS_OK;
}
