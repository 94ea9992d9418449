/* NCCL with one rank, and the summation kernels: all that one GPU can test (BALLAST_TEST_BACKEND=cuda, with the
 * machine's libnccl.so.2). Otherwise uses the tests' own library and a device without a GPU. */
/* link: -rdynamic */
#include <libgen.h>
#include <string.h>
#include <time.h>

#include "backend/backend.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/random.h"
#include "collective/lane_tree.h"
#include "comm/nccl_comm.h"
#include "support/deferred_backend.h"
#include "support/unit.h"

enum { BYTES = 1 << 20, NUMBERS = BYTES / (int)sizeof(float), SEED = 23 };

static const struct backend *backend;
static const struct nccl_library *library;

static void require(enum status status) {
    if (status != STATUS_OK) fail_msg("%s", status_message());
}

/* ---- memory of the device ---- */

static char *take(void) {
    void *base = NULL;
    require(backend->memory->take(TIER_DEVICE, BYTES, &base));
    return base;
}

/* Fresh, with numbers of any size and sign. */
static char *take_filled(uint64_t seed, float *values) {
    char *base = take();
    for (int i = 0; i < NUMBERS; i++) {
        uint64_t drawn = random_u64(SEED, RANDOM_TEST, (uint32_t)seed, (uint64_t)i);
        values[i] = ((float)(drawn % 2000001) - 1e6f) * (drawn >> 32 & 1 ? 1.0f : 1e-6f);
    }
    require(backend->memory->write(base, values, BYTES));
    return base;
}

static void expect_bytes(const char *device, const void *expected, int64_t bytes) {
    char *got = mem_array(BYTES, 1);
    assert_non_null(got);
    require(backend->memory->read(got, device, bytes));
    assert_memory_equal(got, expected, (size_t)bytes);
    mem_free(got);
}

static float *new_numbers(void) {
    float *numbers = mem_array(NUMBERS, sizeof *numbers);
    assert_non_null(numbers);
    return numbers;
}

/* ---- NCCL ---- */

static void settle(ncclComm_t comm, ncclResult_t result, const char *function) {
    while (result == ncclInProgress) {
        nanosleep(&(struct timespec){0, 50000}, NULL);
        require(nccl_status(library, library->CommGetAsyncError(comm, &result), "ncclCommGetAsyncError"));
    }
    require(nccl_status(library, result, function));
}

static void a_communicator_of_one_rank_gathers_and_broadcasts(void **state) {
    (void)state;
    ncclUniqueId id;
    ncclConfig_t config = nccl_config();
    ncclComm_t comm = NULL;
    void *stream;
    float *values = new_numbers();
    char *from = take_filled(0, values), *gathered = take(), *sent = take();
    require(backend->streams->create(&stream));
    require(nccl_status(library, library->GetUniqueId(&id), "ncclGetUniqueId"));
    settle(comm, library->CommInitRankConfig(&comm, 1, id, 0, &config), "ncclCommInitRankConfig");
    require(nccl_status(library, library->GroupStart(), "ncclGroupStart"));
    require(nccl_status(library, library->AllGather(from, gathered, BYTES, ncclInt8, comm, stream), "ncclAllGather"));
    settle(comm, library->GroupEnd(), "ncclGroupEnd");
    require(nccl_status(library, library->GroupStart(), "ncclGroupStart"));
    require(
        nccl_status(library, library->Broadcast(gathered, sent, BYTES, ncclInt8, 0, comm, stream), "ncclBroadcast"));
    settle(comm, library->GroupEnd(), "ncclGroupEnd");
    require(backend->streams->finish(stream));
    expect_bytes(gathered, values, BYTES);
    expect_bytes(sent, values, BYTES);
    require(nccl_status(library, library->CommAbort(comm), "ncclCommAbort"));
    backend->streams->free(stream);
    for (int i = 0; i < 3; i++)
        backend->memory->give_back(TIER_DEVICE, (char *[]){from, gathered, sent}[i]);
    mem_free(values);
    print_message("NCCL %d\n", library->version);
}

/* ---- sums ---- */

static void sums_have_the_hosts_bits(void **state) {
    (void)state;
    void *stream;
    float *to = new_numbers(), *from = new_numbers(), *expected = new_numbers();
    require(backend->streams->create(&stream));
    for (int rounds = 0; rounds < 2; rounds++) {
        char *sum = take_filled(1, to), *added = take_filled(2, from);
        lane_add(expected, to, from, NUMBERS, rounds);
        backend->add(sum, added, NUMBERS, rounds, stream);
        require(backend->streams->finish(stream));
        expect_bytes(sum, expected, BYTES);
        backend->memory->give_back(TIER_DEVICE, sum);
        backend->memory->give_back(TIER_DEVICE, added);
    }
    backend->streams->free(stream);
    mem_free(to);
    mem_free(from);
    mem_free(expected);
}

/* What is sent rounded is added to what is rounded here. */
static void packed_sums_have_the_hosts_bits(void **state) {
    (void)state;
    void *stream;
    float *to = new_numbers(), *from = new_numbers(), *expected = new_numbers();
    uint16_t *half = mem_array(NUMBERS, sizeof *half);
    assert_non_null(half);
    char *sum = take_filled(3, to), *sent = take_filled(4, from), *packed = take();
    require(backend->streams->create(&stream));
    lane_pack_bf16(half, from, NUMBERS);
    backend->peers->pack_bf16(packed, (const float *)(const void *)sent, NUMBERS, stream);
    backend->peers->unpack_bf16((float *)(void *)sum, packed, NUMBERS, true, stream);
    backend->peers->unpack_bf16((float *)(void *)sent, packed, NUMBERS, false, stream);
    require(backend->streams->finish(stream));
    expect_bytes(packed, half, NUMBERS * (int64_t)sizeof *half);
    lane_add(expected, to, from, NUMBERS, true);
    expect_bytes(sum, expected, BYTES);
    lane_unpack_bf16(expected, half, NUMBERS);
    expect_bytes(sent, expected, BYTES);
    backend->streams->free(stream);
    for (int i = 0; i < 3; i++)
        backend->memory->give_back(TIER_DEVICE, (char *[]){sum, sent, packed}[i]);
    mem_free(half);
    mem_free(to);
    mem_free(from);
    mem_free(expected);
}

/* Ends the test as skipped where the device or NCCL is not here. */
static void open_all(const char *device, const char *double_path) {
    if (!device) setenv("BALLAST_NCCL", double_path, 1);
    enum status status = device ? backend_find(device, &backend) : STATUS_OK;
    if (!device) backend = deferred_begin(SEED);
    if (status == STATUS_OK) status = nccl_library_open(&library);
    if (status != STATUS_OK) unit_skip_all("%s; needs a GPU that this build can use, and libnccl2", status_message());
    require(backend->streams->enter());
}

int main(void) {
    char program[] = BALLAST_PROGRAM;
    const char *device = getenv("BALLAST_TEST_BACKEND");
    char *double_path = mem_format("%s/tests/libnccl-double.so", dirname(program));
    if (!double_path) return 1;
    open_all(device, double_path);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_communicator_of_one_rank_gathers_and_broadcasts),
                                       cmocka_unit_test(sums_have_the_hosts_bits),
                                       cmocka_unit_test(packed_sums_have_the_hosts_bits)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (!device) deferred_end();
    mem_free(double_path);
    return failed;
}
