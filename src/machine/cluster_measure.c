/* What the operating system says of this machine: cores, caches, memory. */
#include <hwloc.h>
#include <unistd.h>

#include "machine/cgroup.h"
#include "machine/cluster.h"
#include "machine/kernel_file.h"

static void count_bound(hwloc_topology_t topology, hwloc_const_cpuset_t bound, int *cores, int *threads) {
    *threads = hwloc_bitmap_weight(bound);
    *cores = 0;
    int all = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    for (int i = 0; i < all; i++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i);
        if (hwloc_bitmap_intersects(core->cpuset, bound)) (*cores)++;
    }
    /* Some virtual machines report no cores, only processing units. */
    if (*cores == 0) *cores = *threads;
}

/* The topology and the processing units in it that this process may use; false where the system does not tell. The
 * caller closes in any case. */
struct processors {
    hwloc_topology_t topology;
    hwloc_cpuset_t bound;
};

static bool processors_open(struct processors *out) {
    *out = (struct processors){0};
    if (hwloc_topology_init(&out->topology) != 0) {
        out->topology = NULL;
        return false;
    }
    out->bound = hwloc_bitmap_alloc();
    if (!out->bound || hwloc_topology_load(out->topology) != 0) return false;
    hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(out->topology);
    if (hwloc_get_cpubind(out->topology, out->bound, HWLOC_CPUBIND_PROCESS) != 0)
        hwloc_bitmap_copy(out->bound, allowed);
    hwloc_bitmap_and(out->bound, out->bound, allowed);
    return true;
}

static void processors_close(struct processors *processors) {
    hwloc_bitmap_free(processors->bound);
    if (processors->topology) hwloc_topology_destroy(processors->topology);
}

int64_t cluster_cache_bytes(void) {
    static const hwloc_obj_type_t types[] = {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE};
    struct processors processors;
    int64_t bytes = 0;
    if (processors_open(&processors))
        for (size_t t = 0; t < sizeof types / sizeof *types && bytes == 0; t++)
            for (hwloc_obj_t cache = NULL;
                 bytes == 0 && (cache = hwloc_get_next_obj_by_type(processors.topology, types[t], cache));)
                if (hwloc_bitmap_intersects(cache->cpuset, processors.bound)) bytes = (int64_t)cache->attr->cache.size;
    processors_close(&processors);
    return bytes;
}

int cluster_count_cores(int *hardware_threads) {
    int cores = 1, threads = 1;
    struct processors processors;
    if (processors_open(&processors)) count_bound(processors.topology, processors.bound, &cores, &threads);
    processors_close(&processors);
    struct cgroup_limits limits;
    cgroup_read("", &limits);
    if (limits.processors > 0 && limits.processors < cores) cores = (int)limits.processors;
    if (cores < 1) cores = 1;
    if (hardware_threads) *hardware_threads = threads < cores ? cores : threads;
    return cores;
}

static void read_processor_name(char name[CLUSTER_NAME_BYTES]) {
    char text[4096];
    snprintf(name, CLUSTER_NAME_BYTES, "unknown processor");
    if (!kernel_file_read("", "/proc/cpuinfo", text, sizeof text)) return;
    const char *line = strstr(text, "model name");
    const char *colon = line ? strchr(line, ':') : NULL;
    if (!colon) return;
    colon += 1 + strspn(colon + 1, " \t");
    snprintf(name, CLUSTER_NAME_BYTES, "%.*s", (int)strcspn(colon, "\n"), colon);
}

/* The compiler's builtins do not know AMX; the kernel's list of flags does. */
static bool has_bf16_matrix(void) {
    static char text[1 << 14];
    if (!kernel_file_read("", "/proc/cpuinfo", text, sizeof text)) return false;
    const char *flags = strstr(text, "\nflags");
    if (!flags) return false;
    const char *end = strchr(flags + 1, '\n');
    const char *bf16 = strstr(flags, " avx512_bf16"), *amx = strstr(flags, " amx_bf16");
    return (bf16 && (!end || bf16 < end)) || (amx && (!end || amx < end));
}

enum status cluster_measure(struct cluster *out) {
    struct cluster cluster = {0};
    struct cluster_memory memory;
    struct cluster_device *device = &cluster.device;
    cluster_find_memory(&memory);
    snprintf(device->kind, sizeof device->kind, "cpu");
    read_processor_name(device->name);
    device->cores = cluster_count_cores(&device->hardware_threads);
    device->page_bytes = sysconf(_SC_PAGESIZE);
    device->bf16_matrix = has_bf16_matrix();
    device->tier_count = 1;
    snprintf(device->tiers[0].name, sizeof device->tiers[0].name, "device");
    device->tiers[0].capacity_bytes = memory.capacity_bytes;
    *out = cluster;
    return STATUS_OK;
}
