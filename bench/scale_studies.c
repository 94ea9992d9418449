/* Simulates studies of published papers with src/search/scale, from the papers' inputs alone. Prints Markdown tables.
 *
 *     build/bench/scale_studies triples    InternLM-like models on 8 to 1024 A800: optimizer states sharded over a
 *                                          node, over all devices, and in the fastest legal partition
 *     build/bench/scale_studies zero3      ZeRO-3 alone against tensor and pipeline parallelism, 175B and 530B on A100
 *     build/bench/scale_studies large      the fastest layout on 4096 devices
 *     build/bench/scale_studies calculon   the eight steps that validated Calculon (arXiv 2205.05198, table 5)
 *     build/bench/scale_studies nemo       NVIDIA's tables of 5B and 175B, with the configurations of their time
 *
 * Everything is simulated. If a paper gives a figure, the table shows it as "published". */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/terminal.h"
#include "machine/cluster.h"
#include "search/scale/choose.h"
#include "search/scale/training.h"
#include "support/published_systems.h"
#include "support/scale_rows.h"

static double mfu_of(const struct training *job, const struct forecast *forecast) {
    return forecast->flops / forecast->step_s / (double)layout_devices(&job->layout) /
           job->cluster.device.limits.bf16_flops_per_s;
}

/* --- triples --- */

/* 1024 sequences of 4096 tokens per step, in micro-batches of one, as in AMSP's end-to-end runs (arXiv 2311.00257,
 * section VI). */
static const struct subject {
    const char *name;
    struct transformer model;
    enum recomputation recomputation;
    double all_8, all_1024, best_1024; /* published MFU of DeepSpeed on 8 and 1024 devices, and of AMSP; 0: not given */
} subjects[] = {
    {"7B", {4096, 32, 32, 32, 11008, 103168, true, false, 0, 0, 0}, RECOMPUTE_NONE, 0.63, 0.36, 0},
    {"13B", {5120, 40, 40, 40, 13824, 103168, true, false, 0, 0, 0}, RECOMPUTE_NONE, 0, 0, 0.52},
    {"30B", {6144, 60, 48, 48, 16384, 103168, true, false, 0, 0, 0}, RECOMPUTE_FULL, 0, 0, 0.42},
};

struct outcome {
    struct partition_triple partition;
    double mfu; /* 0: does not fit */
};

/* The next size of a group: 1, 2, 4, 8, then multiples of a node. */
static int64_t next_group(int64_t size) { return size * 2; }

static enum status try_triple(struct training *job, struct partition_triple partition, struct outcome *best) {
    struct calibration calibration = calibration_default();
    struct forecast forecast;
    job->layout.partition = partition;
    TRY(forecast_step(job, &calibration, &forecast));
    double mfu = mfu_of(job, &forecast);
    bool fits = forecast.peak_bytes <= job->cluster.device.tiers[0].capacity_bytes;
    if (fits && mfu > best->mfu) *best = (struct outcome){partition, mfu};
    return STATUS_OK;
}

/* Parameters have at most as many shards as gradients, and gradients as many as optimizer states. Gradients have as
 * many as one of the two (AMSP, section IV). */
static enum status try_all_triples(struct training *job, struct outcome *best) {
    int64_t all = job->layout.data;
    for (int64_t p = 1; p <= all; p = next_group(p))
        for (int64_t os = p; os <= all; os = next_group(os)) {
            TRY(try_triple(job, (struct partition_triple){p, p, os}, best));
            if (os > p) TRY(try_triple(job, (struct partition_triple){p, os, os}, best));
        }
    return STATUS_OK;
}

static void print_published(double mfu) {
    if (mfu > 0)
        printf(" %.0f%% |", 100 * mfu);
    else
        printf(" |");
}

static void print_outcome(const struct outcome *outcome, bool names) {
    if (outcome->mfu <= 0)
        printf(" does not fit |");
    else if (names)
        printf(" %.1f%% (%lld, %lld, %lld) |", 100 * outcome->mfu, (long long)outcome->partition.parameters,
               (long long)outcome->partition.gradients, (long long)outcome->partition.optimizer);
    else
        printf(" %.1f%% |", 100 * outcome->mfu);
}

static enum status print_triples(const struct subject *subject, int64_t devices) {
    struct training job = {.model = subject->model, .system = *training_system_find("InternEvo")};
    struct outcome node = {.mfu = 0}, all = node, other = node, best = node;
    TRY(cluster_open("a800x8", &job.cluster));
    job.layout =
        (struct layout){1, 1, 1, devices, 1, false, {1, 1, 1}, subject->recomputation, 1, 1024 / devices, 4096, 1, 0};
    TRY(try_triple(&job, (struct partition_triple){1, 1, 8}, &node));
    TRY(try_triple(&job, (struct partition_triple){1, 1, devices}, &all));
    TRY(try_all_triples(&job, &best));
    job.system = *training_system_find("DeepSpeed ZeRO-1");
    TRY(try_triple(&job, (struct partition_triple){1, 1, devices}, &other));
    printf("| %s | %lld |", subject->name, (long long)devices);
    print_outcome(&node, false);
    print_outcome(&all, false);
    print_outcome(&other, false);
    print_published(devices == 8 ? subject->all_8 : devices == 1024 ? subject->all_1024 : 0);
    print_outcome(&best, true);
    print_published(devices == 1024 ? subject->best_1024 : 0);
    putchar('\n');
    return STATUS_OK;
}

static enum status study_triples(void) {
    printf(
        "| model | devices | states over 8, MFU | states over all, MFU | the same by DeepSpeed | published | fastest "
        "partition, MFU (P, G, OS) | published |\n|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        for (int64_t devices = 8; devices <= 1024; devices *= 2)
            TRY(print_triples(&subjects[i], devices));
    return STATUS_OK;
}

/* --- ZeRO-3 against tensor and pipeline parallelism --- */

/* arXiv 2104.04473, table 2: FLOP/s per device, including recomputation; 0: not given. */
struct contest {
    const char *name;
    struct transformer model;
    int64_t devices, batch, pipeline; /* with tensor parallelism over 8; 0: ZeRO-3 alone */
    double zero3_flops_per_s, mixed_flops_per_s;
};
static const struct contest contests[] = {
    {"175B", {12288, 96, 96, 96, 49152, 51200, false, true, 0, 0, 0}, 384, 1536, 12, 144e12, 153e12},
    {"175B", {12288, 96, 96, 96, 49152, 51200, false, true, 0, 0, 0}, 768, 1536, 12, 88e12, 149e12},
    {"175B", {12288, 96, 96, 96, 49152, 51200, false, true, 0, 0, 0}, 1536, 1536, 12, 44e12, 141e12},
    {"530B", {20480, 105, 128, 128, 81920, 51200, false, true, 0, 0, 0}, 560, 2240, 35, 0, 171e12},
    {"530B", {20480, 105, 128, 128, 81920, 51200, false, true, 0, 0, 0}, 640, 2560, 0, 138e12, 0},
    {"530B", {20480, 105, 128, 128, 81920, 51200, false, true, 0, 0, 0}, 1120, 2240, 35, 98e12, 167e12},
    {"530B", {20480, 105, 128, 128, 81920, 51200, false, true, 0, 0, 0}, 2240, 2240, 35, 48e12, 159e12},
};

/* The step time at that rate, by the paper's equation 3. */
static double published_step_s(const struct contest *contest, double flops_per_s) {
    const struct transformer *model = &contest->model;
    const double sequence = 2048;
    double hidden = (double)model->hidden, layers = (double)model->layers;
    double flops = 96 * (double)contest->batch * sequence * layers * hidden * hidden *
                   (1 + sequence / (6 * hidden) + (double)model->vocab / (16 * layers * hidden));
    return flops / ((double)contest->devices * flops_per_s);
}

static enum status simulate(const struct contest *contest, const char *system, struct layout layout,
                            double flops_per_s) {
    struct training job = {.model = contest->model, .system = *training_system_find(system), .layout = layout};
    struct calibration calibration = calibration_default();
    struct forecast forecast;
    TRY(cluster_open("a100-80x8", &job.cluster));
    TRY(forecast_step(&job, &calibration, &forecast));
    bool fits = forecast.peak_bytes <= job.cluster.device.tiers[0].capacity_bytes;
    printf(" %.1f s | ", forecast.step_s);
    if (flops_per_s > 0) printf("%.1f s", published_step_s(contest, flops_per_s));
    printf(" | %.0f%% | %.0f GB%s |", 100 * mfu_of(&job, &forecast), (double)forecast.peak_bytes / 1e9,
           fits ? "" : ", too much");
    return STATUS_OK;
}

static enum status print_contest(const struct contest *contest) {
    int64_t all = contest->devices, rank_batch = contest->batch / all;
    printf("| %s | %lld | %lld |", contest->name, (long long)contest->devices, (long long)contest->batch);
    TRY(simulate(contest, "DeepSpeed 0.3",
                 (struct layout){1, 1, 1, all, 1, false, {all, all, all}, RECOMPUTE_FULL, rank_batch, 1, 2048, 1, 0},
                 contest->zero3_flops_per_s));
    if (contest->pipeline > 0) {
        int64_t data = all / (8 * contest->pipeline), chunks = contest->model.layers / contest->pipeline;
        struct layout mixed = {8, contest->pipeline,     1,    data, chunks, false, {1, 1, 1}, RECOMPUTE_FULL,
                               1, contest->batch / data, 2048, 1,    0};
        TRY(simulate(contest, "Megatron-LM PTD-P", mixed, contest->mixed_flops_per_s));
    }
    putchar('\n');
    return STATUS_OK;
}

static enum status study_zero3(void) {
    printf("| model | devices | sequences | ZeRO-3, step | published | MFU | a device | tensor 8 and pipeline, step | "
           "published | MFU | a device |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < sizeof contests / sizeof *contests; i++)
        TRY(print_contest(&contests[i]));
    return STATUS_OK;
}

/* --- Calculon's eight steps --- */

static const struct validation {
    const char *name;
    struct transformer model;
    int64_t pipeline, chunks, micro_batch, micro_batches; /* with tensor parallelism over 8, on as many A100s */
    double full_s, selective_s;                           /* published */
} validations[] = {
    {"22B", {6144, 48, 64, 64, 24576, 51200, false, true, 0, 0, 0}, 1, 1, 4, 1, 1.42, 1.10},
    {"175B", {12288, 96, 96, 96, 49152, 51200, false, true, 0, 0, 0}, 8, 3, 1, 64, 18.13, 13.75},
    {"530B", {20480, 105, 128, 128, 81920, 51200, false, true, 0, 0, 0}, 35, 3, 1, 280, 49.05, 37.83},
    {"1T", {25600, 128, 160, 160, 102400, 51200, false, true, 0, 0, 0}, 64, 1, 1, 512, 94.42, 71.49},
};

/* Simulates a step with full recomputation, or with recomputed attention and sequence parallelism. */
static enum status validate(const struct validation *one, bool selective, double *sum) {
    struct training job = {.model = one->model, .system = *training_system_find("Megatron-LM")};
    struct calibration calibration = calibration_default();
    struct forecast forecast;
    double published = selective ? one->selective_s : one->full_s;
    TRY(cluster_open("a100-80x8", &job.cluster));
    job.layout = (struct layout){.tensor = 8,
                                 .pipeline = one->pipeline,
                                 .context = 1,
                                 .data = 1,
                                 .virtual_stages = one->chunks,
                                 .sequence = selective,
                                 .partition = {1, 1, 1},
                                 .recomputation = selective ? RECOMPUTE_ATTENTION : RECOMPUTE_FULL,
                                 .micro_batch = one->micro_batch,
                                 .micro_batches = one->micro_batches,
                                 .sequence_length = 2048};
    TRY(forecast_step(&job, &calibration, &forecast));
    double error = forecast.step_s / published - 1;
    *sum += fabs(error);
    printf("| %s | %s | %.2f s | %.2f s | %+.1f%% |\n", one->name, selective ? "attention, sequence cut" : "full",
           published, forecast.step_s, 100 * error);
    return STATUS_OK;
}

static enum status study_calculon(void) {
    double sum = 0;
    size_t count = sizeof validations / sizeof *validations;
    printf("| model | recomputed | published | simulated | error |\n|---|---|---:|---:|---:|\n");
    for (size_t i = 0; i < count; i++)
        for (int selective = 0; selective < 2; selective++)
            TRY(validate(&validations[i], selective, &sum));
    printf("\nmean %.2f%%; Calculon's own is 3.65%%\n", 100 * sum / (2 * (double)count));
    return STATUS_OK;
}

/* --- NeMo's scaling tables --- */

/* A table by number of nodes in the README of NVIDIA's launcher, and the settings of its time that matter. */
struct launches {
    const char *name, *table;
    const struct transformer *model;
    int64_t mesh, batch; /* sizes of tensor and of pipeline parallelism; sequences per step */
    bool cuts_states;    /* distributed_fused_adam, else fused_adam */
    enum recomputation recomputation;
    struct {
        int64_t nodes;
        double tokens_per_s;
    } points[6]; /* ends with 0 nodes */
};

/* July 2022: @d4317ddd, September: @3579cdb3; configurations of @05deb685 and @c6ac205a. Micro-batches are two
 * sequences of 2048. The configuration of September's 175B does not say that everything was recomputed; this tests
 * whether it was. */
static const struct transformer launched_5b = {4096, 24, 32, 32, 16384, 51200, false, true, 0, 0, 0},
                                launched_175b = {12288, 96, 96, 96, 49152, 51200, false, true, 0, 0, 0};
static const struct launches launched[] = {
    {"5B",
     "September 2022",
     &launched_5b,
     1,
     2048,
     true,
     RECOMPUTE_NONE,
     {{1, 40345}, {2, 79815}, {4, 161754}, {8, 312774}, {16, 659481}, {32, 1159288}}},
    {"175B",
     "July 2022",
     &launched_175b,
     8,
     1536,
     false,
     RECOMPUTE_ATTENTION,
     {{16, 20642}, {32, 38025}, {128, 141306}}},
    {"175B",
     "September 2022",
     &launched_175b,
     8,
     2048,
     true,
     RECOMPUTE_ATTENTION,
     {{8, 7500}, {16, 14950}, {32, 29537}, {64, 58211}, {128, 109684}}},
    {"175B",
     "September 2022",
     &launched_175b,
     8,
     2048,
     true,
     RECOMPUTE_FULL,
     {{8, 7500}, {16, 14950}, {32, 29537}, {64, 58211}, {128, 109684}}},
};

static struct layout launched_layout(const struct launches *table, int64_t nodes) {
    const int64_t micro = 2;
    int64_t data = nodes * 8 / (table->mesh * table->mesh);
    return (struct layout){.tensor = table->mesh,
                           .pipeline = table->mesh,
                           .context = 1,
                           .data = data,
                           .virtual_stages = 1,
                           .sequence = table->mesh > 1,
                           .partition = {1, 1, table->cuts_states ? data : 1},
                           .recomputation = table->recomputation,
                           .micro_batch = micro,
                           .micro_batches = table->batch / (micro * data),
                           .sequence_length = 2048};
}

static enum status launch(const struct launches *table) {
    static const char *const recomputed[RECOMPUTE_COUNT] = {
        [RECOMPUTE_NONE] = "nothing", [RECOMPUTE_ATTENTION] = "attention", [RECOMPUTE_FULL] = "all"};
    struct training job = {.model = *table->model, .system = *training_system_find("NeMo Megatron")};
    struct calibration calibration = calibration_default();
    double sum = 0;
    int count = 0;
    TRY(cluster_open("a100-80x8", &job.cluster));
    for (; count < 6 && table->points[count].nodes > 0; count++) {
        struct forecast forecast;
        int64_t nodes = table->points[count].nodes;
        double published = (double)(table->batch * 2048) / table->points[count].tokens_per_s;
        job.layout = launched_layout(table, nodes);
        TRY(forecast_step(&job, &calibration, &forecast));
        double error = forecast.step_s / published - 1;
        sum += fabs(error);
        printf("| %s, %s | %s | %lld | %.2f s | %.2f s | %+.1f%% |\n", table->name, table->table,
               recomputed[table->recomputation], (long long)nodes, published, forecast.step_s, 100 * error);
    }
    printf("| mean | | | | | %.1f%% |\n", 100 * sum / count);
    return STATUS_OK;
}

static enum status study_nemo(void) {
    printf("| table | recomputed | nodes | published | simulated | error |\n|---|---|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < sizeof launched / sizeof *launched; i++)
        TRY(launch(&launched[i]));
    return STATUS_OK;
}

/* --- 4096 devices --- */

/* `published`: the nearest published result, as text. */
static enum status print_large(const char *name, const struct transformer *model, const char *cluster,
                               const char *published) {
    struct choice_request request = {.model = *model, .devices = 4096, .batch = 4096};
    struct calibration calibration = calibration_default();
    struct choices choices;
    request.sequence_length = 4096;
    TRY(cluster_open(cluster, &request.cluster));
    TRY(choose_layouts(&request, &calibration, &choices));
    const struct choice *best = choices_fastest(&choices);
    struct training job = {.cluster = request.cluster, .layout = best->layout};
    printf("| %s | %s | %lld x %lldx%lld x %lld | (%lld, %lld, %lld) | %.2f s | %.1f%% | %s | %.0f GB |\n", name,
           cluster, (long long)best->layout.tensor, (long long)best->layout.pipeline,
           (long long)best->layout.virtual_stages, (long long)best->layout.data,
           (long long)best->layout.partition.parameters, (long long)best->layout.partition.gradients,
           (long long)best->layout.partition.optimizer, best->forecast.step_s, 100 * mfu_of(&job, &best->forecast),
           published, (double)best->forecast.peak_bytes / 1e9);
    choices_free(&choices);
    return STATUS_OK;
}

static enum status study_large(void) {
    static const struct transformer llama70 = {8192, 80, 64, 8, 28672, 128256, true, false, 0, 0, 0},
                                    gpt175 = {12288, 96, 96, 96, 49152, 51200, false, true, 0, 0, 0},
                                    gpt530 = {20480, 105, 128, 128, 81920, 51200, false, true, 0, 0, 0};
    printf(
        "16 Mi tokens a step, as 4096 sequences.\n\n| model | cluster | tensor x pipeline x data | partition | step | "
        "MFU | published MFU | a device |\n|---|---|---|---|---:|---:|---|---:|\n");
    TRY(print_large("Llama 3.1 70B", &llama70, "a100-80x8", ""));
    TRY(print_large("Llama 3.1 70B", &llama70, "h100x8", ""));
    TRY(print_large("GPT 175B", &gpt175, "a100-80x8", "34% on 1536 (arXiv 2104.04473)"));
    TRY(print_large("GPT 175B", &gpt175, "h100x8", "44% on 2304, 42% on 4608 (Megatron-LM, README, 177B)"));
    return print_large("GPT 530B", &gpt530, "a100-80x8", "54.2% on 2240 (arXiv 2205.05198)");
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        enum status (*run)(void);
    } studies[] = {{"triples", study_triples},
                   {"zero3", study_zero3},
                   {"large", study_large},
                   {"calculon", study_calculon},
                   {"nemo", study_nemo}};
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    for (size_t i = 0; argc == 2 && i < sizeof studies / sizeof *studies; i++) {
        if (strcmp(argv[1], studies[i].name) != 0) continue;
        enum status status = studies[i].run();
        if (status != STATUS_OK) fprintf(stderr, "scale_studies: %s\n", status_message());
        return (int)status;
    }
    fprintf(stderr, "usage: scale_studies triples|zero3|large|calculon|nemo\n");
    return STATUS_BAD_INPUT;
}
