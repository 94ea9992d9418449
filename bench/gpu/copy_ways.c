/* Measures copies between host memory and the GPU, and from a file to the GPU, in one process. Host memory is pageable,
 * registered or pinned. Files are read directly into pinned memory, and through a pageable buffer.
 *
 *     build/bench/copy_ways [DIR]        DIR holds the file; default: the working directory
 *
 * Copies 256 MiB, and takes the median of five copies. Exits with 77 without a GPU. */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/kernel.h"
#include "base/clock.h"
#include "gpu/gpu_clock.h"
#include "support/median.h"

enum { ROUNDS = 5, PAGE = 4096 };
static const size_t BYTES = (size_t)256 << 20, READ_BYTES = (size_t)8 << 20;
static const char *folder = ".";

enum memory { PAGEABLE, REGISTERED, PINNED, MEMORIES };
static const char *const memory_names[MEMORIES] = {"pageable", "registered", "pinned"};

struct bench {
    void *host[MEMORIES], *device;
    cudaStream_t stream;
    double in[MEMORIES], out[MEMORIES]; /* bytes/s */
    double file[MEMORIES];              /* from a file to the GPU, through this memory; 0: not available */
};

static enum status open_bench(struct bench *bench) {
    TRY(cuda_status(cudaMalloc(&bench->device, BYTES), "memory"));
    for (int i = PAGEABLE; i <= REGISTERED; i++)
        if (posix_memalign(&bench->host[i], PAGE, BYTES) != 0) return status_no_memory(BYTES, "a buffer");
    int64_t begun = clock_now_ns();
    TRY(cuda_status(cudaHostRegister(bench->host[REGISTERED], BYTES, cudaHostRegisterDefault), "cudaHostRegister"));
    printf("registering takes %.1f ms, ", (double)(clock_now_ns() - begun) * 1e-6);
    begun = clock_now_ns();
    TRY(cuda_status(cudaHostAlloc(&bench->host[PINNED], BYTES, cudaHostAllocPortable), "cudaHostAlloc"));
    printf("pinning %.1f ms\n", (double)(clock_now_ns() - begun) * 1e-6);
    for (int i = 0; i < MEMORIES; i++)
        memset(bench->host[i], i + 1, BYTES);
    return cuda_status(cudaStreamCreateWithFlags(&bench->stream, cudaStreamNonBlocking), "a stream");
}

static void close_bench(struct bench *bench) {
    if (bench->host[REGISTERED]) (void)cudaHostUnregister(bench->host[REGISTERED]);
    free(bench->host[PAGEABLE]);
    free(bench->host[REGISTERED]);
    (void)cudaFreeHost(bench->host[PINNED]);
    (void)cudaFree(bench->device);
    if (bench->stream) (void)cudaStreamDestroy(bench->stream);
}

static enum status copy(const struct bench *bench, void *to, const void *from, double *rate) {
    double seconds[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        int64_t begun = clock_now_ns();
        TRY(cuda_status(cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDefault, bench->stream), "a copy"));
        TRY(cuda_status(cudaStreamSynchronize(bench->stream), "a copy"));
        seconds[i] = (double)(clock_now_ns() - begun) * 1e-9;
    }
    *rate = (double)BYTES / median(seconds, ROUNDS);
    return STATUS_OK;
}

static enum status failed_file(const char *what) {
    return status_set(STATUS_FAILED, "%s: %s: %s", folder, what, strerror(errno));
}

static enum status open_file(const void *data, int *out) {
    char path[4096];
    snprintf(path, sizeof path, "%s/copy_ways.tmp", folder);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) return failed_file("a file");
    for (size_t at = 0; at < BYTES;) {
        ssize_t written = write(file, (const char *)data + at, BYTES - at);
        if (written <= 0) return close(file), failed_file("writing");
        at += (size_t)written;
    }
    bool synced = fsync(file) == 0;
    close(file);
    *out = synced ? open(path, O_RDONLY | O_DIRECT | O_CLOEXEC) : -1;
    unlink(path);
    return *out >= 0 ? STATUS_OK : failed_file("reading past the page cache");
}

/* Reads the file in pieces, and copies each piece while it reads the next. */
static enum status read_through(const struct bench *bench, int file, enum memory memory, double *rate) {
    int64_t begun = clock_now_ns();
    for (size_t at = 0; at < BYTES; at += READ_BYTES) {
        char *piece = (char *)bench->host[memory] + at;
        if (pread(file, piece, READ_BYTES, (off_t)at) != (ssize_t)READ_BYTES) return failed_file("reading");
        TRY(cuda_status(
            cudaMemcpyAsync((char *)bench->device + at, piece, READ_BYTES, cudaMemcpyHostToDevice, bench->stream),
            "a copy"));
    }
    TRY(cuda_status(cudaStreamSynchronize(bench->stream), "a copy"));
    *rate = (double)BYTES / ((double)(clock_now_ns() - begun) * 1e-9);
    return STATUS_OK;
}

static enum status read_all(struct bench *bench) {
    int file;
    TRY(open_file(bench->host[PAGEABLE], &file));
    enum status status = STATUS_OK;
    for (enum memory memory = 0; memory < MEMORIES && status == STATUS_OK; memory++)
        status = read_through(bench, file, memory, &bench->file[memory]);
    close(file);
    return status;
}

static enum status measure_all(struct bench *bench) {
    for (int i = 0; i < MEMORIES; i++) {
        TRY(copy(bench, bench->device, bench->host[i], &bench->in[i]));
        TRY(copy(bench, bench->host[i], bench->device, &bench->out[i]));
        printf("%-10s in %6.1f GB/s, out %6.1f GB/s\n", memory_names[i], bench->in[i] * 1e-9, bench->out[i] * 1e-9);
    }
    if (read_all(bench) != STATUS_OK) {
        printf("no file: %s\n", status_message());
        status_clear();
    }
    printf("= GB/s in and out:");
    for (int i = 0; i < MEMORIES; i++)
        printf(" %s %.1f %.1f%s", memory_names[i], bench->in[i] * 1e-9, bench->out[i] * 1e-9, i < PINNED ? "," : ";");
    printf(" a file by O_DIRECT through");
    for (int i = 0; i < MEMORIES; i++)
        printf(" %s %.2f%s", memory_names[i], bench->file[i] * 1e-9, i < PINNED ? "," : "\n");
    return STATUS_OK;
}

static enum status measure(const struct gpu_clock *clock) {
    struct bench bench = {0};
    (void)clock;
    enum status status = open_bench(&bench);
    if (status == STATUS_OK) status = measure_all(&bench);
    close_bench(&bench);
    return status;
}

int main(int argc, char **argv) {
    if (argc > 1) folder = argv[1];
    return gpu_clock_main("copy_ways", measure);
}
