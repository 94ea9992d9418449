#include "backend/kernel_versions.h"

#include <stddef.h>
#include <string.h>

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

const char *kernel_version_last(const char *backend, int version) {
    for (int i = 0; i < kernel_version_count; i++)
        if (kernel_versions[i].version == version && strcmp(kernel_versions[i].backend, backend) == 0)
            return kernel_versions[i].last;
    return NULL;
}

static bool changed_only_balance(const char *backend, int version) {
    for (int i = 0; i < kernel_version_count; i++)
        if (kernel_versions[i].version == version && strcmp(kernel_versions[i].backend, backend) == 0)
            return kernel_versions[i].only_balance;
    return false;
}

bool kernel_versions_alike(const char *backend, int from, int to) {
    bool alike = from <= to;
    for (int version = from + 1; alike && version <= to; version++)
        alike = changed_only_balance(backend, version);
    return alike;
}
