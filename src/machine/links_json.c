
#include "base/json.h"
#include "machine/links.h"

/* Far beyond any machine: what is larger is a damaged file. */
static const double SECONDS_MAX = 1e6, MAX_BYTES_PER_S = 1e18;
enum { FIELD_BYTES = 64, MESH_TEXT_BYTES = 32 };

static json_t *rate_to_json(const struct transfer_rate *rate) {
    if (rate->bytes_per_s <= 0) return json_null();
    return json_pack("{s:f, s:f}", "latency_s", rate->latency_s, "bytes_per_s", rate->bytes_per_s);
}

/* All of a list, or NULL. */
static json_t *list_of(const struct cluster_links *links, int count,
                       json_t *(*item_to_json)(const struct cluster_links *, int)) {
    json_t *list = json_array();
    int failed = !list;
    for (int i = 0; i < count; i++)
        failed |= json_array_append_new(list, item_to_json(links, i));
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

static json_t *point_to_json(const struct cluster_links *links, int i) {
    const struct link_point *point = &links->points[i];
    return json_pack("{s:s, s:s, s:b, s:b, s:I, s:f}", "kind", link_kind_name(point->kind), "group",
                     link_group_name(point->group), "in_place", point->in_place, "flat", point->flat, "bytes",
                     (json_int_t)point->bytes, "seconds", point->seconds);
}

static json_t *pair_to_json(const struct cluster_links *links, int i) {
    const struct link_pair *pair = &links->pairs[i];
    return json_pack("{s:i, s:i, s:f, s:f}", "first", pair->first, "second", pair->second, "latency_s",
                     pair->rate.latency_s, "bytes_per_s", pair->rate.bytes_per_s);
}

static json_t *row_to_json(const struct cluster_links *links, int row) {
    json_t *list = json_array();
    int failed = !list, columns = links->rows.columns;
    for (int i = 0; i < columns; i++)
        failed |= json_array_append_new(list, json_integer(links->rows.ranks[row * columns + i]));
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

json_t *links_to_json(const struct cluster_links *links) {
    if (links->mesh.nodes == 0) return json_null();
    char mesh[MESH_TEXT_BYTES];
    snprintf(mesh, sizeof mesh, "%dx%d", links->mesh.nodes, links->mesh.per_node);
    json_t *object = json_pack(
        "{s:s, s:b, s:{s:o, s:o}, s:o, s:o, s:o}", "mesh", mesh, "shared", links->shared, "messages",
        link_axis_name(MESH_IN_NODE), rate_to_json(&links->message[MESH_IN_NODE]), link_axis_name(MESH_ACROSS),
        rate_to_json(&links->message[MESH_ACROSS]), "read", rate_to_json(&links->read), "operations",
        list_of(links, links->point_count, point_to_json), "pairs", list_of(links, links->pair_count, pair_to_json));
    if (object && links->rows.rows > 0 &&
        json_object_set_new(object, "rows", list_of(links, links->rows.rows, row_to_json)) != 0) {
        json_decref(object);
        object = NULL;
    }
    if (!object) (void)status_no_memory(0, "the links' JSON");
    return object;
}

/* A rate that is there; null and absence leave it 0. */
static enum status read_rate(const char *where, const json_t *object, struct transfer_rate *out) {
    if (!object || json_is_null(object)) return STATUS_OK;
    if (!json_is_object(object)) return status_set(STATUS_BAD_INPUT, "%s: must be an object", where);
    TRY(json_require(where, object, "latency_s"));
    TRY(json_require(where, object, "bytes_per_s"));
    TRY(json_read_double(where, object, "latency_s", 0, SECONDS_MAX, &out->latency_s));
    return json_read_double(where, object, "bytes_per_s", 1, MAX_BYTES_PER_S, &out->bytes_per_s);
}

static enum status read_mesh(const char *where, const json_t *object, struct mesh *out) {
    const char *text = "";
    char after;
    TRY(json_require(where, object, "mesh"));
    TRY(json_read_string(where, object, "mesh", &text));
    struct mesh mesh;
    bool good = strlen(text) < MESH_TEXT_BYTES && sscanf(text, "%dx%d%c", &mesh.nodes, &mesh.per_node, &after) == 2 &&
                mesh.nodes >= 1 && mesh.per_node >= 1 && mesh.nodes <= LANES_MAX / mesh.per_node;
    if (!good) return status_set(STATUS_BAD_INPUT, "%s: mesh: must be nodes x ranks in a node, as 2x4", where);
    *out = mesh;
    return STATUS_OK;
}

static enum status read_name(const char *where, const json_t *object, const char *field, const char *(*name_of)(int),
                             int count, int *out) {
    const char *text = "";
    TRY(json_require(where, object, field));
    TRY(json_read_string(where, object, field, &text));
    for (*out = 0; *out < count; ++*out)
        if (strcmp(name_of(*out), text) == 0) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s: no \"%s\" is known", where, field, text);
}

static const char *kind_name(int kind) { return link_kind_name((enum comm_kind)kind); }
static const char *group_name(int group) { return link_group_name((enum mesh_group_kind)group); }

static enum status read_point(const char *where, const json_t *object, struct link_point *out) {
    int kind, group;
    TRY(read_name(where, object, "kind", kind_name, COMM_KINDS, &kind));
    TRY(read_name(where, object, "group", group_name, MESH_PEERS + 1, &group));
    out->kind = (enum comm_kind)kind, out->group = (enum mesh_group_kind)group;
    TRY(json_require(where, object, "bytes"));
    TRY(json_require(where, object, "seconds"));
    TRY(json_read_bool(where, object, "in_place", &out->in_place));
    TRY(json_read_bool(where, object, "flat", &out->flat));
    TRY(json_read_int(where, object, "bytes", 1, INT64_MAX, &out->bytes));
    return json_read_double(where, object, "seconds", 0, SECONDS_MAX, &out->seconds);
}

static enum status read_pair(const char *where, const json_t *object, int ranks, struct link_pair *out) {
    int64_t first = 0, second = 0;
    TRY(json_require(where, object, "first"));
    TRY(json_require(where, object, "second"));
    TRY(json_read_int(where, object, "first", 0, ranks - 1, &first));
    TRY(json_read_int(where, object, "second", 0, ranks - 1, &second));
    out->first = (int)first, out->second = (int)second;
    return read_rate(where, object, &out->rate);
}

static enum status read_list(const char *where, const json_t *object, const char *field, size_t max, json_t **out) {
    *out = json_object_get(object, field);
    if (!json_is_array(*out) || json_array_size(*out) > max)
        return status_set(STATUS_BAD_INPUT, "%s: %s: must be a list of at most %zu", where, field, max);
    for (size_t i = 0; i < json_array_size(*out); i++)
        if (!json_is_object(json_array_get(*out, i)))
            return status_set(STATUS_BAD_INPUT, "%s: %s[%zu]: must be an object", where, field, i);
    return STATUS_OK;
}

static enum status read_lists(const char *where, const json_t *object, struct cluster_links *out) {
    json_t *points, *pairs;
    char place[512];
    TRY(read_list(where, object, "operations", LINK_POINTS_MAX, &points));
    for (size_t i = 0; i < json_array_size(points); i++) {
        snprintf(place, sizeof place, "%s: operations[%zu]", where, i);
        TRY(read_point(place, json_array_get(points, i), &out->points[out->point_count++]));
    }
    TRY(read_list(where, object, "pairs", LINK_PAIRS_MAX, &pairs));
    for (size_t i = 0; i < json_array_size(pairs); i++) {
        snprintf(place, sizeof place, "%s: pairs[%zu]", where, i);
        TRY(read_pair(place, json_array_get(pairs, i), mesh_ranks(&out->mesh), &out->pairs[out->pair_count++]));
    }
    return STATUS_OK;
}

/* Every rank stands in one row, and rows are as long as each other. */
static enum status read_rows(const char *where, const json_t *object, int ranks, struct link_rows *out) {
    const json_t *list = json_object_get(object, "rows");
    size_t rows = json_array_size(list), columns = json_array_size(json_array_get(list, 0));
    bool seen[LINK_ROW_RANKS_MAX] = {false};
    if (!list) return STATUS_OK;
    bool good = rows > 0 && columns > 0 && ranks <= LINK_ROW_RANKS_MAX && rows <= (size_t)ranks &&
                columns <= (size_t)ranks && rows * columns == (size_t)ranks;
    for (size_t i = 0; good && i < rows * columns; i++) {
        const json_t *row = json_array_get(list, i / columns), *rank = json_array_get(row, i % columns);
        good = json_array_size(row) == columns && json_is_integer(rank) && json_integer_value(rank) >= 0 &&
               json_integer_value(rank) < ranks && !seen[json_integer_value(rank)];
        if (!good) break;
        out->ranks[i] = (int)json_integer_value(rank);
        seen[out->ranks[i]] = true;
    }
    if (!good)
        return status_set(STATUS_BAD_INPUT, "%s: rows: must be lists of equal length with each of %d ranks once", where,
                          ranks);
    out->rows = (int)rows, out->columns = (int)columns;
    return STATUS_OK;
}

enum status links_from_json(const char *file, const json_t *object, struct cluster_links *out) {
    struct cluster_links links = {.point_count = 0};
    char where[400], place[FIELD_BYTES + 400];
    snprintf(where, sizeof where, "%s: links", file);
    if (!json_is_object(object)) return status_set(STATUS_BAD_INPUT, "%s: must be an object", where);
    TRY(read_mesh(where, object, &links.mesh));
    TRY(json_read_bool(where, object, "shared", &links.shared));
    const json_t *messages = json_object_get(object, "messages");
    for (int axis = 0; axis < MESH_AXES; axis++) {
        snprintf(place, sizeof place, "%s: messages %s", where, link_axis_name((enum mesh_axis)axis));
        TRY(read_rate(place, json_object_get(messages, link_axis_name((enum mesh_axis)axis)), &links.message[axis]));
    }
    snprintf(place, sizeof place, "%s: read", where);
    TRY(read_rate(place, json_object_get(object, "read"), &links.read));
    TRY(read_lists(where, object, &links));
    TRY(read_rows(where, object, mesh_ranks(&links.mesh), &links.rows));
    *out = links;
    return STATUS_OK;
}
