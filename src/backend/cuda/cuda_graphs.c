#include "backend/cuda/cuda_device.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda_constants.h"
#include "base/mem.h"

/* Graphs take device memory besides the arenas, out of the part left to CUDA itself (CUDA_GRAPH_BYTES): some 64
 * KiB a kernel (362, 395 and 458 MB in use with one graph of 500, 1000 and 2000 empty kernels, as a user of driver 470
 * told NVIDIA's forum). So all graphs of the process together take about 128 MiB at most. */
struct cuda_graph {
    cudaGraphExec_t ready;
    int nodes;
};

static atomic_int nodes_taken;

static bool are_off(void) {
    const char *choice = getenv("BALLAST_CUDA_GRAPHS");
    return choice && strcmp(choice, "off") == 0;
}

/* A refusal stays the runtime's last error until someone reads it, so this reads it. The error of a device that has
 * failed returns with the next call. */
static enum status refuse(cudaError_t error, const char *what) {
    (void)cudaGetLastError();
    return cuda_status(error, what);
}

/* In this mode calls that no capture allows (allocations, synchronous copies) are forbidden to this thread alone:
 * others, which may be writing a checkpoint, go on as ever. */
static enum status begin(void *stream) {
    if (are_off()) return status_set(STATUS_FAILED, "BALLAST_CUDA_GRAPHS=off");
    cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    return error == cudaSuccess ? STATUS_OK : refuse(error, "cudaStreamBeginCapture");
}

/* Takes so many nodes off the nodes left; false when there are fewer. */
static bool take_nodes(int nodes) {
    int taken = nodes_taken;
    do
        if (nodes > CUDA_GRAPH_NODES - taken) return false;
    while (!atomic_compare_exchange_weak(&nodes_taken, &taken, taken + nodes));
    return true;
}

static void free_graph(void *of) {
    struct cuda_graph *graph = of;
    if (graph->ready) (void)cudaGraphExecDestroy(graph->ready);
    nodes_taken -= graph->nodes;
    mem_free(graph);
}

static enum status make_ready(cudaGraph_t captured, void **out) {
    size_t nodes = 0;
    cudaError_t error = cudaGraphGetNodes(captured, NULL, &nodes);
    if (error != cudaSuccess) return refuse(error, "cudaGraphGetNodes");
    struct cuda_graph *graph = mem_array(1, sizeof *graph);
    if (!graph) return STATUS_FAILED;
    if (nodes > CUDA_GRAPH_NODES || !take_nodes((int)nodes)) {
        mem_free(graph);
        return status_set(STATUS_FAILED, "graphs have %d nodes already: %zu more are too many", nodes_taken, nodes);
    }
    graph->nodes = (int)nodes;
    error = cudaGraphInstantiateWithFlags(&graph->ready, captured, 0);
    if (error != cudaSuccess) {
        graph->ready = NULL;
        free_graph(graph);
        return refuse(error, "cudaGraphInstantiate");
    }
    *out = graph;
    return STATUS_OK;
}

/* A failure within the capture is reported by the runtime's last error (a fill) or by this call alone. */
static enum status end(void *stream, void **out) {
    cudaGraph_t captured = NULL;
    cudaError_t error = cudaStreamEndCapture(stream, &captured);
    if (error == cudaSuccess) error = cudaPeekAtLastError();
    if (error == cudaSuccess && !captured) error = cudaErrorStreamCaptureInvalidated;
    enum status status = error == cudaSuccess ? make_ready(captured, out) : refuse(error, "cudaStreamEndCapture");
    if (captured) (void)cudaGraphDestroy(captured);
    return status;
}

static enum status launch(void *of, void *stream) {
    return cuda_status(cudaGraphLaunch(((const struct cuda_graph *)of)->ready, stream), "cudaGraphLaunch");
}

const struct backend_graphs cuda_graphs = {.begin = begin, .end = end, .launch = launch, .free = free_graph};
