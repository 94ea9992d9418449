/* Meshes and groups, heartbeats, schedules without ranks, the engine of one rank, and which MPI is chosen. */
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "collective/schedule.h"
#include "comm/comm.h"
#include "comm/launch.h"
#include "comm/mpi_comm.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/thread_ranks.h"
#include "support/unit.h"

static void expect_group(struct comm_group group, int first, int stride, int count) {
    assert_int_equal(group.first, first);
    assert_int_equal(group.stride, stride);
    assert_int_equal(group.count, count);
}

static void groups_of_a_mesh(void **state) {
    (void)state;
    struct mesh mesh = {3, 4};
    expect_group(mesh_group(&mesh, 6, MESH_ALL), 0, 1, 12);
    expect_group(mesh_group(&mesh, 6, MESH_NODE), 4, 1, 4);
    expect_group(mesh_group(&mesh, 6, MESH_PEERS), 2, 4, 3);
    struct comm_group node = mesh_group(&mesh, 6, MESH_NODE), all = mesh_group(&mesh, 6, MESH_ALL);
    expect_group(mesh_group_part(&node, 6, 2), 6, 1, 2);
    expect_group(mesh_group_pair(9, 2), 2, 7, 2);
    assert_int_equal(mesh_group_position(&node, 6), 2);
    assert_int_equal(mesh_group_position(&node, 8), -1);
    assert_int_equal(mesh_group_per_node(&mesh, &all), 4);
    struct comm_group part = mesh_group_part(&all, 5, 6), replicas = {4, 2, 2};
    assert_int_equal(mesh_group_per_node(&mesh, &part), 0); /* four of one node, two of the next */
    assert_int_equal(mesh_group_per_node(&mesh, &replicas), 2);
    struct comm_group peers = mesh_group(&mesh, 6, MESH_PEERS);
    assert_int_equal(mesh_group_per_node(&mesh, &peers), 1);
}

/* Ranks 0 to 4 pass heartbeats as they would; rank 3 stops after the tenth period. */
static void a_silent_rank_is_found(void **state) {
    (void)state;
    enum { RANKS = 5, TIMEOUT = 100, PERIOD = 5, STOPS = 10 * PERIOD };
    struct heartbeat heartbeat[RANKS];
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(heartbeat_create(RANKS, r, TIMEOUT, 0, &heartbeat[r]), STATUS_OK);
    assert_int_equal(heartbeat_distances(RANKS), 3);
    int64_t found = -1;
    for (int64_t now = PERIOD; now < 1000 && found < 0; now += PERIOD)
        for (int r = 0; r < RANKS; r++) {
            if (r == 3 && now > STOPS) continue;
            heartbeat_beat(&heartbeat[r], (uint32_t)(now / PERIOD + (r == 4 ? 0 : 2)), true, now);
            int to = (r + (1 << now / PERIOD % 3)) % RANKS;
            if (to != 3 || now <= STOPS) heartbeat_merge(&heartbeat[to], heartbeat[r].entry, now);
            int silent = heartbeat_silent(&heartbeat[r], now);
            assert_true(silent == -1 || (silent == 3 && now - STOPS > TIMEOUT));
            if (silent == 3) found = now;
        }
    assert_true(found > 0 && found <= STOPS + 2 * TIMEOUT);
    assert_int_equal(heartbeat_behind(&heartbeat[0]), 3);
    /* A rank that was stopped itself blames nobody. */
    heartbeat_beat(&heartbeat[3], 12, true, 2000);
    assert_int_equal(heartbeat_silent(&heartbeat[3], 2000), -1);
    for (int r = 0; r < RANKS; r++)
        heartbeat_free(&heartbeat[r]);
}

/* Rank 1 starts nothing any more. As long as it works the others wait; then it does nothing, and is blamed. Rank 2,
 * which waits for it and does nothing either, is not: it has started what rank 1 has not. */
static void a_rank_that_works_is_waited_for(void **state) {
    (void)state;
    enum { RANKS = 3, TIMEOUT = 100, PERIOD = 5, WORKS = 1000 };
    struct heartbeat heartbeat[RANKS];
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(heartbeat_create(RANKS, r, TIMEOUT, 0, &heartbeat[r]), STATUS_OK);
    int64_t found = -1;
    for (int64_t now = PERIOD; now < 2000 && found < 0; now += PERIOD) {
        for (int r = 0; r < RANKS; r++) {
            heartbeat_beat(&heartbeat[r], r == 1 ? 7 : 8, r == 1 && now < WORKS, now);
            heartbeat_merge(&heartbeat[(r + 1 + now / PERIOD % 2) % RANKS], heartbeat[r].entry, now);
        }
        int hanging = heartbeat_hanging(&heartbeat[0], now);
        assert_true(hanging == -1 || hanging == 1);
        assert_int_equal(heartbeat_hanging(&heartbeat[1], now), -1);
        if (hanging == 1) found = now;
    }
    assert_true(found >= WORKS + TIMEOUT && found <= WORKS + 2 * TIMEOUT);
    for (int r = 0; r < RANKS; r++)
        heartbeat_free(&heartbeat[r]);
}

/* An instruction has ten times as long as the longest one before it, or what its step asks for. What a rank waits for
 * others, or for a thread outside the step, counts for nothing. */
static void a_step_that_ends_no_instruction_stands(void **state) {
    (void)state;
    struct step_watch watch = {.seen = 0};
    assert_int_equal(step_watch_look(&watch, false, 100), WATCH_NOT);
    step_watch_begin(&watch, 1000e-9);
    assert_int_equal(step_watch_look(&watch, false, 200), WATCH_MOVES);
    assert_int_equal(step_watch_look(&watch, false, 1200), WATCH_MOVES);
    assert_int_equal(step_watch_look(&watch, false, 1201), WATCH_STANDS);
    step_watch_end(&watch);
    assert_int_equal(step_watch_look(&watch, false, 1300), WATCH_NOT);

    watch = (struct step_watch){.seen = 0};
    step_watch_begin(&watch, 0);
    for (int64_t now = 100; now < 2000; now += 100) { /* they end between all looks */
        step_watch_note(&watch);
        assert_int_equal(step_watch_look(&watch, false, now), WATCH_MOVES);
    }
    assert_int_equal(step_watch_look(&watch, false, 2000), WATCH_STANDS);
    step_watch_note(&watch); /* it took 100 that were seen */
    assert_int_equal(step_watch_look(&watch, false, 3000), WATCH_MOVES);
    assert_int_equal(step_watch_look(&watch, false, 4000), WATCH_MOVES);
    assert_int_equal(step_watch_look(&watch, false, 4001), WATCH_STANDS);
    step_watch_note(&watch);
    assert_int_equal(step_watch_look(&watch, true, 5000),
                     WATCH_MOVES); /* it waits for others, and learns nothing of that */
    int64_t longest_ns = watch.longest_ns;
    (void)step_watch_look(&watch, true, 1000000);
    step_watch_note(&watch);
    (void)step_watch_look(&watch, false, 2000000);
    assert_int_equal(watch.longest_ns, longest_ns);
    step_watch_hold(&watch);
    assert_int_equal(step_watch_look(&watch, false, 9000000), WATCH_NOT);
    step_watch_release(&watch);
    assert_int_equal(step_watch_look(&watch, false, 9000001), WATCH_MOVES);
    assert_int_equal(watch.longest_ns, longest_ns);
}

/* Every number of ranks up to 40, on nodes of every size: what all send is received, and the depth is that of the tree.
 */
static void schedules_without_ranks(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 40; ranks++)
        for (int per_node = 1; per_node <= ranks; per_node++) {
            if (ranks % per_node != 0) continue;
            struct mesh mesh = {ranks / per_node, per_node};
            for (int kind = 0; kind < COMM_KINDS; kind++) {
                struct comm_spec spec = {.kind = (enum comm_kind)kind,
                                         .group = {0, 1, ranks},
                                         .bytes = (int64_t)ranks * 64 * 3,
                                         .in_place = ranks % 3 == 0};
                struct comm_traffic all = {0};
                for (int rank = 0; rank < ranks; rank++) {
                    struct comm_schedule schedule;
                    assert_int_equal(comm_schedule_create(&mesh, rank, 1 << 20, &spec, &schedule), STATUS_OK);
                    for (int axis = 0; axis < MESH_AXES; axis++) {
                        all.sent[axis] += schedule.traffic.sent[axis];
                        all.received[axis] += schedule.traffic.received[axis];
                    }
                    all.read += schedule.traffic.read;
                    assert_true(schedule.staging_bytes <= spec.bytes + 64 * ranks);
                    comm_schedule_free(&schedule);
                }
                int64_t moved = all.sent[0] + all.sent[1] + all.read, times = kind == COMM_ALL_REDUCE ? 2 : 1;
                assert_true(all.sent[0] == all.received[0] && all.sent[1] == all.received[1]);
                assert_true(moved == times * (ranks - 1) * spec.bytes);
                if (spec.in_place)
                    assert_true(kind == COMM_ALL_TO_ALL || all.read >= times * (per_node - 1) * spec.bytes);
                else
                    assert_true(all.read == 0);
            }
        }
}

static int count_kind(const struct comm_schedule *schedule, enum step_kind kind) {
    int count = 0;
    for (size_t i = 0; i < schedule->steps.count; i++)
        count += schedule->steps.items[i].kind == kind;
    return count;
}

static void reductions_halve(void **state) {
    (void)state;
    for (int ranks = 2, phases = 1; ranks <= 64; ranks *= 2, phases++)
        for (int rank = 0; rank < ranks; rank++) {
            struct mesh mesh = {ranks, 1};
            struct comm_spec spec = {.kind = COMM_REDUCE_SCATTER, .group = {0, 1, ranks}, .bytes = ranks * 64};
            struct comm_schedule schedule;
            assert_int_equal(comm_schedule_create(&mesh, rank, 1 << 20, &spec, &schedule), STATUS_OK);
            assert_int_equal(count_kind(&schedule, STEP_SEND), phases);
            assert_int_equal(count_kind(&schedule, STEP_MERGE), phases);
            assert_int_equal(schedule.staging_bytes, ranks * 64 / 2);
            assert_int_equal(schedule.traffic.sent[MESH_ACROSS], (ranks - 1) * 64);
            comm_schedule_free(&schedule);
        }
}

static enum status make_schedule(void *payload) {
    struct mesh mesh = {2, 3};
    struct comm_spec spec = {
        .kind = *(enum comm_kind *)payload, .group = {0, 1, 6}, .bytes = 6 * 640, .round_bf16 = true};
    struct comm_schedule schedule;
    TRY(comm_schedule_create(&mesh, 4, 64, &spec, &schedule));
    comm_schedule_free(&schedule);
    return STATUS_OK;
}

static void schedules_bear_every_failed_allocation(void **state) {
    (void)state;
    for (int kind = 0; kind < COMM_KINDS; kind++) {
        enum comm_kind each = (enum comm_kind)kind;
        assert_true(fault_sweep(FAULT_ALLOCATE, false, make_schedule, &each) > 3);
    }
}

/* ---- One rank, and no MPI ---- */

static const char *const launch_variables[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_FD", "PMI_SIZE",
                                               "BALLAST_MPI"};

static void forget_launch(void) {
    for (size_t i = 0; i < sizeof launch_variables / sizeof *launch_variables; i++)
        unsetenv(launch_variables[i]);
}

static bool maps_mpi(void) {
    char line[1000];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        found = found || strstr(line, "libmpi") || strstr(line, "ballast-mpi");
    if (maps) fclose(maps);
    return found;
}

static enum status use_self(void *payload) {
    (void)payload;
    struct comm *comm = NULL;
    struct comm_shared_segment shared_segment = {0};
    struct comm_operation *operation = NULL;
    float values[4] = {1, -0.0f, 3, 4}, out[4] = {0};
    enum status status;
    TRY(comm_open(&(struct comm_settings){0}, &comm));
    TRY_GOTO(status, comm_shared_segment_open(comm, 1000, &shared_segment), done);
    for (int kind = 0; kind < COMM_KINDS; kind++) {
        struct comm_spec spec = {.kind = (enum comm_kind)kind,
                                 .group = comm_group_all(comm),
                                 .data = values,
                                 .bytes = sizeof values,
                                 .out = out};
        int64_t staging;
        TRY_GOTO(status, comm_staging_bytes(comm, &spec, &staging), done);
        assert_int_equal(staging, 0);
        TRY_GOTO(status, comm_create(comm, &spec, &operation), done);
        comm_start(operation);
        TRY_GOTO(status, comm_wait(operation), done);
        comm_free(operation);
        operation = NULL;
    }
    assert_memory_equal(values, out, sizeof out);
    TRY_GOTO(status, comm_agree(comm, STATUS_OK), done);
    TRY_GOTO(status, comm_check_same(comm, "nothing", values, sizeof values), done);
done:
    comm_free(operation);
    comm_shared_segment_close(comm, &shared_segment);
    enum status closed = comm_close(comm);
    return status == STATUS_OK ? closed : status;
}

static void one_rank_needs_no_mpi(void **state) {
    (void)state;
    forget_launch();
    setenv("SLURM_JOB_ID", "7", 1); /* a batch script is one process */
    setenv("SLURM_NTASKS", "4", 1);
    setenv("SLURM_PROCID", "0", 1);
    assert_string_equal(mpi_library_launched_by(), "self");
    assert_int_equal(use_self(NULL), STATUS_OK);
    assert_false(maps_mpi());
    assert_true(fault_sweep(FAULT_ALLOCATE, false, use_self, NULL) > 5);
    assert_int_equal(fault_sweep(FAULT_COMM, false, use_self, NULL), COMM_KINDS);
}

static void the_launcher_selects_the_mpi(void **state) {
    (void)state;
    static const char *const launchers[][2] = {
        {"OMPI_COMM_WORLD_SIZE", "openmpi"}, {"PMIX_RANK", "openmpi"}, {"PMI_RANK", "mpich"}, {"PMI_FD", "mpich"}};
    for (int i = 0; i < 4; i++) {
        forget_launch();
        setenv(launchers[i][0], "3", 1);
        assert_string_equal(mpi_library_launched_by(), launchers[i][1]);
    }
    forget_launch();
}

static void expect_refused(const char *engine, const char *message, const char *hint) {
    const struct wire *library;
    assert_int_equal(mpi_library_find(engine, &library), STATUS_BAD_INPUT);
    if (!strstr(status_message(), message)) fail_msg("'%s' is not in '%s'", message, status_message());
    if (!strstr(status_hint_text(), hint)) fail_msg("'%s' is not in '%s'", hint, status_hint_text());
}

static void plugins_that_are_not_there_or_wrong(void **state) {
    const char *folder = *state;
    char path[600], command[1500];
    forget_launch();
    setenv("BALLAST_PLUGINS", folder, 1);
    expect_refused("openmpi", "no plugin ballast-mpi-openmpi.so", "libopenmpi-dev");
    expect_refused("lam", "'lam' is no MPI that ballast knows", "self, openmpi, mpich");
    snprintf(path, sizeof path, "%s/ballast-mpi-mpich.so", folder);
    temp_write_text(path, "no library");
    expect_refused("mpich", path, "libmpich12");
    snprintf(command, sizeof command, "printf 'int other;' | cc -shared -fPIC -x c - -o '%s'", path);
    if (system(command) == 0) expect_refused("mpich", "not an MPI plugin of this version", "");
    snprintf(
        command, sizeof command,
        "printf 'int table[8] = {-1}; int *ballast_wire(void) { return table; }' | cc -shared -fPIC -x c - -o '%s'",
        path);
    if (system(command) == 0) expect_refused("mpich", "not an MPI plugin of this version", "");
    char *const arguments[] = {"/bin/true", NULL};
    unlink(path);
    assert_int_equal(launch_ranks(&(struct launch_settings){2, NULL, arguments}), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_hint_text(), "apt-get install"));
    unsetenv("BALLAST_PLUGINS");
}

static void the_program_links_no_mpi(void **state) {
    (void)state;
    assert_int_equal(system("ldd '" BALLAST_PROGRAM "' >/dev/null"), 0);
    assert_int_not_equal(system("ldd '" BALLAST_PROGRAM "' | grep -iE 'libmpi|libmpich|open-rte|pmix'"), 0);
}

/* ---- Faults among ranks ---- */

/* The rank in which operations fail sees it; its process would end all. Here the others' operations are not started. */
static enum status start_refused(struct comm *comm, void *payload) {
    (void)payload;
    float value = 1;
    struct comm_group alone = {comm->rank, 1, 1};
    struct comm_spec spec = {.kind = COMM_ALL_REDUCE, .group = alone, .data = &value, .bytes = sizeof value};
    struct comm_operation *operation;
    TRY(comm_create(comm, &spec, &operation));
    comm_start(operation);
    enum status status = comm_wait(operation);
    comm_free(operation);
    return status;
}

static enum status run_refused(void *payload) {
    (void)payload;
    return thread_ranks_run(&(struct thread_ranks){.ranks = 3,
                                                   .seed = 1,
                                                   .body = start_refused,
                                                   .may_fail = true,
                                                   .settings = {.rank_timeout_s = 60, .message_bytes = 4096}});
}

static void a_refused_operation_fails(void **state) {
    (void)state;
    assert_int_equal(fault_sweep(FAULT_COMM, false, run_refused, NULL), 3);
}

/* Windows that the system refuses to one rank are private for all: then messages do. */
static enum status open_and_use(struct comm *comm, void *payload) {
    struct comm_shared_segment shared_segment;
    TRY(comm_shared_segment_open(comm, 4096, &shared_segment));
    if (comm->rank == 0) *(int *)payload += !shared_segment.shared;
    float *values = shared_segment.base;
    values[0] = (float)comm->rank;
    struct comm_spec spec = {.kind = COMM_ALL_REDUCE,
                             .group = comm_group_all(comm),
                             .data = values,
                             .bytes = 4,
                             .in_place = shared_segment.shared};
    char staging[256] __attribute__((aligned(64)));
    spec.staging = staging;
    struct comm_operation *operation;
    TRY(comm_create(comm, &spec, &operation));
    comm_start(operation);
    TRY(comm_wait(operation));
    float sum = values[0];
    comm_free(operation);
    comm_shared_segment_close(comm, &shared_segment);
    return sum == 3 ? STATUS_OK : status_set(STATUS_FAILED, "the sum is %g", (double)sum);
}

static void refused_shared_segments_are_private(void **state) {
    (void)state;
    int private_shared_segments = 0;
    struct thread_ranks ranks = {.ranks = 3,
                                 .seed = 1,
                                 .body = open_and_use,
                                 .payload = &private_shared_segments,
                                 .settings = {.rank_timeout_s = 60, .message_bytes = 4096}};
    assert_int_equal(thread_ranks_run(&ranks), STATUS_OK);
    assert_int_equal(private_shared_segments, 0);
    for (int nth = 1; nth <= 18; nth++) {
        fault_arm(FAULT_OPEN, nth, false);
        enum status status = thread_ranks_run(&ranks);
        fault_arm(FAULT_OPEN, 0, false);
        if (status != STATUS_OK) fail_msg("fault %d: %s", nth, status_message());
    }
    assert_true(private_shared_segments >= 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_of_a_mesh),
        cmocka_unit_test(a_silent_rank_is_found),
        cmocka_unit_test(a_rank_that_works_is_waited_for),
        cmocka_unit_test(a_step_that_ends_no_instruction_stands),
        cmocka_unit_test(schedules_without_ranks),
        cmocka_unit_test(reductions_halve),
        cmocka_unit_test(schedules_bear_every_failed_allocation),
        cmocka_unit_test(one_rank_needs_no_mpi),
        cmocka_unit_test(the_launcher_selects_the_mpi),
        cmocka_unit_test_setup_teardown(plugins_that_are_not_there_or_wrong, temp_folder_make, temp_folder_drop),
        cmocka_unit_test(the_program_links_no_mpi),
        cmocka_unit_test(a_refused_operation_fails),
        cmocka_unit_test(refused_shared_segments_are_private),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
