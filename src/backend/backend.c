/* The backends of this build: which one computes, its kernels, and the versions that these have had. */
#include "backend/backend.h"

const struct backend *const backends[] = {&backend_cuda, &backend_cpu};
const int backend_count = sizeof backends / sizeof *backends;

enum { DEVICES_MAX = 1024 };

/* "NAME" or, where it has several devices, "NAME:N". False for anything else. */
static bool names(const char *device, const struct backend *backend, int *number) {
    size_t length = strlen(backend->name);
    *number = 0;
    if (strncmp(device, backend->name, length) != 0) return false;
    device += length;
    if (device[0] == '\0') return true;
    if (!backend->select || device[0] != ':' || device[1] < '0' || device[1] > '9') return false;
    char *end;
    long value = strtol(device + 1, &end, 10);
    *number = (int)value;
    return *end == '\0' && value < DEVICES_MAX;
}

static enum status use(const struct backend *backend, int number) {
    if (backend->select) TRY(backend->select(number));
    return backend->check();
}

/* If all fail, the message is the last backend's, which every machine should have. */
static enum status find_default(const struct backend **out) {
    enum status status = STATUS_FAILED;
    for (int i = 0; i < backend_count && status != STATUS_OK; i++) {
        status_clear();
        *out = backends[i];
        status = use(backends[i], 0);
    }
    return status;
}

/* BAD_INPUT "device: 'x' is not cuda, cuda:N or cpu" */
static enum status unknown(const char *device) {
    char known[256] = "";
    size_t used = 0;
    for (int i = 0; i < backend_count; i++) {
        const char *between = i == 0 ? "" : i + 1 < backend_count ? ", " : " or ", *name = backends[i]->name;
        int added = snprintf(known + used, sizeof known - used, backends[i]->select ? "%s%s, %s:N" : "%s%s", between,
                             name, name);
        if (added < 0 || (size_t)added >= sizeof known - used) break;
        used += (size_t)added;
    }
    return status_set(STATUS_BAD_INPUT, "device: '%s' is not %s" HINT "give %s", device, known, known);
}

enum status backend_find(const char *device, const struct backend **out) {
    if (!device) return find_default(out);
    for (int i = 0; i < backend_count; i++) {
        int number;
        if (!names(device, backends[i], &number)) continue;
        enum status status = use(backends[i], number);
        if (status != STATUS_OK) return status_prefix(status, "device: %s", device);
        *out = backends[i];
        return STATUS_OK;
    }
    return unknown(device);
}

bool backend_runs_isa(const struct backend *backend, const char *planned) {
    const char *here = backend->isa(), *libraries = backend->isa_libraries;
    size_t length = strlen(planned);
    if (strncmp(here, planned, length) != 0) return false;
    return here[length] == '\0' || (libraries && strncmp(here + length, libraries, strlen(libraries)) == 0);
}

const struct backend *backend_of_isa(const char *isa) {
    for (int i = 0; i < backend_count; i++)
        if (strncmp(isa, backends[i]->isa_prefix, strlen(backends[i]->isa_prefix)) == 0) return backends[i];
    return backends[backend_count - 1];
}

bool backend_has_kernel(const struct backend *backend, const struct op *op) { return backend->maker(op) != NULL; }

static enum status refuse_operator(const struct backend *backend, const struct node *node) {
    char others[256] = "";
    size_t used = 0;
    for (int i = 0; i < backend_count && used < sizeof others; i++)
        if (backend_has_kernel(backends[i], node->op))
            used += (size_t)snprintf(others + used, sizeof others - used, "%s--device %s", used ? " or " : "",
                                     backends[i]->name);
    enum status status = status_set(STATUS_BAD_INPUT, "%s: the %s backend has no kernel for the operator %s",
                                    node->name, backend->name, node->op->name);
    if (used > 0) return status_hint(status, "%s has one", others);
    return status_hint(status, "no backend of this build has one: see \"How to add an operator\" in CONTRIBUTING.md");
}

enum status backend_kernel_create(const struct backend *backend, const struct node *node, struct kernel **out) {
    kernel_maker *create = backend->maker(node->op);
    if (!create) return refuse_operator(backend, node);
    if (backend->prepare) TRY(backend->prepare());
    enum status status = create(node, out);
    return status == STATUS_OK ? status : status_prefix(status, "%s (%s)", node->name, node->op->name);
}

const struct kernel_version kernel_versions[] = {
    {"cpu", 1, "commit e3c9e29f (2026-11-21)", false},
    {"cpu", 2, "commit 7a615c7d (2026-11-22)", false},
    {"cpu", 3, "commit 582cd37f (2026-11-22)", false},
    {"cpu", 4, "commit 148f4eab (2026-11-23)", false},
    {"cpu", 5, "commit a958cb3b (2026-11-23)", false},
    {"cpu", 6, "commit faec2cfa (2026-11-24)", false},
    {"cpu", 7, "commit fc4a929f (2026-11-24)", false},
    {"cpu", 8, "commit a24fee9d (2026-11-24)", false},
    {"cpu", 9, "Ballast 0.1.0 (commit b4892385)", false},
    {"cpu", 10, NULL, true},
    {"cuda", 2, "commit 8d591d47 (2026-11-22)", false},
    {"cuda", 3, "commit 582cd37f (2026-11-22)", false},
    {"cuda", 4, "Ballast 0.1.0 (commit b4892385)", false},
    {"cuda", 5, "commit 8ae317fa (2026-11-27)", false},
    {"cuda", 6, NULL, true},
};
const int kernel_version_count = sizeof kernel_versions / sizeof *kernel_versions;

static const struct kernel_version unknown_version = {0};

static const struct kernel_version *find_version(const char *backend, int version) {
    for (int i = 0; i < kernel_version_count; i++)
        if (kernel_versions[i].version == version && strcmp(kernel_versions[i].backend, backend) == 0)
            return &kernel_versions[i];
    return &unknown_version;
}

const char *kernel_version_last(const char *backend, int version) { return find_version(backend, version)->last; }

bool kernel_versions_alike(const char *backend, int from, int to) {
    bool alike = from <= to;
    for (int version = from + 1; alike && version <= to; version++)
        alike = find_version(backend, version)->only_balance;
    return alike;
}
