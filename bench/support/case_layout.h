/* Meshes, shapes and layouts as files of cases have them. */
#ifndef BALLAST_BENCH_CASE_LAYOUT_H
#define BALLAST_BENCH_CASE_LAYOUT_H

#include "layout/layout.h"
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
json_t *case_layout_to_json(const struct layout *layout, int rank);

#endif
