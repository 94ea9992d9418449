#include "backend/cuda/cuda_device.h"

/* Without the implicit order that the default stream has with all others. */
static enum status create(void **stream) {
    cudaStream_t created;
    TRY(cuda_status(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking), "cudaStreamCreate"));
    *stream = created;
    return STATUS_OK;
}

static void free_stream(void *stream) { (void)cudaStreamDestroy(stream); }

/* Without times, which would cost each record; a thread that waits sleeps, since the processor has other work. */
static enum status create_event(void **event) {
    cudaEvent_t created;
    TRY(cuda_status(cudaEventCreateWithFlags(&created, cudaEventDisableTiming | cudaEventBlockingSync),
                    "cudaEventCreate"));
    *event = created;
    return STATUS_OK;
}

static enum status create_timed_event(void **event) {
    cudaEvent_t created;
    TRY(cuda_status(cudaEventCreateWithFlags(&created, cudaEventBlockingSync), "cudaEventCreate"));
    *event = created;
    return STATUS_OK;
}

static void free_event(void *event) { (void)cudaEventDestroy(event); }

static enum status record(void *event, void *stream) {
    return cuda_status(cudaEventRecord(event, stream), "cudaEventRecord");
}

static enum status wait(void *stream, void *event) {
    return cuda_status(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
}

static enum status await(void *event) { return cuda_status(cudaEventSynchronize(event), "while the GPU worked"); }

static enum status finish(void *stream) { return cuda_status(cudaStreamSynchronize(stream), "while the GPU worked"); }

static enum status check(void) { return cuda_status(cudaPeekAtLastError(), "a launch"); }

static enum status elapsed(void *begin, void *end, double *seconds) {
    float milliseconds = 0;
    TRY(cuda_status(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime"));
    *seconds = (double)milliseconds * 1e-3;
    return STATUS_OK;
}

const struct backend_streams cuda_streams = {
    .enter = cuda_device_enter,
    .create = create,
    .free = free_stream,
    .create_event = create_event,
    .create_timed_event = create_timed_event,
    .free_event = free_event,
    .record = record,
    .wait = wait,
    .await = await,
    .finish = finish,
    .check = check,
    .elapsed = elapsed,
};
