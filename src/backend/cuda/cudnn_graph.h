/* Graphs of cuDNN's operations (its graph interface), the engine that executes one, and its plan.
 *
 * A graph is put together by these functions, then planned, then executed any number of times. An error sticks: what
 * follows it does nothing, and cudnn_graph_judge tells it. Tensors have four dimensions. */
#pragma once

#include <cudnn.h>

#include "backend/cuda/kernel.h"

enum { CUDNN_RANK = 4, CUDNN_DESCRIPTORS_MAX = 160, CUDNN_OPERATIONS_MAX = 32, CUDNN_OPERANDS_MAX = 16 };

typedef cudnnBackendDescriptor_t cudnn_descriptor;

/* Descriptors live as long as the graph. Starts as zeros. */
struct cudnn_graph {
    cudnn_descriptor all[CUDNN_DESCRIPTORS_MAX];
    int count;
    cudnn_descriptor operations[CUDNN_OPERATIONS_MAX];
    int operation_count;
    int64_t operands[CUDNN_OPERANDS_MAX]; /* the identifiers, from 1 on, of the tensors that a call is given */
    int operand_count;
    int64_t inside; /* tensors so far that stay inside */
    cudnnStatus_t status;
    const char *failed; /* what did */
    cudnnHandle_t library;
    cudnn_descriptor plan;
    int64_t workspace_bytes;
};

struct cudnn_tensor {
    int64_t operand; /* 1 to CUDNN_OPERANDS_MAX; 0: one that stays inside */
    bool by_value;   /* a number of the host's */
    cudnnDataType_t type;
    int64_t dims[CUDNN_RANK], strides[CUDNN_RANK]; /* in elements */
};
cudnn_descriptor cudnn_graph_tensor(struct cudnn_graph *graph, const struct cudnn_tensor *tensor);

/* Each of these adds an operation and returns the tensor that it makes. c = a b, sums in fp32. */
cudnn_descriptor cudnn_graph_product(struct cudnn_graph *graph, cudnn_descriptor a, cudnn_descriptor b,
                                     cudnn_descriptor c);
/* An operation on each element; b and mask may be missing, axis is that of an index. */
struct cudnn_elementwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t type; /* that it computes in */
    cudnn_descriptor x, b, mask, y;
    int64_t axis;
};
cudnn_descriptor cudnn_graph_elementwise(struct cudnn_graph *graph, struct cudnn_elementwise is);
/* In fp32, over the dimensions that are 1 in y. */
cudnn_descriptor cudnn_graph_reduction(struct cudnn_graph *graph, cudnnReduceTensorOp_t how, cudnn_descriptor x,
                                       cudnn_descriptor y);
/* y has the elements of x with other dimensions and strides. */
cudnn_descriptor cudnn_graph_reshape(struct cudnn_graph *graph, cudnn_descriptor x, cudnn_descriptor y);

/* Uses the first engine of the library's heuristics that is not marked nondeterministic. `device`: the library's JSON
 * text of its properties; NULL: the current device. */
void cudnn_graph_plan(struct cudnn_graph *graph, const char *device);
/* OK, or FAILED when the library cannot be used; also OK, with the library's words in the thread's message and
 * graph->status other than success, where it has no engine for the graph. */
enum status cudnn_graph_judge(const struct cudnn_graph *graph);

/* Queues the work on the stream; addresses[i] is of operand i + 1. Not by two threads at once. */
cudnnStatus_t cudnn_graph_execute(const struct cudnn_graph *graph, void *const addresses[CUDNN_OPERANDS_MAX],
                                  void *workspace, cudaStream_t stream);
/* Frees what the graph has, not the graph. */
void cudnn_graph_close(struct cudnn_graph *graph);
