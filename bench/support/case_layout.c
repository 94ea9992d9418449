#include "support/case_layout.h"

#include <string.h>

#include "base/json.h"

enum { USUAL_AXES = 2, USUAL_SIZE = 4 };

static enum status read_rates(const char *place, const json_t *object, const char *field, int axes, double *out) {
    const json_t *rates;
    for (int axis = 0; axis < axes; axis++)
        out[axis] = 1;
    if (!json_object_get(object, field)) return STATUS_OK;
    TRY(case_array_of(place, object, field, (size_t)axes, &rates));
    for (int axis = 0; axis < axes; axis++)
        TRY(case_item_double(place, field, rates, (size_t)axis, 0, 1e15, &out[axis]));
    return STATUS_OK;
}

enum status case_read_mesh(const char *place, const json_t *object, struct device_mesh *out) {
    const char *field = json_object_get(object, "mesh_shape") ? "mesh_shape" : "mesh";
    const json_t *sizes;
    *out = (struct device_mesh){.axes = USUAL_AXES, .sizes = {USUAL_SIZE, USUAL_SIZE}};
    if (json_object_get(object, field)) {
        TRY(case_array(place, object, field, &sizes));
        if (json_array_size(sizes) < 1 || json_array_size(sizes) > DEVICE_MESH_AXES_MAX)
            return status_set(STATUS_BAD_INPUT, "%s: %s: must hold 1 to %d sizes", place, field, DEVICE_MESH_AXES_MAX);
        out->axes = (int)json_array_size(sizes);
        for (int axis = 0; axis < out->axes; axis++)
            TRY(case_item_int(place, field, sizes, (size_t)axis, 1, DEVICE_MESH_DEVICES_MAX, &out->sizes[axis]));
    }
    TRY(read_rates(place, object, "mesh_alpha", out->axes, out->latency_s));
    TRY(read_rates(place, object, "mesh_beta", out->axes, out->s_per_byte));
    enum status status = device_mesh_check(out);
    return status == STATUS_OK ? status : status_prefix(status, "%s: %s", place, field);
}

enum status case_read_shape(const char *place, const json_t *object, const char *field, struct layout_shape *out) {
    const json_t *sizes;
    int64_t elements = 1;
    TRY(case_array(place, object, field, &sizes));
    if (json_array_size(sizes) > LAYOUT_RANK_MAX)
        return status_set(STATUS_BAD_INPUT, "%s: %s: must hold at most %d sizes", place, field, LAYOUT_RANK_MAX);
    *out = (struct layout_shape){.rank = (int)json_array_size(sizes)};
    for (int d = 0; d < out->rank; d++) {
        TRY(case_item_int(place, field, sizes, (size_t)d, 1, INT64_MAX, &out->dims[d]));
        if (__builtin_mul_overflow(elements, out->dims[d], &elements))
            return status_set(STATUS_BAD_INPUT, "%s: %s: more elements than can be counted", place, field);
    }
    return STATUS_OK;
}

enum status case_parse_layout(const char *place, const char *field, const json_t *texts, const struct device_mesh *mesh,
                              int *rank, struct layout *out) {
    if (!json_is_array(texts) || json_array_size(texts) > LAYOUT_RANK_MAX ||
        (*rank >= 0 && json_array_size(texts) != (size_t)*rank))
        return status_set(STATUS_BAD_INPUT, "%s: %s: must be an array with a text for each dimension", place, field);
    *rank = (int)json_array_size(texts);
    *out = layout_replicated();
    for (int d = 0; d < *rank; d++) {
        const char *text = json_string_value(json_array_get(texts, (size_t)d));
        if (!text) return status_set(STATUS_BAD_INPUT, "%s: %s[%d]: must be a string", place, field, d);
        enum status status = layout_parse_dimension(text, mesh, d, out);
        if (status != STATUS_OK) return status_prefix(status, "%s: %s[%d]", place, field, d);
    }
    return STATUS_OK;
}

enum status case_read_layout(const char *place, const json_t *object, const char *field, const struct device_mesh *mesh,
                             int *rank, struct layout *out) {
    TRY(json_require(place, object, field));
    return case_parse_layout(place, field, json_object_get(object, field), mesh, rank, out);
}

json_t *case_layout_to_json(const struct layout *layout, int rank) {
    json_t *array = json_array();
    for (int d = 0; d < rank; d++) {
        struct layout only = layout_replicated();
        char text[LAYOUT_TEXT];
        for (int axis = 0; axis < DEVICE_MESH_AXES_MAX; axis++)
            if (layout->dimension[axis] == d) only.dimension[axis] = 0;
        (void)json_array_append_new(array, json_string(layout_print(&only, 1, text)));
    }
    return array;
}

enum status layout_parse_dimension(const char *text, const struct device_mesh *mesh, int dimension,
                                   struct layout *layout) {
    if (strcmp(text, "R") == 0) return STATUS_OK;
    size_t length = strlen(text);
    bool right = text[0] == 'S' && length > 1;
    for (size_t i = 1; i < length && right; i++) {
        int axis = text[i] - '0';
        right = axis >= 0 && axis < mesh->axes && layout->dimension[axis] == LAYOUT_REPLICATED &&
                (i == 1 || text[i] > text[i - 1]);
        if (right) layout->dimension[axis] = (int8_t)dimension;
    }
    if (right) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "'%.16s': must be R, or S and ascending axes below %d that cut nothing else",
                      text, mesh->axes);
}

void layout_part(const struct layout *layout, const struct device_mesh *mesh, const struct layout_shape *shape,
                 int64_t device, int64_t begin[LAYOUT_RANK_MAX], int64_t size[LAYOUT_RANK_MAX]) {
    int64_t place[DEVICE_MESH_AXES_MAX];
    device_mesh_place(mesh, device, place);
    for (int d = 0; d < shape->rank; d++)
        begin[d] = 0, size[d] = shape->dims[d];
    for (int axis = 0; axis < mesh->axes; axis++) {
        int d = layout->dimension[axis];
        if (d == LAYOUT_REPLICATED) continue;
        size[d] /= mesh->sizes[axis];
        begin[d] += place[axis] * size[d];
    }
}

int64_t device_mesh_neighbour(const struct device_mesh *mesh, int64_t device, int axis, int64_t position) {
    int64_t stride = device_mesh_devices(mesh, device_mesh_all_axes(mesh) >> (axis + 1) << (axis + 1));
    return device + (position - device / stride % mesh->sizes[axis]) * stride;
}
