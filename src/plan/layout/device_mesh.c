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

/* Rows of a mesh from what was measured between pairs of devices. */

enum { DEVICES_MAX = 4096 };
#define CLASS_SPREAD 1.1 /* a class holds the pairs within so much of its fastest */

static enum status check_pairs(int count, const struct device_pair *pairs, int pair_count, bool *seen) {
    for (int i = 0; i < pair_count; i++) {
        const struct device_pair *pair = &pairs[i];
        if (pair->first < 0 || pair->second >= count || pair->first >= pair->second)
            return status_set(STATUS_BAD_INPUT, "pair %d: devices %d and %d: must be ascending and below %d", i,
                              pair->first, pair->second, count);
        if (!(pair->s_per_byte >= 0 && isfinite(pair->s_per_byte)))
            return status_set(STATUS_BAD_INPUT, "pair %d: %g s a byte: must be 0 or more", i, pair->s_per_byte);
        size_t at = (size_t)pair->first * (size_t)count + (size_t)pair->second;
        if (seen[at])
            return status_set(STATUS_BAD_INPUT, "pair %d: devices %d and %d are there twice", i, pair->first,
                              pair->second);
        seen[at] = true;
    }
    if ((int64_t)pair_count != (int64_t)count * (count - 1) / 2)
        return status_set(STATUS_BAD_INPUT, "%d pairs: %d devices have %lld", pair_count, count,
                          (long long)count * (count - 1) / 2);
    return STATUS_OK;
}

static int compare_pairs(const void *a, const void *b) {
    double left = ((const struct device_pair *)a)->s_per_byte, right = ((const struct device_pair *)b)->s_per_byte;
    return (left > right) - (left < right);
}

/* The first device of each one's component in `lead`. */
static void join_pairs(int count, const struct device_pair *pairs, int pair_count, int *lead) {
    for (int i = 0; i < count; i++)
        lead[i] = i;
    for (int i = 0; i < pair_count; i++) {
        int first = lead[pairs[i].first], second = lead[pairs[i].second];
        int kept = first < second ? first : second, gone = first < second ? second : first;
        for (int k = 0; k < count && kept != gone; k++)
            if (lead[k] == gone) lead[k] = kept;
    }
}

/* Size of each component where all have one size of at least 2, else 0. */
static int component_size(int count, const int *lead) {
    int size = 0;
    for (int i = 0; i < count; i++) {
        int members = 0;
        if (lead[i] != i) continue;
        for (int k = i; k < count; k++)
            members += lead[k] == i;
        if (members < 2 || (size > 0 && members != size)) return 0;
        size = members;
    }
    return size;
}

/* Columns of the rows that the classes give, `lead` set; 0 where none does. Pairs are sorted. */
static int rows_of_classes(int count, const struct device_pair *pairs, int pair_count, int *lead) {
    int begin = 0, size = 0;
    while (begin < pair_count && size == 0) {
        int end = begin;
        while (end < pair_count && pairs[end].s_per_byte <= pairs[begin].s_per_byte * CLASS_SPREAD)
            end++;
        if (end == pair_count) return 0; /* the slowest */
        join_pairs(count, pairs + begin, end - begin, lead);
        size = component_size(count, lead);
        begin = end;
    }
    return size;
}

static void write_rows(int count, const int *lead, struct mesh_rows *rows) {
    int written = 0;
    for (int i = 0; i < count; i++)
        for (int k = i; k < count && lead[i] == i; k++)
            if (lead[k] == i) rows->devices[written++] = k;
}

/* The largest divisor that is not above the root. */
static int balanced_rows(int count) {
    int rows = 1;
    for (int i = 2; i <= count / i; i++)
        if (count % i == 0) rows = i;
    return rows;
}

static void balance(int count, struct mesh_rows *rows) {
    rows->rows = balanced_rows(count);
    rows->columns = count / rows->rows;
    for (int i = 0; i < count; i++)
        rows->devices[i] = i;
}

enum status mesh_rows_search(int count, const struct device_pair *pairs, int pair_count, struct mesh_rows *out) {
    if (count < 1 || count > DEVICES_MAX)
        return status_set(STATUS_BAD_INPUT, "%d devices: must be 1 to %d", count, DEVICES_MAX);
    struct device_pair *sorted = NULL;
    struct mesh_rows rows = {0};
    int *lead = NULL;
    enum status status = STATUS_FAILED;
    bool *seen = mem_array((size_t)count * (size_t)count, sizeof *seen);
    if (!seen) return status;
    TRY_GOTO(status, check_pairs(count, pairs, pair_count, seen), done);
    status = STATUS_FAILED;
    sorted = mem_array((size_t)pair_count + 1, sizeof *sorted);
    lead = mem_array((size_t)count, sizeof *lead);
    rows.devices = mem_array((size_t)count, sizeof *rows.devices);
    if (!sorted || !lead || !rows.devices) goto done;
    if (pair_count > 0) memcpy(sorted, pairs, (size_t)pair_count * sizeof *pairs);
    qsort(sorted, (size_t)pair_count, sizeof *sorted, compare_pairs);
    rows.columns = rows_of_classes(count, sorted, pair_count, lead);
    rows.rows = rows.columns > 0 ? count / rows.columns : 0;
    if (rows.columns > 0)
        write_rows(count, lead, &rows);
    else
        balance(count, &rows);
    *out = rows, rows.devices = NULL;
    status = STATUS_OK;
done:
    mem_free(rows.devices);
    mem_free(lead);
    mem_free(sorted);
    mem_free(seen);
    return status;
}

void mesh_rows_free(struct mesh_rows *rows) {
    mem_free(rows->devices);
    *rows = (struct mesh_rows){0};
}
