#include "plan/layout/layout.h"

#include <stdio.h>
#include <string.h>

struct layout layout_replicated(void) {
    struct layout layout;
    for (int axis = 0; axis < DEVICE_MESH_AXES_MAX; axis++)
        layout.dimension[axis] = LAYOUT_REPLICATED;
    return layout;
}

bool layout_equal(const struct layout *a, const struct layout *b) {
    return memcmp(a->dimension, b->dimension, sizeof a->dimension) == 0;
}

unsigned layout_axes_of(const struct layout *layout, int dimension) {
    unsigned axes = 0;
    for (int axis = 0; axis < DEVICE_MESH_AXES_MAX; axis++)
        if (layout->dimension[axis] == dimension) axes |= 1u << axis;
    return axes;
}

int64_t layout_parts(const struct layout *layout, const struct device_mesh *mesh, int dimension) {
    return device_mesh_devices(mesh, layout_axes_of(layout, dimension));
}

bool layout_fits(const struct layout *layout, const struct device_mesh *mesh, const struct layout_shape *shape) {
    for (int d = 0; d < shape->rank; d++)
        if (shape->dims[d] % layout_parts(layout, mesh, d) != 0) return false;
    return true;
}

int64_t layout_local_elements(const struct layout *layout, const struct device_mesh *mesh,
                              const struct layout_shape *shape) {
    int64_t elements = 1;
    for (int d = 0; d < shape->rank; d++)
        elements *= (shape->dims[d] + layout_parts(layout, mesh, d) - 1) / layout_parts(layout, mesh, d);
    return elements;
}

/* An axis is a digit: 0 replicated, 1 + d for dimension d. */
int layout_count(const struct device_mesh *mesh, int rank) {
    int count = 1;
    for (int axis = 0; axis < mesh->axes; axis++)
        count *= rank + 1;
    return count;
}

int layout_number(const struct layout *layout, const struct device_mesh *mesh, int rank) {
    int number = 0;
    for (int axis = 0; axis < mesh->axes; axis++)
        number = number * (rank + 1) + 1 + layout->dimension[axis];
    return number;
}

struct layout layout_of_number(int number, const struct device_mesh *mesh, int rank) {
    struct layout layout = layout_replicated();
    for (int axis = mesh->axes - 1; axis >= 0; axis--) {
        layout.dimension[axis] = (int8_t)(number % (rank + 1) - 1);
        number /= rank + 1;
    }
    return layout;
}

char *layout_print(const struct layout *layout, int rank, char text[LAYOUT_TEXT]) {
    int used = 0;
    text[0] = '\0';
    for (int d = 0; d < rank; d++) {
        unsigned axes = layout_axes_of(layout, d);
        text[used++] = axes == 0 ? 'R' : 'S';
        for (int axis = 0; axis < DEVICE_MESH_AXES_MAX; axis++)
            if (axes >> axis & 1) text[used++] = (char)('0' + axis);
        text[used] = '\0';
    }
    return text;
}

/* No higher axis cuts the dimension. */
static bool is_last(const struct layout *layout, int axis, int dimension) {
    return layout_axes_of(layout, dimension) >> axis >> 1 == 0;
}

int layout_steps(const struct layout *layout, const struct device_mesh *mesh, int rank,
                 struct layout_step out[LAYOUT_STEPS_MAX]) {
    int count = 0;
    for (int axis = 0; axis < mesh->axes; axis++) {
        int from = layout->dimension[axis];
        if (from != LAYOUT_REPLICATED && is_last(layout, axis, from))
            out[count++] = (struct layout_step){LAYOUT_GATHER, axis, from, LAYOUT_REPLICATED};
    }
    for (enum layout_action action = LAYOUT_ALL_TO_ALL; action <= LAYOUT_CUT; action++) {
        for (int axis = 0; axis < mesh->axes; axis++) {
            int from = layout->dimension[axis];
            if ((from == LAYOUT_REPLICATED) != (action == LAYOUT_CUT)) continue;
            if (from != LAYOUT_REPLICATED && !is_last(layout, axis, from)) continue;
            for (int to = 0; to < rank; to++)
                if (to != from && is_last(layout, axis, to))
                    out[count++] = (struct layout_step){action, axis, from, to};
        }
    }
    return count;
}

struct layout layout_after(const struct layout *layout, const struct layout_step *step) {
    struct layout after = *layout;
    after.dimension[step->axis] = (int8_t)step->to;
    return after;
}
