/* Compares loading a model with reading its files.
 *
 *     build/bench/load_speed MODEL [ROUNDS]           loads with each dtype, cold and warm, in turn with plain reads
 *     build/bench/load_speed MODEL DTYPE DIR          writes the model to DIR with weights of that dtype (BF16, F16)
 *
 * "cold" drops the file's pages from the page cache first (posix_fadvise). The plain read works like `cat`: read() into
 * one buffer. bench/loading.sh creates the models and runs this. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/half.h"
#include "base/terminal.h"
#include "session/engine.h"
#include "support/median.h"

enum { ROUNDS_MAX = 9, READ_BYTES = 128 << 10, BLOCK = 4096 };

static enum status cache_drop(const char *path) {
    int file = open(path, O_RDONLY);
    if (file < 0) return status_set(STATUS_FAILED, "%s: cannot open", path);
    (void)fsync(file);
    (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
    return STATUS_OK;
}

static enum status plain_read(const char *path, int64_t *taken_ns) {
    static char buffer[READ_BYTES];
    int64_t start = clock_now_ns();
    int file = open(path, O_RDONLY);
    if (file < 0) return status_set(STATUS_FAILED, "%s: cannot open", path);
    ssize_t got;
    do
        got = read(file, buffer, sizeof buffer);
    while (got > 0);
    close(file);
    *taken_ns = clock_now_ns() - start;
    return got == 0 ? STATUS_OK : status_set(STATUS_FAILED, "%s: cannot read", path);
}

/* Processor time of all threads, which a busy machine disturbs least. */
static int64_t processor_ns(void) {
    struct timespec taken;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &taken);
    return (int64_t)taken.tv_sec * 1000000000 + taken.tv_nsec;
}

static enum status rounds_measure(struct engine *engine, const char *path, bool cold, int rounds, double bytes) {
    int64_t read_ns[ROUNDS_MAX], load_ns[ROUNDS_MAX], read_cpu_ns[ROUNDS_MAX], load_cpu_ns[ROUNDS_MAX];
    for (int i = 0; i < rounds; i++) {
        if (cold) TRY(cache_drop(path));
        int64_t start_cpu = processor_ns();
        TRY(plain_read(path, &read_ns[i]));
        read_cpu_ns[i] = processor_ns() - start_cpu;
        if (cold) TRY(cache_drop(path));
        int64_t start = clock_now_ns();
        start_cpu = processor_ns();
        TRY(engine_load_weights(engine));
        load_ns[i] = clock_now_ns() - start;
        load_cpu_ns[i] = processor_ns() - start_cpu;
    }
    double read_s = median_s(read_ns, rounds), load_s = median_s(load_ns, rounds);
    printf("  %-4s  read %6.3f s (%5.2f GB/s)  load %6.3f s (%5.2f GB/s)  load/read %.2f  processor %.3f, %.3f s\n",
           cold ? "cold" : "warm", read_s, bytes * 1e-9 / read_s, load_s, bytes * 1e-9 / load_s, load_s / read_s,
           median_s(read_cpu_ns, rounds), median_s(load_cpu_ns, rounds));
    fflush(stdout);
    return STATUS_OK;
}

static enum status engine_measure(struct engine *engine, const char *path, enum dtype dtype, int rounds) {
    const struct file_input *input = &engine_model(engine)->weights->inputs.items[0];
    printf("%s, %.2f GB, as %s\n", path, (double)input->bytes * 1e-9, dtype_name(dtype));
    TRY(rounds_measure(engine, path, true, rounds, (double)input->bytes));
    return rounds_measure(engine, path, false, rounds, (double)input->bytes);
}

static enum status dtype_measure(const char *folder, const char *path, enum dtype dtype, int rounds) {
    struct plan_options options;
    plan_options_init(&options);
    SETTINGS_GIVE(&options, dtype, dtype);
    SETTINGS_GIVE(&options, batch, 1);
    struct session session;
    struct session_plan plan;
    struct engine engine;
    int64_t start = clock_now_ns();
    TRY(session_begin(folder, PROGRAMS_TO_EVALUATE, &options, NULL, &session, &plan));
    int64_t compiled = clock_now_ns();
    enum status status = engine_open(&plan, &engine);
    printf("setup %.3f s, arena of %.2f GB %.3f s\n", (double)(compiled - start) * 1e-9,
           (double)engine.arenas[TIER_DEVICE].bytes * 1e-9, (double)(clock_now_ns() - compiled) * 1e-9);
    if (status == STATUS_OK) status = engine_measure(&engine, path, dtype, rounds);
    engine_close(&engine);
    session_plan_free(&plan);
    session_close(&session);
    return status;
}

static enum status measure(const char *folder, const char *path, int rounds) {
    TRY(dtype_measure(folder, path, DTYPE_F32, rounds));
    return dtype_measure(folder, path, DTYPE_BF16, rounds);
}

/* Rounds to nearest. For finite weights, which are far below the largest fp16 number. */
static uint16_t f16_from_float(float value) {
    int exponent;
    float fraction = frexpf(fabsf(value), &exponent);
    long bits = exponent < -13 || !(fraction > 0) ? lrintf(ldexpf(fabsf(value), 24)) /* subnormal */
                                                  : ((long)(exponent + 13) << 10) + lrintf(ldexpf(fraction, 11));
    return (uint16_t)(bits | (signbit(value) ? 0x8000 : 0));
}

static enum status tensor_write(struct file_writer *writer, const struct safetensors *set,
                                const struct safetensors_tensor *tensor, bool bf16) {
    float values[BLOCK];
    uint16_t halves[BLOCK];
    for (size_t done = 0; done < tensor->elements; done += BLOCK) {
        size_t count = tensor->elements - done < BLOCK ? tensor->elements - done : BLOCK;
        TRY(safetensors_convert(set, tensor, done, count, DTYPE_F32, values));
        for (size_t i = 0; i < count; i++)
            halves[i] = bf16 ? bf16_from_float(values[i]) : f16_from_float(values[i]);
        file_writer_write(writer, halves, count * sizeof *halves);
    }
    return STATUS_OK;
}

static enum status half_write(const struct safetensors *set, const char *dtype, const char *path) {
    json_t *header = json_object();
    json_int_t at = 0;
    for (size_t i = 0; i < set->tensors.count; i++) {
        const struct safetensors_tensor *tensor = &set->tensors.items[i];
        json_t *dims = json_array();
        for (int d = 0; d < tensor->rank; d++)
            json_array_append_new(dims, json_integer(tensor->dims[d]));
        json_int_t end = at + 2 * (json_int_t)tensor->elements;
        json_object_set_new(header, tensor->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", dims, "data_offsets", at, end));
        at = end;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    uint64_t bytes = (strlen(text) + 7) / 8 * 8; /* data aligned to 8 bytes, as in published files */
    struct file_writer writer;
    TRY(file_writer_open(path, &writer));
    file_writer_write(&writer, &bytes, sizeof bytes);
    file_writer_print(&writer, "%-*s", (int)bytes, text);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < set->tensors.count && status == STATUS_OK; i++)
        status = tensor_write(&writer, set, &set->tensors.items[i], strcmp(dtype, "BF16") == 0);
    free(text);
    enum status closed = file_writer_close(&writer);
    return status == STATUS_OK ? closed : status;
}

static enum status convert(const char *folder, const char *dtype, const char *to) {
    struct safetensors *set;
    TRY(folder_create(to));
    TRY(safetensors_open_folder(folder, &set));
    char *weights = path_join(to, "model.safetensors"), *config = path_join(folder, "config.json");
    char *copy = path_join(to, "config.json");
    enum status status = half_write(set, dtype, weights);
    if (status == STATUS_OK) status = file_copy(config, copy);
    mem_free(weights);
    mem_free(config);
    mem_free(copy);
    safetensors_close(set);
    return status;
}

int main(int count, char **arguments) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    if (count < 2 || count > 4) {
        fprintf(stderr, "usage: %s MODEL [ROUNDS] | MODEL BF16|F16 DIR\n", arguments[0]);
        return 2;
    }
    int rounds = count == 3 ? atoi(arguments[2]) : 3;
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    char *path = path_join(arguments[1], "model.safetensors");
    enum status status =
        count == 4 ? convert(arguments[1], arguments[2], arguments[3]) : measure(arguments[1], path, rounds);
    if (status != STATUS_OK) fprintf(stderr, "%s\n", status_message());
    mem_free(path);
    return (int)status;
}
