/* Compares ways to execute the same step on a GPU, in turns in one process: micro-batches of 4, 16 and 32 thousand
 * tokens, an unpadded and a padded vocabulary, and CUDA graphs or single calls.
 *
 *     build/bench/step_ways [DEVICE [BATCH [LAYERS]]]        default: cuda 32 12, which is GPT-2 124M
 *
 * Times are the median of ten bf16 steps with 1024 tokens per sequence, after three warm-up steps. The last line has
 * all results. Graphs change no bit: exits with 1 if losses differ, and with 77 without a GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/terminal.h"
#include "support/median.h"
#include "support/model_step.h"

enum { SEQUENCE = 1024, WARM = 3, ROUNDS = 10, NO_GPU = 77 };

static const struct way {
    const char *name;
    int64_t vocabulary, micro_batch_tokens;
    const char *graphs; /* BALLAST_CUDA_GRAPHS */
} ways[] = {
    {"micro-batches of 16384 tokens", 50257, 16384, "on"},
    {"of 4096", 50257, 4096, "on"},
    {"of 32768", 50257, 32768, "on"},
    {"vocabulary padded to 50304", 50304, 16384, "on"},
    {"call by call", 50257, 16384, "off"},
};
enum { WAYS = sizeof ways / sizeof *ways, PLAIN = 0, CALL_BY_CALL = WAYS - 1 };

struct bench {
    const struct backend *backend;
    int64_t batch, layers;
    struct model_step steps[WAYS];
    double seconds[WAYS][ROUNDS];
};

static enum status run(struct model_step *step, double *seconds) {
    int64_t ns = 0;
    TRY(model_step_run(step, &ns));
    *seconds = (double)ns * 1e-9;
    return STATUS_OK;
}

/* Graph segments are captured before the second step, if the environment allows it. */
static enum status open_way(const struct bench *bench, const struct way *way, struct model_step *step) {
    struct model_step_options options = {.family = "gpt2", .layers = bench->layers, .vocab = way->vocabulary};
    double unused;
    plan_options_init(&options.plan);
    SETTINGS_GIVE(&options.plan, backend, bench->backend);
    SETTINGS_GIVE(&options.plan, dtype, DTYPE_BF16);
    SETTINGS_GIVE(&options.plan, batch, bench->batch);
    SETTINGS_GIVE(&options.plan, sequence_length, SEQUENCE);
    SETTINGS_GIVE(&options.plan, micro_batch_sequences,
                  recipe_default_micro_batch(bench->batch, SEQUENCE, way->micro_batch_tokens));
    TRY(model_step_open(&options, step));
    setenv("BALLAST_CUDA_GRAPHS", way->graphs, 1);
    for (int i = 0; i < WARM; i++)
        TRY(run(step, &unused));
    return STATUS_OK;
}

static enum status measure(struct bench *bench) {
    for (int w = 0; w < WAYS; w++)
        TRY(open_way(bench, &ways[w], &bench->steps[w]));
    for (int round = 0; round < ROUNDS; round++)
        for (int w = 0; w < WAYS; w++)
            TRY(run(&bench->steps[w], &bench->seconds[w][round]));
    printf("= seconds a step:");
    for (int w = 0; w < WAYS; w++)
        printf("%s %s %.4f", w > 0 ? "," : "", ways[w].name, median(bench->seconds[w], ROUNDS));
    double plain = bench->steps[PLAIN].loss, calls = bench->steps[CALL_BY_CALL].loss;
    bool same = memcmp(&plain, &calls, sizeof plain) == 0;
    printf("%s\n", same ? "" : "; losses DIFFER");
    return same ? STATUS_OK : status_set(STATUS_FAILED, "losses %.17g and, call by call, %.17g", plain, calls);
}

int main(int count, char **arguments) {
    struct bench bench = {.batch = count > 2 ? atoi(arguments[2]) : 32, .layers = count > 3 ? atoi(arguments[3]) : 12};
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    if (backend_find(count > 1 ? arguments[1] : "cuda", &bench.backend) != STATUS_OK) {
        fprintf(stderr, "step_ways: %s\n", status_message());
        return NO_GPU;
    }
    enum status status = measure(&bench);
    if (status != STATUS_OK) fprintf(stderr, "step_ways: %s\n", status_message());
    for (int w = 0; w < WAYS; w++)
        model_step_close(&bench.steps[w]);
    return status == STATUS_OK ? 0 : 1;
}
