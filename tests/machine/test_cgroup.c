/* Limits of control groups, read from directories that imitate /proc and /sys. */
#include <stdio.h>
#include <string.h>

#include "base/folder.h"
#include "machine/cluster.h"
#include "support/temp_folder.h"
#include "support/unit.h"

#define GIB ((int64_t)1 << 30)

static void put(const char *root, const char *folder, const char *name, const char *text) {
    char path[512], file[600];
    snprintf(path, sizeof path, "%s%s", root, folder);
    assert_int_equal(folder_create(path), STATUS_OK);
    snprintf(file, sizeof file, "%s/%s", path, name);
    temp_write_text(file, text);
}

static void put_memory(const char *root) {
    put(root, "/proc", "meminfo",
        "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n");
}

static void put_v2(const char *root, const char *group_line, const char *mount_root) {
    char text[256];
    snprintf(text, sizeof text,
             "22 1 0:20 / /proc rw - proc proc rw\n30 22 0:26 %s /sys/fs/cgroup rw,relatime shared:4 - "
             "cgroup2 cgroup2 rw\n",
             mount_root);
    put(root, "/proc/self", "mountinfo", text);
    put(root, "/proc/self", "cgroup", group_line);
}

static void no_cgroup_is_no_limit(void **state) {
    struct cgroup_limits limits;
    cgroup_read(*state, &limits);
    assert_int_equal(limits.memory_headroom_bytes, -1);
    assert_true(limits.processors <= 0);
}

static void v2_takes_the_minimum_of_all_levels(void **state) {
    const char *root = *state;
    struct cgroup_limits limits;
    put_v2(root, "0::/work/job\n", "/");
    put(root, "/sys/fs/cgroup/work/job", "memory.max", "max\n");
    put(root, "/sys/fs/cgroup/work/job", "memory.current", "1000\n");
    put(root, "/sys/fs/cgroup/work/job", "cpu.max", "max 100000\n");
    put(root, "/sys/fs/cgroup/work", "memory.max", "4294967296\n");
    put(root, "/sys/fs/cgroup/work", "memory.current", "2147483648\n");
    put(root, "/sys/fs/cgroup/work", "memory.stat",
        "anon 1073741824\nfile 1073741824\ninactive_file 536870912\nactive_file "
        "536870912\n");
    put(root, "/sys/fs/cgroup/work", "cpu.max", "150000 100000\n");
    cgroup_read(root, &limits);
    assert_int_equal(limits.memory_headroom_bytes, 3 * GIB);
    assert_true(limits.processors > 1.49 && limits.processors < 1.51);
}

static void v2_is_read_where_the_mount_is_the_group(void **state) {
    const char *root = *state;
    struct cgroup_limits limits;
    put_v2(root, "0::/docker/abc\n", "/docker/abc");
    put(root, "/sys/fs/cgroup", "memory.max", "2147483648\n");
    put(root, "/sys/fs/cgroup", "memory.current", "1073741824\n");
    cgroup_read(root, &limits);
    assert_int_equal(limits.memory_headroom_bytes, GIB);
}

static void v1_has_a_huge_number_for_no_limit(void **state) {
    const char *root = *state;
    struct cgroup_limits limits;
    put(root, "/proc/self", "mountinfo",
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "36 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
    put(root, "/proc/self", "cgroup", "4:memory:/api/one\n2:cpu,cpuacct:/api\n0::/\n");
    put(root, "/sys/fs/cgroup/memory/api/one", "memory.limit_in_bytes", "9223372036854771712\n");
    put(root, "/sys/fs/cgroup/memory/api/one", "memory.usage_in_bytes", "5\n");
    put(root, "/sys/fs/cgroup/cpu,cpuacct/api", "cpu.cfs_quota_us", "-1\n");
    put(root, "/sys/fs/cgroup/cpu,cpuacct/api", "cpu.cfs_period_us", "100000\n");
    cgroup_read(root, &limits);
    assert_int_equal(limits.memory_headroom_bytes, -1);
    assert_true(limits.processors <= 0);
    put(root, "/sys/fs/cgroup/memory/api", "memory.limit_in_bytes", "1073741824\n");
    put(root, "/sys/fs/cgroup/memory/api", "memory.usage_in_bytes", "536870912\n");
    put(root, "/sys/fs/cgroup/memory/api", "memory.stat", "inactive_file 99999999\ntotal_inactive_file 1048576\n");
    put(root, "/sys/fs/cgroup/cpu,cpuacct/api", "cpu.cfs_quota_us", "200000\n");
    cgroup_read(root, &limits);
    assert_int_equal(limits.memory_headroom_bytes, (GIB >> 1) + 1048576);
    assert_true(limits.processors > 1.99 && limits.processors < 2.01);
}

static void use_above_the_limit_leaves_no_headroom(void **state) {
    const char *root = *state;
    struct cgroup_limits limits;
    put_v2(root, "0::/\n", "/");
    put(root, "/sys/fs/cgroup", "memory.max", "1000\n");
    put(root, "/sys/fs/cgroup", "memory.current", "2000\n");
    cgroup_read(root, &limits);
    assert_int_equal(limits.memory_headroom_bytes, 0);
}

static void malformed_files_are_no_limit(void **state) {
    const char *root = *state;
    struct cgroup_limits limits;
    put(root, "/proc/self", "mountinfo", "nonsense\n30 22 - cgroup2\n - \n\n30 22 0:26 / - cgroup2 cgroup2 rw\n");
    put(root, "/proc/self", "cgroup", "0\n0:\nx::\n");
    cgroup_read(root, &limits);
    assert_int_equal(limits.memory_headroom_bytes, -1);
    put_v2(root, "0::/a/../b//\n", "/");
    put(root, "/sys/fs/cgroup", "memory.max", "much\n");
    put(root, "/sys/fs/cgroup", "cpu.max", "0 0\n");
    cgroup_read(root, &limits);
    assert_int_equal(limits.memory_headroom_bytes, -1);
    assert_true(limits.processors <= 0);
}

static void capacity_is_as_documented(void **state) {
    const char *root = *state;
    struct cluster_memory memory;
    put_memory(root);
    assert_int_equal(cluster_measure_memory_at(root, &memory), STATUS_OK);
    assert_int_equal(memory.total_bytes, 16 * GIB);
    assert_int_equal(memory.available_bytes, 8 * GIB);
    assert_int_equal(memory.cgroup_headroom_bytes, -1);
    assert_int_equal(memory.reserve_bytes, (int64_t)(0.05 * (double)(8 * GIB)));
    assert_int_equal(memory.capacity_bytes, 8 * GIB - memory.reserve_bytes - CLUSTER_PROCESS_BYTES);
    put_v2(root, "0::/\n", "/");
    put(root, "/sys/fs/cgroup", "memory.max", "1073741824\n");
    put(root, "/sys/fs/cgroup", "memory.current", "0\n");
    assert_int_equal(cluster_measure_memory_at(root, &memory), STATUS_OK);
    assert_int_equal(memory.capacity_bytes, GIB - (int64_t)(0.05 * (double)GIB) - CLUSTER_PROCESS_BYTES);
    /* What is missing, added to the limit, is enough and hardly more. */
    int64_t wanted = memory.capacity_bytes + 12345678, missing = cluster_memory_missing(&memory, 1, wanted);
    char limit[32];
    snprintf(limit, sizeof limit, "%lld\n", (long long)(GIB + missing));
    put(root, "/sys/fs/cgroup", "memory.max", limit);
    assert_int_equal(cluster_measure_memory_at(root, &memory), STATUS_OK);
    assert_in_range(memory.capacity_bytes, wanted, wanted + 2);
    assert_int_equal(cluster_memory_missing(&memory, 1, wanted), 0);
    put(root, "/sys/fs/cgroup", "memory.max", "1024\n");
    assert_int_equal(cluster_measure_memory_at(root, &memory), STATUS_OK);
    assert_int_equal(memory.capacity_bytes, 0);
}

static void no_meminfo_is_an_error_with_a_way_out(void **state) {
    struct cluster_memory memory;
    assert_int_equal(cluster_measure_memory_at(*state, &memory), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "/proc/meminfo: cannot read: No such file"));
    assert_non_null(strstr(status_hint_text(), "--device-memory"));
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_drop)
    const struct CMUnitTest tests[] = {
        CASE(no_cgroup_is_no_limit),
        CASE(v2_takes_the_minimum_of_all_levels),
        CASE(v2_is_read_where_the_mount_is_the_group),
        CASE(v1_has_a_huge_number_for_no_limit),
        CASE(use_above_the_limit_leaves_no_headroom),
        CASE(malformed_files_are_no_limit),
        CASE(capacity_is_as_documented),
        CASE(no_meminfo_is_an_error_with_a_way_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
