/* Schedules of all ranks fit together, and every step that orders them is needed: without it the proof fails. */
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "collective/schedule_proof.h"
#include "support/fault_sweep.h"
#include "support/unit.h"

enum { RANKS_MOST = 16, MESSAGE = 256 };

struct job {
    struct mesh mesh;
    struct comm_spec spec;
    int ranks;
    struct comm_schedule schedules[RANKS_MOST];
    bool empty[RANKS_MOST];
};

static void make(struct job *job) {
    job->ranks = mesh_ranks(&job->mesh);
    job->spec.group = mesh_group(&job->mesh, 0, MESH_ALL);
    for (int r = 0; r < job->ranks; r++)
        assert_int_equal(comm_schedule_create(&job->mesh, r, MESSAGE, &job->spec, &job->schedules[r]), STATUS_OK);
}

static void drop(struct job *job) {
    for (int r = 0; r < job->ranks; r++)
        comm_schedule_free(&job->schedules[r]);
}

static enum status verify(void *payload) {
    struct job *job = payload;
    return comm_schedules_verify(job->spec.kind, job->schedules, job->ranks);
}

static int roll(uint64_t seed, uint64_t *next, int sides) {
    return (int)(random_u64(seed, RANDOM_TEST, 5, (*next)++) % (uint64_t)sides);
}

static struct job draw(uint64_t seed) {
    struct job job = {.spec = {.root = 0}};
    uint64_t next = 0;
#define DRAW(sides) roll(seed, &next, sides)
    static const struct mesh meshes[] = {{1, 2}, {1, 3}, {1, 8}, {2, 1}, {2, 4}, {4, 2}, {3, 3}, {5, 1}, {4, 4}};
    job.mesh = meshes[DRAW((int)(sizeof meshes / sizeof *meshes))];
    int ranks = mesh_ranks(&job.mesh);
    job.spec.kind = (enum comm_kind)DRAW(COMM_KINDS);
    int rest = DRAW(9);
    job.spec.bytes = (int64_t)ranks * 64 * (1 + DRAW(20)) + (job.spec.kind == COMM_ALL_TO_ALL ? 0 : 4 * rest);
    job.spec.in_place = DRAW(2);
    job.spec.root = DRAW(ranks);
    bool reduces = job.spec.kind == COMM_ALL_REDUCE || job.spec.kind == COMM_REDUCE_SCATTER;
    job.spec.round_bf16 = reduces && DRAW(3) == 0;
    for (int r = 1; r < ranks; r++)
        job.empty[r] = DRAW(4) == 0;
    return job;
}

static void schedules_of_all_ranks_fit(void **state) {
    (void)state;
    uint64_t count = unit_sweep(300, 3000);
    for (uint64_t seed = 1; seed <= count; seed++) {
        struct job job = draw(seed);
        job.spec.empty = seed % 2 ? job.empty : NULL;
        make(&job);
        if (verify(&job) != STATUS_OK)
            fail_msg("seed %llu, kind %d, %dx%d: %s", (unsigned long long)seed, (int)job.spec.kind, job.mesh.nodes,
                     job.mesh.per_node, status_message());
        drop(&job);
    }
}

static void remove_step(struct comm_schedule *schedule, size_t at) {
    memmove(schedule->steps.items + at, schedule->steps.items + at + 1,
            (schedule->steps.count - at - 1) * sizeof *schedule->steps.items);
    schedule->steps.count--;
}

static bool orders(enum step_kind kind) {
    return kind == STEP_POST || kind == STEP_SEND || kind == STEP_ARRIVE || kind == STEP_MEET;
}

/* Within a node, whose sums are whole, waiting for sums and for blocks is one and the same: both are left out. */
static void leave_out(struct comm_schedule *schedule, size_t at) {
    struct schedule_step step = schedule->steps.items[at];
    bool sums = step.kind == STEP_MEET && (step.index == MEETING_SUMMED || step.index == MEETING_BLOCKS);
    remove_step(schedule, at);
    for (size_t s = schedule->steps.count; sums && s-- > 0;) {
        const struct schedule_step *other = &schedule->steps.items[s];
        if (other->kind == STEP_MEET && other->index == MEETING_SUMMED + MEETING_BLOCKS - step.index)
            remove_step(schedule, s);
    }
}

/* Each step that posts, sends, arrives or meets, left out by one rank. */
static void a_step_left_out_is_found(void **state) {
    (void)state;
    static const struct mesh meshes[] = {{1, 4}, {2, 3}, {4, 1}};
    int found[STEP_MEET + 1] = {0};
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
        for (int rank = 0; rank < mesh_ranks(&meshes[m]); rank++) {
            size_t steps = 1;
            for (size_t at = 0; at < steps; at++) {
                struct job job = {.mesh = meshes[m],
                                  .spec = {.kind = COMM_ALL_REDUCE, .bytes = 64 * 64, .in_place = true}};
                make(&job);
                steps = job.schedules[rank].steps.count;
                enum step_kind kind = job.schedules[rank].steps.items[at].kind;
                bool left_out = orders(kind);
                if (left_out) leave_out(&job.schedules[rank], at);
                if (left_out && verify(&job) != STATUS_FAILED)
                    fail_msg("%dx%d, rank %d: step %zu of kind %d is missed by nobody", job.mesh.nodes,
                             job.mesh.per_node, rank, at, (int)kind);
                found[kind] += left_out;
                drop(&job);
            }
        }
    assert_true(found[STEP_POST] && found[STEP_SEND] && found[STEP_ARRIVE] && found[STEP_MEET]);
}

static void expect(struct job *job, const char *words) {
    assert_int_equal(verify(job), STATUS_FAILED);
    if (!strstr(status_message(), words)) fail_msg("'%s' is not in '%s'", words, status_message());
    drop(job);
}

static void faults_are_named(void **state) {
    (void)state;
    struct job job = {.mesh = {1, 2}, .spec = {.kind = COMM_ALL_REDUCE, .bytes = 4096, .in_place = true}};
    make(&job);
    job.schedules[1].steps.count--; /* it does not wait until its data was read */
    expect(&job, "may still read the data of rank 1 when that one is done");
    make(&job);
    remove_step(&job.schedules[0], 1); /* it does not wait for the others' data */
    expect(&job, "may read the data of rank 1 before it has any");
    job.spec.in_place = false;
    make(&job);
    job.schedules[0].messages.items[0].bytes += 64;
    expect(&job, "has other messages at rank");
}

static void the_proof_bears_every_failed_allocation(void **state) {
    (void)state;
    struct job job = {.mesh = {2, 2}, .spec = {.kind = COMM_ALL_REDUCE, .bytes = 4096, .in_place = true}};
    make(&job);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, verify, &job) > 10);
    drop(&job);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(schedules_of_all_ranks_fit),
                                       cmocka_unit_test(a_step_left_out_is_found), cmocka_unit_test(faults_are_named),
                                       cmocka_unit_test(the_proof_bears_every_failed_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
