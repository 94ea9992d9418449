/* Measures how well step times are predicted: predicts policies spread through the space from one profile, then runs
 * each of them.
 *
 *     build/bench/predict --disk DIR [--layers N] [--hidden N] [--heads N] [--vocab N] [--batch N] [--seq N]
 *                         [--micro-batch N] [--dtype fp32|bf16] [--threads N] [--policies N] [--repeats N] [--seed N]
 *                         [-o FILE]
 *
 * Repeats are interleaved. Each round profiles the machine, as consecutive runs do: noisy measurements are repeated.
 * Then it opens every policy, runs one step to warm up, and times the next one.
 *
 * After each step the program times a reference GEMM, as the mean of some calls. Anything that slows the machine for a
 * while, such as heat or other programs, slows the GEMM too, so step times are scaled to the fastest GEMM of all. The
 * result of a plan is the median over the half of its repeats with the fastest GEMMs.
 *
 * The first plan and two others occur twice in the list: the difference between equal plans is the noise floor. The
 * report separates a factor that all predictions share from the remaining errors (support/prediction_errors.h). Memory
 * is right if the system reports exactly the arenas' bytes as resident.
 *
 * Then follows the time of each stream by activity, predicted and measured in the step with the fastest GEMM, for each
 * plan and for all together. -o also writes the report to a file. DIR/profile keeps the profile. */
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/terminal.h"
#include "cli/program.h"
#include "plan/activations.h"
#include "profile/rate_work.h"
#include "search/sim/step_summary.h"
#include "session/machine_costs.h"
#include "support/bench_options.h"
#include "support/median.h"
#include "support/model_step.h"
#include "support/policy_spread.h"
#include "support/prediction_errors.h"

enum { POLICIES_MAX = 256, REPEATS_MAX = 25, TWINS = 3, REFERENCE_CALLS = 10 };

struct settings {
    struct model_step_options step;
    int64_t policies, repeats, seed;
    const char *output;
};

struct repeat {
    double step_s, reference_s; /* the step, and a reference GEMM timed after it */
};

struct entry {
    struct policy policy;
    int64_t twin; /* the entry of the same plan; -1: none */
    double predicted_s, measured_s;
    struct repeat repeats[REPEATS_MAX];
    struct step_summary predicted, measured; /* measured in the repeat with the fastest GEMM */
    int64_t predicted_bytes[TIER_COUNT], measured_bytes[TIER_COUNT];
};

struct bench {
    struct settings settings;
    struct costs costs;
    struct rate_machine machine;
    struct rate_work reference;
    double profile_reference_s;
    char *cache_folder;
    struct entry entries[POLICIES_MAX + TWINS];
    int64_t count;
    int32_t blocks;
};

static enum status open_reference(struct bench *bench, int threads) {
    bench->machine = rate_machine_make(&backend_cpu, threads, PROFILE_MEMORY_BYTES);
    return rate_work_open(&bench->machine, ACTIVITY_PRODUCT, 0, &bench->reference);
}

static enum status time_reference(struct bench *bench, double *seconds) {
    int64_t begin = clock_now_ns();
    for (int i = 0; i < REFERENCE_CALLS; i++)
        TRY(rate_work_run(&bench->reference));
    *seconds = (double)(clock_now_ns() - begin) * 1e-9 / REFERENCE_CALLS;
    return STATUS_OK;
}

static struct model_step_options options_of(const struct bench *bench, const struct policy *policy) {
    struct model_step_options options = bench->settings.step;
    options.policy = policy;
    return options;
}

static enum status choose_policies(struct bench *bench, const struct model_step *plain) {
    const struct settings *settings = &bench->settings;
    int64_t micro_batches = recipe_micro_batches(&plain->plan.chosen.recipe);
    for (int64_t i = 0; i < settings->policies; i++) {
        struct entry *entry = &bench->entries[bench->count++];
        entry->twin = -1;
        TRY(policy_spread(model_step_executable(plain)->graph, micro_batches, (uint64_t)settings->seed, i,
                          settings->policies, &entry->policy));
    }
    for (int64_t k = 0; k < TWINS; k++) {
        int64_t twin = k * (settings->policies - 1) / (TWINS - 1);
        bench->entries[bench->count] = bench->entries[twin];
        bench->entries[bench->count++].twin = twin;
    }
    return STATUS_OK;
}

/* One profile serves all policies: they have one graph. */
static enum status profile(struct bench *bench, const struct model_step *plain, bool anew) {
    struct machine_costs found;
    const struct measuring measuring = {.anew = anew, .cache_folder = bench->cache_folder};
    costs_free(&bench->costs);
    double before, after;
    TRY(time_reference(bench, &before));
    TRY(machine_costs_measure(&plain->session.machine, &plain->plan.programs, &measuring, &found));
    bench->costs = found.costs;
    TRY(time_reference(bench, &after));
    const struct profile_report *report = &found.report;
    /* Keeps times from the least disturbed profile, or part of one. A round that measured nothing gives no
     * information about the machine at which they were taken. */
    if (report->measured > 0) bench->profile_reference_s = fmin(bench->profile_reference_s, fmin(before, after));
    fprintf(stderr,
            "\nprofile: %d measurements in %.1f s, the noisiest of %d operators (%s) by %.0f%%, rates by %.0f%%\n",
            report->measured, report->seconds, report->operators, report->noisiest ? report->noisiest : "none",
            100 * report->noise, 100 * found.cluster.rates.noise);
    profile_report_free(&found.report);
    return STATUS_OK;
}

static enum status predict(struct bench *bench, struct entry *entry) {
    struct model_step_options options = options_of(bench, &entry->policy);
    struct model_step step;
    struct timeline timeline;
    enum status status = model_step_compile(&options, &step);
    if (status == STATUS_OK) status = simulate(model_step_executable(&step)->program, &bench->costs, &timeline);
    if (status == STATUS_OK) {
        entry->predicted_s = timeline.step_s;
        step_summarise(&timeline, &bench->costs, &entry->predicted);
        memcpy(entry->predicted_bytes, model_step_executable(&step)->program->tier_bytes,
               sizeof entry->predicted_bytes);
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

static enum status run_steps(struct bench *bench, struct model_step *step, struct timeline *timeline,
                             struct repeat *out) {
    int64_t ns = 0;
    double before, after;
    TRY(model_step_run(step, &ns));
    runner_set_recorder(step->engine.main, timeline);
    TRY(time_reference(bench, &before));
    omp_pause_resource_all(omp_pause_soft); /* a run only has the teams of streams (streams.c) */
    TRY(model_step_run(step, &ns));
    TRY(time_reference(bench, &after));
    *out = (struct repeat){(double)ns * 1e-9, (before + after) / 2};
    return STATUS_OK;
}

static bool beside_fastest(const struct entry *entry, int64_t round) {
    for (int64_t i = 0; i < round; i++)
        if (entry->repeats[i].reference_s <= entry->repeats[round].reference_s) return false;
    return true;
}

static enum status measure(struct bench *bench, struct entry *entry, int64_t round) {
    struct model_step_options options = options_of(bench, &entry->policy);
    struct model_step step;
    struct timeline timeline = {0};
    enum status status = model_step_open(&options, &step);
    if (status == STATUS_OK) status = timeline_create(model_step_executable(&step)->program, &timeline);
    if (status == STATUS_OK) status = run_steps(bench, &step, &timeline, &entry->repeats[round]);
    if (status == STATUS_OK && beside_fastest(entry, round)) step_summarise(&timeline, &bench->costs, &entry->measured);
    for (enum tier tier = 0; tier < TIER_COUNT && status == STATUS_OK; tier++)
        entry->measured_bytes[tier] = resident_bytes(&step.engine.arenas[tier]);
    timeline_free(&timeline);
    model_step_close(&step);
    return status;
}

static int by_reference(const void *left, const void *right) {
    double a = ((const struct repeat *)left)->reference_s, b = ((const struct repeat *)right)->reference_s;
    return (a > b) - (a < b);
}

static double settle(struct entry *entry, int repeats, double profile_reference_s) {
    double seconds[REPEATS_MAX];
    int half = (repeats + 1) / 2;
    qsort(entry->repeats, (size_t)repeats, sizeof *entry->repeats, by_reference);
    for (int i = 0; i < half; i++)
        seconds[i] = entry->repeats[i].step_s * profile_reference_s / entry->repeats[i].reference_s;
    return median(seconds, half);
}

static enum status measure_all(struct bench *bench, const struct model_step *plain) {
    for (int64_t round = 0; round < bench->settings.repeats; round++) {
        TRY(profile(bench, plain, round == 0));
        for (int64_t i = 0; i < bench->count; i++) {
            TRY(measure(bench, &bench->entries[i], round));
            fprintf(stderr, "\rround %" PRId64 " of %" PRId64 ", plan %" PRId64 " of %" PRId64 "  ", round + 1,
                    bench->settings.repeats, i + 1, bench->count);
        }
    }
    TRY(profile(bench, plain, false));
    for (int64_t i = 0; i < bench->count; i++)
        bench->entries[i].measured_s =
            settle(&bench->entries[i], (int)bench->settings.repeats, bench->profile_reference_s);
    return STATUS_OK;
}

static double error_of(const struct entry *entry) { return entry->predicted_s / entry->measured_s - 1; }

static bool memory_exact(const struct entry *entry) {
    return memcmp(entry->predicted_bytes, entry->measured_bytes, sizeof entry->predicted_bytes) == 0;
}

/* Summary of the list. */
struct verdict {
    double floor;
    struct prediction_errors errors;
    int64_t exact;
    int64_t predicted_fastest, fastest; /* entries */
};

/* Whether the policy recomputes blocks: it has more forwards than blocks. */
static bool recomputes(const struct policy *policy, int32_t blocks) {
    struct activation_steps steps;
    int64_t forwards = 0;
    if (activations_parse(policy->schedule, blocks, &steps) != STATUS_OK) status_clear();
    for (size_t s = 0; s < steps.list.count; s++)
        forwards += steps.list.items[s].action == ACTIVATION_FORWARD;
    activation_steps_free(&steps);
    return forwards > blocks;
}

static enum status judge(const struct bench *bench, struct verdict *out) {
    struct verdict verdict = {0};
    struct prediction predictions[POLICIES_MAX];
    int policies = (int)bench->settings.policies;
    for (int64_t i = 0; i < bench->count; i++) {
        const struct entry *entry = &bench->entries[i];
        verdict.exact += memory_exact(entry);
        if (entry->twin >= 0)
            verdict.floor = fmax(verdict.floor, fabs(entry->measured_s / bench->entries[entry->twin].measured_s - 1));
    }
    for (int64_t i = 0; i < policies; i++) {
        const struct entry *entry = &bench->entries[i];
        predictions[i] =
            (struct prediction){entry->predicted_s, entry->measured_s, recomputes(&entry->policy, bench->blocks)};
        if (bench->entries[i].predicted_s < bench->entries[verdict.predicted_fastest].predicted_s)
            verdict.predicted_fastest = i;
        if (bench->entries[i].measured_s < bench->entries[verdict.fastest].measured_s) verdict.fastest = i;
    }
    if (!prediction_judge(predictions, policies, &verdict.errors)) return STATUS_FAILED;
    *out = verdict;
    return STATUS_OK;
}

static void print_setting(const struct bench *bench, FILE *out) {
    const struct model_step_options *step = &bench->settings.step;
    fprintf(out,
            "%s, %" PRId64 " layers of %" PRId64 ", vocabulary %" PRId64 "; %" PRId64 " x %" PRId64
            " tokens in micro-batches of %" PRId64 ", %s, %s; %" PRId64 " policies of seed %" PRId64 ", %" PRId64
            " interleaved steps of each\n\n",
            step->family, step->layers, step->hidden, step->vocab, step->plan.batch, step->plan.sequence_length,
            step->plan.micro_batch_sequences, dtype_name(step->plan.dtype), backend_cpu.isa(), bench->settings.policies,
            bench->settings.seed, bench->settings.repeats);
}

static void print_table(const struct bench *bench, FILE *out) {
    char text[POLICY_TEXT];
    fprintf(out, "%4s %9s %9s %7s %7s %6s  %s\n", "plan", "predicted", "measured", "error", "load", "memory", "policy");
    for (int64_t i = 0; i < bench->count; i++) {
        const struct entry *entry = &bench->entries[i];
        /* The repeats are sorted by the reference time. */
        double load = entry->repeats[(bench->settings.repeats - 1) / 4].reference_s / bench->profile_reference_s - 1;
        fprintf(out, "%4" PRId64 " %9.4f %9.4f %+6.1f%% %6.1f%% %6s  %s", i, entry->predicted_s, entry->measured_s,
                100 * error_of(entry), 100 * load, memory_exact(entry) ? "exact" : "off",
                policy_spread_print(&entry->policy, text));
        if (entry->twin >= 0)
            fprintf(out, " (again plan %" PRId64 ")\n", entry->twin);
        else
            fprintf(out, "\n");
    }
    fprintf(out, "load: how much slower the product was compared with a typical one of the repeats that count\n");
}

/* Prints a line for each plan: "compute GEMMs 0.0900 0.1000" is the predicted and measured busy time. */
static void print_shares(const struct bench *bench, FILE *out) {
    fprintf(out, "\nms at work, predicted and measured:\n");
    for (int64_t i = 0; i < bench->settings.policies; i++) {
        const struct entry *entry = &bench->entries[i];
        double scale = bench->profile_reference_s / entry->repeats[0].reference_s;
        fprintf(out, "%4" PRId64, i);
        for (int role = 0; role < STREAM_ROLE_COUNT; role++)
            for (int a = 0; a < ACTIVITY_COUNT; a++)
                if (entry->predicted.busy_s[role][a] > 0 || entry->measured.busy_s[role][a] > 0)
                    fprintf(out, "  %s %s %.1f %.1f;", stream_role_name((enum stream_role)role),
                            activity_name((enum activity)a), 1e3 * entry->predicted.busy_s[role][a],
                            1e3 * scale * entry->measured.busy_s[role][a]);
        fprintf(out, "\n");
    }
}

/* Predicted and measured seconds of all policies. */
struct kind {
    double predicted_s, measured_s;
};

static void print_kind(const char *role, const char *does, const struct kind *kind, const struct kind *steps,
                       FILE *out) {
    if (kind->predicted_s <= 0 && kind->measured_s <= 0) return;
    fprintf(out, "%-10s %-18s %9.1f%% %9.1f%% %9.3f\n", role, does, 100 * kind->predicted_s / steps->predicted_s,
            100 * kind->measured_s / steps->measured_s, kind->measured_s / kind->predicted_s);
}

static void add_kinds(const struct bench *bench, const struct entry *entry,
                      struct kind busy[STREAM_ROLE_COUNT][ACTIVITY_COUNT], struct kind waits[STREAM_ROLE_COUNT]) {
    double scale = bench->profile_reference_s / entry->repeats[0].reference_s;
    for (int role = 0; role < STREAM_ROLE_COUNT; role++)
        for (int a = 0; a < ACTIVITY_COUNT; a++) {
            busy[role][a].predicted_s += entry->predicted.busy_s[role][a];
            busy[role][a].measured_s += scale * entry->measured.busy_s[role][a];
        }
    for (int s = 0; s < entry->predicted.stream_count; s++)
        waits[entry->predicted.streams[s].role].predicted_s += entry->predicted.streams[s].waiting_s;
    for (int s = 0; s < entry->measured.stream_count; s++)
        waits[entry->measured.streams[s].role].measured_s += scale * entry->measured.streams[s].waiting_s;
}

/* Shows the origin of the common factor: busy and waiting time of each stream, over all policies. */
static void print_kinds(const struct bench *bench, FILE *out) {
    struct kind busy[STREAM_ROLE_COUNT][ACTIVITY_COUNT] = {{{0}}}, waits[STREAM_ROLE_COUNT] = {{0}}, steps = {0};
    double around_s = 0;
    for (int64_t i = 0; i < bench->settings.policies; i++) {
        const struct entry *entry = &bench->entries[i];
        double scale = bench->profile_reference_s / entry->repeats[0].reference_s;
        add_kinds(bench, entry, busy, waits);
        steps.predicted_s += entry->predicted.step_s;
        steps.measured_s += scale * entry->measured.step_s;
        around_s += scale * (entry->repeats[0].step_s - entry->measured.step_s);
    }
    fprintf(out, "\n%-29s %10s %10s %9s\n", "of all steps' time", "predicted", "measured", "ratio");
    for (int role = 0; role < STREAM_ROLE_COUNT; role++) {
        const char *name = stream_role_name((enum stream_role)role);
        for (int a = 0; a < ACTIVITY_COUNT; a++)
            print_kind(name, activity_name((enum activity)a), &busy[role][a], &steps, out);
        print_kind(name, "waiting", &waits[role], &steps, out);
    }
    print_kind("all", "steps", &steps, &steps, out);
    fprintf(out, "around a step's program: %.2f%%\n", 100 * around_s / steps.measured_s);
}

/* A line of a bar: `error` compared with what it may be. */
static void print_bar(const char *name, double error, struct bar_limit limit, double floor, FILE *out) {
    fprintf(out, "%-16s %.1f%%, at most %.1f%%: %s\n", name, 100 * error, 100 * bar_lift(limit, floor),
            bar_text(bar_judge(error, limit, floor)));
}

static void print_errors(const struct verdict *verdict, FILE *out) {
    const struct prediction_errors *errors = &verdict->errors;
    fprintf(out, "\nnoise floor      %.1f%%: the most that equal plans are apart, of %d plans run twice\n",
            100 * verdict->floor, TWINS);
    fprintf(out, "common factor    %.3f: the median of measured over predicted\n", errors->factor);
    print_bar("  off by", fabs(errors->factor - 1), (struct bar_limit){0.10, 2}, verdict->floor, out);
    fprintf(out, "the rest, with that factor taken out:\n");
    print_bar("  median", errors->median, (struct bar_limit){0.04, 2}, verdict->floor, out);
    print_bar("  90th percentile", errors->p90, (struct bar_limit){0.10, 3}, verdict->floor, out);
    if (errors->recomputing <= 0 || errors->straight <= 0) return;
    fprintf(out, "plans that compute blocks again: %.1f%% in the middle, others %.1f%%\n", 100 * errors->recomputing,
            100 * errors->straight);
    print_bar("  further off by", fmax(0, errors->recomputing - errors->straight), (struct bar_limit){0.01, 1},
              verdict->floor, out);
}

static void print_verdict(const struct bench *bench, const struct verdict *verdict, FILE *out) {
    const struct entry *choice = &bench->entries[verdict->predicted_fastest], *best = &bench->entries[verdict->fastest];
    print_errors(verdict, out);
    fprintf(out, "memory           exact in %" PRId64 " of %" PRId64 ": %s\n", verdict->exact, bench->count,
            verdict->exact == bench->count ? "met" : "NOT met");
    fprintf(out, "choice           plan %" PRId64 " is predicted fastest, plan %" PRId64 " was\n",
            verdict->predicted_fastest, verdict->fastest);
    print_bar("  behind by", choice->measured_s / best->measured_s - 1, (struct bar_limit){0.05, 2}, verdict->floor,
              out);
}

static void print_report(const struct bench *bench, const struct verdict *verdict, FILE *out) {
    print_setting(bench, out);
    print_table(bench, out);
    print_verdict(bench, verdict, out);
    print_kinds(bench, out);
    print_shares(bench, out);
}

static enum status put_out(const struct bench *bench) {
    struct verdict verdict;
    TRY(judge(bench, &verdict));
    print_report(bench, &verdict, stdout);
    if (!bench->settings.output) return STATUS_OK;
    FILE *file = fopen(bench->settings.output, "w");
    if (!file) return status_set(STATUS_FAILED, "%s: cannot be written", bench->settings.output);
    print_report(bench, &verdict, file);
    return fclose(file) == 0 ? STATUS_OK : status_set(STATUS_FAILED, "%s: cannot be written", bench->settings.output);
}

static enum status run_with(struct bench *bench, const struct model_step *plain) {
    bench->blocks = graph_count_blocks(model_step_executable(plain)->graph);
    TRY(choose_policies(bench, plain));
    TRY(open_reference(bench, plain->plan.chosen.threads));
    TRY(measure_all(bench, plain));
    for (int64_t i = 0; i < bench->count; i++)
        TRY(predict(bench, &bench->entries[i]));
    return put_out(bench);
}

static enum status run(struct bench *bench) {
    struct model_step plain;
    struct model_step_options options = options_of(bench, NULL);
    bench->cache_folder = path_join(bench->settings.step.disk_folder, "profile");
    if (!bench->cache_folder) return STATUS_FAILED;
    enum status status = model_step_compile(&options, &plain);
    if (status == STATUS_OK) status = run_with(bench, &plain);
    rate_work_close(&bench->reference);
    model_step_close(&plain);
    mem_free(bench->cache_folder);
    return status;
}

static enum status read_options(int count, char **arguments, struct settings *out) {
    struct bench_option options[BENCH_OPTIONS_MAX + 1] = {
        {"threads", .count = &out->step.plan.threads, .max = 1 << 12, BENCH_SETTING(&out->step.plan, threads)},
        {"policies", .number = &out->policies, .max = POLICIES_MAX},
        {"repeats", .number = &out->repeats, .max = REPEATS_MAX},
        {"seed", .number = &out->seed, .max = INT32_MAX},
        {"o", .text = &out->output},
    };
    bench_options_append(options, &out->step);
    TRY(bench_options_read(count, arguments, options, "bench/predict.c"));
    return bench_options_require_disk(&out->step);
}

int main(int count, char **arguments) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    limit_spinning(arguments);
    static struct bench bench = {.profile_reference_s = 1e30, .settings = {.policies = 32, .repeats = 5, .seed = 1}};
    bench.settings.step = bench_options_small();
    enum status status = read_options(count, arguments, &bench.settings);
    if (status == STATUS_OK) status = run(&bench);
    if (status != STATUS_OK) fprintf(stderr, "%s: %s\n", arguments[0], status_message());
    costs_free(&bench.costs);
    return (int)status;
}
