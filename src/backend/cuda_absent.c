/* In place of src/backend/cuda where the build found no CUDA. */
#include "backend/backend.h"
#include "backend/cuda_constants.h"
#include "plan/recipe.h"

static enum status refuse(void) { return status_set(STATUS_BAD_INPUT, "this build has no CUDA, which a GPU needs"); }

static enum status refuse_device(int device) {
    (void)device;
    return refuse();
}

static const char *no_isa(void) { return "none"; }

static kernel_maker *no_maker(const struct op *op) {
    (void)op;
    return NULL;
}

/* Callers check a backend before they use it. */
const struct backend backend_cuda = {.name = "cuda",
                                     .isa_prefix = "sm_",
                                     .isa_libraries = CUDA_ISA_LIBRARIES,
                                     .select = refuse_device,
                                     .check = refuse,
                                     .isa = no_isa,
                                     .kernels_version = CUDA_KERNELS_VERSION,
                                     .micro_batch_tokens = GPU_MICRO_BATCH_MIN,
                                     .maker = no_maker};
