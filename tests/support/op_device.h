/* The CUDA device for tests of operators (op_instance.h). None if the build has no CUDA. */
#pragma once

#include "backend/backend.h"

/* Whether there is a device; if not, `why` says so. */
bool op_device_find(const char **why);
/* Whether CUDA has kernels of the operator, in a build with it. */
bool op_device_has_kernel(const struct op *op);
/* The rest only where there is one; what the device refuses ends the test. */
enum status op_device_kernel(const struct node *node, struct kernel **out);
/* NULL when there is no memory. */
void *op_device_allocate(int64_t bytes);
void op_device_free(void *block);
/* Between the device's and the host's memory. */
void op_device_copy(void *device, void *host, int64_t bytes, bool to_device);
/* Until the device has done all that it was given. */
void op_device_wait(void);
