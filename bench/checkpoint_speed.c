/* Measures the cost of checkpoints during training, and the rate at which they are written.
 *
 *     build/bench/checkpoint_speed MODEL DIR [ROUNDS] [BATCH] [SEQ]
 *
 * Each round measures in turn a step alone, a step while a checkpoint is written, and a direct write of the same bytes
 * to a plain file with a final sync, as `dd oflag=direct conv=fsync` does. The checkpoints and the file go to DIR,
 * which must not exist. bench/loading.sh runs this. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/terminal.h"
#include "support/median.h"
#include "train/checkpoint_writer.h"
#include "train/data.h"

enum { ROUNDS_MAX = 15, DIRECT_BYTES = 1 << 20, TOKENS = 1 << 18, HEADER_WORDS = 256 };

static enum status tokens_write(const char *path) {
    int32_t header[HEADER_WORDS] = {20240520, 1, TOKENS};
    struct file_writer writer;
    TRY(file_writer_open(path, &writer));
    file_writer_write(&writer, header, sizeof header);
    for (uint32_t i = 0; i < TOKENS; i++) {
        uint16_t token = (uint16_t)(i * 2654435761u >> 24);
        file_writer_write(&writer, &token, sizeof token);
    }
    return file_writer_close(&writer);
}

/* Writes as dd does. */
static enum status plain_write(const char *path, int64_t bytes, int64_t *taken_ns) {
    void *block;
    if (posix_memalign(&block, 4096, DIRECT_BYTES) != 0) return status_no_memory(DIRECT_BYTES, "a block");
    memset(block, 1, DIRECT_BYTES);
    int64_t start = clock_now_ns();
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0666);
    bool good = file >= 0;
    for (int64_t done = 0; done < bytes && good; done += DIRECT_BYTES)
        good = write(file, block, DIRECT_BYTES) == DIRECT_BYTES;
    good = good && fsync(file) == 0;
    *taken_ns = clock_now_ns() - start;
    close(file);
    unlink(path);
    free(block);
    return good ? STATUS_OK : status_set(STATUS_FAILED, "%s: cannot write", path);
}

struct bench {
    struct session session;
    struct session_plan plan;
    struct engine engine;
    struct train_data data;
    struct metrics metrics;
    struct checkpoint_writer writer;
    struct checkpoint_state state;
    struct train_options options;
    const char *folder;
    char *plain;
    int64_t bytes; /* bytes of a checkpoint's weights and state */
};

static enum status step_run(struct bench *bench, int64_t *taken_ns) {
    struct step_numbers numbers;
    int64_t start = clock_now_ns();
    TRY(engine_step(&bench->engine, bench->data.dataset, bench->state.step, 1e-5, &numbers));
    *taken_ns = clock_now_ns() - start;
    bench->state.step++;
    return STATUS_OK;
}

struct times {
    int64_t alone[ROUNDS_MAX], beside[ROUNDS_MAX], checkpoint[ROUNDS_MAX], plain[ROUNDS_MAX];
};

static enum status round_run(struct bench *bench, struct times *times, int round) {
    char *folder = NULL;
    TRY(step_run(bench, &times->alone[round]));
    int64_t start = clock_now_ns();
    TRY(checkpoint_writer_begin(&bench->writer, &bench->state));
    TRY(step_run(bench, &times->beside[round]));
    TRY(checkpoint_writer_finish(&bench->writer, &folder));
    int64_t both = clock_now_ns() - start;
    mem_free(folder);
    TRY(checkpoint_remove_old(bench->folder, 1)); /* outside the timed part, which only writes */
    bench->state.step++; /* a checkpoint without a step, to measure its rate; the step gives it a new name */
    start = clock_now_ns();
    TRY(checkpoint_writer_begin(&bench->writer, &bench->state));
    TRY(checkpoint_writer_finish(&bench->writer, &folder));
    times->checkpoint[round] = clock_now_ns() - start;
    mem_free(folder);
    TRY(checkpoint_remove_old(bench->folder, 1));
    TRY(plain_write(bench->plain, bench->bytes, &times->plain[round]));
    printf("  round %d: step %.3f s, during a checkpoint %.3f s (both ended after %.3f s); checkpoint %.3f s, plain "
           "%.3f s\n",
           round + 1, (double)times->alone[round] * 1e-9, (double)times->beside[round] * 1e-9, (double)both * 1e-9,
           (double)times->checkpoint[round] * 1e-9, (double)times->plain[round] * 1e-9);
    fflush(stdout);
    return STATUS_OK;
}

static enum status rounds_run(struct bench *bench, int rounds) {
    struct times times;
    int64_t warm;
    TRY(step_run(bench, &warm));
    for (int i = 0; i < rounds; i++)
        TRY(round_run(bench, &times, i));
    double alone = median_s(times.alone, rounds), beside = median_s(times.beside, rounds);
    double checkpoint = median_s(times.checkpoint, rounds), plain = median_s(times.plain, rounds);
    double gb = (double)bench->bytes * 1e-9;
    printf("step during a checkpoint / step alone %.3f\n", beside / alone);
    printf("checkpoint of %.2f GB: %.2f GB/s; plain direct write %.2f GB/s; ratio of times %.2f\n", gb, gb / checkpoint,
           gb / plain, checkpoint / plain);
    return STATUS_OK;
}

static int64_t state_bytes(const struct engine *engine) {
    const struct graph *graph = engine_graph(engine);
    int64_t bytes = 0;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_STATE) bytes += shape_bytes(&tensor->shape);
    }
    return bytes;
}

static enum status bench_run(const char *model, const char *folder, int rounds, int64_t batch,
                             int64_t sequence_length) {
    struct bench bench = {.folder = folder};
    struct plan_options plan;
    bool validated;
    char *data = path_join(folder, "tokens.bin"), *metrics = path_join(folder, "metrics.jsonl");
    const char *paths[] = {data};
    bench.plain = path_join(folder, "plain");
    plan_options_init(&plan);
    SETTINGS_GIVE(&plan, batch, batch);
    SETTINGS_GIVE(&plan, sequence_length, sequence_length);
    train_options_init(&bench.options);
    bench.options.data_paths = paths;
    bench.options.data_path_count = 1;
    bench.options.keep = 0;
    TRY(folder_create(folder));
    TRY(tokens_write(data));
    TRY(metrics_open(metrics, &(struct metrics_cut){0}, &bench.metrics, &validated));
    TRY(session_begin(model, PROGRAMS_TO_TRAIN, &plan, &bench.options, &bench.session, &bench.plan));
    TRY(train_data_open(bench.session.comm, bench.session.model, &bench.plan.chosen.recipe, &bench.options, true,
                        &bench.data));
    TRY(engine_open(&bench.plan, &bench.engine));
    TRY(engine_load_weights(&bench.engine));
    bench.state.plan = bench.plan.chosen;
    bench.bytes = state_bytes(&bench.engine);
    checkpoint_writer_open(folder, &bench.engine, bench.data.dataset, &bench.options, &bench.metrics, &bench.writer);
    enum status status = rounds_run(&bench, rounds);
    checkpoint_writer_close(&bench.writer);
    engine_close(&bench.engine);
    train_data_close(&bench.data);
    session_plan_free(&bench.plan);
    session_close(&bench.session);
    metrics_close(&bench.metrics);
    mem_free(bench.plain);
    mem_free(data);
    mem_free(metrics);
    return status;
}

int main(int count, char **arguments) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    if (count < 3 || count > 6) {
        fprintf(stderr, "usage: %s MODEL DIR [ROUNDS] [BATCH] [SEQ]\n", arguments[0]);
        return 2;
    }
    int rounds = count > 3 ? atoi(arguments[3]) : 5;
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    enum status status = bench_run(arguments[1], arguments[2], rounds, count > 4 ? atoll(arguments[4]) : 4,
                                   count > 5 ? atoll(arguments[5]) : 256);
    if (status != STATUS_OK) fprintf(stderr, "%s\n", status_message());
    return (int)status;
}
