/* Runs the solvers of src/plan/layout and src/plan on a collection of cases with known answers.
 *
 *     build/bench/parallel_cases FILE          by section: cases, passed, failed, worst gap
 *     build/bench/parallel_cases --json FILE   [{"section", "case", "at", "objective", …}, …] on stdout
 *
 * The gap is the relative difference of the objective. A case passes if the gap is at most 1e-3, or if no solution fits
 * and the file agrees. A lower objective also passes if the published answer has a known error. stderr lists failed
 * cases.
 *
 * --json needs no answers; "objective" is null if there is no solution. "case" is the index in the section's list, "at"
 * the place in the section. stderr lists sections and cases without a solver as skipped. A file with no others is
 * valid, and its array is empty. Exits with 1 if a case failed, and with 2 if the file is wrong.
 *
 * These published answers are known to be wrong, so the checks are weaker. Conversions (section 2) are priced by steps
 * that include earlier ones: the objective is the true sum of the cheapest way's steps, which must not exceed the true
 * sum of the published way's. A change of shape (section 4) may shard two dimensions on one axis, or crash. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/terminal.h"
#include "support/case_results.h"

#define FILE_BYTES_MAX ((size_t)256 << 20)

struct tally {
    int cases, passed, failed;
    double worst_gap;
};

static void add_to_tally(struct tally *tally, const struct case_result *result) {
    tally->cases++;
    if (result->fault[0] != '\0') {
        tally->failed++;
        fprintf(stderr, "%s: %s: %s\n", result->section, result->place, result->fault);
    } else if (result->answered) {
        tally->passed++;
    }
    if (result->gap > tally->worst_gap) tally->worst_gap = result->gap;
}

static void print_tally(const char *name, const struct tally *tally) {
    printf("%s: cases %d, passed %d, failed %d, worst gap %.3g", name, tally->cases, tally->passed, tally->failed,
           tally->worst_gap);
    int unanswered = tally->cases - tally->passed - tally->failed;
    if (unanswered > 0) printf(" (%d without an answer)", unanswered);
    putchar('\n');
}

/* Results are in the order of sections. */
static int print_tallies(const struct case_results *results) {
    int failed = 0;
    for (size_t i = 0; i < results->count;) {
        const char *section = results->items[i].section;
        struct tally tally = {0};
        for (; i < results->count && results->items[i].section == section; i++)
            add_to_tally(&tally, &results->items[i]);
        print_tally(section, &tally);
        failed += tally.failed;
    }
    return failed;
}

static enum status append(json_t *array, const struct case_result *result) {
    json_t *object =
        json_pack("{s:s, s:i, s:s, s:o}", "section", result->section, "case", result->index, "at", result->place,
                  "objective", isinf(result->objective) ? json_null() : json_real(result->objective));
    bool made = object && (!result->more || json_object_update(object, result->more) == 0);
    if (made && json_array_append(array, object) != 0) made = false;
    json_decref(object);
    return made ? STATUS_OK : status_no_memory(0, "the results");
}

static enum status print_json(const struct case_results *results, int *failed) {
    json_t *array = json_array();
    enum status status = array ? STATUS_OK : status_no_memory(0, "the results");
    for (size_t i = 0; i < results->count && status == STATUS_OK; i++) {
        *failed += results->items[i].fault[0] != '\0';
        if (!results->items[i].silent) status = append(array, &results->items[i]);
    }
    if (status == STATUS_OK && json_dumpf(array, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) != 0)
        status = status_set(STATUS_FAILED, "standard output: cannot be written");
    if (status == STATUS_OK) putchar('\n');
    json_decref(array);
    return status;
}

static enum status run(const char *path, bool json, int *failed) {
    json_t *file;
    struct case_results results;
    TRY(json_read_object(path, FILE_BYTES_MAX, &file));
    enum status status = case_results_solve(file, stderr, &results);
    if (status == STATUS_OK && json) status = print_json(&results, failed);
    if (status == STATUS_OK && !json) *failed = print_tallies(&results);
    case_results_free(&results);
    json_decref(file);
    if (status == STATUS_BAD_INPUT) status_prefix(status, "%s", path);
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
