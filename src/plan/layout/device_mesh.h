/* Devices by up to three axes, and what a collective over some of the axes takes.
 *
 * Devices are numbered along the last axis first. An axis has a latency and a time per byte; a collective over several
 * axes at once (a *flattened* mesh) has the worst of each. Costs are those of rings (Colossal-Auto, arXiv 2302.02599;
 * Alpa, OSDI'22), in seconds, with n for the number of devices that take part; all are 0 where n is 1. */
#pragma once

#include "base/base.h"

enum { DEVICE_MESH_AXES_MAX = 3, DEVICE_MESH_DEVICES_MAX = 1 << 20 };

struct device_mesh {
    int axes;                                /* 1 to DEVICE_MESH_AXES_MAX */
    int64_t sizes[DEVICE_MESH_AXES_MAX];     /* devices along each, at least 1 */
    double latency_s[DEVICE_MESH_AXES_MAX];  /* alpha */
    double s_per_byte[DEVICE_MESH_AXES_MAX]; /* beta */
};

/* BAD_INPUT naming the axis when a size, latency or time per byte is out of range, or there are too many devices. */
enum status device_mesh_check(const struct device_mesh *mesh);

/* Sets of axes are bits: 1 << axis. */
static inline unsigned device_mesh_all_axes(const struct device_mesh *mesh) { return (1u << mesh->axes) - 1; }
/* Devices along these axes together; 1 for none. */
int64_t device_mesh_devices(const struct device_mesh *mesh, unsigned axes);

/* Where a device stands on each axis. */
void device_mesh_place(const struct device_mesh *mesh, int64_t device, int64_t place[DEVICE_MESH_AXES_MAX]);

/* alpha + beta x (n-1)/n, x what each device has afterwards. */
double device_mesh_all_gather_s(const struct device_mesh *mesh, unsigned axes, double bytes);
/* alpha + beta x (n-1)/n, x what each device has before. */
double device_mesh_reduce_scatter_s(const struct device_mesh *mesh, unsigned axes, double bytes);
/* alpha + 2 beta x (n-1)/n, x what each device has. */
double device_mesh_all_reduce_s(const struct device_mesh *mesh, unsigned axes, double bytes);
/* alpha + beta x (n-1)/n, x what each device has: with n x bytes in all, the (n-1)/n^2 of the papers. */
double device_mesh_all_to_all_s(const struct device_mesh *mesh, unsigned axes, double bytes);

/* --- which devices form the rows of a mesh --- */

/* What was measured between two devices, by their positions in the list of devices. */
struct device_pair {
    int first, second;
    double latency_s, s_per_byte;
};
struct mesh_rows {
    int rows, columns;
    int *devices; /* [rows * columns] positions in the list, each row ascending, rows by their first */
};
/* Two axes for `count` devices, of which each pair was measured. Pairs are put in classes of times per byte within 10%;
 * from the fastest class up, but never the slowest, the first whose pairs touch every device gives the rows, as its
 * connected components, if these are of one size. Otherwise rows and columns as equal as they can be, columns the
 * larger (Colossal-Auto's AlphaBetaProfiler). BAD_INPUT when a pair is missing, twice there, or out of range. Free
 * with mesh_rows_free. */
enum status mesh_rows_search(int count, const struct device_pair *pairs, int pair_count, struct mesh_rows *out);
void mesh_rows_free(struct mesh_rows *rows);
