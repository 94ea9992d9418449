/* The GPU that the process uses, how CUDA's failures are reported, and the backend's tables. */
#ifndef BALLAST_BACKEND_CUDA_CUDA_DEVICE_H
#define BALLAST_BACKEND_CUDA_CUDA_DEVICE_H

#include <cuda_runtime_api.h>

#include "backend/backend.h"
#include "base/status.h"
#include "machine/cluster.h"
#include "machine/tier.h"

/* OK, or FAILED "CUDA: WHAT: the runtime's words", with how to find the place when the GPU itself found the fault. */
enum status cuda_status(cudaError_t error, const char *what);

/* backend.h says what these do. */
enum status cuda_device_select(int device);
enum status cuda_device_check(void);
const char *cuda_device_isa(void);
enum status cuda_device_capacity(int64_t bytes[TIER_COUNT]);
enum status cuda_device_left_bytes(int64_t *device_bytes);
enum status cuda_device_measure(struct cluster *out);
enum status cuda_device_describe(char *text, size_t bytes);
int64_t cuda_device_cache_bytes(void);
int64_t cuda_device_micro_batch_tokens(int64_t layers, int64_t width, int64_t device_bytes);

/* Makes the device current for the calling thread. */
enum status cuda_device_enter(void);

/* The backend's tables of streams and events, graphs, and memory; backend.h says what their functions do. Each is in
 * the file of its name. */
extern const struct backend_streams cuda_streams;
extern const struct backend_graphs cuda_graphs;
extern const struct backend_memory cuda_memory;

#endif
