#include "session/machine.h"

#include "machine/cluster_preset.h"
#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/file.h"
#include "base/size.h"
#include "session/rank_devices.h"

enum status machine_measure_disk(const char *folder, int64_t *bytes) {
    struct statvfs found;
    int error = statvfs(folder, &found) != 0 ? errno : file_is_folder(folder) ? 0 : ENOTDIR;
    if (error) {
        enum status status = status_set(STATUS_BAD_INPUT, "disk: %s: %s", folder, strerror(error));
        return status_hint(status, "--disk takes a directory that exists: DIR or DIR:SIZE");
    }
    *bytes = (int64_t)((1 - CLUSTER_RESERVE_FRACTION) * (double)found.f_bavail * (double)found.f_frsize);
    return STATUS_OK;
}

static enum status find_disk(const struct memory_options *limits, int64_t *capacity_bytes) {
    int64_t free_bytes = 0;
    if (SETTINGS_HAVE(limits, disk_bytes) && !SETTINGS_HAVE(limits, disk_folder))
        return status_set(STATUS_BAD_INPUT, "disk: names no directory before its size");
    if (SETTINGS_HAVE(limits, disk_folder)) TRY(machine_measure_disk(limits->disk_folder, &free_bytes));
    *capacity_bytes = SETTINGS_HAVE(limits, disk_bytes) ? limits->disk_bytes : free_bytes;
    return STATUS_OK;
}

static enum status find_memory(const struct backend *backend, const struct memory_options *limits,
                               int64_t capacity_bytes[TIER_COUNT]) {
    const bool one = !backend->memory; /* both tiers are memory of the process */
    const bool device_given = SETTINGS_HAVE(limits, device_bytes), host_given = SETTINGS_HAVE(limits, host_bytes);
    int64_t there[TIER_COUNT] = {[TIER_DEVICE] = limits->device_bytes, [TIER_HOST] = limits->host_bytes};
    if (!device_given || (!one && !host_given)) TRY(backend->capacity(there));
    capacity_bytes[TIER_DEVICE] = device_given ? limits->device_bytes : there[TIER_DEVICE];
    capacity_bytes[TIER_HOST] = one || host_given ? limits->host_bytes : there[TIER_HOST];
    /* Without a size of its own the device leaves space for the host in the same memory. */
    if (one && !device_given) capacity_bytes[TIER_DEVICE] -= limits->host_bytes;
    if (capacity_bytes[TIER_DEVICE] >= 0) return STATUS_OK;
    char text[SIZE_TEXT];
    return status_set(STATUS_BAD_INPUT, "host-memory: leaves nothing for the device tier of the %s that there are",
                      size_print(there[TIER_DEVICE], text));
}

enum status machine_measure_memory(struct machine *machine) {
    return find_memory(machine->backend, &machine->limits, machine->capacity_bytes);
}

/* Of the process's own part (CLUSTER_PROCESS_BYTES) all counts as taken by now: what it does not take yet is not there
 * for arenas either. */
enum status machine_follow_memory(const struct machine *machine, int64_t open_bytes, int64_t *device_bytes) {
    const struct memory_options *limits = &machine->limits;
    struct cluster_memory memory;
    *device_bytes = machine->capacity_bytes[TIER_DEVICE];
    if (machine->backend->memory) return STATUS_OK;
    if (SETTINGS_HAVE(limits, device_bytes)) *device_bytes = limits->device_bytes;
    if (SETTINGS_HAVE(limits, device_bytes)) return STATUS_OK;
    TRY(cluster_measure_memory(&memory));
    int64_t sharers = machine->sharers > 0 ? machine->sharers : 1;
    int64_t buffer = cluster_memory_headroom(&memory) / sharers + open_bytes + memory.process_bytes;
    *device_bytes =
        (int64_t)((1 - CLUSTER_RESERVE_FRACTION) * (double)buffer) - memory.process_bytes - limits->host_bytes;
    if (*device_bytes < 0) *device_bytes = 0;
    return STATUS_OK;
}

enum status machine_open(const struct plan_options *options, const struct recipe *decided, struct machine *out) {
    struct machine machine = {.backend = plan_options_backend(options, decided), .limits = options->memory};
    /* A run or a plan names the kind of device, and no option the device. */
    if (!SETTINGS_HAVE(options, backend)) (void)rank_devices_select(options->comm, machine.backend);
    TRY(machine.backend->check());
    machine.has_cluster = SETTINGS_HAVE(options, cluster_path);
    if (machine.has_cluster) TRY(cluster_open(options->cluster_path, &machine.cluster));
    TRY(machine_measure_memory(&machine));
    TRY(find_disk(&machine.limits, &machine.capacity_bytes[TIER_DISK]));
    *out = machine;
    return STATUS_OK;
}
