#include "plan/layout/sharding.h"

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

/* Time of a ring over these axes by the alpha-beta model. Each link carries `moved` times `bytes` (n-1)/n. */
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

/* Derives the rows of a mesh from measurements between pairs of devices. */

#define CLASS_SPREAD 1.1 /* a class holds the pairs within so much of its fastest */

ORDER_BY(compare_pairs, struct device_pair, item->s_per_byte)

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
    AUTO_FREE struct device_pair *sorted = mem_array((size_t)pair_count + 1, sizeof *sorted);
    AUTO_FREE int *lead = mem_array((size_t)count, sizeof *lead);
    AUTO(mesh_rows_free) struct mesh_rows rows = {.devices = mem_array((size_t)count, sizeof *rows.devices)};
    if (!sorted || !lead || !rows.devices) return STATUS_FAILED;
    if (pair_count > 0) memcpy(sorted, pairs, (size_t)pair_count * sizeof *pairs);
    qsort(sorted, (size_t)pair_count, sizeof *sorted, compare_pairs);
    rows.columns = rows_of_classes(count, sorted, pair_count, lead);
    rows.rows = rows.columns > 0 ? count / rows.columns : 0;
    if (rows.columns > 0)
        write_rows(count, lead, &rows);
    else
        balance(count, &rows);
    *out = TAKE(rows);
    return STATUS_OK;
}

void mesh_rows_free(struct mesh_rows *rows) {
    mem_free(rows->devices);
    *rows = (struct mesh_rows){0};
}

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

struct step_price conversion_price_s(const struct device_mesh *mesh, const struct layout_step *step, double bytes) {
    unsigned axes = 1u << step->axis;
    double all_to_all_s = device_mesh_all_to_all_s(mesh, axes, bytes);
    switch (step->action) {
    case LAYOUT_GATHER:
        return (struct step_price){.forward =
                                       device_mesh_all_gather_s(mesh, axes, bytes * (double)mesh->sizes[step->axis])};
    case LAYOUT_ALL_TO_ALL: return (struct step_price){all_to_all_s, all_to_all_s};
    case LAYOUT_CUT: return (struct step_price){.backward = device_mesh_all_gather_s(mesh, axes, bytes)};
    }
    BUG("a step of kind %d", (int)step->action);
}

static struct step_price price_step(const struct conversions *c, const struct layout *layout,
                                    const struct layout_step *step) {
    double bytes = (double)layout_local_elements(layout, &c->mesh, &c->shape) * (double)c->element_bytes;
    return c->pricer(&c->mesh, step, bytes);
}

/* One run of Dijkstra; the arrays are by number of layout. */
struct search {
    double *price; /* from the source */
    int16_t *first;
    int *steps;
    bool *done;
};

/* The nearest layout that is not done, or -1. */
static int nearest(const struct search *search, int count) {
    int best = -1;
    for (int i = 0; i < count; i++) {
        if (search->done[i] || isinf(search->price[i])) continue;
        if (best < 0 || search->price[i] < search->price[best] ||
            (search->price[i] == search->price[best] && search->steps[i] < search->steps[best]))
            best = i;
    }
    return best;
}

static bool is_better(const struct search *search, int to, double price, int steps, int16_t first) {
    if (price != search->price[to]) return price < search->price[to];
    if (steps != search->steps[to]) return steps < search->steps[to];
    return first < search->first[to];
}

static void relax(const struct conversions *c, const struct search *search, int source, int at) {
    struct layout layout = layout_of_number(at, &c->mesh, c->shape.rank);
    struct layout_step steps[LAYOUT_STEPS_MAX];
    int count = layout_steps(&layout, &c->mesh, c->shape.rank, steps);
    for (int i = 0; i < count; i++) {
        struct layout after = layout_after(&layout, &steps[i]);
        if (!layout_fits(&after, &c->mesh, &c->shape)) continue;
        struct step_price taken = price_step(c, &layout, &steps[i]);
        int to = layout_number(&after, &c->mesh, c->shape.rank);
        double price = search->price[at] + taken.forward + taken.backward;
        int16_t first = at == source ? (int16_t)to : search->first[at];
        if (search->done[to] || !is_better(search, to, price, search->steps[at] + 1, first)) continue;
        search->price[to] = price, search->steps[to] = search->steps[at] + 1, search->first[to] = first;
    }
}

static void solve_from(const struct conversions *c, int source, struct search *search) {
    struct layout layout = layout_of_number(source, &c->mesh, c->shape.rank);
    search->price = c->price + (size_t)source * (size_t)c->count;
    search->first = c->first + (size_t)source * (size_t)c->count;
    for (int i = 0; i < c->count; i++)
        search->price[i] = INFINITY, search->first[i] = -1, search->steps[i] = 0, search->done[i] = false;
    if (!layout_fits(&layout, &c->mesh, &c->shape)) return;
    search->price[source] = 0;
    for (int at = source; at >= 0; at = nearest(search, c->count)) {
        search->done[at] = true;
        relax(c, search, source, at);
    }
}

enum status conversions_create(const struct device_mesh *mesh, const struct layout_shape *shape, int64_t element_bytes,
                               step_pricer *pricer, struct conversions *out) {
    size_t count = (size_t)layout_count(mesh, shape->rank);
    AUTO(conversions_free)
    struct conversions made = {
        .mesh = *mesh, .shape = *shape, .element_bytes = element_bytes, .count = (int)count, .pricer = pricer};
    made.price = mem_array(count * count, sizeof *made.price);
    made.first = mem_array(count * count, sizeof *made.first);
    struct search search = {.steps = mem_array(count, sizeof *search.steps),
                            .done = mem_array(count, sizeof *search.done)};
    enum status status = made.price && made.first && search.steps && search.done ? STATUS_OK : STATUS_FAILED;
    for (int source = 0; source < made.count && status == STATUS_OK; source++)
        solve_from(&made, source, &search);
    mem_free(search.steps);
    mem_free(search.done);
    TRY(status);
    *out = TAKE(made);
    return STATUS_OK;
}

void conversions_free(struct conversions *conversions) {
    mem_free(conversions->price);
    mem_free(conversions->first);
    *conversions = (struct conversions){0};
}

static size_t pair_of(const struct conversions *c, const struct layout *from, const struct layout *to) {
    return (size_t)layout_number(from, &c->mesh, c->shape.rank) * (size_t)c->count +
           (size_t)layout_number(to, &c->mesh, c->shape.rank);
}

double conversions_price(const struct conversions *conversions, const struct layout *from, const struct layout *to) {
    return conversions->price[pair_of(conversions, from, to)];
}

/* The step that leads to `after` at once. */
static struct layout_step step_to(const struct conversions *c, const struct layout *layout,
                                  const struct layout *after) {
    struct layout_step steps[LAYOUT_STEPS_MAX];
    int count = layout_steps(layout, &c->mesh, c->shape.rank, steps);
    for (int i = 0; i < count; i++) {
        struct layout reached = layout_after(layout, &steps[i]);
        if (layout_equal(&reached, after)) return steps[i];
    }
    BUG("no step leads from one layout to the next");
}

int conversions_path(const struct conversions *conversions, const struct layout *from, const struct layout *to,
                     struct conversion_step out[CONVERSION_STEPS_MAX]) {
    struct layout at = *from;
    int count = 0;
    while (!layout_equal(&at, to)) {
        int next = conversions->first[pair_of(conversions, &at, to)];
        if (next < 0) return 0;
        struct layout after = layout_of_number(next, &conversions->mesh, conversions->shape.rank);
        BUG_IF(count == CONVERSION_STEPS_MAX, "a way of more than %d steps", CONVERSION_STEPS_MAX);
        out[count].step = step_to(conversions, &at, &after);
        out[count].price = price_step(conversions, &at, &out[count].step);
        count++, at = after;
    }
    return count;
}

static bool is_for(const struct conversions *c, const struct layout_shape *shape, int64_t element_bytes) {
    return c->element_bytes == element_bytes && c->shape.rank == shape->rank &&
           memcmp(c->shape.dims, shape->dims, (size_t)shape->rank * sizeof *shape->dims) == 0;
}

enum status conversion_cache_find(struct conversion_cache *cache, const struct layout_shape *shape,
                                  int64_t element_bytes, const struct conversions **out) {
    for (size_t i = 0; i < cache->kept.count; i++) {
        if (!is_for(cache->kept.items[i], shape, element_bytes)) continue;
        *out = cache->kept.items[i];
        return STATUS_OK;
    }
    struct conversions *made = mem_array(1, sizeof *made);
    if (!made) return STATUS_FAILED;
    enum status status = conversions_create(&cache->mesh, shape, element_bytes, cache->pricer, made);
    if (status == STATUS_OK) status = vec_push(&cache->kept, made);
    if (status == STATUS_OK) {
        *out = made;
        return STATUS_OK;
    }
    conversions_free(made);
    mem_free(made);
    return status;
}

void conversion_cache_free(struct conversion_cache *cache) {
    for (size_t i = 0; i < cache->kept.count; i++) {
        conversions_free(cache->kept.items[i]);
        mem_free(cache->kept.items[i]);
    }
    vec_free(&cache->kept);
}
