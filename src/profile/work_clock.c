#include "profile/work_clock.h"

/* Shorter than any clock resolves. */
static const double MIN_S = 1e-9;

enum status work_clock_open(const struct backend *backend, struct work_clock *out) {
    const struct backend_streams *streams = backend->streams;
    *out = (struct work_clock){.backend = backend};
    if (!streams) return STATUS_OK;
    TRY(streams->enter());
    TRY(streams->create(&out->stream));
    TRY(streams->create_timed_event(&out->begin));
    return streams->create_timed_event(&out->end);
}

void work_clock_close(struct work_clock *clock) {
    if (clock->stream) clock->backend->streams->free(clock->stream);
    if (clock->begin) clock->backend->streams->free_event(clock->begin);
    if (clock->end) clock->backend->streams->free_event(clock->end);
    *clock = (struct work_clock){0};
}

static enum status repeat(work_call *work, void *payload, int calls) {
    for (int i = 0; i < calls; i++)
        TRY(work(payload));
    return STATUS_OK;
}

static enum status time_calls(work_call *work, void *payload, int calls, struct sample *out) {
    struct stopwatch stopwatch = stopwatch_begin();
    TRY(repeat(work, payload, calls));
    *out = stopwatch_end(&stopwatch);
    return STATUS_OK;
}

static enum status call_on_stream(const struct work_clock *clock, work_call *work, void *payload, int calls) {
    TRY(repeat(work, payload, calls));
    TRY(clock->backend->streams->check());
    return clock->backend->streams->record(clock->end, clock->stream);
}

static enum status time_stream(const struct work_clock *clock, work_call *work, void *payload, int calls,
                               struct sample *out) {
    const struct backend_streams *streams = clock->backend->streams;
    *out = (struct sample){0};
    TRY(streams->record(clock->begin, clock->stream));
    enum status called = call_on_stream(clock, work, payload, calls), finished = streams->finish(clock->stream);
    TRY(called);
    TRY(finished);
    return streams->elapsed(clock->begin, clock->end, &out->seconds);
}

enum status work_clock_time(const struct work_clock *clock, work_call *work, void *payload, int calls,
                            struct sample *out) {
    TRY(clock->stream ? time_stream(clock, work, payload, calls, out) : time_calls(work, payload, calls, out));
    out->seconds /= calls;
    out->waited_s /= calls;
    if (out->seconds < MIN_S) out->seconds = MIN_S;
    return STATUS_OK;
}

enum status work_clock_finish(const struct work_clock *clock) {
    return clock->stream ? clock->backend->streams->finish(clock->stream) : STATUS_OK;
}
