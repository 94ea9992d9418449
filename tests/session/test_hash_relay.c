/* Hashes of bytes on several ranks equal the hash of all bytes in order, however they are divided. */
/* ctest: PROCESSORS 2 TIMEOUT 120 */
#include <string.h>
#include <xxhash.h>

#include "base/random.h"
#include "session/engine.h"
#include "support/thread_ranks.h"
#include "support/tiny_run.h"
#include "support/unit.h"

enum { THINGS = 40, BYTES_MAX = 3000 };

struct job {
    uint64_t seed;
    int width;   /* ranks that have all together; other ranks have the same */
    int failing; /* the rank that cannot read; -1: none */
    int64_t bytes[THINGS];
    char data[THINGS][BYTES_MAX];
};

static uint64_t draw(const struct job *job, uint32_t what, uint64_t i) {
    return random_u64(job->seed, RANDOM_TEST, what, i);
}

static void make_things(uint64_t seed, int width, struct job *out) {
    *out = (struct job){.seed = seed, .width = width, .failing = -1};
    for (int t = 0; t < THINGS; t++) {
        out->bytes[t] = 1 + (int64_t)(draw(out, 1, (uint64_t)t) % (t % 3 == 0 ? 9 : BYTES_MAX));
        for (int64_t i = 0; i < out->bytes[t]; i++)
            out->data[t][i] = (char)draw(out, 2, (uint64_t)(t * BYTES_MAX + i));
    }
}

/* Some things are one rank's alone, the others are cut evenly; the ranks of a group have their runs in any order. */
static struct hash_run run_of(const struct job *job, int t, int position) {
    int64_t bytes = job->bytes[t], width = job->width;
    int64_t place = (position + (int64_t)(draw(job, 3, (uint64_t)t) % (uint64_t)width)) % width;
    if (draw(job, 4, (uint64_t)t) % 4 == 0) return (struct hash_run){0, place == 0 ? bytes : 0, job->data[t]};
    return (struct hash_run){bytes * place / width, bytes * (place + 1) / width, job->data[t]};
}

static enum status read_bytes(void *payload, const void *key, int64_t offset, int64_t bytes, void *to) {
    if (*(const bool *)payload) return status_set(STATUS_FAILED, "cannot be read");
    memcpy(to, (const char *)key + offset, (size_t)bytes);
    return STATUS_OK;
}

static enum status relay(struct comm *comm, void *payload) {
    const struct job *job = payload;
    struct comm_group all = comm_group_all(comm);
    struct hash_run mine[THINGS];
    uint64_t hashes[THINGS];
    bool fails = comm->rank == job->failing;
    for (int t = 0; t < THINGS; t++)
        mine[t] = run_of(job, t, comm->rank % job->width);
    struct hash_relay requested = {.comm = comm,
                                   .group = mesh_group_part(&all, comm->rank, job->width),
                                   .mine = mine,
                                   .count = THINGS,
                                   .store = {.read = read_bytes, .payload = &fails}};
    TRY(comm_agree(comm, hash_relay_run(&requested, hashes)));
    for (int t = 0; t < THINGS; t++)
        if (hashes[t] != XXH3_64bits(job->data[t], (size_t)job->bytes[t]))
            return status_set(STATUS_FAILED, "rank %d has another hash of thing %d", comm->rank, t);
    return STATUS_OK;
}

static enum status run(struct job *job, int ranks) {
    struct thread_ranks threads = {.ranks = ranks,
                                   .seed = job->seed,
                                   .settings = {.rank_timeout_s = 60, .message_bytes = 4096},
                                   .body = relay,
                                   .payload = job,
                                   .may_fail = true};
    return thread_ranks_run(&threads);
}

static void a_hash_does_not_depend_on_the_number_of_ranks(void **state) {
    static struct job job;
    (void)state;
    for (uint64_t seed = 1; seed <= (uint64_t)unit_sweep(2, 20); seed++)
        for (int ranks = 1; ranks <= 8; ranks *= 2)
            for (int width = 1; width <= ranks; width *= 2) {
                make_things(seed, width, &job);
                if (run(&job, ranks) != STATUS_OK)
                    fail_msg("seed %d, %d ranks, width %d: %s", (int)seed, ranks, width, status_message());
            }
}

static void a_rank_that_cannot_read_ends_with_the_others(void **state) {
    static struct job job;
    (void)state;
    make_things(3, 4, &job);
    job.failing = 2;
    expect_status(run(&job, 4), STATUS_FAILED, "cannot be read");
    job.failing = -1;
    expect_status(run(&job, 4), STATUS_OK, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hash_does_not_depend_on_the_number_of_ranks),
        cmocka_unit_test(a_rank_that_cannot_read_ends_with_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
