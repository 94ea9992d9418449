#include "comm/mpi_library.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/size.h"

static const struct {
    const char *name, *package;
    const char *variables[4]; /* one of them: it launched this process */
} libraries[] = {
    {"openmpi", "libopenmpi3", {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK"}},
    {"mpich", "libmpich12", {"PMI_RANK", "PMI_FD", "PMI_SIZE"}},
};
enum { LIBRARIES = sizeof libraries / sizeof *libraries };

const char *mpi_library_launched_by(void) {
    for (int i = 0; i < LIBRARIES; i++)
        for (int v = 0; v < 4 && libraries[i].variables[v]; v++)
            if (getenv(libraries[i].variables[v])) return libraries[i].name;
    return "self";
}

const char *mpi_library_chosen(void) {
    const char *name = getenv("BALLAST_MPI");
    return name && *name ? name : mpi_library_launched_by();
}

int mpi_library_launched_rank(void) {
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    for (int i = 0; i < 3; i++)
        if (getenv(variables[i])) return atoi(getenv(variables[i]));
    return -1;
}

/* `folder` (and `below` it) has the plugin? Its path then. */
static char *plugin_in(const char *folder, const char *below, const char *name) {
    char *path = mem_format("%s%s/ballast-mpi-%s.so", folder, below, name);
    if (path && access(path, F_OK) == 0) return path;
    mem_free(path);
    return NULL;
}

/* Next to a program or library, or where one that is installed has it. */
static char *plugin_near(const char *object, const char *name) {
    char copy[PATH_MAX];
    if (strlen(object) >= sizeof copy) return NULL;
    const char *folder = dirname(strcpy(copy, object));
    char *path = plugin_in(folder, "", name);
    if (!path) path = plugin_in(folder, "/ballast", name);
    return path ? path : plugin_in(folder, "/../lib/ballast", name);
}

char *mpi_library_path(const char *name) {
    const char *given = getenv("BALLAST_PLUGINS");
    if (given) return plugin_in(given, "", name);
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    char *path = length > 0 ? plugin_near(program, name) : NULL;
    Dl_info own; /* libballast.so, in a program of somebody else's */
    if (!path && dladdr((const void *)libraries, &own) != 0 && own.dli_fname) path = plugin_near(own.dli_fname, name);
    return path;
}

static const char *package_of(const char *name) {
    for (int i = 0; i < LIBRARIES; i++)
        if (strcmp(libraries[i].name, name) == 0) return libraries[i].package;
    return NULL;
}

static enum status refuse(const char *name, const char *path, const char *why) {
    const char *package = package_of(name);
    enum status status = status_set(STATUS_BAD_INPUT, "%s: %s", path, why);
    if (!package) return status;
    return status_hint(status, "on Debian: apt-get install %s; BALLAST_MPI=self starts without MPI", package);
}

/* UCX, below MPICH, takes SIGHUP for itself, to begin its debugging output. */
static void keep_signals(void) { (void)setenv("UCX_DEBUG_SIGNO", "0", 0); }

static enum status open_plugin(const char *name, const char *path, const struct wire **out) {
    keep_signals();
    void *plugin = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!plugin) return refuse(name, path, dlerror());
    wire_plugin_function *function;
    *(void **)&function = dlsym(plugin, WIRE_PLUGIN_SYMBOL);
    const struct wire *wire = function ? function() : NULL;
    if (!wire || wire->version != WIRE_VERSION) {
        dlclose(plugin);
        return status_set(STATUS_BAD_INPUT, "%s: not an MPI plugin of this version of ballast", path);
    }
    *out = wire;
    return STATUS_OK;
}

/* Shared memory is a file of some MiB for each rank, and of more for many. UCX, below MPICH, has it in /dev/shm. */
void mpi_library_explain_start(char *hint, size_t bytes) {
    static const int64_t enough = (int64_t)64 << 20;
    bool mpich = strcmp(mpi_library_chosen(), "mpich") == 0;
    struct statvfs shared;
    struct rlimit file;
    char size[SIZE_TEXT];
    hint[0] = '\0';
    if (getrlimit(RLIMIT_FSIZE, &file) == 0 && file.rlim_cur < (rlim_t)enough)
        snprintf(hint, bytes, "ulimit -f limits files to %s, and MPI's shared memory may need more; raise it",
                 size_print((int64_t)file.rlim_cur, size));
    else if (mpich && statvfs("/dev/shm", &shared) == 0 && shared.f_bavail * shared.f_frsize < (uint64_t)enough)
        snprintf(hint, bytes,
                 "/dev/shm has %s left, and MPICH may need more: enlarge it (docker run --shm-size=1g), or set "
                 "UCX_TLS=^posix",
                 size_print((int64_t)(shared.f_bavail * shared.f_frsize), size));
}

enum status mpi_library_find(const char *engine, struct mpi_library *out) {
    const char *name = engine ? engine : mpi_library_chosen();
    *out = (struct mpi_library){0};
    if (strcmp(name, "self") == 0) return STATUS_OK;
    if (strchr(name, '/')) return open_plugin(name, name, &out->wire);
    if (!package_of(name))
        return status_hint(status_set(STATUS_BAD_INPUT, "BALLAST_MPI '%s' is no MPI that ballast knows", name),
                           "self, openmpi, mpich, or the path of a plugin");
    char *path = mpi_library_path(name);
    if (!path)
        return status_hint(
            status_set(STATUS_BAD_INPUT,
                       "there is no plugin ballast-mpi-%s.so for the MPI that launched this "
                       "process",
                       name),
            "it is built where %s is installed (on Debian: lib%s-dev); BALLAST_PLUGINS names its directory", name,
            name);
    enum status status = open_plugin(name, path, &out->wire);
    mem_free(path);
    return status;
}
