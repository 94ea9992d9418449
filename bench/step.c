/* Measures how close a training step comes to the machine's limits, and where the rest of the time goes.
 *
 *     build/bench/step [--model gpt2|llama] [--dtype fp32|bf16] [--batch N] [--seq N] [--layers N] [--hidden N]
 *                      [--heads N] [--vocab N] [--threads N]
 *                      [--steps N] [--table | --no-limits] [--lora RANK,ALPHA,TARGETS] [--freeze PATTERNS]
 *
 * The default is GPT-2 124M in fp32 with 4 x 1024 tokens, all cores and 3 steps. The Llama also has 124M parameters:
 * the same sizes, GPT-2's vocabulary, tied embeddings and 2048 columns in its MLP. Weights and tokens are random.
 *
 * After a warm-up step, each round measures and prints three things: oneDNN's rate on the step's GEMMs, each in its
 * best layout (support/product_rate.h); memory bandwidth; and a step. For bf16 it also tries fp32 factors, which are
 * faster if oneDNN emulates bf16. The limits are measured once more at the end. Then follow medians: tokens/s, model
 * FLOP/s (support/model_step.h defines them) and their ratio to oneDNN's rate.
 *
 * --table adds a second step to each round, watched between instructions. It prints a table of operators with the limit
 * of each, by the faster of oneDNN's rates, and its time in a profile made after the steps. --no-limits measures only
 * steps. With --lora or --freeze, the same step with all weights trained takes turns with it, and the ratio of times is
 * compared with the ratio of the programs' FLOPs. */
#include <inttypes.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/terminal.h"
#include "cli/program.h"
#include "session/machine_costs.h"
#include "support/bench_options.h"
#include "support/median.h"
#include "support/memory_rate.h"
#include "support/product_rate.h"
#include "support/step_table.h"

enum { STEPS_MAX = STEP_TABLE_STEPS, RATES = 2 };
static const char *const rate_names[RATES] = {"oneDNN", "oneDNN in fp32"};

struct options {
    struct model_step_options step;
    int steps;
    bool table, no_limits;
    const char *freeze; /* NULL: nothing */
};

struct measured {
    double products[RATES][STEPS_MAX + 1], memory[MEMORY_USES][STEPS_MAX + 1]; /* FLOP/s, bytes/s */
    double step[STEPS_MAX], plain[STEPS_MAX]; /* seconds; plain: the step with all weights trained */
};

struct bench {
    const struct options *options;
    struct model_step step, plain;        /* plain is only open with --lora and --freeze */
    struct product_rate *products[RATES]; /* in the step's dtype; in fp32 if that differs, else NULL */
    struct memory_rate memory;
    struct step_table table;
    struct measured measured;
};

static bool compares(const struct bench *bench) {
    const struct plan_options *plan = &bench->options->step.plan;
    return plan->lora != NULL || plan->freeze_count > 0;
}

static enum status open_plain(struct bench *bench) {
    struct model_step_options plain = bench->options->step;
    SETTINGS_DROP(&plain.plan, lora);
    SETTINGS_DROP(&plain.plan, freeze);
    plain.plan.freeze_count = 0;
    return compares(bench) ? model_step_open(&plain, &bench->plain) : STATUS_OK;
}

static enum status open_rates(struct bench *bench) {
    const struct graph *graph = model_step_executable(&bench->step)->graph;
    TRY(memory_rate_open(&bench->memory));
    TRY(product_rate_open(graph, graph->dtype, &bench->products[0]));
    return graph->dtype == DTYPE_F32 ? STATUS_OK : product_rate_open(graph, DTYPE_F32, &bench->products[1]);
}

static enum status bench_open(const struct options *options, struct bench *bench) {
    int64_t ns;
    bench->options = options;
    TRY(model_step_open(&options->step, &bench->step));
    TRY(open_plain(bench));
    if (!options->no_limits) TRY(open_rates(bench));
    if (bench->plain.engine.main) TRY(model_step_run(&bench->plain, &ns));
    return model_step_run(&bench->step, &ns);
}

static void bench_close(struct bench *bench) {
    for (int i = 0; i < RATES; i++)
        product_rate_close(bench->products[i]);
    memory_rate_close(&bench->memory);
    step_table_close(&bench->table);
    model_step_close(&bench->plain);
    model_step_close(&bench->step);
}

static enum status time_step(struct model_step *step, double *seconds) {
    int64_t ns;
    TRY(model_step_run(step, &ns));
    *seconds = (double)ns * 1e-9;
    return STATUS_OK;
}

static enum status measure_limits(struct bench *bench, int round) {
    if (bench->options->no_limits) return STATUS_OK;
    for (int i = 0; i < RATES && bench->products[i]; i++) {
        double *rate = &bench->measured.products[i][round];
        TRY(product_rate_measure(bench->products[i], rate));
        printf("%s %.1f GFLOP/s, ", rate_names[i], *rate * 1e-9);
    }
    printf("memory's");
    for (int use = 0; use < MEMORY_USES; use++) {
        double *rate = &bench->measured.memory[use][round];
        *rate = memory_rate_measure(&bench->memory, (enum memory_use)use);
        printf(" %s %.1f", memory_use_name((enum memory_use)use), *rate * 1e-9);
    }
    printf(" GB/s");
    /* ends the team of the limits: while it exists, GNU's OpenMP puts the step's threads to sleep (streams.c) */
    omp_pause_resource_all(omp_pause_soft);
    return STATUS_OK;
}

static enum status run_round(struct bench *bench, int round) {
    struct measured *measured = &bench->measured;
    printf("round %d: ", round + 1);
    TRY(measure_limits(bench, round));
    TRY(time_step(&bench->step, &measured->step[round]));
    printf(", step %.3f s, loss %.4f", measured->step[round], bench->step.loss);
    if (bench->plain.engine.main) {
        TRY(time_step(&bench->plain, &measured->plain[round]));
        printf(", all trained %.3f s", measured->plain[round]);
    }
    printf("\n");
    fflush(stdout);
    return bench->options->table ? step_table_run(&bench->table, &bench->step) : STATUS_OK;
}

static enum status run_rounds(struct bench *bench) {
    int rounds = bench->options->steps;
    for (int i = 0; i < rounds; i++)
        TRY(run_round(bench, i));
    printf("after:   ");
    TRY(measure_limits(bench, rounds));
    printf("\n");
    return STATUS_OK;
}

static const char *wait_policy(void) {
    const char *policy = getenv("OMP_WAIT_POLICY");
    return policy ? policy : "spins, then sleeps, as in ballast";
}

static void print_setting(const struct bench *bench) {
    const struct recipe *recipe = &bench->step.plan.chosen.recipe;
    const struct graph *graph = model_step_executable(&bench->step)->graph;
    const struct model_config *config = &bench->step.session.model->config;
    const dnnl_version_t *onednn = dnnl_version();
    printf("isa %s, oneDNN %d.%d.%d, %d threads (waiting: %s)\n", recipe->isa, onednn->major, onednn->minor,
           onednn->patch, bench->step.plan.chosen.threads, wait_policy());
    printf("%s in %s: %" PRId64 " layers of %" PRId64 ", %" PRId64 " heads, ffn %" PRId64 ", vocabulary %" PRId64
           "; %.1f M parameters, %.1f M in products, %.1f M trained\n",
           bench->options->step.family, dtype_name(recipe->dtype), config->layers, config->hidden, config->heads,
           config->ffn, config->vocab_size, (double)model_parameter_count(graph) * 1e-6,
           (double)model_matrix_parameter_count(graph) * 1e-6, (double)model_trained_count(graph) * 1e-6);
    printf("%" PRId64 " x %" PRId64 " tokens in micro-batches of %" PRId64 " sequences; arena %.2f GiB\n",
           recipe->batch, recipe->sequence_length, recipe->micro_batch_sequences,
           (double)bench->step.engine.arenas[TIER_DEVICE].bytes / (double)(1 << 30));
    fflush(stdout);
}

static void print_ratios(const struct bench *bench, int rate, double products, double seconds) {
    double model = model_step_model_flops(&bench->step) / seconds;
    double program = model_step_program_flops(&bench->step) / seconds;
    printf("%s: %.1f GFLOP/s; the model's FLOP/s are %.3f of it, all operators' %.3f\n", rate_names[rate],
           products * 1e-9, model / products, program / products);
    product_rate_print(bench->products[rate], stdout);
}

static void print_step(struct bench *bench, double seconds) {
    const struct model_step *step = &bench->step;
    double program = model_step_program_flops(step);
    printf("step: %.3f s, %.1f tokens/s, model %.1f GFLOP/s; by its operators %.1f GFLOP, %.1f GFLOP/s\n", seconds,
           (double)model_step_tokens(step) / seconds, model_step_model_flops(step) / seconds * 1e-9, program * 1e-9,
           program / seconds * 1e-9);
    if (!bench->plain.engine.main) return;
    double plain = median(bench->measured.plain, bench->options->steps);
    double predicted = model_step_program_flops(&bench->plain) / program;
    printf("everything trained: %.3f s; %.3f times as fast, by FLOPs %.3f: %.3f of it\n", plain, plain / seconds,
           predicted, plain / seconds / predicted);
}

/* Profiles now, so that the machine is in the same state as for the steps. */
static enum status print_table(const struct bench *bench, struct step_limits limits) {
    const struct measuring measuring = {.cache_folder = ""};
    struct machine_costs found;
    TRY(machine_costs_measure(&bench->step.session.machine, &bench->step.plan.programs, &measuring, &found));
    enum status status = step_table_print(&bench->table, &bench->step, limits, &found.costs, stdout);
    machine_costs_free(&found);
    return status;
}

static enum status report(struct bench *bench) {
    struct measured *measured = &bench->measured;
    int rounds = bench->options->steps;
    double seconds = median(measured->step, rounds);
    struct step_limits limits = {0};
    print_step(bench, seconds);
    for (int i = 0; i < RATES && bench->products[i]; i++) {
        double products = median(measured->products[i], rounds + 1);
        print_ratios(bench, i, products, seconds);
        if (products > limits.flops_per_s) limits.flops_per_s = products;
    }
    if (!bench->options->table) return STATUS_OK;
    for (int use = 0; use < MEMORY_USES; use++)
        limits.bytes_per_s[use] = median(measured->memory[use], rounds + 1);
    double watched = step_table_seconds(&bench->table, &bench->step);
    printf("watched: %.3f s by the sum of operators, %.3f of the steps between; limits at %.1f GFLOP/s and %.1f GB/s",
           watched, watched / seconds, limits.flops_per_s * 1e-9, limits.bytes_per_s[MEMORY_ADDS] * 1e-9);
    printf(" (reads %.1f, fills %.1f, copies %.1f)\n", limits.bytes_per_s[MEMORY_READS] * 1e-9,
           limits.bytes_per_s[MEMORY_FILLS] * 1e-9, limits.bytes_per_s[MEMORY_COPIES] * 1e-9);
    return print_table(bench, limits);
}

static enum status read_options(int count, char **arguments, struct options *out) {
    struct plan_options *plan = &out->step.plan;
    const struct bench_option options[] = {
        {"model", .text = &out->step.family},
        {"dtype", .dtype = &plan->dtype, BENCH_SETTING(plan, dtype)},
        {"batch", .number = &plan->batch, .max = 1 << 20, BENCH_SETTING(plan, batch)},
        {"seq", .number = &plan->sequence_length, .max = 1 << 20, BENCH_SETTING(plan, sequence_length)},
        {"layers", .number = &out->step.layers, .max = 1 << 20},
        {"hidden", .number = &out->step.hidden, .max = 1 << 20},
        {"heads", .number = &out->step.heads, .max = 1 << 20},
        {"vocab", .number = &out->step.vocab, .max = 1 << 24},
        {"threads", .count = &plan->threads, .max = 1 << 20, BENCH_SETTING(plan, threads)},
        {"steps", .count = &out->steps, .max = STEPS_MAX},
        {"table", .flag = &out->table},
        {"no-limits", .flag = &out->no_limits},
        {"lora", .text = &plan->lora, BENCH_SETTING(plan, lora)},
        {"freeze", .text = &out->freeze},
        {0},
    };
    TRY(bench_options_read(count, arguments, options, "bench/step.c"));
    if (out->freeze) SETTINGS_GIVE(plan, freeze, &out->freeze), plan->freeze_count = 1;
    if (out->table && out->no_limits)
        return status_set(STATUS_BAD_INPUT,
                          "--table: sets operators compared with limits, which --no-limits leaves out");
    return STATUS_OK;
}

int main(int count, char **arguments) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    limit_spinning(arguments);
    struct options options = {.step = {.family = "gpt2", .layers = 12}, .steps = 3};
    static struct bench bench;
    plan_options_init(&options.step.plan);
    SETTINGS_GIVE(&options.step.plan, batch, 4);
    enum status status = read_options(count, arguments, &options);
    if (status == STATUS_OK) status = bench_open(&options, &bench);
    if (status == STATUS_OK) {
        print_setting(&bench);
        status = run_rounds(&bench);
    }
    if (status == STATUS_OK) status = report(&bench);
    if (status != STATUS_OK) fprintf(stderr, "%s: %s\n", arguments[0], status_message());
    bench_close(&bench);
    return (int)status;
}
