/* Failing graph captures, without a device: this file defines CUDA's functions. A failure ends with the capture and
 * releases its resources. A graph that lacks a refused call is never created. */
#include <string.h>

#include "support/unit.h"

#ifdef BALLAST_CUDA
#include "backend/cuda/kernel.h"

static struct runtime {
    cudaError_t begin, end, instantiate; /* what they return */
    size_t nodes;                        /* of what is captured */
    cudaError_t query;                   /* of the device */
    cudaError_t last;                    /* error that was not asked for yet */
    int begun, ended, captured, ready, launched;
} runtime;
static int places[2]; /* what handles point to */

static cudaError_t keep(cudaError_t error) {
    if (error != cudaSuccess) runtime.last = error;
    return error;
}

cudaError_t cudaPeekAtLastError(void) { return runtime.last; }

cudaError_t cudaGetLastError(void) {
    cudaError_t last = runtime.last;
    runtime.last = cudaSuccess;
    return last;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    (void)stream;
    assert_int_equal(mode, cudaStreamCaptureModeThreadLocal);
    if (runtime.begin == cudaSuccess) runtime.begun++;
    return keep(runtime.begin);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    (void)stream;
    runtime.ended++;
    *graph = NULL;
    if (runtime.end != cudaSuccess) return keep(runtime.end);
    *graph = (cudaGraph_t)&places[0];
    runtime.captured++;
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    (void)graph;
    assert_null(nodes);
    *count = runtime.nodes;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    assert_ptr_equal(graph, &places[0]);
    runtime.captured--;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *ready, cudaGraph_t graph, unsigned long long flags) {
    (void)graph, (void)flags;
    if (runtime.instantiate != cudaSuccess) return keep(runtime.instantiate);
    *ready = (cudaGraphExec_t)&places[1];
    runtime.ready++;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t ready) {
    assert_ptr_equal(ready, &places[1]);
    runtime.ready--;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t ready, cudaStream_t stream) {
    (void)stream;
    assert_ptr_equal(ready, &places[1]);
    runtime.launched++;
    return cudaSuccess;
}

static void reset(void) { runtime = (struct runtime){.nodes = 10}; }

static enum status capture(void **graph) {
    enum status status = cuda_graphs.begin(NULL);
    return status == STATUS_OK ? cuda_graphs.end(NULL, graph) : status;
}

/* Nothing is left of it, and the next capture comes to a graph. */
static void expect_failure(enum status status) {
    void *graph;
    assert_int_equal(status, STATUS_FAILED);
    assert_int_equal(runtime.last, cudaSuccess);
    assert_int_equal(runtime.begun, runtime.ended);
    assert_int_equal(runtime.captured, 0);
    assert_int_equal(runtime.ready, 0);
    reset();
    assert_int_equal(capture(&graph), STATUS_OK);
    cuda_graphs.free(graph);
}

static void captured_calls_are_launched(void **state) {
    (void)state;
    void *graph;
    reset();
    assert_int_equal(capture(&graph), STATUS_OK);
    assert_int_equal(runtime.captured, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(cuda_graphs.launch(graph, NULL), STATUS_OK);
    assert_int_equal(runtime.launched, 3);
    cuda_graphs.free(graph);
    assert_int_equal(runtime.ready, 0);
}

static void failures_are_reported(void **state) {
    (void)state;
    void *graph;
    reset();
    runtime.begin = cudaErrorIllegalState;
    expect_failure(capture(&graph));
    runtime.end = cudaErrorStreamCaptureInvalidated;
    expect_failure(capture(&graph));
    runtime.instantiate = cudaErrorMemoryAllocation;
    expect_failure(capture(&graph));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    (void)stream;
    return runtime.query;
}

/* A launch that the runtime refuses, and a fill whose failure it alone notes. */
static void refused_calls_end_the_capture(void **state) {
    (void)state;
    void *graph;
    reset();
    assert_int_equal(cuda_graphs.begin(NULL), STATUS_OK);
    cuda_require(keep(cudaErrorInvalidValue), "a launch");
    assert_int_equal(cuda_outcome(), STATUS_FAILED);
    expect_failure(cuda_graphs.end(NULL, &graph));
    assert_int_equal(cuda_graphs.begin(NULL), STATUS_OK);
    (void)keep(cudaErrorInvalidValue);
    expect_failure(cuda_graphs.end(NULL, &graph));
}

/* A product of which the runtime does not know, since cuBLASLt has one of its own: the library's words where the device
 * is well, even while it works; else the device's. The first failure of a run is the one that is told. */
static void refused_products_end_the_capture(void **state) {
    (void)state;
    const cudaError_t well[] = {cudaSuccess, cudaErrorNotReady};
    for (int i = 0; i < 2; i++) {
        reset();
        runtime.query = well[i];
        cuda_refused(NULL, "cuBLASLt: a product", "not supported");
        cuda_require(cudaErrorInvalidValue, "a launch");
        assert_int_equal(cuda_outcome(), STATUS_FAILED);
        assert_string_equal(status_message(), "cuBLASLt: a product: not supported");
        assert_non_null(strstr(status_hint_text(), "CUBLASLT_LOG_LEVEL"));
        assert_int_equal(cuda_outcome(), STATUS_OK);
    }
    runtime.query = cudaErrorIllegalAddress;
    cuda_refused(NULL, "cuBLASLt: a product", "internal error");
    assert_int_equal(cuda_outcome(), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "illegal memory access"));
    assert_non_null(strstr(status_hint_text(), "CUDA_LAUNCH_BLOCKING"));
}

/* What graphs take of the device's memory is bounded, over all of them. */
static void memory_for_graphs_is_bounded(void **state) {
    (void)state;
    void *graphs[100];
    int count = 0;
    reset();
    runtime.nodes = 100;
    while (count < 100 && capture(&graphs[count]) == STATUS_OK)
        count++;
    assert_int_equal(count, 20);
    assert_int_equal(runtime.ready, count);
    runtime.nodes = 48;
    assert_int_equal(capture(&graphs[count]), STATUS_OK);
    cuda_graphs.free(graphs[count]);
    runtime.nodes = 49;
    assert_int_equal(capture(&graphs[count]), STATUS_FAILED);
    while (count > 0)
        cuda_graphs.free(graphs[--count]);
    runtime.nodes = 100000;
    expect_failure(capture(&graphs[0]));
}

static void the_environment_turns_graphs_off(void **state) {
    (void)state;
    void *graph;
    reset();
    setenv("BALLAST_CUDA_GRAPHS", "off", 1);
    assert_int_equal(capture(&graph), STATUS_FAILED);
    assert_int_equal(runtime.begun, 0);
    unsetenv("BALLAST_CUDA_GRAPHS");
    assert_int_equal(capture(&graph), STATUS_OK);
    cuda_graphs.free(graph);
}

int main(void) {
    unsetenv("BALLAST_CUDA_GRAPHS");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captured_calls_are_launched),   cmocka_unit_test(failures_are_reported),
        cmocka_unit_test(refused_calls_end_the_capture), cmocka_unit_test(refused_products_end_the_capture),
        cmocka_unit_test(memory_for_graphs_is_bounded),  cmocka_unit_test(the_environment_turns_graphs_off)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) { unit_skip_all("this build has no CUDA backend; needs the CUDA toolkit, 12 or later"); }
#endif
