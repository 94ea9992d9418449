/* Finds the sharding that a reshape keeps. Elements stay in row-major order, so the period identifies a shard axis:
 * an axis of n devices divides runs of p successive elements into n equal parts. A dimension begins with runs of its
 * size times its stride. Each axis that shards it leaves runs n times shorter to the next. The new layout has the
 * same shard axes, in the dimensions that have these runs. */
#include "support/case_layout.h"

static int64_t stride_of(const struct layout_shape *shape, int dimension) {
    int64_t stride = 1;
    for (int d = dimension + 1; d < shape->rank; d++)
        stride *= shape->dims[d];
    return stride;
}

/* Elements of the runs that an axis would cut next in this dimension. */
static int64_t run_of(const struct layout *layout, const struct device_mesh *mesh, const struct layout_shape *shape,
                      int dimension, int axis) {
    unsigned before = layout_axes_of(layout, dimension) & ((1u << axis) - 1);
    return shape->dims[dimension] / device_mesh_devices(mesh, before) * stride_of(shape, dimension);
}

/* The dimension with these runs that can be cut in `size`, or LAYOUT_REPLICATED. */
static int find_run(const struct layout *layout, const struct device_mesh *mesh, const struct layout_shape *shape,
                    int axis, int64_t run) {
    for (int d = 0; d < shape->rank; d++) {
        int64_t held = shape->dims[d] / layout_parts(layout, mesh, d);
        if (run_of(layout, mesh, shape, d, axis) == run && held % mesh->sizes[axis] == 0) return d;
    }
    return LAYOUT_REPLICATED;
}

bool layout_reshape(const struct layout *layout, const struct device_mesh *mesh, const struct layout_shape *from,
                    const struct layout_shape *to, struct layout *out) {
    struct layout reshaped = layout_replicated();
    for (int axis = 0; axis < mesh->axes; axis++) { /* lower axes cut first in both */
        int dimension = layout->dimension[axis];
        if (dimension == LAYOUT_REPLICATED) continue;
        int64_t run = run_of(layout, mesh, from, dimension, axis);
        int found = find_run(&reshaped, mesh, to, axis, run);
        if (found == LAYOUT_REPLICATED) return false;
        reshaped.dimension[axis] = (int8_t)found;
    }
    *out = reshaped;
    return true;
}
