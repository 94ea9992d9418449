/* Writes a model's fp32 logits for some token ids, for comparison with transformers:
 *
 *     build/bench/logits MODEL_DIR OUT.safetensors
 *     python tests/reference/check_transformers.py MODEL_DIR OUT.safetensors
 */
#include <stdio.h>

#include "base/process.h"
#include "base/random.h"
#include "model/model.h"
#include "model/safetensors.h"
#include "runtime/runner.h"

enum { SEQUENCES = 2, TOKENS_MOST = 64, THREADS = 2 };

struct logits_run {
    struct model *model;
    struct executable *executable;
    struct tensor *logits;
    struct arena arenas[TIER_COUNT];
    struct runner *runner;
};

static enum status prepare(const char *folder, struct logits_run *run) {
    TRY(model_open(folder, &run->model));
    int64_t context = run->model->config.context, length = context < TOKENS_MOST ? context : TOKENS_MOST;
    struct graph *graph;
    TRY(model_build_graph(run->model, MODEL_LOGITS, DTYPE_F32, SEQUENCES, length, &graph, &run->logits));
    struct plan plan = {
        .recipe = {.dtype = DTYPE_F32,
                   .batch = SEQUENCES,
                   .sequence_length = length,
                   .grain_sequences = SEQUENCES,
                   .threads = THREADS},
        .policy = {.grains_per_pass = 1},
    };
    backend_cpu.set_threads(THREADS);
    TRY(executable_create(&backend_cpu, graph, &plan, &run->executable));
    TRY(arena_open(TIER_DEVICE, run->executable->program->tier_bytes[TIER_DEVICE], NULL, &run->arenas[TIER_DEVICE]));
    return runner_create(run->executable, run->arenas, &run->runner);
}

static enum status load(struct logits_run *run) {
    const struct graph *graph = run->executable->graph;
    struct weight_target *targets = mem_array(graph->tensors.count, sizeof *targets);
    if (!targets) return STATUS_FAILED;
    int count = 0;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind == TENSOR_PARAMETER)
            targets[count++] =
                (struct weight_target){.tensor = tensor, .data = runner_data(run->runner, tensor), .dtype = DTYPE_F32};
    }
    enum status status = model_load_weights(run->model, targets, count);
    mem_free(targets);
    return status;
}

static enum status compute_and_write(struct logits_run *run, const char *out) {
    const struct graph *graph = run->executable->graph;
    struct tensor *tokens = graph_find(graph, "tokens"), *positions = graph_find(graph, "positions");
    int32_t *ids = runner_data(run->runner, tokens), *places = positions ? runner_data(run->runner, positions) : NULL;
    int64_t length = graph->sequence_length;
    for (int64_t i = 0; i < SEQUENCES * length; i++) {
        ids[i] = (int32_t)(random_u64(1, RANDOM_TEST, 0, (uint64_t)i) % (uint64_t)run->model->config.vocab_size);
        if (places) places[i] = (int32_t)(i % length);
    }
    double scalars[SCALAR_COUNT] = {0};
    TRY(runner_step(run->runner, scalars));
    const struct safetensors_item items[] = {
        {.name = "input_ids", .shape = tokens->shape, .data = ids},
        {.name = "logits", .shape = run->logits->shape, .data = runner_data(run->runner, run->logits)},
    };
    return safetensors_write(out, items, sizeof items / sizeof *items, NULL);
}

int main(int count, char **words) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    if (count != 3) {
        fprintf(stderr, "usage: %s MODEL_DIR OUT.safetensors\n", words[0]);
        return STATUS_BAD_INPUT;
    }
    struct logits_run run = {0};
    enum status status = prepare(words[1], &run);
    if (status == STATUS_OK) status = load(&run);
    if (status == STATUS_OK) status = compute_and_write(&run, words[2]);
    if (status != STATUS_OK) fprintf(stderr, "%s: %s\n", words[0], status_message());
    runner_free(run.runner);
    arena_close(&run.arenas[TIER_DEVICE]);
    executable_free(run.executable);
    model_free(run.model);
    return (int)status;
}
