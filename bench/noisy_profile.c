/* What a disturbed profile costs: the policy that the search picks after a profile beside which threads spin, beside
 * the one it picks after a quiet profile, both run when it is quiet again.
 *
 *     build/bench/noisy_profile --disk DIR [--busy N] [--profiles N] [--percent N] [--layers N] [--hidden N]
 *                               [--heads N] [--vocab N] [--batch N] [--seq N] [--grain N] [--dtype fp32|bf16]
 *                               [--rounds N] [--steps N]
 *
 * The device tier is --percent of what the plain plan takes, so that the search has to move or compute again. Nothing
 * is kept of a profile, so that each is what a first run on a machine would see. --busy threads (1) spin, each as fast
 * as it can, during each of the --profiles (3) disturbed ones. All picks, and what the search after the quiet profile
 * held for the next best, are then run in turns: a step that settles and --steps (3) that are timed, --rounds (5)
 * times; the median counts. Exits with 1 where a disturbed pick is more than 10% behind the fastest of all. The noise
 * floor is how far the medians of odd and of even rounds are apart (support/prediction_errors.h). */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/process.h"
#include "cli/limit_spinning.h"
#include "search/search.h"
#include "session/machine_costs.h"
#include "support/bench_options.h"
#include "support/median.h"
#include "support/model_step.h"
#include "support/policy_spread.h"
#include "support/prediction_errors.h"

enum { BUSY_MOST = 64, PROFILES_MOST = 8, RIVALS = 3, ENTRIES_MOST = 1 + RIVALS + PROFILES_MOST, SAMPLES_MOST = 256 };
static const struct bar_limit BEHIND = {0.10, 1};

struct settings {
    struct model_step_options step;
    int64_t busy, profiles, percent, rounds, steps;
};

/* A policy that some search picked, or a rival that none did. */
struct entry {
    struct policy policy;
    double predicted_s; /* by the profile that it came from */
    double samples[SAMPLES_MOST], measured_s;
    int count;
    bool quiet_pick;
    int disturbed_picks;
};

struct bench {
    struct settings settings;
    struct model_step plain;
    struct entry entries[ENTRIES_MOST];
    int count;
    double floor;
};

static atomic_bool spinning;

static void *spin(void *unused) {
    while (atomic_load_explicit(&spinning, memory_order_relaxed))
        continue;
    return unused;
}

struct spinners {
    pthread_t threads[BUSY_MOST];
    int64_t count;
};

static enum status start_spinners(struct spinners *spinners, int64_t count) {
    atomic_store(&spinning, true);
    for (spinners->count = 0; spinners->count < count; spinners->count++)
        if (pthread_create(&spinners->threads[spinners->count], NULL, spin, NULL) != 0)
            return status_set(STATUS_FAILED, "cannot start a thread");
    return STATUS_OK;
}

static void stop_spinners(struct spinners *spinners) {
    atomic_store(&spinning, false);
    for (int64_t i = 0; i < spinners->count; i++)
        pthread_join(spinners->threads[i], NULL);
}

static enum status profile(const struct bench *bench, struct costs *costs) {
    const struct model_step *plain = &bench->plain;
    struct machine_costs found;
    const struct measuring measuring = {.cache_folder = ""};
    TRY(machine_costs_measure(&plain->session.machine, &plain->plan.programs, &measuring, &found));
    *costs = found.costs;
    printf("profile: %d measurements in %.1f s, the noisiest operator by %.0f%%, rates by %.0f%%\n",
           found.report.measured, found.report.seconds, 100 * found.report.noise, 100 * found.cluster.rates.noise);
    profile_report_free(&found.report);
    return STATUS_OK;
}

static enum status profile_beside(const struct bench *bench, int64_t busy, struct costs *costs) {
    struct spinners spinners;
    enum status status = start_spinners(&spinners, busy);
    if (status == STATUS_OK) status = profile(bench, costs);
    stop_spinners(&spinners);
    return status;
}

static enum status search(const struct bench *bench, const struct costs *costs, struct search_result *out) {
    const struct executable *plain = model_step_executable(&bench->plain);
    const struct search_input input = {
        .graph = plain->graph,
        .workspace = &plain->workspace,
        .costs = costs,
        .recipe = &bench->plain.plan.chosen.recipe,
        .capacity_bytes = {[TIER_DEVICE] = plain->program->tier_bytes[TIER_DEVICE] * bench->settings.percent / 100,
                           [TIER_DISK] = INT64_MAX / 4},
        .most_compiled = search_most_compiled(plain->graph)};
    enum status status = search_policies(&input, out);
    if (status == STATUS_OK && out->front.count == 0) {
        search_result_free(out);
        return status_set(STATUS_NO_FIT, "no policy fits %" PRId64 "%% of the plain plan", bench->settings.percent);
    }
    return status;
}

/* The entry of a policy, new or there already. */
static struct entry *find_entry(struct bench *bench, const struct candidate *candidate) {
    for (int i = 0; i < bench->count; i++)
        if (memcmp(&bench->entries[i].policy, &candidate->policy, sizeof candidate->policy) == 0)
            return &bench->entries[i];
    struct entry *entry = &bench->entries[bench->count++];
    *entry = (struct entry){.policy = candidate->policy, .predicted_s = candidate->step_s};
    return entry;
}

static enum status pick(struct bench *bench, int64_t busy) {
    struct costs costs;
    struct search_result result;
    TRY(profile_beside(bench, busy, &costs));
    enum status status = search(bench, &costs, &result);
    costs_free(&costs);
    TRY(status);
    struct entry *entry = find_entry(bench, &result.front.items[0]);
    if (busy > 0) {
        entry->disturbed_picks++;
    } else {
        entry->quiet_pick = true;
        for (size_t i = 0; i < result.runners_up.count && i < RIVALS; i++)
            if (result.runners_up.items[i].compiled) (void)find_entry(bench, &result.runners_up.items[i]);
    }
    search_result_free(&result);
    return STATUS_OK;
}

static enum status measure(const struct bench *bench, struct entry *entry) {
    struct model_step_options options = bench->settings.step;
    struct model_step step;
    int64_t ns;
    options.policy = &entry->policy;
    enum status status = model_step_open(&options, &step);
    if (status == STATUS_OK) status = model_step_run(&step, &ns);
    for (int64_t i = 0; i < bench->settings.steps && status == STATUS_OK; i++) {
        status = model_step_run(&step, &ns);
        entry->samples[entry->count++] = (double)ns * 1e-9;
    }
    model_step_close(&step);
    return status;
}

/* The median of every other round. */
static double median_of_half(const struct bench *bench, const struct entry *entry, int64_t first) {
    double samples[SAMPLES_MOST];
    int count = 0;
    for (int64_t round = first; round < bench->settings.rounds; round += 2)
        for (int64_t i = 0; i < bench->settings.steps; i++)
            samples[count++] = entry->samples[round * bench->settings.steps + i];
    return median(samples, count);
}

/* Of one round nothing is known. */
static double floor_of(const struct bench *bench) {
    double most = bench->settings.rounds < 2 ? INFINITY : 0;
    for (int i = 0; i < bench->count && bench->settings.rounds >= 2; i++) {
        const struct entry *entry = &bench->entries[i];
        most = fmax(most, fabs(median_of_half(bench, entry, 1) / median_of_half(bench, entry, 0) - 1));
    }
    return most;
}

static enum status measure_all(struct bench *bench) {
    for (int64_t round = 0; round < bench->settings.rounds; round++)
        for (int i = 0; i < bench->count; i++)
            TRY(measure(bench, &bench->entries[i]));
    bench->floor = floor_of(bench); /* before samples are put into order */
    for (int i = 0; i < bench->count; i++)
        bench->entries[i].measured_s = median(bench->entries[i].samples, bench->entries[i].count);
    return STATUS_OK;
}

static double fastest_of(const struct bench *bench) {
    double fastest = bench->entries[0].measured_s;
    for (int i = 1; i < bench->count; i++)
        if (bench->entries[i].measured_s < fastest) fastest = bench->entries[i].measured_s;
    return fastest;
}

static enum status report(const struct bench *bench) {
    char text[POLICY_TEXT];
    double fastest = fastest_of(bench), worst = 0;
    printf("\n%9s %9s %7s  %-22s %s\n", "predicted", "measured", "behind", "picked", "policy");
    for (int i = 0; i < bench->count; i++) {
        const struct entry *entry = &bench->entries[i];
        double behind = entry->measured_s / fastest - 1;
        char picked[64];
        snprintf(picked, sizeof picked, "%s%d of %" PRId64 " disturbed", entry->quiet_pick ? "quiet, " : "",
                 entry->disturbed_picks, bench->settings.profiles);
        printf("%9.4f %9.4f %6.1f%%  %-22s %s\n", entry->predicted_s, entry->measured_s, 100 * behind, picked,
               policy_spread_print(&entry->policy, text));
        if (entry->disturbed_picks > 0 && behind > worst) worst = behind;
    }
    enum bar bar = bar_judge(worst, BEHIND, bench->floor);
    printf("\nthe noise floor is %.1f%%\nthe worst disturbed pick is %.1f%% behind the fastest, at most %.0f%%: %s\n",
           100 * bench->floor, 100 * worst, 100 * bar_lift(BEHIND, bench->floor), bar_words(bar));
    return bar != BAR_MISSED ? STATUS_OK : status_set(STATUS_FAILED, "a disturbed profile picks a slow policy");
}

static enum status run(struct bench *bench) {
    TRY(model_step_compile(&bench->settings.step, &bench->plain));
    TRY(pick(bench, 0));
    for (int64_t i = 0; i < bench->settings.profiles; i++)
        TRY(pick(bench, bench->settings.busy));
    TRY(measure_all(bench));
    return report(bench);
}

static enum status read_options(int count, char **words, struct settings *out) {
    struct bench_option options[BENCH_OPTIONS_MOST + 1] = {
        {"busy", .number = &out->busy, .most = BUSY_MOST},
        {"profiles", .number = &out->profiles, .most = PROFILES_MOST},
        {"percent", .number = &out->percent, .most = 100},
        {"rounds", .number = &out->rounds, .most = 16},
        {"steps", .number = &out->steps, .most = 16},
    };
    bench_options_append(options, &out->step);
    TRY(bench_options_read(count, words, options, "bench/noisy_profile.c"));
    return bench_options_require_disk(&out->step);
}

int main(int count, char **words) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    limit_spinning(words);
    static struct bench bench = {.settings = {.busy = 1, .profiles = 3, .percent = 60, .rounds = 5, .steps = 3}};
    bench.settings.step = bench_options_small();
    enum status status = read_options(count, words, &bench.settings);
    if (status == STATUS_OK) status = run(&bench);
    if (status != STATUS_OK) fprintf(stderr, "%s: %s\n", words[0], status_message());
    model_step_close(&bench.plain);
    return (int)status;
}
