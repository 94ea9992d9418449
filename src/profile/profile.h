/* Measures what the machine does, through the backend that will do it. */
#ifndef BALLAST_PROFILE_PROFILE_H
#define BALLAST_PROFILE_PROFILE_H

#include "backend/backend.h"

/* The rate of large matrix products in this dtype with the backend's present number of threads: the yardstick of MFU.
 * Best of several runs of the backend's `linear` on 1024 x 768 x 3072 and the like; about 0.3 s. Takes memory of its
 * own for that time, about 40 MiB (a GPU: 0.4 GiB of its). FAILED when the backend has no such kernel or there is no memory. */
enum status profile_matrix_rate(const struct backend *backend, enum dtype dtype, double *flops_per_s);

#endif
