/* The disk tier moves the right bytes with each engine, directly and through the page cache, and reports errors. */
/* ctest: PROCESSORS 2 */
#include "runtime/store/store.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "base/random.h"
#include "runtime/store/disk.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { CHANNELS = 4, BLOCK = DISK_ALIGNMENT, ARENA_BLOCKS = 3000, SHARE_BLOCKS = ARENA_BLOCKS / CHANNELS };

struct variant {
    enum disk_engine_choice engine;
    bool buffered;
};
static const struct variant variants[] = {
    {DISK_ENGINE_THREADS, false}, {DISK_ENGINE_THREADS, true}, {DISK_ENGINE_URING, false}, {DISK_ENGINE_URING, true}};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* Each test runs for each variant that this machine allows: in *state are directory and settings. */
static struct arena_settings settings;

static bool is_allowed(const struct variant *variant) {
    struct arena arena;
    settings.engine = variant->engine;
    settings.buffered = variant->buffered;
    if (arena_open(TIER_DISK, BLOCK, &settings, &arena) != STATUS_OK) {
        print_message("left out: %s\n", status_message());
        assert_int_equal(variant->engine, DISK_ENGINE_URING);
        return false;
    }
    struct disk_description description = disk_store_describe(&arena);
    assert_string_equal(description.engine, variant->engine == DISK_ENGINE_URING ? "io_uring" : "threads");
    if (variant->buffered) assert_false(description.direct);
    arena_close(&arena);
    return true;
}

static void for_each_variant(void **state, void (*check)(void)) {
    for (int v = 0; v < VARIANTS; v++) {
        settings = (struct arena_settings){.folder = *state, .channels = CHANNELS};
        if (is_allowed(&variants[v])) check();
    }
}

static void *map_blocks(int64_t blocks) {
    void *data = mmap(NULL, (size_t)blocks * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(data, MAP_FAILED);
    return data;
}

static void fill(uint64_t *words, int64_t bytes, uint64_t seed) {
    for (int64_t w = 0; w < bytes / 8; w++)
        words[w] = (seed << 40) + (uint64_t)w;
}

/* One thread's share of the arena, changed and read at random compared with a copy of what it should hold. */
struct share {
    const struct arena *arena;
    int channel, rounds;
    char *copy, *data;
    const char *wrong; /* cmocka's asserts are for the test's own thread */
};

static void *use_share(void *argument) {
    struct share *share = argument;
    int64_t base = (int64_t)share->channel * SHARE_BLOCKS * BLOCK;
    for (int round = 0; round < share->rounds && !share->wrong; round++) {
        uint32_t draw[4];
        random_block(7, RANDOM_TEST, (uint32_t)share->channel, (uint64_t)round, draw);
        int64_t first = draw[0] % SHARE_BLOCKS, max = draw[3] % 4 == 0 ? SHARE_BLOCKS : 20;
        int64_t blocks = 1 + draw[1] % max;
        if (blocks > SHARE_BLOCKS - first) blocks = SHARE_BLOCKS - first;
        int64_t at = first * BLOCK, bytes = blocks * BLOCK;
        if (draw[2] % 2) {
            fill((uint64_t *)(void *)(share->copy + at), bytes, (uint64_t)round * CHANNELS + (uint64_t)share->channel);
            memcpy(share->data, share->copy + at, (size_t)bytes);
            if (arena_write(share->arena, base + at, share->data, bytes, share->channel) != STATUS_OK)
                share->wrong = status_message();
        } else {
            memset(share->data, 0xa5, (size_t)bytes);
            if (arena_read(share->arena, base + at, share->data, bytes, share->channel) != STATUS_OK)
                share->wrong = status_message();
            else if (memcmp(share->data, share->copy + at, (size_t)bytes) != 0)
                share->wrong = "other bytes were read than written";
        }
    }
    return NULL;
}

static void use_channels(int rounds) {
    struct arena arena;
    assert_int_equal(arena_open(TIER_DISK, (int64_t)ARENA_BLOCKS * BLOCK, &settings, &arena), STATUS_OK);
    assert_null(arena.base);
    pthread_t threads[CHANNELS];
    struct share shares[CHANNELS];
    for (int c = 0; c < CHANNELS; c++) {
        shares[c] = (struct share){.arena = &arena, .channel = c, .rounds = rounds};
        shares[c].copy = map_blocks(SHARE_BLOCKS);
        shares[c].data = map_blocks(SHARE_BLOCKS);
        assert_int_equal(pthread_create(&threads[c], NULL, use_share, &shares[c]), 0);
    }
    for (int c = 0; c < CHANNELS; c++) {
        pthread_join(threads[c], NULL);
        if (shares[c].wrong) fail_msg("channel %d: %s", c, shares[c].wrong);
        munmap(shares[c].copy, (size_t)SHARE_BLOCKS * BLOCK);
        munmap(shares[c].data, (size_t)SHARE_BLOCKS * BLOCK);
    }
    arena_close(&arena);
}

static void use_channels_usual(void) { use_channels((int)unit_sweep(40, 2000)); }
static void channels_work_at_once(void **state) { for_each_variant(state, use_channels_usual); }

/* Every transfer is cut short; then every one is late. */
static void use_channels_hampered(void) {
    fault_arm(FAULT_SHORT, 1, true);
    use_channels(5);
    fault_arm(FAULT_SHORT, 0, false);
    fault_arm(FAULT_SLOW, 1, true);
    use_channels(5);
    fault_arm(FAULT_SLOW, 0, false);
}
static void short_and_slow_transfers_are_whole(void **state) { for_each_variant(state, use_channels_hampered); }

/* More requests than are in flight at once, with a last one that is shorter. */
enum { SWEPT_BYTES = (DISK_REQUESTS + 2) * DISK_REQUEST_BYTES + 3 * BLOCK };
static char *swept;

static enum status write_and_read(void *payload) {
    (void)payload;
    struct arena arena;
    TRY(arena_open(TIER_DISK, SWEPT_BYTES + BLOCK, &settings, &arena));
    fill((uint64_t *)(void *)swept, SWEPT_BYTES, 1);
    enum status status = arena_write(&arena, BLOCK, swept, SWEPT_BYTES, 1);
    memset(swept, 0, SWEPT_BYTES);
    if (status == STATUS_OK) status = arena_read(&arena, BLOCK, swept, SWEPT_BYTES, 0);
    for (int64_t w = 0; status == STATUS_OK && w < SWEPT_BYTES / 8; w++)
        if (((uint64_t *)(void *)swept)[w] != (UINT64_C(1) << 40) + (uint64_t)w)
            status = status_set(STATUS_FAILED, "word %lld is wrong", (long long)w);
    if (status == STATUS_OK) {
        status = arena_read(&arena, 0, swept, BLOCK, 0);
        if (status == STATUS_OK && swept[BLOCK / 2] != 0) status = status_set(STATUS_FAILED, "not zero at first");
    }
    arena_close(&arena);
    return status;
}

static void sweep(void) {
    const int requests = SWEPT_BYTES / DISK_REQUEST_BYTES + 1;
    swept = map_blocks(SWEPT_BYTES / BLOCK);
    settings.channels = 2;
    if (settings.buffered) {
        assert_int_equal(fault_sweep(FAULT_SYNC, false, write_and_read, NULL), requests);
    } else {
        /* Setting up takes one open and one reservation, and for each channel a ring or its threads. */
        int submissions = settings.engine == DISK_ENGINE_URING ? 2 + 2 * requests + 1 : 2 * DISK_REQUESTS;
        assert_true(fault_sweep(FAULT_ALLOCATE, false, write_and_read, NULL) >= 5);
        assert_int_equal(fault_sweep(FAULT_OPEN, false, write_and_read, NULL), 1);
        assert_int_equal(fault_sweep(FAULT_WRITE, false, write_and_read, NULL), 1 + requests);
        assert_int_equal(fault_sweep(FAULT_READ, false, write_and_read, NULL), requests + 1);
        assert_int_equal(fault_sweep(FAULT_SUBMIT, false, write_and_read, NULL), submissions);
        assert_true(fault_sweep_harmless(FAULT_SHORT, false, write_and_read, NULL) >= 2 * requests);
    }
    munmap(swept, SWEPT_BYTES);
}
static void every_fault_is_reported(void **state) { for_each_variant(state, sweep); }

/* After a refused submission the channel works on. */
static void fail_and_go_on(void) {
    struct arena arena;
    swept = map_blocks(SWEPT_BYTES / BLOCK);
    assert_int_equal(arena_open(TIER_DISK, SWEPT_BYTES, &settings, &arena), STATUS_OK);
    for (int nth = 1; nth <= DISK_REQUESTS; nth++) {
        bool uring = settings.engine == DISK_ENGINE_URING;
        fill((uint64_t *)(void *)swept, SWEPT_BYTES, (uint64_t)nth);
        fault_arm(uring ? FAULT_SUBMIT : FAULT_WRITE, 1 + nth % DISK_REQUESTS, nth % 2 == 0);
        assert_int_equal(arena_write(&arena, 0, swept, SWEPT_BYTES, 0), STATUS_FAILED);
        assert_non_null(strstr(status_message(), settings.folder));
        assert_non_null(strstr(status_message(), "cannot write"));
        fault_arm(uring ? FAULT_SUBMIT : FAULT_WRITE, 0, false);
        assert_int_equal(arena_write(&arena, 0, swept, SWEPT_BYTES, 0), STATUS_OK);
        memset(swept, 0, SWEPT_BYTES);
        assert_int_equal(arena_read(&arena, 0, swept, SWEPT_BYTES, 0), STATUS_OK);
        assert_int_equal(((uint64_t *)(void *)swept)[SWEPT_BYTES / 8 - 1], ((uint64_t)nth << 40) + SWEPT_BYTES / 8 - 1);
    }
    arena_close(&arena);
    munmap(swept, SWEPT_BYTES);
}
static void it_goes_on_after_failures(void **state) { for_each_variant(state, fail_and_go_on); }

static void transfer_without_allocating(void) {
    struct arena arena;
    swept = map_blocks(SWEPT_BYTES / BLOCK);
    assert_int_equal(arena_open(TIER_DISK, SWEPT_BYTES, &settings, &arena), STATUS_OK);
    int64_t before = fault_count(FAULT_ALLOCATE);
    assert_int_equal(arena_write(&arena, 0, swept, SWEPT_BYTES, 0), STATUS_OK);
    assert_int_equal(arena_read(&arena, 0, swept, SWEPT_BYTES, 0), STATUS_OK);
    assert_int_equal(fault_count(FAULT_ALLOCATE), before);
    arena_close(&arena);
    munmap(swept, SWEPT_BYTES);
}
static void transfers_do_not_allocate(void **state) { for_each_variant(state, transfer_without_allocating); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(channels_work_at_once),     cmocka_unit_test(short_and_slow_transfers_are_whole),
        cmocka_unit_test(every_fault_is_reported),   cmocka_unit_test(it_goes_on_after_failures),
        cmocka_unit_test(transfers_do_not_allocate),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
