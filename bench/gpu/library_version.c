/* Prints the version of each cuBLASLt library that an argument names, with its path: "130101
 * /usr/lib/libcublasLt.so.13". Skips files that cannot be opened.
 *
 *     build/bench/library_version FILE... */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **files) {
    for (int i = 1; i < count; i++) {
        void *library = dlopen(files[i], RTLD_LAZY | RTLD_LOCAL);
        size_t (*version)(void) = NULL;
        if (library) *(void **)&version = dlsym(library, "cublasLtGetVersion");
        if (version) printf("%zu %s\n", version(), files[i]);
    }
    return 0;
}
