/* Failing calls of the emulated runtime and cuBLASLt: each is a fault point of kind FAULT_DEVICE (base/fault.h). */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All calls from now on come to this, as when a kernel has failed; cudaSuccess: the device is well again. */
void emulated_device_fail(cudaError_t error);
/* Whether this call is to fail. */
bool emulated_device_refuses(void);

#ifdef __cplusplus
}
#endif
