/* Measuring while an operation fails reports an error, or continues without stored results. Stored results stay
 * valid. */
/* ctest: PROCESSORS 2 TIMEOUT 3500 LABELS long */
#include <math.h>
#include <string.h>

#include "backend/backend.h"
#include "base/folder.h"
#include "base/json.h"
#include "profile/cache.h"
#include "profile/model.h"
#include "support/fault_sweep.h"
#include "support/kept_profile.h"
#include "support/temp_folder.h"
#include "support/unit.h"

struct subject {
    const char *cache;
    struct graph *graph;
    const char *disk; /* also measures what the machine does, with a disk tier there; NULL: only operators */
    bool products;    /* also the rates of GEMMs */
};

static enum status measure(const struct subject *subject, bool anew) {
    struct cluster cluster = kept_profile_machine();
    if (subject->products) cluster.device.fp32_flops_per_s = cluster.device.bf16_flops_per_s = 0;
    cluster.rates.measured = !subject->disk;
    struct profile_options options = {.cache_folder = subject->cache,
                                      .threads = 1,
                                      .budget_s = 0.01,
                                      .anew = anew,
                                      .host_tier = subject->disk,
                                      .disk_folder = subject->disk};
    struct costs costs;
    struct profile_report report;
    TRY(profile_model(&backend_cpu, subject->graph, &cluster, &options, &costs, &report));
    for (size_t i = 0; i < subject->graph->nodes.count; i++)
        assert_true(isfinite(costs.kernels[i].seconds) && costs.kernels[i].seconds > 0);
    costs_free(&costs);
    profile_report_free(&report);
    return STATUS_OK;
}

static enum status measure_anew(void *payload) { return measure(payload, true); }
static enum status find_kept(void *payload) { return measure(payload, false); }

/* Every file of the cache's directory is one that can be read. */
static void require_whole_cache(void *payload, enum status status) {
    const struct subject *subject = payload;
    struct names names;
    (void)status;
    if (!file_exists(subject->cache)) return;
    assert_int_equal(folder_list(subject->cache, &names), STATUS_OK);
    assert_true(names.count <= 1);
    for (size_t i = 0; i < names.count; i++) {
        json_t *file;
        assert_int_equal(json_read_object(temp_path(subject->cache, names.items[i]), 1 << 24, &file), STATUS_OK);
        json_decref(file);
    }
    names_free(&names);
}

static void sweep_files(const struct fault_subject *swept, enum fault_kind first, enum fault_kind last) {
    for (enum fault_kind kind = first; kind <= last; kind++)
        (void)fault_sweep_bearable(kind, false, unit_sweep(4, FAULT_EVERY), swept);
}

static void operators_survive_faults(void **state) {
    struct subject subject = {.cache = temp_path(*state, "operators"), .graph = kept_profile_graph()};
    const struct fault_subject anew = {measure_anew, require_whole_cache, &subject};
    const struct fault_subject kept = {find_kept, require_whole_cache, &subject};
    json_faults(true);
    assert_true(fault_sweep_bearable(FAULT_ALLOCATE, false, unit_sweep(20, FAULT_EVERY), &anew).reported > 0);
    assert_true(fault_sweep_bearable(FAULT_ALLOCATE, false, unit_sweep(20, FAULT_EVERY), &kept).reported > 0);
    json_faults(false);
    sweep_files(&anew, FAULT_OPEN, FAULT_RENAME);
    sweep_files(&kept, FAULT_OPEN, FAULT_READ);
    graph_free(subject.graph);
}

/* A second each time, so that a long sweep takes a part of them. */
static void rates_survive_faults(void **state) {
    struct subject subject = {.cache = temp_path(*state, "rates"), .graph = kept_profile_graph(), .disk = *state};
    const struct fault_subject anew = {measure_anew, require_whole_cache, &subject};
    static const enum fault_kind kinds[] = {FAULT_ALLOCATE, FAULT_OPEN, FAULT_READ, FAULT_WRITE, FAULT_SUBMIT};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct fault_tally tally = fault_sweep_bearable(kinds[k], false, unit_sweep(1, 60), &anew);
        /* The first request that fails may be a ring's, which threads then stand in for. */
        assert_true(tally.hit > 0 && (kinds[k] == FAULT_SUBMIT || tally.reported > 0));
    }
    /* A disk that stays full: what was measured before it cannot be kept either, which is not what is told. */
    subject.products = true;
    fault_arm(FAULT_WRITE, 1, true);
    enum status status = measure_anew(&subject);
    fault_arm(FAULT_WRITE, 0, false);
    assert_int_not_equal(status, STATUS_OK);
    assert_non_null(strstr(status_message(), "disk tier"));
    graph_free(subject.graph);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_drop)

int main(void) {
    const struct CMUnitTest tests[] = {CASE(operators_survive_faults), CASE(rates_survive_faults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
