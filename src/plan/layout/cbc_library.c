#include "plan/layout/cbc_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

#define SONAME "libCbcSolver.so.3"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cbc_library library; /* no functions: not open */

/* POSIX has functions' addresses in objects' pointers. */
static enum status find_functions(void *object, const char *path, struct cbc_library *out) {
    void *found;
#define FIND(name)                                                                                                     \
    found = dlsym(object, "Cbc_" #name);                                                                               \
    if (!found) return status_set(STATUS_FAILED, "%s: has no Cbc_" #name, path);                                       \
    memcpy(&out->name, &found, sizeof found);
    CBC_FUNCTION_LIST(FIND)
#undef FIND
    return STATUS_OK;
}

static enum status open_library(const char *path, struct cbc_library *out) {
    void *object = fault_point(FAULT_OPEN) ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        const char *why = dlerror();
        return status_set(STATUS_FAILED, "the integer program needs CBC, which cannot be opened: %s", why ? why : path);
    }
    enum status status = find_functions(object, path, out);
    if (status != STATUS_OK) dlclose(object);
    return status;
}

enum status cbc_library_open(const struct cbc_library **out) {
    const char *given = getenv("BALLAST_CBC");
    struct cbc_library found = {.solve = NULL};
    enum status status = STATUS_OK;
    pthread_mutex_lock(&lock);
    if (!library.solve) status = open_library(given && *given ? given : SONAME, &found);
    if (!library.solve && status == STATUS_OK) library = found;
    pthread_mutex_unlock(&lock);
    if (status != STATUS_OK)
        return status_hint(status, "on Debian: apt-get install coinor-libcbc3; or point BALLAST_CBC at %s", SONAME);
    *out = &library;
    return STATUS_OK;
}
