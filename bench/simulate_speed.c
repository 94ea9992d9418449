/* How fast the simulator is, since a search simulates many programs: a model of GPT-3's shape by default, compiled
 * without kernels under policies from plain to everything on the disk, with made-up costs.
 *
 *     build/bench/simulate_speed [LAYERS [GRAINS]] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/process.h"
#include "graph/differentiate.h"
#include "model/model.h"
#include "sim/simulate.h"

enum { REPEATS = 5, LAYERS = 96, GRAINS = 2, SEQUENCE = 2048 };

static const struct policy policies[] = {
    {.grains_per_pass = 1},
    {.grains_per_pass = 1, .optimizer = TIER_HOST, .buffers = 4},
    {.grains_per_pass = 1,
     .lookahead = 1,
     .buffers = 4,
     .parameters = TIER_DISK,
     .gradients = TIER_DISK,
     .optimizer = TIER_DISK,
     .update = TIER_HOST},
};

static enum status build(int64_t layers, struct model **model, struct graph **out) {
    const struct optimizer_options optimizer = {
        .moments = DTYPE_F32, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip_norm = 1};
    struct model_config config;
    struct tensor *loss;
    TRY(model_config_init("gpt2", &config));
    config.hidden = 12288;
    config.heads = 96;
    config.layers = layers;
    config.ffn = 4 * config.hidden;
    config.vocab_size = 50257;
    config.context = SEQUENCE;
    config.tied = true;
    TRY(model_create(&config, model));
    TRY(model_build_graph(*model, MODEL_LOSS, DTYPE_BF16, 1, SEQUENCE, out, &loss));
    TRY(graph_differentiate(*out, loss));
    return ops_add_optimizer(*out, &optimizer);
}

static enum status make_costs(const struct graph *graph, struct costs *out) {
    *out = (struct costs){.kernels = mem_array(graph->nodes.count, sizeof *out->kernels),
                          .count = (int32_t)graph->nodes.count,
                          .rates = {.measured = true, .issue_s = 1e-6, .zero = {1e-6, 1e10}}};
    if (!out->kernels) return STATUS_FAILED;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        struct op_cost cost;
        op_cost(graph->nodes.items[n], &cost);
        bool product = cost.flops > 10 * cost.bytes;
        out->kernels[n].seconds = product ? cost.flops / 1e14 : cost.bytes / 1e12;
        out->kernels[n].activity = product ? ACTIVITY_PRODUCT : ACTIVITY_STREAMING;
    }
    for (int a = 0; a < TIER_COUNT; a++)
        for (int b = 0; b < TIER_COUNT; b++)
            out->rates.copy[a][b] = (struct transfer_rate){1e-5, a == TIER_DISK || b == TIER_DISK ? 3e9 : 2e10};
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            out->rates.slowdown[a][b] = a == b ? 2 : 1.1;
    return STATUS_OK;
}

static enum status simulate_policy(const struct graph *graph, const struct costs *costs, const struct plan *plan) {
    int64_t *none = mem_array(graph->nodes.count, sizeof *none), start = clock_now_ns(), best = INT64_MAX;
    const struct workspace_table workspace = {.bytes = none, .count = (int)graph->nodes.count};
    struct program *program;
    if (!none) return STATUS_FAILED;
    enum status status = program_compile(graph, plan, &workspace, &program);
    mem_free(none);
    TRY(status);
    double compile_ms = (double)(clock_now_ns() - start) * 1e-6, step_s = 0;
    size_t events = 0;
    for (int i = 0; i < REPEATS && status == STATUS_OK; i++) {
        struct timeline timeline;
        start = clock_now_ns();
        status = simulate(program, costs, &timeline);
        if (status != STATUS_OK) break;
        int64_t taken = clock_now_ns() - start;
        if (taken < best) best = taken;
        step_s = timeline.step_s;
        events = timeline.events.count;
        timeline_free(&timeline);
    }
    if (status == STATUS_OK)
        printf("%d streams, %zu events: compiled in %.0f ms, simulated in %.1f ms (best of %d), a step of %.2f s\n",
               program->streams, events, compile_ms, (double)best * 1e-6, REPEATS, step_s);
    program_free(program);
    return status;
}

int main(int count, char **words) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    int64_t layers = count > 1 ? atoll(words[1]) : LAYERS, grains = count > 2 ? atoll(words[2]) : GRAINS;
    struct model *model = NULL;
    struct graph *graph = NULL;
    struct costs costs = {0};
    enum status status = build(layers, &model, &graph);
    if (status == STATUS_OK) status = make_costs(graph, &costs);
    if (status == STATUS_OK) printf("%" PRId64 " layers of 12288, %" PRId64 " grains\n", layers, grains);
    for (size_t i = 0; i < sizeof policies / sizeof *policies && status == STATUS_OK; i++) {
        struct plan plan = {
            .recipe = {.dtype = DTYPE_BF16, .batch = grains, .sequence_length = SEQUENCE, .grain_sequences = 1},
            .policy = policies[i],
            .threads = 1};
        status = simulate_policy(graph, &costs, &plan);
    }
    if (status != STATUS_OK) fprintf(stderr, "%s: %s\n", words[0], status_message());
    costs_free(&costs);
    graph_free(graph);
    model_free(model);
    return (int)status;
}
