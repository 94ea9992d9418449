/* Where a pipeline is cut into stages, and which submesh each gets (Alpa, OSDI'22, section 5).
 *
 * With B waves a step takes sum_i t_i + (B - 1) max_i t_i, t_i the time of one wave in stage i, forward
 * and backward. For each time t that could be the longest, F(s, k, d) is the least sum over s stages for layers k to
 * the last on d devices, none longer than t:
 *
 *     F(s, k, d) = min over i >= k and submeshes m of  t(k..i, m) + F(s - 1, i + 1, d - devices of m)
 *
 * A stage that s - 1 others follow holds the activations of up to s waves (1F1B). */
#ifndef BALLAST_PLAN_LAYOUT_STAGE_CUT_H
#define BALLAST_PLAN_LAYOUT_STAGE_CUT_H

#include <stdint.h>

#include "base/status.h"

enum { STAGE_LAYERS_MAX = 512, STAGE_DEVICES_MAX = 1 << 14, STAGE_SUBMESHES_MAX = 64 };
#define STAGE_ENTRIES_MAX ((size_t)1 << 26) /* of the table of F */

/* Layers first to last as one stage on one kind of submesh. */
struct stage_cost {
    double seconds;     /* of one wave; INFINITY: cannot be */
    int64_t held_bytes; /* a device, whatever is in flight */
    int64_t wave_bytes; /* a device, for each wave in flight */
};
struct stage_problem {
    int layers, devices, submesh_count;
    const int *submesh_devices;     /* [submesh_count] */
    int64_t waves;                  /* B, at least 1 */
    const struct stage_cost *costs; /* [layers first][layers last][submesh_count]; first > last is not read */
    int64_t device_bytes;           /* no device of a stage may need more; INT64_MAX: no limit */
};
struct stage {
    int first, last; /* layers */
    int submesh;
};
struct stage_cut {
    int count;
    struct stage *stages; /* in the order of the layers; all devices are used */
    double seconds;       /* of a step */
};

/* The fastest, exactly; of equally fast ones the one whose longest stage is shortest, then whose first stage is the
 * shortest with the first submesh. NO_FIT where no cut uses all devices within their memory; BAD_INPUT naming what is
 * out of range. Free with stage_cut_free. */
enum status stage_cut_find(const struct stage_problem *problem, struct stage_cut *out);
void stage_cut_free(struct stage_cut *cut);

#endif
