#include <stdint.h>
#include <string.h>

#include "base/fault.h"
#include "runtime/store/arena.h"
#include "support/thread_ranks.h"
#include "support/unit.h"

static const enum tier memory_tiers[] = {TIER_DEVICE, TIER_HOST};

static void arenas_open_and_close(void **state) {
    (void)state;
    for (int t = 0; t < 2; t++) {
        struct arena arena;
        assert_int_equal(arena_open(memory_tiers[t], 3 << 20, NULL, &arena), STATUS_OK);
        assert_int_equal((uintptr_t)arena.base % BUFFER_ALIGNMENT, 0);
        assert_int_equal(((char *)arena.base)[(3 << 20) - 1], 0);
        arena_close(&arena);
        assert_null(arena.base);
        assert_int_equal(arena_open(memory_tiers[t], 0, NULL, &arena), STATUS_OK);
        assert_null(arena.base);
        arena_close(&arena);
    }
}

static void refused_memory_is_reported(void **state) {
    (void)state;
    struct arena arena;
    fault_arm(FAULT_ALLOCATE, 1, false);
    assert_int_equal(arena_open(TIER_DEVICE, 1 << 20, NULL, &arena), STATUS_FAILED);
    fault_arm(FAULT_ALLOCATE, 0, false);
    assert_int_equal(arena_open(TIER_HOST, INT64_MAX / 2, NULL, &arena), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "host"));
    assert_true(status_hint_text()[0] != '\0');
}

/* Memory has no channels and asks for no alignment. */
static void what_is_written_is_read(void **state) {
    (void)state;
    struct arena arena;
    char text[8] = "";
    assert_int_equal(arena_open(TIER_HOST, 100, NULL, &arena), STATUS_OK);
    assert_int_equal(arena_write(&arena, 93, "weights", 7, 5), STATUS_OK);
    assert_memory_equal((char *)arena.base + 93, "weights", 7);
    assert_int_equal(arena_read(&arena, 94, text, 6, 0), STATUS_OK);
    assert_string_equal(text, "eights");
    assert_int_equal(arena_read(&arena, 100, text, 0, 0), STATUS_OK);
    arena_close(&arena);
}

/* Arenas of another size at each rank, and at each rank the operation's data elsewhere in it. */
static enum status add_in_place(struct comm *comm, void *payload) {
    struct arena_settings settings = {.shared_by = comm};
    struct arena arena;
    struct comm_operation *sum;
    (void)payload;
    TRY(arena_open(TIER_DEVICE, 10000 * (1 + comm->rank), &settings, &arena));
    float *data = (float *)((char *)arena.base + (comm->rank << 7));
    bool fresh = arena.mapped && data[0] == 0;
    data[0] = (float)(1 << comm->rank);
    struct comm_spec spec = {
        .kind = COMM_ALL_REDUCE, .group = comm_group_all(comm), .data = data, .bytes = 4, .in_place = true};
    TRY(comm_create(comm, &spec, &sum));
    comm_start(sum);
    TRY(comm_wait(sum));
    bool right = data[0] >= 7 && data[0] <= 7;
    comm_free(sum);
    arena_close(&arena);
    return fresh && right ? STATUS_OK : status_set(STATUS_FAILED, "rank %d has another sum", comm->rank);
}

static enum status open_unshared(struct comm *comm, void *payload) {
    struct arena_settings settings = {.shared_by = comm};
    struct arena arena;
    (void)payload;
    return arena_open(TIER_DEVICE, 10000, &settings, &arena);
}

static void ranks_share_arenas(void **state) {
    (void)state;
    enum status status = thread_ranks_run(&(struct thread_ranks){
        .ranks = 3, .seed = 1, .settings = {.rank_timeout_s = 20, .message_bytes = 1 << 20}, .body = add_in_place});
    if (status != STATUS_OK) fail_msg("%s", status_message());
    struct thread_ranks apart = {.ranks = 2,
                                 .seed = 1,
                                 .body = open_unshared,
                                 .settings = {.rank_timeout_s = 20, .message_bytes = 1 << 20, .messages_only = true},
                                 .may_fail = true};
    assert_int_equal(thread_ranks_run(&apart), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "no common memory"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arenas_open_and_close),
        cmocka_unit_test(refused_memory_is_reported),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(ranks_share_arenas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
