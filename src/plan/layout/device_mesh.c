#include "plan/layout/device_mesh.h"

#include <math.h>

enum status device_mesh_check(const struct device_mesh *mesh) {
    if (mesh->axes < 1 || mesh->axes > DEVICE_MESH_AXES_MAX)
        return status_set(STATUS_BAD_INPUT, "a mesh of %d axes: must have 1 to %d", mesh->axes, DEVICE_MESH_AXES_MAX);
    int64_t devices = 1;
    for (int axis = 0; axis < mesh->axes; axis++) {
        int64_t size = mesh->sizes[axis];
        if (size < 1 || size > DEVICE_MESH_DEVICES_MAX / devices)
            return status_set(STATUS_BAD_INPUT, "axis %d: %lld devices: must be at least 1, and at most %d in all",
                              axis, (long long)size, DEVICE_MESH_DEVICES_MAX);
        devices *= size;
        if (!(mesh->latency_s[axis] >= 0 && isfinite(mesh->latency_s[axis])))
            return status_set(STATUS_BAD_INPUT, "axis %d: a latency of %g s: must be 0 or more", axis,
                              mesh->latency_s[axis]);
        if (!(mesh->s_per_byte[axis] >= 0 && isfinite(mesh->s_per_byte[axis])))
            return status_set(STATUS_BAD_INPUT, "axis %d: %g s a byte: must be 0 or more", axis,
                              mesh->s_per_byte[axis]);
    }
    return STATUS_OK;
}

int64_t device_mesh_devices(const struct device_mesh *mesh, unsigned axes) {
    int64_t devices = 1;
    for (int axis = 0; axis < mesh->axes; axis++)
        if (axes >> axis & 1) devices *= mesh->sizes[axis];
    return devices;
}

/* Devices between neighbours along the axis. */
static int64_t axis_stride(const struct device_mesh *mesh, int axis) {
    int64_t stride = 1;
    for (int later = axis + 1; later < mesh->axes; later++)
        stride *= mesh->sizes[later];
    return stride;
}

void device_mesh_place(const struct device_mesh *mesh, int64_t device, int64_t place[DEVICE_MESH_AXES_MAX]) {
    for (int axis = 0; axis < mesh->axes; axis++)
        place[axis] = device / axis_stride(mesh, axis) % mesh->sizes[axis];
}

/* The alpha and beta of a ring over these axes, of which `moved` times `bytes` (n-1)/n go through each link. */
static double ring_s(const struct device_mesh *mesh, unsigned axes, double moved, double bytes) {
    double latency_s = 0, s_per_byte = 0, devices = (double)device_mesh_devices(mesh, axes);
    if (devices <= 1) return 0;
    for (int axis = 0; axis < mesh->axes; axis++) {
        if (!(axes >> axis & 1) || mesh->sizes[axis] == 1) continue;
        latency_s = fmax(latency_s, mesh->latency_s[axis]);
        s_per_byte = fmax(s_per_byte, mesh->s_per_byte[axis]);
    }
    return latency_s + moved * s_per_byte * bytes * (devices - 1) / devices;
}

double device_mesh_all_gather_s(const struct device_mesh *mesh, unsigned axes, double bytes) {
    return ring_s(mesh, axes, 1, bytes);
}

double device_mesh_reduce_scatter_s(const struct device_mesh *mesh, unsigned axes, double bytes) {
    return ring_s(mesh, axes, 1, bytes);
}

double device_mesh_all_reduce_s(const struct device_mesh *mesh, unsigned axes, double bytes) {
    return ring_s(mesh, axes, 2, bytes);
}

double device_mesh_all_to_all_s(const struct device_mesh *mesh, unsigned axes, double bytes) {
    return ring_s(mesh, axes, 1, bytes);
}
