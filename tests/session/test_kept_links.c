/* Bandwidth between ranks of a host is measured once. All ranks of the next start on the same mesh find the stored
 * result. */
/* ctest: PROCESSORS 2 TIMEOUT 120 */
/* measures */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "session/machine_costs.h"
#include "support/temp_folder.h"
#include "support/thread_ranks.h"
#include "support/unit.h"

static const struct link_options link_settings = {.threads = 1, .memory_bytes = 1 << 20};
static const double MARK = 12345; /* no memory is so slow */

struct job {
    const char *folder; /* of the cache */
    bool keeps;         /* first measures, and keeps that with a mark */
    bool apart;         /* on hosts of their own */
    double found[THREAD_RANKS_MAX];
};

static enum status keep_marked(struct comm *comm, const struct machine *machine, const char *folder) {
    char way[LINK_WAY_BYTES];
    const struct profile_options options = {.cache_folder = folder, .threads = 1, .contention = &machine->contention};
    struct cluster_rates marked = machine->between;
    marked.links.message[MESH_IN_NODE].bytes_per_s = MARK;
    marked.noise = 0;
    return link_rates_keep(machine->backend, &options, link_rates_way(comm, &link_settings, way), &marked);
}

static enum status body(struct comm *comm, void *payload) {
    struct job *job = payload;
    struct plan_options options;
    struct machine machine;
    plan_options_init(&options);
    TRY(machine_open(&options, NULL, &machine));
    machine.mesh = comm->mesh;
    for (int rank = 0; rank < mesh_ranks(&comm->mesh) && !job->apart; rank++)
        snprintf(comm->host[rank], MESH_HOST_BYTES, "here");
    if (job->keeps) {
        TRY(machine_measure_links(comm, &link_settings, &machine));
        TRY(comm_agree(comm, comm->rank == 0 ? keep_marked(comm, &machine, job->folder) : STATUS_OK));
    }
    TRY(machine_find_links(comm, &link_settings, &machine));
    job->found[comm->rank] = machine.between.links.message[MESH_IN_NODE].bytes_per_s;
    return STATUS_OK;
}

static void expect_found(int ranks, int nodes, struct job job, bool marked) {
    const struct thread_ranks threads = {.ranks = ranks,
                                         .seed = 5,
                                         .settings = {.nodes = nodes, .rank_timeout_s = 60, .message_bytes = 1 << 20},
                                         .body = body,
                                         .payload = &job};
    if (thread_ranks_run(&threads) != STATUS_OK) fail_msg("%d ranks on %d nodes: %s", ranks, nodes, status_message());
    for (int rank = 0; rank < ranks; rank++)
        assert_true((job.found[rank] >= MARK && job.found[rank] <= MARK) == marked && job.found[rank] > 0);
}

static void the_next_start_finds_what_was_measured(void **state) {
    const char *folder = temp_path(*state, "ballast");
    expect_found(2, 1, (struct job){.folder = folder, .keeps = true}, true);
    expect_found(2, 1, (struct job){.folder = folder}, true);
    expect_found(3, 1, (struct job){.folder = folder}, false);                /* another mesh is measured, */
    expect_found(2, 1, (struct job){.folder = folder, .apart = true}, false); /* and so are other hosts */
}

static int begin(void **state) { return temp_folder_make(state) || setenv("XDG_CACHE_HOME", *state, 1); }

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_next_start_finds_what_was_measured)};
    return cmocka_run_group_tests(tests, begin, temp_folder_drop);
}
