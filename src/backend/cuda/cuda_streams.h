/* CUDA's streams and events. */
#ifndef BALLAST_BACKEND_CUDA_CUDA_STREAMS_H
#define BALLAST_BACKEND_CUDA_CUDA_STREAMS_H

#include "backend/backend.h"

extern const struct backend_streams cuda_streams;

#endif
