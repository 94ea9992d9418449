/* CUDA's graphs, captured from streams. With BALLAST_CUDA_GRAPHS=off in the environment no capture begins. */
#ifndef BALLAST_BACKEND_CUDA_CUDA_GRAPHS_H
#define BALLAST_BACKEND_CUDA_CUDA_GRAPHS_H

#include "backend/backend.h"

extern const struct backend_graphs cuda_graphs;

#endif
