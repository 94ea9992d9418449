#include "backend/cuda/opened_library.h"

#include <dlfcn.h>
#include <stdio.h>

enum { PATH_BYTES = 1024 };

static void *open_library(const struct opened_library *library) {
    char path[PATH_BYTES];
    void *handle = dlopen(library->name, RTLD_NOW | RTLD_LOCAL);
    snprintf(path, sizeof path, "%s/%s", library->folder, library->name);
    return handle ? handle : dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

void *opened_library_find(struct opened_library *library, const char *function) {
    pthread_mutex_lock(&library->lock);
    if (!library->tried) library->handle = open_library(library);
    library->tried = true;
    void *handle = library->handle;
    pthread_mutex_unlock(&library->lock);
    return handle ? dlsym(handle, function) : NULL;
}
