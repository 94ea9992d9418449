/* Schedules of all ranks match, and every ordering step is needed: without it the proof fails. */
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "collective/proof.h"
#include "plan/chunks.h"
#include "support/fault_sweep.h"
#include "support/unit.h"

enum { RANKS_MAX = 16, MESSAGE = 256, STEP_KINDS = STEP_MEET + 1 };

struct job {
    struct mesh mesh;
    struct comm_spec spec;
    int ranks;
    struct comm_schedule schedules[RANKS_MAX];
    struct comm_spec specs[RANKS_MAX];
    bool empty[RANKS_MAX]; /* spec.empty, where that is set */
    int owner[RANKS_MAX], owners[RANKS_MAX][RANKS_MAX];
    bool deal, takes[RANKS_MAX];
};

static void make(struct job *job) {
    job->ranks = mesh_ranks(&job->mesh);
    job->spec.group = mesh_group(&job->mesh, 0, MESH_ALL);
    for (int r = 0; r < job->ranks; r++) {
        struct comm_spec *spec = &job->specs[r];
        *spec = job->spec;
        if (spec->empty) spec->empty = job->empty;
        if (job->deal) spec->owner = job->owner;
        if (job->takes[r]) spec->mine = job;
        assert_int_equal(comm_schedule_create(&job->mesh, r, MESSAGE, spec, &job->schedules[r]), STATUS_OK);
    }
}

static void drop(struct job *job) {
    for (int r = 0; r < job->ranks; r++)
        comm_schedule_free(&job->schedules[r]);
}

static enum status verify(void *payload) {
    struct job *job = payload;
    return comm_schedules_verify(job->specs, job->schedules, job->ranks);
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
    job.spec.round_sum = job.spec.kind == COMM_ALL_REDUCE && job.spec.round_bf16 && seed % 2;
    for (int r = 1; r < ranks; r++)
        job.empty[r] = DRAW(4) == 0;
    return job;
}

/* Owners in any order, blocks of another size, one phase, a block from elsewhere. */
static void draw_blocks(struct job *job, uint64_t seed) {
    uint64_t next = 1000;
    int ranks = mesh_ranks(&job->mesh);
    bool gathers = job->spec.kind == COMM_ALL_GATHER;
    bool dealt = gathers || job->spec.kind == COMM_ALL_REDUCE || job->spec.kind == COMM_REDUCE_SCATTER;
    job->spec.flat = DRAW(2);
    if (dealt && DRAW(2)) job->spec.block_bytes = (job->spec.bytes / ranks + DRAW(900)) / 4 * 4 + 4;
    for (int b = 0; b < ranks; b++)
        job->owner[b] = (int)random_permute(seed, 3, (uint64_t)b, (uint64_t)ranks);
    job->deal = dealt && DRAW(2);
    for (int r = 0; r < ranks && gathers; r++)
        job->takes[r] = DRAW(2);
}

static void schedules_of_all_ranks_fit(void **state) {
    (void)state;
    uint64_t count = unit_sweep(300, 3000);
    for (uint64_t seed = 1; seed <= count; seed++) {
        struct job job = draw(seed);
        draw_blocks(&job, seed);
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

static void expect_every_step_is_missed(const struct job *like, int rank, int *found) {
    size_t steps = 1;
    for (size_t at = 0; at < steps; at++) {
        struct job job = *like;
        make(&job);
        steps = job.schedules[rank].steps.count;
        if (at < steps) {
            enum step_kind kind = job.schedules[rank].steps.items[at].kind;
            bool implied = kind == STEP_MEET && job.spec.flat && job.mesh.nodes > 1; /* by the order of messages */
            leave_out(&job.schedules[rank], at);
            if (verify(&job) != STATUS_FAILED && !implied)
                fail_msg("%dx%d, rank %d, operation %d%s%s%s: step %zu of kind %d is missed by nobody", job.mesh.nodes,
                         job.mesh.per_node, rank, (int)job.spec.kind, job.spec.flat ? ", flat" : "",
                         job.spec.in_place ? ", in place" : "", job.spec.empty ? ", some empty" : "", at, (int)kind);
            found[kind]++;
        }
        drop(&job);
    }
}

/* Each step of one rank that is not empty: nobody waits to read what an empty one has. */
static void a_step_left_out_is_found(void **state) {
    (void)state;
    static const struct mesh meshes[] = {{1, 4}, {2, 3}, {4, 1}};
    static const enum comm_kind kinds[] = {COMM_ALL_REDUCE, COMM_ALL_GATHER};
    int found[STEP_KINDS] = {0};
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
        for (int variant = 0; variant < 16; variant++) {
            struct job job = {.mesh = meshes[m],
                              .spec = {.kind = kinds[variant & 1], .bytes = 64 * 64, .in_place = variant & 2}};
            job.spec.flat = variant & 4;
            job.spec.round_bf16 = variant & 8 && !(variant & 1);
            job.takes[1] = variant & 8 && variant & 1;
            for (int r = 0; job.spec.round_bf16 && r < (mesh_ranks(&meshes[m]) + 1) / 2; r++)
                job.empty[r] = true; /* one side of the root, whose other edge rounds all the same */
            if (job.empty[0]) job.spec.empty = job.empty;
            for (int rank = 0; rank < mesh_ranks(&meshes[m]); rank++)
                if (!job.empty[rank]) expect_every_step_is_missed(&job, rank, found);
        }
    for (int kind = 0; kind < STEP_KINDS; kind++)
        if (!found[kind]) fail_msg("no step of kind %d was left out", kind);
}

/* The shards of a chunk, gathered by all groups of neighbouring ranks at once. */
static void make_shards(struct job *job, const struct shard_cut *cut, int coarse, int fine, int64_t element_bytes) {
    job->ranks = cut->ranks;
    for (int r = 0; r < job->ranks; r++) {
        struct comm_spec *spec = &job->specs[r];
        struct shard_range range = shard_range_of(cut, coarse, r);
        *spec = job->spec;
        spec->group = shard_group(r, coarse, fine);
        spec->bytes = (range.end - range.begin) * element_bytes;
        spec->block_bytes = shard_piece_elements(cut) * (cut->ranks / fine) * element_bytes;
        shard_owners(&cut->partition, cut->ranks, r, coarse, fine, job->owners[r]);
        spec->owner = job->owners[r];
        assert_int_equal(comm_schedule_create(&job->mesh, r, 1 << 14, spec, &job->schedules[r]), STATUS_OK);
    }
}

static void check_partition(const struct partition *partition, const struct mesh *mesh, uint64_t seed) {
    int p = partition->parameters, g = partition->gradients, o = partition->optimizer, ranks = mesh_ranks(mesh);
    const int widths[][2] = {{1, p}, {p, o}, {g, ranks}, {1, g}, {1, ranks}};
    struct shard_cut cut = {*partition, ranks, SHARD_BLOCK * (1 + (int64_t)(seed * 7 % (3 * (uint64_t)ranks)))};
    for (int i = 0; i < 5; i++)
        for (int variant = 0; variant < 4; variant++) {
            struct job job = {.mesh = *mesh, .spec = {.kind = i == 4 ? COMM_REDUCE_SCATTER : COMM_ALL_GATHER}};
            job.spec.flat = variant & 1;
            job.spec.in_place = variant & 2;
            make_shards(&job, &cut, widths[i][0], widths[i][1], 4);
            if (verify(&job) != STATUS_OK) {
                char text[PARTITION_BYTES];
                fail_msg("%s, %d to %d, variant %d: %s", partition_print(partition, mesh, text), widths[i][0],
                         widths[i][1], variant, status_message());
            }
            drop(&job);
        }
}

static void shards_of_every_partition_fit(void **state) {
    (void)state;
    static const struct mesh meshes[] = {{1, 1}, {1, 2}, {2, 1}, {2, 2}, {1, 6}, {2, 4}, {4, 2}, {8, 1}, {1, 8}};
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        struct partition *partitions;
        int count;
        assert_int_equal(partition_list(&meshes[m], &partitions, &count), STATUS_OK);
        for (int i = 0; i < count; i++)
            check_partition(&partitions[i], &meshes[m], m * 100 + (uint64_t)i);
        mem_free(partitions);
    }
}

static void expect(struct job *job, const char *message) {
    assert_int_equal(verify(job), STATUS_FAILED);
    if (!strstr(status_message(), message)) fail_msg("'%s' is not in '%s'", message, status_message());
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

/* Rank 2's schedule is that of another operation than all believe. */
static void expect_found(struct job *job, const struct comm_spec *other, const char *message) {
    comm_schedule_free(&job->schedules[2]);
    assert_int_equal(comm_schedule_create(&job->mesh, 2, 1 << 14, other, &job->schedules[2]), STATUS_OK);
    expect(job, message);
}

static void wrong_shards_are_found(void **state) {
    (void)state;
    struct shard_cut cut = {{2, 4, 4}, 4, 8 * SHARD_BLOCK};
    struct job job = {.mesh = {2, 2}, .spec = {.kind = COMM_ALL_GATHER, .in_place = true}};
    int swapped[] = {2, 1, 0, 3};
    make_shards(&job, &cut, 2, 4, 4);
    job.specs[2].block_bytes /= 2; /* a shard sized on the wrong group */
    expect(&job, "another size");
    make_shards(&job, &cut, 2, 4, 4);
    job.owners[2][0] = 1, job.owners[2][1] = 0;
    expect(&job, "another owners");
    make_shards(&job, &cut, 2, 4, 4);
    job.specs[2].group = shard_group(2, 1, 4);
    expect(&job, "another group");
    make_shards(&job, &cut, 2, 4, 4);
    job.specs[2].group.count = 0; /* it leaves out what another waits for */
    expect(&job, "another group");
    make_shards(&job, &cut, 2, 4, 4);
    job.specs[0].group.count = job.specs[2].group.count = 0; /* all of a group do */
    assert_int_equal(verify(&job), STATUS_OK);
    drop(&job);
    make_shards(&job, &cut, 1, 4, 4);
    struct comm_spec other = job.specs[2];
    other.block_bytes /= 2;
    expect_found(&job, &other, "other messages");
    make_shards(&job, &cut, 1, 4, 4);
    other = job.specs[2];
    other.owner = swapped;
    expect_found(&job, &other, "in no order");
    job.spec.in_place = false;
    make_shards(&job, &cut, 1, 4, 4);
    job.schedules[1].pieces.items[0].offset += 64;
    expect(&job, "uses bytes that are on their way");
    make_shards(&job, &cut, 1, 4, 4);
    other = job.specs[2];
    other.owner = swapped;
    expect_found(&job, &other, "has not what it should from byte");
    job.spec.kind = COMM_REDUCE_SCATTER;
    job.spec.flat = true;
    make_shards(&job, &cut, 1, 4, 4);
    job.schedules[3].staging_bytes -= 64;
    expect(&job, "lies behind the end of staging");
    make_shards(&job, &cut, 1, 4, 4);
    job.schedules[3].messages.items[1].staging = job.schedules[3].messages.items[0].staging;
    expect(&job, "is staged where message 0 is on its way");
}

static void the_proof_bears_every_failed_allocation(void **state) {
    (void)state;
    struct job job = {.mesh = {2, 2}, .spec = {.kind = COMM_ALL_REDUCE, .bytes = 4096, .in_place = true}};
    make(&job);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, verify, &job) > 10);
    drop(&job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_of_all_ranks_fit), cmocka_unit_test(a_step_left_out_is_found),
        cmocka_unit_test(faults_are_named),           cmocka_unit_test(shards_of_every_partition_fit),
        cmocka_unit_test(wrong_shards_are_found),     cmocka_unit_test(the_proof_bears_every_failed_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
