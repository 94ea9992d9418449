#include "comm/nccl_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

#define SONAME "libnccl.so.2"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nccl_library library; /* version 0: not open */

static enum status hint_at_package(enum status status) {
    return status_hint(status,
                       "install NVIDIA's package libnccl2, or `pip install nvidia-nccl-cu12` and name its %s by "
                       "BALLAST_NCCL; or --gpu-collectives host",
                       SONAME);
}

enum status nccl_status(const struct nccl_library *from, ncclResult_t result, const char *function) {
    if (result == ncclSuccess || result == ncclInProgress) return STATUS_OK;
    enum status status = status_set(STATUS_FAILED, "%s: %s", function, from->GetErrorString(result));
    return status_hint(status, "NCCL_DEBUG=WARN in the environment has NCCL say more; --gpu-collectives host does "
                               "without it");
}

/* POSIX has functions' addresses in objects' pointers. */
static enum status find_functions(void *object, const char *path, struct nccl_library *out) {
    void *found;
#define FIND(name, result, parameters)                                                                                 \
    found = dlsym(object, "nccl" #name);                                                                               \
    if (!found) return status_set(STATUS_BAD_INPUT, "%s: has no nccl" #name, path);                                    \
    memcpy(&out->name, &found, sizeof found);
    NCCL_FUNCTION_LIST(FIND)
#undef FIND
    return STATUS_OK;
}

static enum status check_version(const char *path, struct nccl_library *out) {
    NCCL_TRY(out, GetVersion, &out->version);
    if (out->version >= NCCL_VERSION_MIN) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: is NCCL of number %d; Ballast needs %d (2.17) or later", path,
                      out->version, NCCL_VERSION_MIN);
}

static enum status open_library(const char *path, struct nccl_library *out) {
    void *object = fault_point(FAULT_OPEN) ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        const char *why = dlerror();
        return status_set(STATUS_BAD_INPUT, "NCCL cannot be opened: %s", why ? why : path);
    }
    enum status status = find_functions(object, path, out);
    if (status == STATUS_OK) status = check_version(path, out);
    if (status != STATUS_OK) dlclose(object);
    return status;
}

enum status nccl_library_open(const struct nccl_library **out) {
    const char *given = getenv("BALLAST_NCCL");
    struct nccl_library found = {.version = 0};
    enum status status = STATUS_OK;
    pthread_mutex_lock(&lock);
    if (library.version == 0) status = open_library(given && *given ? given : SONAME, &found);
    if (library.version == 0 && status == STATUS_OK) library = found;
    pthread_mutex_unlock(&lock);
    if (status == STATUS_BAD_INPUT) return hint_at_package(status);
    TRY(status);
    *out = &library;
    return STATUS_OK;
}

ncclConfig_t nccl_config(void) {
    return (ncclConfig_t){.size = sizeof(ncclConfig_t),
                          .magic = NCCL_CONFIG_MAGIC,
                          .version = NCCL_VERSION_MIN,
                          .blocking = 0,
                          .cgaClusterSize = NCCL_CONFIG_UNDEF_INT,
                          .minCTAs = NCCL_CONFIG_UNDEF_INT,
                          .maxCTAs = NCCL_CONFIG_UNDEF_INT};
}
