#include "machine/cgroup.h"

#include <limits.h>

#include "machine/kernel_file.h"

enum { TEXT_BYTES = 1 << 16 };
/* v1 writes "no limit" as the largest multiple of a page that fits 63 bits. */
static const int64_t NO_LIMIT = (int64_t)1 << 60;

/* Where a cgroup hierarchy is mounted, and which of its directories that is ("/" unless in a container). */
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
