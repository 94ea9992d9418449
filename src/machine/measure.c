#include "machine/cluster.h"

#include <hwloc.h>
#include <limits.h>
#include <math.h>
#include <unistd.h>

/* Reads "root" "path" into `text` with a NUL after it, cut at `bytes` - 1; false when it cannot be read. */
static bool kernel_file_read(const char *root, const char *path, char *text, size_t bytes) {
    char full[PATH_MAX];
    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full) return false;
    FILE *file = fopen(full, "re");
    if (!file) return false;
    text[fread(text, 1, bytes - 1, file)] = '\0';
    bool whole = !ferror(file);
    fclose(file);
    return whole;
}

/* The number after `key` at the start of a line ("MemTotal:  123"); false when there is none. */
static bool kernel_file_number(const char *text, const char *key, int64_t *out) {
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n'), line += line ? 1 : 0) {
        if (strncmp(line, key, length) != 0) continue;
        char *end;
        errno = 0;
        long long value = strtoll(line + length, &end, 10);
        if (end == line + length || errno != 0) return false;
        *out = value;
        return true;
    }
    return false;
}

enum { TEXT_BYTES = 1 << 16 };
/* v1 writes "no limit" as the largest multiple of a page that fits 63 bits. */
static const int64_t NO_LIMIT = (int64_t)1 << 60;

/* The mount point of a cgroup hierarchy, and the directory in it that is mounted ("/" unless in a container). */
struct mount {
    char point[PATH_MAX], root[PATH_MAX];
};

static bool list_holds(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += length)
        if ((at == list || at[-1] == ',') && (at[length] == '\0' || at[length] == ',')) return true;
    return false;
}

/* Lines of mountinfo: id parent device root point options [optional…] - type source super-options. */
static bool read_mount_line(char *line, const char *type, const char *controller, struct mount *out) {
    char *rest = strstr(line, " - "), *save = NULL;
    if (!rest) return false;
    *rest = '\0';
    char *found_type = strtok_r(rest + 3, " ", &save), *source = strtok_r(NULL, " ", &save);
    char *options = source ? strtok_r(NULL, " ", &save) : NULL;
    if (!options || strcmp(found_type, type) != 0 || (controller && !list_holds(options, controller))) return false;
    char *field[5] = {0};
    field[0] = strtok_r(line, " ", &save);
    for (int i = 1; i < 5; i++)
        field[i] = strtok_r(NULL, " ", &save);
    if (!field[4]) return false;
    snprintf(out->root, sizeof out->root, "%s", field[3]);
    snprintf(out->point, sizeof out->point, "%s", field[4]);
    return true;
}

static bool find_mount(const char *root, const char *type, const char *controller, struct mount *out) {
    static _Thread_local char text[TEXT_BYTES];
    if (!kernel_file_read(root, "/proc/self/mountinfo", text, sizeof text)) return false;
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (read_mount_line(line, type, controller, out)) return true;
    return false;
}

/* Lines of /proc/self/cgroup: "4:memory:/path", for v2 "0::/path". `controller` NULL: v2's. */
static bool find_group(const char *root, const char *controller, char path[PATH_MAX]) {
    char text[TEXT_BYTES / 4], *save = NULL;
    if (!kernel_file_read(root, "/proc/self/cgroup", text, sizeof text)) return false;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        controllers++;
        if (controller ? !list_holds(controllers, controller) : controllers[0] != '\0') continue;
        snprintf(path, PATH_MAX, "%s", group);
        return true;
    }
    return false;
}

/* Inside a container the group's path is often given as seen from outside: the mount's root is removed from it. */
static const char *path_within(const struct mount *mount, const char *group) {
    size_t length = strlen(mount->root);
    if (strcmp(mount->root, "/") == 0) return group;
    if (strncmp(group, mount->root, length) == 0 && (group[length] == '/' || group[length] == '\0'))
        return group + length;
    return "";
}

static bool read_group_file(const char *root, const char *folder, const char *name, char *text, size_t bytes) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return false;
    return kernel_file_read(root, path, text, bytes);
}

static bool read_group_number(const char *root, const char *folder, const char *name, int64_t *out) {
    char text[256];
    return read_group_file(root, folder, name, text, sizeof text) && kernel_file_number(text, "", out);
}

static void limit_memory(const char *root, const char *folder, bool v2, struct cgroup_limits *limits) {
    int64_t limit, used, cached = 0, active = 0;
    char stat[TEXT_BYTES / 4];
    if (!read_group_number(root, folder, v2 ? "memory.max" : "memory.limit_in_bytes", &limit)) return;
    if (!read_group_number(root, folder, v2 ? "memory.current" : "memory.usage_in_bytes", &used)) return;
    if (limit >= NO_LIMIT) return;
    if (read_group_file(root, folder, "memory.stat", stat, sizeof stat)) {
        (void)kernel_file_number(stat, v2 ? "inactive_file " : "total_inactive_file ", &cached);
        (void)kernel_file_number(stat, v2 ? "active_file " : "total_active_file ", &active);
    }
    int64_t buffer = limit - (used - cached - active);
    if (buffer > limit) buffer = limit;
    if (buffer < 0) buffer = 0;
    if (limits->memory_headroom_bytes < 0 || buffer < limits->memory_headroom_bytes)
        limits->memory_headroom_bytes = buffer;
}

static void limit_processors(const char *root, const char *folder, bool v2, struct cgroup_limits *limits) {
    char text[256];
    long long quota = -1, period = 0;
    if (v2) {
        if (!read_group_file(root, folder, "cpu.max", text, sizeof text)) return;
        if (sscanf(text, "%lld %lld", &quota, &period) != 2) return;
    } else {
        int64_t value = -1, length = 0;
        if (!read_group_number(root, folder, "cpu.cfs_quota_us", &value)) return;
        if (!read_group_number(root, folder, "cpu.cfs_period_us", &length)) return;
        quota = value, period = length;
    }
    if (quota <= 0 || period <= 0) return;
    double processors = (double)quota / (double)period;
    if (limits->processors <= 0 || processors < limits->processors) limits->processors = processors;
}

/* The limits of all groups above apply too. */
static void walk_up(const char *root, const struct mount *mount, const char *group,
                    void (*limit)(const char *, const char *, bool, struct cgroup_limits *), bool v2,
                    struct cgroup_limits *limits) {
    char folder[2 * PATH_MAX];
    snprintf(folder, sizeof folder, "%s%s", mount->point, path_within(mount, group));
    size_t min = strlen(mount->point);
    for (size_t end = strlen(folder); end >= min && end > 0;) {
        while (end > min && folder[end - 1] == '/')
            end--;
        folder[end] = '\0';
        limit(root, folder, v2, limits);
        if (end <= min) break;
        while (end > min && folder[end - 1] != '/')
            end--;
    }
}

void cgroup_read(const char *root, struct cgroup_limits *out) {
    struct cgroup_limits limits = {.memory_headroom_bytes = -1};
    struct mount mount;
    char group[PATH_MAX];
    if (find_mount(root, "cgroup2", NULL, &mount) && find_group(root, NULL, group)) {
        walk_up(root, &mount, group, limit_memory, true, &limits);
        walk_up(root, &mount, group, limit_processors, true, &limits);
    }
    if (find_mount(root, "cgroup", "memory", &mount) && find_group(root, "memory", group))
        walk_up(root, &mount, group, limit_memory, false, &limits);
    if (find_mount(root, "cgroup", "cpu", &mount) && find_group(root, "cpu", group))
        walk_up(root, &mount, group, limit_processors, false, &limits);
    *out = limits;
}

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
        !read_kilobytes(text, "MemAvailable:", &memory.available_bytes))
        return status_set(STATUS_FAILED,
                          "/proc/meminfo: MemTotal or MemAvailable is missing" HINT "give --device-memory SIZE");
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

/* The operating system's description of this machine: cores, caches, memory. */

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
    struct cluster_memory memory;
    struct cluster_device *device = &out->device;
    *out = (struct cluster){0};
    cluster_find_memory(&memory);
    snprintf(device->kind, sizeof device->kind, "cpu");
    read_processor_name(device->name);
    device->cores = cluster_count_cores(&device->hardware_threads);
    device->page_bytes = sysconf(_SC_PAGESIZE);
    device->bf16_matrix = has_bf16_matrix();
    device->tier_count = 1;
    snprintf(device->tiers[0].name, sizeof device->tiers[0].name, "device");
    device->tiers[0].capacity_bytes = memory.capacity_bytes;
    return STATUS_OK;
}
