#include "gpu/gpu_clock.h"

#include <stdio.h>

#include "support/median.h"

enum { ROWS = 5 };

void gpu_clock_close(struct gpu_clock *clock) {
    const struct backend_streams *streams = backend_cuda.streams;
    if (clock->begin) streams->free_event(clock->begin);
    if (clock->end) streams->free_event(clock->end);
    if (clock->stream) streams->free(clock->stream);
    *clock = (struct gpu_clock){0};
}

static enum status create(struct gpu_clock *out) {
    const struct backend_streams *streams = backend_cuda.streams;
    TRY(streams->enter());
    TRY(streams->create(&out->stream));
    TRY(streams->create_timed_event(&out->begin));
    return streams->create_timed_event(&out->end);
}

enum status gpu_clock_open(struct gpu_clock *out) {
    const struct backend *backend;
    *out = (struct gpu_clock){0};
    TRY(backend_find("cuda", &backend));
    enum status status = create(out);
    if (status != STATUS_OK) gpu_clock_close(out);
    return status;
}

enum status gpu_clock_time(const struct gpu_clock *clock, enum status (*enqueue)(void *context), void *context,
                           int calls, double *seconds) {
    const struct backend_streams *streams = backend_cuda.streams;
    TRY(streams->record(clock->begin, clock->stream));
    for (int i = 0; i < calls; i++)
        TRY(enqueue(context));
    TRY(streams->record(clock->end, clock->stream));
    TRY(streams->await(clock->end));
    return streams->elapsed(clock->begin, clock->end, seconds);
}

enum status gpu_clock_call(const struct gpu_clock *clock, enum status (*enqueue)(void *context), void *context,
                           int calls, double *seconds) {
    double rows[ROWS];
    TRY(gpu_clock_time(clock, enqueue, context, 1, seconds)); /* the first call loads code */
    for (int row = 0; row < ROWS; row++) {
        TRY(gpu_clock_time(clock, enqueue, context, calls, &rows[row]));
        rows[row] /= calls;
    }
    *seconds = median(rows, ROWS);
    return STATUS_OK;
}

int gpu_clock_main(const char *name, enum status (*measure)(const struct gpu_clock *clock)) {
    struct gpu_clock clock;
    enum status status = gpu_clock_open(&clock);
    bool none = status == STATUS_BAD_INPUT;
    if (status == STATUS_OK) status = measure(&clock);
    gpu_clock_close(&clock);
    if (status == STATUS_OK) return 0;
    fprintf(stderr, "%s: %s\n", name, status_message());
    return none ? 77 : 1;
}
