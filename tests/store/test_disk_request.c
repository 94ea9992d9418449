/* Disk requests that the system completes partly or not at all. */
#include <errno.h>

#include "runtime/store/arena.h"
#include "runtime/store/disk.h"
#include "support/unit.h"

enum { BLOCK = DISK_ALIGNMENT, OFFSET = 5 * BLOCK };
static char data[4 * BLOCK];

static struct disk_request begun(void) {
    struct disk_request request;
    disk_request_begin(&request, 0, false, OFFSET, data, sizeof data);
    assert_int_equal(request.request_bytes, sizeof data);
    return request;
}

static void check_result(int64_t result, enum disk_progress progress, int64_t moved) {
    struct disk_request request = begun();
    request.result = result;
    assert_int_equal(disk_request_advance(&request), progress);
    assert_int_equal(request.at, OFFSET + moved);
    assert_ptr_equal(request.data, data + moved);
    if (progress == DISK_ONWARDS) assert_int_equal(request.request_bytes, (int64_t)sizeof data - moved);
    if (progress == DISK_BROKEN) assert_int_equal(request.result, result);
}

static void results_are_reported(void **state) {
    (void)state;
    check_result(4 * BLOCK, DISK_DONE, 4 * BLOCK);
    check_result(BLOCK, DISK_ONWARDS, BLOCK);
    check_result(3 * BLOCK + 1, DISK_ONWARDS, 3 * BLOCK);
    check_result(4 * BLOCK - 1, DISK_ONWARDS, 3 * BLOCK);
    check_result(512, DISK_ONWARDS, 0);
    check_result(-EINTR, DISK_ONWARDS, 0);
    check_result(-EAGAIN, DISK_ONWARDS, 0);
    check_result(0, DISK_BROKEN, 0);
    check_result(-EIO, DISK_BROKEN, 0);
    check_result(-ENOSPC, DISK_BROKEN, 0);
}

/* Attempts come to an end, and any progress grants as many again. */
static void short_transfers_go_on(void **state) {
    (void)state;
    struct disk_request request = begun();
    for (int round = 0; round < 2; round++) {
        request.result = -EAGAIN;
        request.attempts = DISK_ATTEMPTS_MAX - 2;
        assert_int_equal(disk_request_advance(&request), DISK_ONWARDS);
        request.result = BLOCK;
        assert_int_equal(disk_request_advance(&request), DISK_ONWARDS);
        assert_int_equal(request.attempts, 0);
    }
    request.result = -EAGAIN;
    request.attempts = DISK_ATTEMPTS_MAX - 1;
    assert_int_equal(disk_request_advance(&request), DISK_BROKEN);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(results_are_reported), cmocka_unit_test(short_transfers_go_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
