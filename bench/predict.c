/* How well steps are predicted: policies spread through the space, each predicted from one profile and then run.
 *
 *     build/bench/predict --disk DIR [--layers N] [--hidden N] [--heads N] [--vocab N] [--batch N] [--seq N]
 *                         [--grain N] [--dtype fp32|bf16] [--threads N] [--policies N] [--repeats N] [--seed N]
 *                         [-o FILE]
 *
 * Repeats are interleaved: each round opens every policy anew, runs two steps that settle it and times a third. A
 * product of matrices is timed beside each step and beside the profile, and times are taken in its units, so that what
 * slows the whole machine for a while (heat, neighbours) is not taken for a difference of policies. The first plan and
 * two more are in the list twice: how far the medians of equal plans are apart is the noise floor. Memory is right
 * where the system says that exactly the arenas' bytes are resident. -o also writes the report to a file. */
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "profile/profile.h"
#include "profile/profile_model.h"
#include "sim/simulate.h"
#include "support/median.h"
#include "support/model_step.h"
#include "support/policy_spread.h"

enum { POLICIES_MOST = 256, REPEATS_MOST = 25, TWINS = 3, WARM_STEPS = 2 };

struct settings {
    struct model_step_options step;
    int64_t policies, repeats, seed;
    const char *output;
};

struct entry {
    struct policy policy;
    int64_t twin; /* the entry of the same plan; -1: none */
    double predicted_s, measured_s;
    double measured[REPEATS_MOST]; /* in the profile's units of time */
    int64_t predicted_bytes[TIER_COUNT], measured_bytes[TIER_COUNT];
};

struct bench {
    struct settings settings;
    struct costs costs;
    double profile_flops_per_s; /* of the product, beside the profile */
    struct entry entries[POLICIES_MOST + TWINS];
    int64_t count;
};

static enum status product_rate(double *flops_per_s) {
    return profile_matrix_rate(&backend_cpu, DTYPE_F32, flops_per_s);
}

static struct model_step_options options_of(const struct bench *bench, const struct policy *policy) {
    struct model_step_options options = bench->settings.step;
    options.policy = policy;
    return options;
}

static enum status choose_policies(struct bench *bench, const struct model_step *plain) {
    const struct settings *settings = &bench->settings;
    int64_t grains = recipe_grains(&plain->plan.recipe);
    for (int64_t i = 0; i < settings->policies; i++) {
        struct entry *entry = &bench->entries[bench->count++];
        entry->twin = -1;
        TRY(policy_spread(plain->executable->graph, grains, (uint64_t)settings->seed, i, settings->policies,
                          &entry->policy));
    }
    for (int64_t k = 0; k < TWINS; k++) {
        int64_t twin = k * (settings->policies - 1) / (TWINS - 1);
        bench->entries[bench->count] = bench->entries[twin];
        bench->entries[bench->count++].twin = twin;
    }
    return STATUS_OK;
}

/* One profile serves all policies: they have one graph. */
static enum status profile(struct bench *bench, const struct model_step *plain) {
    struct cluster cluster;
    double before, after;
    struct profile_report report = {0};
    const struct profile_options options = {
        .disk_folder = bench->settings.step.disk_folder, .host_tier = true, .threads = plain->plan.recipe.threads};
    TRY(cluster_measure(&cluster));
    snprintf(cluster.device.isa, sizeof cluster.device.isa, "%s", backend_cpu.isa());
    TRY(product_rate(&before));
    TRY(profile_model(&backend_cpu, plain->executable->graph, &cluster, &options, &bench->costs, &report));
    TRY(product_rate(&after));
    bench->profile_flops_per_s = (before + after) / 2;
    fprintf(stderr, "profile: %d operators in %.1f s, the noisiest (%s) by %.0f%%; product %.1f and %.1f GFLOP/s\n",
            report.operators, report.seconds, report.noisiest ? report.noisiest : "none", 100 * report.noise,
            before * 1e-9, after * 1e-9);
    profile_report_free(&report);
    return STATUS_OK;
}

static enum status predict(struct bench *bench, struct entry *entry) {
    struct model_step_options options = options_of(bench, &entry->policy);
    struct model_step step;
    struct timeline timeline;
    enum status status = model_step_compile(&options, &step);
    if (status == STATUS_OK) status = simulate(step.executable->program, &bench->costs, &timeline);
    if (status == STATUS_OK) {
        entry->predicted_s = timeline.step_s;
        memcpy(entry->predicted_bytes, step.executable->program->tier_bytes, sizeof entry->predicted_bytes);
        timeline_free(&timeline);
    }
    model_step_close(&step);
    return status;
}

/* Bytes of a memory tier's arena that are resident; of the disk, all. */
static int64_t resident_bytes(const struct arena *arena) {
    if (!arena->base) return arena->bytes;
    int64_t page = sysconf(_SC_PAGESIZE), pages = (arena->bytes + page - 1) / page, resident = 0;
    unsigned char *present = mem_array((size_t)pages, 1);
    if (!present || mincore(arena->base, (size_t)arena->bytes, present) != 0) pages = 0;
    for (int64_t i = 0; i < pages; i++)
        if (present[i] & 1) resident += (i + 1) * page <= arena->bytes ? page : arena->bytes - i * page;
    mem_free(present);
    return resident;
}

static enum status run_steps(const struct bench *bench, struct model_step *step, double *seconds) {
    int64_t ns = 0;
    double before, after;
    for (int i = 0; i < WARM_STEPS; i++)
        TRY(model_step_run(step, &ns));
    TRY(product_rate(&before));
    TRY(model_step_run(step, &ns));
    TRY(product_rate(&after));
    *seconds = (double)ns * 1e-9 * (before + after) / 2 / bench->profile_flops_per_s;
    return STATUS_OK;
}

static enum status measure(struct bench *bench, struct entry *entry, int64_t round) {
    struct model_step_options options = options_of(bench, &entry->policy);
    struct model_step step;
    enum status status = model_step_open(&options, &step);
    if (status == STATUS_OK) status = run_steps(bench, &step, &entry->measured[round]);
    for (enum tier tier = 0; tier < TIER_COUNT && status == STATUS_OK; tier++)
        entry->measured_bytes[tier] = resident_bytes(&step.arenas[tier]);
    model_step_close(&step);
    return status;
}

static enum status measure_all(struct bench *bench) {
    for (int64_t round = 0; round < bench->settings.repeats; round++)
        for (int64_t i = 0; i < bench->count; i++) {
            TRY(measure(bench, &bench->entries[i], round));
            fprintf(stderr, "\rround %" PRId64 " of %" PRId64 ", plan %" PRId64 " of %" PRId64 "  ", round + 1,
                    bench->settings.repeats, i + 1, bench->count);
        }
    fprintf(stderr, "\n");
    for (int64_t i = 0; i < bench->count; i++)
        bench->entries[i].measured_s = median(bench->entries[i].measured, (int)bench->settings.repeats);
    return STATUS_OK;
}

static double error_of(const struct entry *entry) { return entry->predicted_s / entry->measured_s - 1; }

static bool memory_exact(const struct entry *entry) {
    return memcmp(entry->predicted_bytes, entry->measured_bytes, sizeof entry->predicted_bytes) == 0;
}

/* What the list says of the whole. */
struct verdict {
    double floor, median_error, p90_error;
    int64_t exact;
    int64_t predicted_fastest, fastest; /* entries */
};

static struct verdict judge(const struct bench *bench) {
    struct verdict verdict = {0};
    double errors[POLICIES_MOST];
    int policies = (int)bench->settings.policies;
    for (int64_t i = 0; i < bench->count; i++) {
        const struct entry *entry = &bench->entries[i];
        verdict.exact += memory_exact(entry);
        if (entry->twin >= 0)
            verdict.floor = fmax(verdict.floor, fabs(entry->measured_s / bench->entries[entry->twin].measured_s - 1));
    }
    for (int64_t i = 0; i < policies; i++) {
        errors[i] = fabs(error_of(&bench->entries[i]));
        if (bench->entries[i].predicted_s < bench->entries[verdict.predicted_fastest].predicted_s)
            verdict.predicted_fastest = i;
        if (bench->entries[i].measured_s < bench->entries[verdict.fastest].measured_s) verdict.fastest = i;
    }
    verdict.median_error = median(errors, policies); /* which puts them into order */
    verdict.p90_error = errors[(9 * policies + 9) / 10 - 1];
    return verdict;
}

static const char *met(bool yes) { return yes ? "met" : "NOT met"; }

static void print_setting(const struct bench *bench, FILE *out) {
    const struct model_step_options *step = &bench->settings.step;
    fprintf(out,
            "%s, %" PRId64 " layers of %" PRId64 ", vocabulary %" PRId64 "; %" PRId64 " x %" PRId64
            " tokens in grains of %" PRId64 ", %s, %s; %" PRId64 " policies of seed %" PRId64 ", median of %" PRId64
            " interleaved steps\n\n",
            step->family, step->layers, step->hidden, step->vocab, step->plan.batch, step->plan.sequence_length,
            step->plan.grain_sequences, dtype_name(step->plan.dtype), backend_cpu.isa(), bench->settings.policies,
            bench->settings.seed, bench->settings.repeats);
}

static void print_table(const struct bench *bench, FILE *out) {
    char text[POLICY_TEXT];
    fprintf(out, "%4s %9s %9s %7s %7s %6s  %s\n", "plan", "predicted", "measured", "error", "spread", "memory",
            "policy");
    for (int64_t i = 0; i < bench->count; i++) {
        const struct entry *entry = &bench->entries[i];
        /* In order since the median was taken. */
        double spread = (entry->measured[bench->settings.repeats - 1] - entry->measured[0]) / entry->measured_s;
        fprintf(out, "%4" PRId64 " %9.4f %9.4f %+6.1f%% %6.1f%% %6s  %s", i, entry->predicted_s, entry->measured_s,
                100 * error_of(entry), 100 * spread, memory_exact(entry) ? "exact" : "off",
                policy_spread_print(&entry->policy, text));
        if (entry->twin >= 0)
            fprintf(out, " (again plan %" PRId64 ")\n", entry->twin);
        else
            fprintf(out, "\n");
    }
}

static void print_verdict(const struct bench *bench, FILE *out) {
    struct verdict verdict = judge(bench);
    double median_limit = fmax(0.05, 2 * verdict.floor), p90_limit = fmax(0.10, 3 * verdict.floor);
    const struct entry *choice = &bench->entries[verdict.predicted_fastest], *best = &bench->entries[verdict.fastest];
    double behind = choice->measured_s / best->measured_s - 1, behind_limit = 0.05 + verdict.floor;
    fprintf(out, "\nnoise floor      %.1f%%: the most that medians of one plan are apart, of %d plans run twice\n",
            100 * verdict.floor, TWINS);
    fprintf(out, "median error     %.1f%%, at most %.1f%%: %s\n", 100 * verdict.median_error, 100 * median_limit,
            met(verdict.median_error <= median_limit));
    fprintf(out, "90th percentile  %.1f%%, at most %.1f%%: %s\n", 100 * verdict.p90_error, 100 * p90_limit,
            met(verdict.p90_error <= p90_limit));
    fprintf(out, "memory           exact in %" PRId64 " of %" PRId64 ": %s\n", verdict.exact, bench->count,
            met(verdict.exact == bench->count));
    fprintf(out,
            "choice           plan %" PRId64 " is predicted fastest, plan %" PRId64
            " was: %.1f%% behind, at most %.1f%%: %s\n",
            verdict.predicted_fastest, verdict.fastest, 100 * behind, 100 * behind_limit, met(behind <= behind_limit));
}

static void print_report(const struct bench *bench, FILE *out) {
    print_setting(bench, out);
    print_table(bench, out);
    print_verdict(bench, out);
}

static enum status put_out(const struct bench *bench) {
    print_report(bench, stdout);
    if (!bench->settings.output) return STATUS_OK;
    FILE *file = fopen(bench->settings.output, "w");
    if (!file) return status_set(STATUS_FAILED, "%s: cannot be written", bench->settings.output);
    print_report(bench, file);
    return fclose(file) == 0 ? STATUS_OK : status_set(STATUS_FAILED, "%s: cannot be written", bench->settings.output);
}

static enum status run(struct bench *bench) {
    struct model_step plain;
    struct model_step_options options = options_of(bench, NULL);
    enum status status = model_step_compile(&options, &plain);
    if (status == STATUS_OK) status = choose_policies(bench, &plain);
    if (status == STATUS_OK) status = profile(bench, &plain);
    model_step_close(&plain);
    TRY(status);
    for (int64_t i = 0; i < bench->count; i++)
        TRY(predict(bench, &bench->entries[i]));
    TRY(measure_all(bench));
    return put_out(bench);
}

static enum status parse_whole(const char *name, const char *text, int64_t most, int64_t *out) {
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*end || end == text || value < 1 || value > most)
        return status_set(STATUS_BAD_INPUT, "--%s: '%s' is no number from 1 to %" PRId64, name, text, most);
    *out = value;
    return STATUS_OK;
}

static enum status parse_option(const char *name, const char *text, struct settings *settings) {
    struct model_step_options *step = &settings->step;
    const struct {
        const char *name;
        int64_t *number, most;
    } numbers[] = {
        {"layers", &step->layers, 1024},
        {"hidden", &step->hidden, 1 << 20},
        {"heads", &step->heads, 1 << 16},
        {"vocab", &step->vocab, 1 << 24},
        {"batch", &step->plan.batch, 1 << 20},
        {"seq", &step->plan.sequence_length, 1 << 20},
        {"grain", &step->plan.grain_sequences, 1 << 20},
        {"policies", &settings->policies, POLICIES_MOST},
        {"repeats", &settings->repeats, REPEATS_MOST},
        {"seed", &settings->seed, INT32_MAX},
    };
    int64_t threads = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(name, numbers[i].name) == 0) return parse_whole(name, text, numbers[i].most, numbers[i].number);
    if (strcmp(name, "disk") == 0) return step->disk_folder = text, STATUS_OK;
    if (strcmp(name, "dtype") == 0) {
        step->plan.dtype = dtype_find(text);
        bool known = step->plan.dtype == DTYPE_F32 || step->plan.dtype == DTYPE_BF16;
        return known ? STATUS_OK : status_set(STATUS_BAD_INPUT, "--dtype: '%s' is neither fp32 nor bf16", text);
    }
    TRY(parse_whole(name, text, 4096, &threads));
    step->plan.threads = (int)threads;
    return STATUS_OK;
}

static enum status parse(int count, char **words, struct settings *out) {
    static const struct option known[] = {
        {"layers", required_argument, NULL, 0},  {"hidden", required_argument, NULL, 0},
        {"heads", required_argument, NULL, 0},   {"vocab", required_argument, NULL, 0},
        {"batch", required_argument, NULL, 0},   {"seq", required_argument, NULL, 0},
        {"grain", required_argument, NULL, 0},   {"policies", required_argument, NULL, 0},
        {"repeats", required_argument, NULL, 0}, {"seed", required_argument, NULL, 0},
        {"disk", required_argument, NULL, 0},    {"dtype", required_argument, NULL, 0},
        {"threads", required_argument, NULL, 0}, {0}};
    int index, found;
    while ((found = getopt_long(count, words, "o:", known, &index)) == 0 || found == 'o') {
        if (found == 'o')
            out->output = optarg;
        else
            TRY(parse_option(known[index].name, optarg, out));
    }
    if (found != -1 || optind < count)
        return status_set(STATUS_BAD_INPUT, "unknown option; bench/predict.c begins with those that there are");
    if (!out->step.disk_folder)
        return status_set(STATUS_BAD_INPUT, "--disk DIR is missing: where the disk tier of policies is");
    return STATUS_OK;
}

/* As ballast itself does: OpenMP reads the setting when it is loaded. */
static void limit_spinning(char **words) {
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    if (setenv("GOMP_SPINCOUNT", "10000", 1) == 0) execv("/proc/self/exe", words);
}

int main(int count, char **words) {
    limit_spinning(words);
    static struct bench bench = {
        .settings = {.step = {.family = "gpt2", .layers = 6, .hidden = 256, .heads = 4, .vocab = 2048},
                     .policies = 32,
                     .repeats = 5,
                     .seed = 1}};
    struct plan_options *plan = &bench.settings.step.plan;
    plan_options_init(plan);
    plan->batch = 8;
    plan->sequence_length = 128;
    plan->grain_sequences = 2;
    plan->dtype = DTYPE_F32;
    enum status status = parse(count, words, &bench.settings);
    if (status == STATUS_OK) status = run(&bench);
    if (status != STATUS_OK) fprintf(stderr, "%s: %s\n", words[0], status_message());
    costs_free(&bench.costs);
    return (int)status;
}
