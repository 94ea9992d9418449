/* Which backend computes. */
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"

/* "cuda" or "cuda:N". False for anything else. */
static bool read_gpu(const char *device, int *number) {
    *number = 0;
    if (strncmp(device, "cuda", 4) != 0) return false;
    if (device[4] == '\0') return true;
    if (device[4] != ':' || device[5] < '0' || device[5] > '9') return false;
    char *end;
    long value = strtol(device + 5, &end, 10);
    *number = (int)value;
    return *end == '\0' && value < 1024;
}

static enum status find_default(const struct backend **out) {
    bool gpu = backend_cuda_select(0) == STATUS_OK && backend_cuda.check() == STATUS_OK;
    if (!gpu) status_clear();
    *out = gpu ? &backend_cuda : &backend_cpu;
    return (*out)->check();
}

enum status backend_find(const char *device, const struct backend **out) {
    int number;
    if (!device) return find_default(out);
    if (strcmp(device, "cpu") == 0) {
        *out = &backend_cpu;
        return backend_cpu.check();
    }
    if (!read_gpu(device, &number))
        return status_set(STATUS_BAD_INPUT, "device: '%s' is not cpu, cuda or cuda:N", device);
    enum status status = backend_cuda_select(number);
    if (status == STATUS_OK) status = backend_cuda.check();
    if (status != STATUS_OK) return status_prefix(status, "device: %s", device);
    *out = &backend_cuda;
    return STATUS_OK;
}

const struct backend *backend_of_isa(const char *isa) {
    return strncmp(isa, "sm_", 3) == 0 ? &backend_cuda : &backend_cpu;
}
