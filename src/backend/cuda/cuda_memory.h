/* Memory of the GPU, and memory of the host that it copies from and to. */
#ifndef BALLAST_BACKEND_CUDA_CUDA_MEMORY_H
#define BALLAST_BACKEND_CUDA_CUDA_MEMORY_H

#include "backend/backend.h"

extern const struct backend_memory cuda_memory;

#endif
