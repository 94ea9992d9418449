/* All collectives between ranks that are threads, against a plain tree in one process. */
#include "base/random.h"
#include "comm/comm.h"
#include "support/comm_check.h"
#include "support/fault_sweep.h"
#include "support/thread_ranks.h"
#include "support/unit.h"

struct plan {
    uint64_t seed;
    int checks;
};

static struct thread_ranks make_ranks(uint64_t seed, int ranks, int nodes) {
    struct comm_settings settings = {.nodes = nodes, .rank_timeout_s = 60, .message_bytes = 4096};
    return (struct thread_ranks){.ranks = ranks, .seed = seed, .settings = settings};
}

static enum status check_each(struct comm *comm, void *payload) {
    const struct plan *plan = payload;
    for (int i = 0; i < plan->checks; i++)
        TRY(comm_check_random(comm, plan->seed + (uint64_t)i, 3));
    return STATUS_OK;
}

static enum status check_together(struct comm *comm, void *payload) {
    const struct plan *plan = payload;
    return comm_check_together(comm, plan->seed, plan->checks);
}

static enum status check_lanes(struct comm *comm, void *payload) {
    return comm_check_lanes(comm, ((const struct plan *)payload)->seed);
}

static enum status check_partitions(struct comm *comm, void *payload) {
    const struct plan *plan = payload;
    return comm_check_partitions(comm, plan->seed, plan->checks);
}

static void sweep(enum status (*body)(struct comm *comm, void *payload), int checks, uint64_t seeds) {
    static const int shapes[][2] = {{1, 1}, {2, 1}, {2, 2}, {3, 1}, {4, 2}, {4, 1}, {6, 3}, {6, 2}, {8, 2}, {8, 4}};
    for (uint64_t seed = 1; seed <= seeds; seed++)
        for (int i = 0; i < 10; i++) {
            struct thread_ranks ranks = make_ranks(seed, shapes[i][0], shapes[i][1]);
            ranks.body = body;
            ranks.payload = &(struct plan){seed * 10000 + (uint64_t)i * 100, checks};
            enum status status = thread_ranks_run(&ranks);
            if (status != STATUS_OK)
                fail_msg("seed %llu, %d ranks on %d nodes: %s", (unsigned long long)seed, shapes[i][0], shapes[i][1],
                         status_message());
        }
    print_message("seeds 1 to %llu\n", (unsigned long long)seeds);
}

static void any_operation_equals_a_plain_tree(void **state) {
    (void)state;
    sweep(check_each, 20, unit_sweep(2, 40));
}

static void operations_overlap_in_any_order(void **state) {
    (void)state;
    sweep(check_together, 12, unit_sweep(2, 20));
}

static void recipes_have_the_bits_of_one_rank(void **state) {
    (void)state;
    sweep(check_lanes, 1, unit_sweep(1, 10));
}

static void shards_of_every_partition_are_gathered_and_reduced(void **state) {
    (void)state;
    sweep(check_partitions, 2, unit_sweep(1, 10));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_operation_equals_a_plain_tree),
        cmocka_unit_test(operations_overlap_in_any_order),
        cmocka_unit_test(recipes_have_the_bits_of_one_rank),
        cmocka_unit_test(shards_of_every_partition_are_gathered_and_reduced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
