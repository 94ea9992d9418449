/* The solvers of src/plan on a collection of cases with known answers.
 *
 *     build/bench/parallel_cases FILE          by section: cases, passed, failed, worst gap
 *     build/bench/parallel_cases --json FILE   [{"section", "case", "slots", "objective", "peak"}, …] on stdout
 *
 * The gap is the relative difference of the objective (total time); a case passes below 1e-9, or where no schedule fits
 * and the file says so. Answers are not needed for --json; "objective" and "peak" are null where no schedule fits. It
 * has one entry for each "memory_slots" of the file: the flop_times of section 11 have none of their own and are in the
 * text alone. Sections without a solver are named as skipped on stderr; a file that has no others is well, and its
 * array is empty. Ends with 1 when a case failed, 2 when the file is wrong. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/process.h"
#include "plan/rotor.h"
#include "support/rotor_cases.h"

#define FILE_MOST_BYTES ((size_t)256 << 20)
#define GAP_MOST 1e-9

struct tally {
    int cases, passed, failed;
    double worst_gap;
};

/* cost->time is infinite where no schedule fits. */
static enum status solve(const struct rotor_case *one, struct recompute_cost *cost) {
    struct recompute_schedule schedule = {0};
    enum status status = rotor_solve(&one->chain, one->slots, &schedule, cost);
    vec_free(&schedule);
    if (status == STATUS_NO_FIT) {
        *cost = (struct recompute_cost){.time = INFINITY};
        return STATUS_OK;
    }
    if (status != STATUS_OK) status_prefix(status, "%s: cases[%d]", rotor_case_kind_names[one->kind], one->index);
    return status;
}

static double relative_gap(double a, double b) {
    if (a == b) return 0;
    return isinf(a) || isinf(b) ? INFINITY : fabs(a - b) / fmax(a, b);
}

static void print_tally(const char *name, const struct tally *tally) {
    printf("%s: cases %d, passed %d, failed %d, worst gap %.3g", name, tally->cases, tally->passed, tally->failed,
           tally->worst_gap);
    int unanswered = tally->cases - tally->passed - tally->failed;
    if (unanswered > 0) printf(" (%d without an answer)", unanswered);
    putchar('\n');
}

static enum status check_cases(const struct rotor_cases *cases, int *failed) {
    struct tally tallies[ROTOR_CASE_KINDS] = {0};
    for (size_t i = 0; i < cases->count; i++) {
        const struct rotor_case *one = &cases->items[i];
        struct tally *tally = &tallies[one->kind];
        struct recompute_cost cost;
        TRY(solve(one, &cost));
        tally->cases++;
        if (!one->answered) continue;
        double gap = relative_gap(cost.time, one->time);
        if (gap > tally->worst_gap) tally->worst_gap = gap;
        *(gap <= GAP_MOST ? &tally->passed : &tally->failed) += 1;
    }
    for (int kind = 0; kind < ROTOR_CASE_KINDS; kind++) {
        if (tallies[kind].cases > 0) print_tally(rotor_case_kind_names[kind], &tallies[kind]);
        *failed += tallies[kind].failed;
    }
    return STATUS_OK;
}

static enum status add_result(json_t *array, const struct rotor_case *one) {
    struct recompute_cost cost;
    TRY(solve(one, &cost));
    bool fits = !isinf(cost.time);
    json_t *result =
        json_pack("{s:s, s:i, s:I, s:o, s:o}", "section", rotor_case_kind_names[one->kind], "case", one->index, "slots",
                  (json_int_t)one->slots, "objective", fits ? json_real(cost.time) : json_null(), "peak",
                  fits ? json_integer(cost.peak) : json_null());
    return json_array_append_new(array, result) == 0 ? STATUS_OK : status_no_memory(0, "the results");
}

static enum status print_json(const struct rotor_cases *cases) {
    json_t *array = json_array();
    enum status status = array ? STATUS_OK : status_no_memory(0, "the results");
    for (size_t i = 0; i < cases->count && status == STATUS_OK; i++)
        if (cases->items[i].kind != ROTOR_CASE_MODEL_FLOPS) status = add_result(array, &cases->items[i]);
    if (status == STATUS_OK && json_dumpf(array, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) != 0)
        status = status_set(STATUS_FAILED, "standard output: cannot be written");
    if (status == STATUS_OK) putchar('\n');
    json_decref(array);
    return status;
}

static void print_skipped(const json_t *object) {
    const char *section;
    json_t *value;
    json_object_foreach((json_t *)object, section, value) {
        if (section[0] != '_' && !rotor_cases_reads(section)) fprintf(stderr, "%s: skipped, no solver\n", section);
    }
}

static enum status run(const char *path, bool json, int *failed) {
    json_t *object;
    struct rotor_cases cases;
    TRY(json_read_object(path, FILE_MOST_BYTES, &object));
    enum status status = rotor_cases_from_json(object, &cases);
    if (status == STATUS_OK) {
        print_skipped(object);
        status = json ? print_json(&cases) : check_cases(&cases, failed);
        rotor_cases_free(&cases);
    }
    if (status == STATUS_BAD_INPUT) status_prefix(status, "%s", path);
    json_decref(object);
    if (status == STATUS_OK && fflush(stdout) != 0)
        status = status_set(STATUS_FAILED, "standard output: cannot be written");
    return status;
}

int main(int argc, char **argv) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    bool json = argc == 3 && strcmp(argv[1], "--json") == 0;
    if (argc != 2 + json || (!json && argv[1][0] == '-')) {
        fprintf(stderr, "usage: parallel_cases [--json] FILE\n");
        return STATUS_BAD_INPUT;
    }
    int failed = 0;
    enum status status = run(argv[argc - 1], json, &failed);
    if (status == STATUS_OK) return failed > 0 ? STATUS_FAILED : STATUS_OK;
    fprintf(stderr, "parallel_cases: %s\n", status_message());
    if (status_hint_text()[0]) fprintf(stderr, "hint: %s\n", status_hint_text());
    return (int)status;
}
