/* Reads meshes, shapes and layouts from files of cases. */
#pragma once

#include "plan/layout/sharding.h"
#include "support/case_json.h"

/* "mesh_shape" [4, 4] with "mesh_alpha" and "mesh_beta", or "mesh" likewise; 4 x 4 devices where there is none, and 1
 * for alphas and betas. */
enum status case_read_mesh(const char *place, const json_t *object, struct device_mesh *out);
/* A field with the sizes of a tensor. */
enum status case_read_shape(const char *place, const json_t *object, const char *field, struct layout_shape *out);
/* ["S0", "R"]; `field` is what it is called in messages. Its rank in `rank`, which is at most LAYOUT_RANK_MAX. */
enum status case_parse_layout(const char *place, const char *field, const json_t *texts, const struct device_mesh *mesh,
                              int *rank, struct layout *out);
/* The same of a field of an object, for a tensor of `rank`, or of any rank where that is -1, which it then is. */
enum status case_read_layout(const char *place, const json_t *object, const char *field, const struct device_mesh *mesh,
                             int *rank, struct layout *out);
/* What mesh_rows_search takes for granted of one or more devices. BAD_INPUT when a pair is missing, twice there, or out
 * of range. */
enum status case_check_pairs(int count, const struct device_pair *pairs, int pair_count);
json_t *case_layout_to_json(const struct layout *layout, int rank);

/* --- layouts and meshes in themselves --- */

/* Parses one dimension, "R" or "S01", into `layout`, whose axes must be free. BAD_INPUT for any other text, and for an
 * axis that is outside the mesh, taken, or out of order. */
enum status layout_parse_dimension(const char *text, const struct device_mesh *mesh, int dimension,
                                   struct layout *layout);
/* One device's part of the tensor: its first index in each dimension, and its sizes. */
void layout_part(const struct layout *layout, const struct device_mesh *mesh, const struct layout_shape *shape,
                 int64_t device, int64_t begin[LAYOUT_RANK_MAX], int64_t size[LAYOUT_RANK_MAX]);
/* The device at `position` along `axis` that shares the other coordinates of `device`. */
int64_t device_mesh_neighbour(const struct device_mesh *mesh, int64_t device, int axis, int64_t position);
/* The layout of the reshaped tensor in which every device keeps its elements, so that nothing moves
 * (case_layout_reshape.c). False where there is none: a cut begins within a dimension of the new shape, or does not
 * divide it. Both shapes hold as many elements, and the layout fits the first. */
bool layout_reshape(const struct layout *layout, const struct device_mesh *mesh, const struct layout_shape *from,
                    const struct layout_shape *to, struct layout *out);
