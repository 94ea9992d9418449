/* The memory of a host's ranks: each has a reserve for its process. Measuring for all of them in one process stays
 * within their arenas' limits. */
/* measures */
/* ctest: PROCESSORS 2 TIMEOUT 300 LABELS long */
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "session/machine_costs.h"
#include "session/plan.h"
#include "session/session.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static const int64_t MIB = 1 << 20;

static struct machine machine_of(int64_t device_mib) {
    return (struct machine){.backend = &backend_cpu, .capacity_bytes = {[TIER_DEVICE] = device_mib * MIB}};
}

/* The capacity of one process leaves out CLUSTER_PROCESS_BYTES once. */
static void each_rank_has_a_part_for_its_process(void **state) {
    (void)state;
    struct machine machine = machine_of(1000);
    rank_budget_plan(4, &machine);
    assert_int_equal(machine.capacity_bytes[TIER_DEVICE], (1000 * MIB - 3 * CLUSTER_PROCESS_BYTES) / 4);
    machine = machine_of(100);
    rank_budget_plan(4, &machine);
    assert_int_equal(machine.capacity_bytes[TIER_DEVICE], 0);
    machine = machine_of(100);
    SETTINGS_GIVE(&machine.limits, device_bytes, 100 * MIB);
    rank_budget_plan(4, &machine);
    assert_int_equal(machine.capacity_bytes[TIER_DEVICE], 100 * MIB);
}

/* A host tier that was asked for is each rank's. */
static void each_rank_has_its_host_tier(void **state) {
    (void)state;
    struct machine machine = machine_of(1000);
    SETTINGS_GIVE(&machine.limits, host_bytes, 50 * MIB);
    machine.capacity_bytes[TIER_HOST] = 50 * MIB;
    rank_budget_plan(2, &machine);
    assert_int_equal(machine.capacity_bytes[TIER_DEVICE], (1000 * MIB - CLUSTER_PROCESS_BYTES - 50 * MIB) / 2);
    assert_int_equal(machine.capacity_bytes[TIER_HOST], 50 * MIB);
}

/* In bytes; "VmHWM" is the peak. */
static int64_t status_line(const char *name) {
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    char line[256];
    long long kibibytes = 0;
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0) sscanf(line + strlen(name) + 1, "%lld", &kibibytes);
    fclose(file);
    return kibibytes * 1024;
}

enum { RANKS = 4, CAPACITY_MIB = 60 };

/* The tensors of a micro-batch take 260 MiB, of which the largest operator takes 16. */
static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 256, \"num_hidden_layers\": 8,"
                             " \"num_attention_heads\": 4, \"intermediate_size\": 768, \"vocab_size\": 4096,"
                             " \"max_position_embeddings\": 512}";

static void measuring_for_all_ranks_takes_no_more_than_their_arenas(void **state) {
    struct plan_options options;
    struct session session;
    struct session_plan plan;
    struct machine_costs costs;
    const struct measuring measuring = {.budget_s = 0.1, .cache_folder = ""};
    temp_write_text(temp_path(*state, "config.json"), config);
    plan_options_init(&options);
    options.outline = true;
    SETTINGS_GIVE(&options, batch, RANKS);
    SETTINGS_GIVE(&options, sequence_length, 512);
    SETTINGS_GIVE(&options, threads, 1);
    expect_status(session_begin(*state, PROGRAMS_TO_TRAIN, &options, NULL, &session, &plan), STATUS_OK, NULL);
    session.machine.capacity_bytes[TIER_DEVICE] = CAPACITY_MIB * MIB;
    session.machine.contention.members = RANKS;
    int64_t before = status_line("VmRSS");
    assert_true(profile_memory_of(&backend_cpu, programs_main(&plan.programs)->graph) > 2 * CAPACITY_MIB * MIB);
    expect_status(machine_costs_measure(&session.machine, &plan.programs, &measuring, &costs), STATUS_OK, NULL);
    int64_t grown = status_line("VmHWM") - before;
    print_message("measuring took %.1f MiB at %d ranks of %d MiB\n", (double)grown / (double)MIB, RANKS, CAPACITY_MIB);
    assert_true(grown < RANKS * CAPACITY_MIB * MIB);
    machine_costs_free(&costs);
    session_plan_free(&plan);
    session_close(&session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_has_a_part_for_its_process),
        cmocka_unit_test(each_rank_has_its_host_tier),
        cmocka_unit_test(measuring_for_all_ranks_takes_no_more_than_their_arenas),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
