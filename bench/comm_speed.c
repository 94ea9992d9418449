/* Measures communication between ranks: latency and bandwidth of each operation by size, through shared segments and
 * through messages, hierarchical and flat. Compares them with a plain memory copy of the same bytes in the same run.
 *
 *     comm_speed [--ranks N] [--mpi openmpi|mpich] [--nodes N] [--times N]      starts its ranks itself
 *     mpirun -n N comm_speed                                                    runs as the ranks of this mpirun
 *
 * BALLAST_PLUGINS names the directory of the plugins, unless they are next to the program. Each line is the median over
 * operations of the slowest rank's time, from comm_start to the end of comm_wait, on data that was just written. GB/s
 * count the bytes that the operation works on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/comm.h"
#include "comm/launch.h"
#include "comm/mpi_comm.h"
#include "machine/links.h"
#include "support/median.h"

static const char *const kind_names[] = {"all-gather", "reduce-scatter", "all-reduce", "broadcast", "all-to-all"};
enum { BYTES_MAX = 64 << 20, TIMES_MAX = 1000 };

struct options {
    int ranks, nodes, times;
    const char *mpi;
};

static bool read_options(int count, char **arguments, struct options *out) {
    *out = (struct options){.ranks = 2, .times = 30};
    for (int i = 1; i < count; i += 2) {
        int *number = strcmp(arguments[i], "--ranks") == 0   ? &out->ranks
                      : strcmp(arguments[i], "--nodes") == 0 ? &out->nodes
                      : strcmp(arguments[i], "--times") == 0 ? &out->times
                                                             : NULL;
        if (i + 1 == count) return false;
        if (number)
            *number = atoi(arguments[i + 1]);
        else if (strcmp(arguments[i], "--mpi") == 0)
            out->mpi = arguments[i + 1];
        else
            return false;
    }
    return out->ranks > 0 && out->nodes >= 0 && out->times > 0 && out->times <= TIMES_MAX;
}

/* Replaces times by those of the slowest rank. */
static enum status slowest(struct comm *comm, double *times, int count) {
    struct comm_group all = comm_group_all(comm);
    double *theirs = mem_array((size_t)(all.count * count), sizeof *theirs);
    if (!theirs) return STATUS_FAILED;
    enum status status = comm_all_gather(comm, &all, times, (size_t)count * sizeof *times, theirs);
    for (int i = 0; i < count; i++)
        for (int rank = 0; rank < all.count; rank++)
            if (theirs[rank * count + i] > times[i]) times[i] = theirs[rank * count + i];
    mem_free(theirs);
    return status;
}

static double time_copy(void *to, const void *from, int64_t bytes, int count) {
    double times[TIMES_MAX];
    for (int i = 0; i < count; i++) {
        int64_t begin = clock_now_ns();
        memcpy(to, from, (size_t)bytes);
        __asm__ volatile("" : : "r"(to) : "memory");
        times[i] = (double)(clock_now_ns() - begin) * 1e-9;
    }
    return median(times, count);
}

/* A rank has just written the data that it sends, as in a step, so that they are in the core's cache. Then all ranks
 * begin. */
static enum status write_anew(struct comm *comm, const struct comm_spec *spec) {
    enum { RANKS_MAX = 1024 };
    char ready = 0, all_ready[RANKS_MAX];
    struct comm_group all = comm_group_all(comm);
    if (all.count > RANKS_MAX) return status_set(STATUS_BAD_INPUT, "more than %d ranks", RANKS_MAX);
    memset(spec->data, 1, (size_t)spec->bytes);
    return comm_all_gather(comm, &all, &ready, 1, all_ready);
}

static enum status time_operation(struct comm *comm, const struct comm_spec *spec, int count, double *out) {
    struct comm_operation *operation;
    double times[TIMES_MAX];
    TRY(comm_create(comm, spec, &operation));
    enum status status = STATUS_OK;
    for (int i = -2; i < count && status == STATUS_OK; i++) { /* two warm-up runs */
        status = write_anew(comm, spec);
        if (status != STATUS_OK) break;
        int64_t begin = clock_now_ns();
        comm_start(operation);
        status = comm_wait(operation);
        if (i >= 0) times[i] = (double)(clock_now_ns() - begin) * 1e-9;
    }
    comm_free(operation);
    if (status == STATUS_OK) status = slowest(comm, times, count);
    *out = status == STATUS_OK ? median(times, count) : 0;
    return status;
}

struct bench {
    struct comm *comm;
    struct comm_shared_segment data, out;
    void *staging;
    int times;
};

static enum status bench_size(const struct bench *bench, enum comm_kind kind, int64_t bytes, bool in_place, bool flat) {
    struct comm_spec spec = {.kind = kind,
                             .group = comm_group_all(bench->comm),
                             .data = bench->data.base,
                             .out = bench->out.base,
                             .bytes = bytes,
                             .staging = bench->staging,
                             .in_place = in_place,
                             .flat = flat};
    int count = bytes >= 1 << 22 && bench->times > 10 ? 10 : bench->times;
    double seconds;
    TRY(time_operation(bench->comm, &spec, count, &seconds));
    double copy = time_copy(bench->out.base, bench->data.base, bytes, count);
    TRY(slowest(bench->comm, &copy, 1));
    if (bench->comm->rank == 0)
        printf("%-15s %-9s%-5s %9lld B %10.1f us %8.2f GB/s   copy %10.1f us   %6.2f copies\n", kind_names[kind],
               in_place ? "in place" : "messages", flat ? "flat" : "", (long long)bytes, seconds * 1e6,
               (double)bytes / seconds * 1e-9, copy * 1e6, seconds / copy);
    return STATUS_OK;
}

static enum status bench_sizes(const struct bench *bench, enum comm_kind kind, bool in_place, bool flat) {
    struct comm_group all = comm_group_all(bench->comm);
    bool another = kind <= COMM_ALL_REDUCE && links_flat_differs(&bench->comm->mesh, &all, in_place);
    for (int64_t bytes = 1 << 10; bytes <= BYTES_MAX && (another || !flat); bytes *= 16)
        TRY(bench_size(bench, kind, bytes / (64 * all.count) * 64 * all.count, in_place, flat));
    return STATUS_OK;
}

static enum status bench_all(struct bench *bench) {
    struct comm *comm = bench->comm;
    TRY(comm_shared_segment_open(comm, BYTES_MAX, &bench->data));
    TRY(comm_shared_segment_open(comm, BYTES_MAX, &bench->out));
    bench->staging = mem_aligned(64, BYTES_MAX);
    if (!bench->staging) return STATUS_FAILED;
    if (comm->rank == 0) printf("%s, %d nodes of %d ranks\n", comm->library, comm->mesh.nodes, comm->mesh.per_node);
    for (int kind = 0; kind < COMM_KINDS; kind++)
        for (int in_place = bench->data.shared; in_place >= 0; in_place--)
            for (int flat = 0; flat < 2; flat++)
                TRY(bench_sizes(bench, (enum comm_kind)kind, in_place, flat));
    mem_free(bench->staging);
    comm_shared_segment_close(comm, &bench->out);
    comm_shared_segment_close(comm, &bench->data);
    return STATUS_OK;
}

static enum status be_a_rank(const struct options *options) {
    struct bench bench = {.times = options->times};
    enum status status = launch_join();
    if (status == STATUS_OK) status = comm_open(&(struct comm_settings){.nodes = options->nodes}, &bench.comm);
    if (status == STATUS_OK) status = bench_all(&bench);
    if (status == STATUS_OK) status = comm_close(bench.comm);
    if (status == STATUS_OK || comm_speaks(bench.comm)) launch_report(status);
    if (status == STATUS_OK) return STATUS_OK;
    if (!launch_joined()) fprintf(stderr, "comm_speed: %s\n", status_message());
    comm_abort(bench.comm, (int)status);
}

int main(int count, char **arguments) {
    struct options options;
    if (!read_options(count, arguments, &options)) {
        fprintf(stderr, "comm_speed: see the first comment of bench/comm_speed.c\n");
        return STATUS_BAD_INPUT;
    }
    bool is_rank = getenv("BALLAST_LAUNCH") || strcmp(mpi_library_launched_by(), "self") != 0;
    enum status status =
        is_rank ? be_a_rank(&options) : launch_ranks(&(struct launch_settings){options.ranks, options.mpi, arguments});
    if (status != STATUS_OK) fprintf(stderr, "comm_speed: %s\nhint: %s\n", status_message(), status_hint_text());
    return (int)status;
}
