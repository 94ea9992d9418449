#include "machine/cluster.h"

#include <math.h>

#include "machine/cgroup.h"
#include "machine/kernel_file.h"

static bool read_kilobytes(const char *text, const char *key, int64_t *bytes) {
    int64_t kilobytes;
    if (!kernel_file_number(text, key, &kilobytes) || kilobytes < 0 || kilobytes > INT64_MAX / 1024) return false;
    *bytes = kilobytes * 1024;
    return true;
}

int64_t cluster_memory_headroom(const struct cluster_memory *memory) {
    bool limited = memory->cgroup_headroom_bytes >= 0 && memory->cgroup_headroom_bytes < memory->available_bytes;
    return limited ? memory->cgroup_headroom_bytes : memory->available_bytes;
}

int64_t cluster_memory_missing(const struct cluster_memory *memory, int processes, int64_t capacity_bytes) {
    double needed = processes * (double)(capacity_bytes + memory->process_bytes) / (1 - CLUSTER_RESERVE_FRACTION);
    int64_t missing = (int64_t)ceil(needed) - cluster_memory_headroom(memory);
    return missing > 0 ? missing : 0;
}

enum status cluster_measure_memory_at(const char *root, struct cluster_memory *out) {
    struct cluster_memory memory = {.process_bytes = CLUSTER_PROCESS_BYTES};
    struct cgroup_limits limits;
    char text[8192];
    if (!kernel_file_read(root, "/proc/meminfo", text, sizeof text)) {
        bool no_file_left = errno == EMFILE;
        enum status status = status_set(STATUS_FAILED, "/proc/meminfo: cannot read: %s", strerror(errno));
        return status_hint(status,
                           no_file_left ? "raise the limit of open files (ulimit -n)" : "give --device-memory SIZE");
    }
    if (!read_kilobytes(text, "MemTotal:", &memory.total_bytes) ||
        !read_kilobytes(text, "MemAvailable:", &memory.available_bytes)) {
        enum status status = status_set(STATUS_FAILED, "/proc/meminfo: MemTotal or MemAvailable is missing");
        return status_hint(status, "give --device-memory SIZE");
    }
    cgroup_read(root, &limits);
    memory.cgroup_headroom_bytes = limits.memory_headroom_bytes;
    int64_t buffer = cluster_memory_headroom(&memory);
    memory.reserve_bytes = (int64_t)((double)buffer * CLUSTER_RESERVE_FRACTION);
    memory.capacity_bytes = buffer - memory.process_bytes - memory.reserve_bytes;
    if (memory.capacity_bytes < 0) memory.capacity_bytes = 0;
    *out = memory;
    return STATUS_OK;
}

void cluster_find_memory(struct cluster_memory *out) {
    *out = (struct cluster_memory){0};
    if (cluster_measure_memory(out) != STATUS_OK) status_clear();
}

enum status cluster_measure_memory(struct cluster_memory *out) { return cluster_measure_memory_at("", out); }
