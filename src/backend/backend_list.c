/* The backends of this build. */
#include "backend/backend.h"

const struct backend *const backends[] = {&backend_cuda, &backend_cpu};
const int backend_count = sizeof backends / sizeof *backends;
