#include "plan/layout/conversion_nodes.h"

struct group_part conversion_step_part(const struct device_mesh *mesh, const struct layout_step *step, int64_t device) {
    int64_t place[DEVICE_MESH_AXES_MAX], stride = 1;
    device_mesh_place(mesh, device, place);
    for (int axis = step->axis + 1; axis < mesh->axes; axis++)
        stride *= mesh->sizes[axis];
    return (struct group_part){.parts = mesh->sizes[step->axis], .position = place[step->axis], .stride = stride};
}

struct tensor *conversion_add_step(struct graph *graph, const char *name, struct tensor *x, struct group_part part,
                                   const struct layout_step *step, bool partial) {
    switch (step->action) {
    case LAYOUT_GATHER: return ops_gather(graph, name, x, part, step->from, partial);
    case LAYOUT_ALL_TO_ALL: return ops_all_to_all(graph, name, x, part, step->from, step->to);
    case LAYOUT_CUT: return ops_cut(graph, name, x, part, step->to);
    }
    BUG("a step of no kind");
}
