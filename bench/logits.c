/* Writes a model's fp32 logits for some token ids, for comparison with transformers:
 *
 *     build/bench/logits MODEL_DIR OUT.safetensors
 *     python tests/reference/check_transformers.py MODEL_DIR OUT.safetensors
 */
#include <stdio.h>

#include "base/random.h"
#include "base/terminal.h"
#include "model/safetensors.h"
#include "session/engine.h"

enum { SEQUENCES = 2, TOKENS_MAX = 64, THREADS = 2 };

struct logits_run {
    struct session session;
    struct session_plan plan;
    struct engine engine;
};

static enum status prepare(const char *folder, struct logits_run *run) {
    struct plan_options options;
    plan_options_init(&options);
    TRY(session_open(folder, &options, NULL, &run->session));
    int64_t context = run->session.model->config.context, length = context < TOKENS_MAX ? context : TOKENS_MAX;
    const struct plan_request request = {
        .set = {.uses = 1 << PROGRAM_LOGITS, .texts = 1},
        .plan = {.recipe = {.dtype = DTYPE_F32,
                            .batch = SEQUENCES,
                            .sequence_length = length,
                            .micro_batch_sequences = SEQUENCES},
                 .policy = {.micro_batches_per_wave = 1},
                 .threads = THREADS},
        .policy_fixed = true,
    };
    TRY(session_plan_make(&run->session, &request, &run->plan));
    TRY(engine_open(&run->plan, &run->engine));
    return engine_load_weights(&run->engine);
}

static enum status compute_and_write(struct logits_run *run, const char *out) {
    const struct graph *graph = engine_graph(&run->engine);
    const struct model_config *config = &run->session.model->config;
    struct tensor *tokens = graph_find(graph, "tokens"), *positions = graph_find(graph, "positions");
    int32_t *ids = runner_data(run->engine.main, tokens);
    int32_t *places = positions ? runner_data(run->engine.main, positions) : NULL;
    int64_t length = graph->sequence_length;
    for (int64_t i = 0; i < SEQUENCES * length; i++) {
        ids[i] = (int32_t)(random_u64(1, RANDOM_TEST, 0, (uint64_t)i) % (uint64_t)config->vocab_size);
        if (places) places[i] = (int32_t)(i % length);
    }
    double scalars[SCALAR_COUNT] = {0};
    TRY(runner_step(run->engine.main, scalars));
    const struct safetensors_item items[] = {
        {.name = "input_ids", .shape = tokens->shape, .data = ids},
        {.name = "logits",
         .shape = shape_make(DTYPE_F32, 3, SEQUENCES, length, config->vocab_size),
         .data = engine_data(&run->engine, PROGRAM_LOGITS, "logits")},
    };
    return safetensors_write(out, items, sizeof items / sizeof *items, NULL);
}

int main(int count, char **arguments) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    if (count != 3) {
        fprintf(stderr, "usage: %s MODEL_DIR OUT.safetensors\n", arguments[0]);
        return STATUS_BAD_INPUT;
    }
    struct logits_run run = {.engine = {.plan = NULL}};
    enum status status = prepare(arguments[1], &run);
    if (status == STATUS_OK) status = compute_and_write(&run, arguments[2]);
    if (status != STATUS_OK) fprintf(stderr, "%s: %s\n", arguments[0], status_message());
    engine_close(&run.engine);
    session_plan_free(&run.plan);
    session_close(&run.session);
    return (int)status;
}
