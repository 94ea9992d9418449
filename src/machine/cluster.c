/* Cluster files: reading and writing cluster.json. */
#include "machine/cluster.h"

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "machine/links.h"

/* Far beyond any machine: what is larger is a damaged file. */
static const double SECONDS_MAX = 1e3, LINK_SECONDS_MAX = 1e6, MAX_BYTES_PER_S = 1e18, SLOWDOWN_MAX = 1e6;
enum { WHERE_BYTES = 512, MESH_TEXT_BYTES = 32, CLUSTER_FILE_LIMIT_BYTES = 1 << 20 };

/* ---- parts of the file; `where` is its name and the part's ---- */

static enum status need_object(const char *where, const json_t *object) {
    return json_is_object(object) ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: must be an object", where);
}

static enum status need_int(const char *where, const json_t *object, const char *field, int64_t min, int64_t max,
                            int64_t *out) {
    TRY(json_require(where, object, field));
    return json_read_int(where, object, field, min, max, out);
}

static enum status need_count(const char *where, const json_t *object, const char *field, int min, int max, int *out) {
    int64_t value = 0;
    TRY(need_int(where, object, field, min, max, &value));
    *out = (int)value;
    return STATUS_OK;
}

static enum status need_number(const char *where, const json_t *object, const char *field, double min, double max,
                               double *out) {
    TRY(json_require(where, object, field));
    return json_read_double(where, object, field, min, max, out);
}

static enum status need_text(const char *where, const json_t *object, const char *field, const char **out) {
    TRY(json_require(where, object, field));
    return json_read_string(where, object, field, out);
}

static json_t *transfer_to_json(const struct transfer_rate *rate) {
    return json_pack("{s:f, s:f}", "latency_s", rate->latency_s, "bytes_per_s", rate->bytes_per_s);
}

static enum status read_transfer(const char *where, const json_t *object, double seconds_max,
                                 struct transfer_rate *out) {
    TRY(need_object(where, object));
    TRY(need_number(where, object, "latency_s", 0, seconds_max, &out->latency_s));
    return need_number(where, object, "bytes_per_s", 1, MAX_BYTES_PER_S, &out->bytes_per_s);
}

/* ---- the network ---- */

static const char *const link_names[CLUSTER_LINK_COUNT] = {
    [CLUSTER_LINK_PCIE] = "pcie", [CLUSTER_LINK_NVLINK] = "nvlink"};

/* {"devices", "link": "nvlink" or "pcie", "link_bytes_per_s", "node_bytes_per_s", "hop_s"}; null where there is none.
 * NULL when out of memory. */
static json_t *cluster_network_to_json(const struct cluster_network *network) {
    if (network->devices == 0) return json_null();
    return json_pack("{s:I, s:s, s:f, s:f, s:f}", "devices", (json_int_t)network->devices, "link",
                     link_names[network->link], "link_bytes_per_s", network->link_bytes_per_s, "node_bytes_per_s",
                     network->node_bytes_per_s, "hop_s", network->hop_s);
}

static enum status read_link(const char *where, const json_t *object, enum cluster_link *out) {
    const char *name = "";
    TRY(need_text(where, object, "link", &name));
    for (int link = 0; link < CLUSTER_LINK_COUNT; link++) {
        if (strcmp(name, link_names[link]) != 0) continue;
        *out = (enum cluster_link)link;
        return STATUS_OK;
    }
    enum status status = status_set(STATUS_BAD_INPUT, "%s: link: \"%s\" is none that is known", where, name);
    return nearest_hint(status, "link", name, link_names, CLUSTER_LINK_COUNT);
}

/* BAD_INPUT "FILE: network: FIELD: ..."; null or missing: none. */
static enum status cluster_network_from_json(const char *file, const json_t *object, struct cluster_network *out) {
    static const char *const known[] = {"devices", "link", "link_bytes_per_s", "node_bytes_per_s", "hop_s"};
    struct cluster_network network = {0};
    char where[WHERE_BYTES];
    if (!object || json_is_null(object)) return STATUS_OK;
    snprintf(where, sizeof where, "%s: network", file);
    TRY(need_object(where, object));
    TRY(json_refuse_unknown(file, "network.", object, known, sizeof known / sizeof *known));
    TRY(need_int(where, object, "devices", 1, 1 << 16, &network.devices));
    TRY(read_link(where, object, &network.link));
    TRY(need_number(where, object, "link_bytes_per_s", 1, 1e18, &network.link_bytes_per_s));
    TRY(need_number(where, object, "node_bytes_per_s", 1, 1e18, &network.node_bytes_per_s));
    TRY(need_number(where, object, "hop_s", 0, 1, &network.hop_s));
    *out = network;
    return STATUS_OK;
}

/* ---- rates ---- */

static json_t *copies_to_json(const struct cluster_rates *rates) {
    json_t *copies = json_array();
    int failed = !copies;
    for (int from = 0; from < TIER_COUNT; from++)
        for (int to = 0; to < TIER_COUNT; to++) {
            const struct transfer_rate *rate = &rates->copy[from][to];
            if (rate->bytes_per_s == 0) continue;
            json_t *copy = transfer_to_json(rate);
            failed |= json_object_set_new(copy, "from", json_string(tier_name((enum tier)from)));
            failed |= json_object_set_new(copy, "to", json_string(tier_name((enum tier)to)));
            failed |= json_array_append_new(copies, copy);
        }
    return json_unless(failed, copies);
}

json_t *rates_slowdown_to_json(const struct cluster_rates *rates) {
    json_t *rows = json_object();
    int failed = !rows;
    for (int a = 0; a < ACTIVITY_COUNT; a++) {
        json_t *row = json_object();
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            failed |= json_object_set_new(row, activity_name((enum activity)b), json_real(rates->slowdown[a][b]));
        failed |= json_object_set_new(rows, activity_name((enum activity)a), row);
    }
    return json_unless(failed, rows);
}

json_t *rates_to_json(const struct cluster_rates *rates) {
    json_t *object = json_pack("{s:f, s:f, s:f, s:o, s:o, s:o}", "issue_s", rates->issue_s, "wake_s", rates->wake_s,
                               "noise", rates->noise, "zero", transfer_to_json(&rates->zero), "copies",
                               copies_to_json(rates), "slowdown", rates_slowdown_to_json(rates));
    return json_made(0, object, "the rates' JSON");
}

static enum status read_tier(const char *where, const json_t *copy, const char *field, enum tier *out) {
    const char *name = json_string_value(json_object_get(copy, field));
    *out = name ? tier_find(name) : TIER_COUNT;
    if (*out != TIER_COUNT) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s: must be device, host or disk", where, field);
}

static enum status read_copies(const char *file, const json_t *copies, struct cluster_rates *out) {
    if (!json_is_array(copies)) return status_set(STATUS_BAD_INPUT, "%s: rates.copies: must be a list", file);
    for (size_t i = 0; i < json_array_size(copies); i++) {
        char where[WHERE_BYTES];
        enum tier from, to;
        const json_t *copy = json_array_get(copies, i);
        snprintf(where, sizeof where, "%s: rates.copies[%zu]", file, i);
        TRY(read_tier(where, copy, "from", &from));
        TRY(read_tier(where, copy, "to", &to));
        if (out->copy[from][to].bytes_per_s > 0)
            return status_set(STATUS_BAD_INPUT, "%s: %s to %s is there twice", where, tier_name(from), tier_name(to));
        TRY(read_transfer(where, copy, SECONDS_MAX, &out->copy[from][to]));
    }
    return STATUS_OK;
}

enum status rates_slowdown_from_json(const char *file, const json_t *rows, struct cluster_rates *out) {
    bool messages = json_object_get(rows, activity_name(ACTIVITY_MESSAGE)) != NULL;
    for (int a = 0; a < ACTIVITY_COUNT; a++) {
        char where[WHERE_BYTES];
        const char *name = activity_name((enum activity)a);
        const json_t *row = json_object_get(rows, name);
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            out->slowdown[a][b] = 1;
        if (a == ACTIVITY_MESSAGE && !messages) continue;
        snprintf(where, sizeof where, "%s: rates.slowdown.%s", file, name);
        TRY(need_object(where, row));
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            if (b != ACTIVITY_MESSAGE || messages)
                TRY(need_number(where, row, activity_name((enum activity)b), 1, SLOWDOWN_MAX, &out->slowdown[a][b]));
    }
    return STATUS_OK;
}

enum status rates_from_json(const char *file, const json_t *object, struct cluster_rates *out) {
    struct cluster_rates rates = {.measured = true};
    char where[WHERE_BYTES], zero[WHERE_BYTES];
    snprintf(where, sizeof where, "%s: rates", file);
    snprintf(zero, sizeof zero, "%s: rates.zero", file);
    TRY(need_object(where, object));
    TRY(need_number(where, object, "issue_s", 0, SECONDS_MAX, &rates.issue_s));
    TRY(need_number(where, object, "wake_s", 0, SECONDS_MAX, &rates.wake_s));
    TRY(need_number(where, object, "noise", 0, SLOWDOWN_MAX, &rates.noise));
    TRY(read_transfer(zero, json_object_get(object, "zero"), SECONDS_MAX, &rates.zero));
    TRY(read_copies(file, json_object_get(object, "copies"), &rates));
    TRY(rates_slowdown_from_json(file, json_object_get(object, "slowdown"), &rates));
    *out = rates;
    return STATUS_OK;
}

/* ---- links ---- */

static json_t *rate_to_json(const struct transfer_rate *rate) {
    return rate->bytes_per_s > 0 ? transfer_to_json(rate) : json_null();
}

/* All of a list, or NULL. */
static json_t *list_of(const struct cluster_links *links, int count,
                       json_t *(*item_to_json)(const struct cluster_links *, int)) {
    json_t *list = json_array();
    int failed = !list;
    for (int i = 0; i < count; i++)
        failed |= json_array_append_new(list, item_to_json(links, i));
    return json_unless(failed, list);
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
    return json_unless(failed, list);
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
    int failed = object && links->rows.rows > 0 &&
                 json_object_set_new(object, "rows", list_of(links, links->rows.rows, row_to_json)) != 0;
    return json_made(failed, object, "the links' JSON");
}

/* A rate that is there; null and absence leave it 0. */
static enum status read_rate(const char *where, const json_t *object, struct transfer_rate *out) {
    return !object || json_is_null(object) ? STATUS_OK : read_transfer(where, object, LINK_SECONDS_MAX, out);
}

static enum status read_mesh(const char *where, const json_t *object, struct mesh *out) {
    const char *text = "";
    char after;
    TRY(need_text(where, object, "mesh", &text));
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
    TRY(need_text(where, object, field, &text));
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
    TRY(json_read_bool(where, object, "in_place", &out->in_place));
    TRY(json_read_bool(where, object, "flat", &out->flat));
    TRY(need_int(where, object, "bytes", 1, INT64_MAX, &out->bytes));
    return need_number(where, object, "seconds", 0, LINK_SECONDS_MAX, &out->seconds);
}

static enum status read_pair(const char *where, const json_t *object, int ranks, struct link_pair *out) {
    TRY(need_count(where, object, "first", 0, ranks - 1, &out->first));
    TRY(need_count(where, object, "second", 0, ranks - 1, &out->second));
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
    char where[WHERE_BYTES - 64], place[WHERE_BYTES];
    snprintf(where, sizeof where, "%s: links", file);
    TRY(need_object(where, object));
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

static json_t *tiers_to_json(const struct cluster_device *device) {
    json_t *tiers = json_array();
    int failed = !tiers;
    for (int i = 0; i < device->tier_count; i++)
        failed |= json_array_append_new(tiers, json_pack("{s:s, s:I}", "name", device->tiers[i].name, "capacity_bytes",
                                                         (json_int_t)device->tiers[i].capacity_bytes));
    return json_unless(failed, tiers);
}

static json_t *limits_to_json(const struct cluster_limits *limits) {
    if (limits->bf16_flops_per_s <= 0) return json_null();
    return json_pack("{s:f, s:f, s:f, s:f, s:I, s:f, s:f}", "bf16_flops_per_s", limits->bf16_flops_per_s,
                     "fp32_flops_per_s", limits->fp32_flops_per_s, "memory_bytes_per_s", limits->memory_bytes_per_s,
                     "host_bytes_per_s", limits->host_bytes_per_s, "multiprocessors",
                     (json_int_t)limits->multiprocessors, "product_part", limits->product_part, "watts", limits->watts);
}

json_t *cluster_to_json(const struct cluster *cluster) {
    const struct cluster_device *device = &cluster->device;
    json_t *tiers = tiers_to_json(device);
    json_t *rates = cluster->rates.measured ? rates_to_json(&cluster->rates) : json_null();
    json_t *object = json_pack(
        "{s:i, s:[{s:s, s:s, s:s, s:i, s:i, s:I, s:b, s:f, s:f, s:o, s:o}], s:o, s:o, s:o}", "version", CLUSTER_VERSION,
        "devices", "kind", device->kind, "name", device->name, "isa", device->isa, "cores", device->cores,
        "hardware_threads", device->hardware_threads, "page_bytes", (json_int_t)device->page_bytes, "bf16_matrix",
        device->bf16_matrix, "fp32_flops_per_s", device->fp32_flops_per_s, "bf16_flops_per_s", device->bf16_flops_per_s,
        "tiers", tiers, "limits", limits_to_json(&device->limits), "network",
        cluster_network_to_json(&cluster->network), "rates", rates, "links", links_to_json(&cluster->rates.links));
    return json_made(0, object, "a cluster's JSON");
}

static enum status read_text(const char *file, const json_t *object, const char *field, char *out, size_t bytes) {
    const char *text = "";
    TRY(need_text(file, object, field, &text));
    if (strlen(text) >= bytes)
        return status_set(STATUS_BAD_INPUT, "%s: %s: longer than %zu bytes", file, field, bytes - 1);
    memcpy(out, text, strlen(text) + 1);
    return STATUS_OK;
}

static enum status read_tiers(const char *file, const json_t *object, struct cluster_device *out) {
    const json_t *tiers = json_object_get(object, "tiers");
    size_t count = json_array_size(tiers);
    if (count < 1 || count > CLUSTER_TIERS_MAX)
        return status_set(STATUS_BAD_INPUT, "%s: tiers: must be a list of 1 to %d tiers", file, CLUSTER_TIERS_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *tier = json_array_get(tiers, i);
        if (!json_is_object(tier)) return status_set(STATUS_BAD_INPUT, "%s: tiers: each must be an object", file);
        TRY(read_text(file, tier, "name", out->tiers[i].name, sizeof out->tiers[i].name));
        TRY(need_int(file, tier, "capacity_bytes", 0, INT64_MAX, &out->tiers[i].capacity_bytes));
    }
    out->tier_count = (int)count;
    return STATUS_OK;
}

static enum status read_limits(const char *file, const json_t *object, struct cluster_limits *out) {
    char where[WHERE_BYTES];
    if (!object || json_is_null(object)) return STATUS_OK;
    snprintf(where, sizeof where, "%s: limits", file);
    TRY(need_object(where, object));
    TRY(need_number(where, object, "bf16_flops_per_s", 1, 1e30, &out->bf16_flops_per_s));
    TRY(need_number(where, object, "fp32_flops_per_s", 1, 1e30, &out->fp32_flops_per_s));
    TRY(need_number(where, object, "memory_bytes_per_s", 1, 1e30, &out->memory_bytes_per_s));
    TRY(need_number(where, object, "host_bytes_per_s", 1, 1e30, &out->host_bytes_per_s));
    TRY(json_read_double(where, object, "product_part", 0, 1, &out->product_part));
    TRY(json_read_double(where, object, "watts", 0, 1e6, &out->watts));
    return need_int(where, object, "multiprocessors", 1, 1 << 16, &out->multiprocessors);
}

static enum status read_device(const char *file, const json_t *object, struct cluster_device *out) {
    TRY(read_text(file, object, "kind", out->kind, sizeof out->kind));
    TRY(read_text(file, object, "name", out->name, sizeof out->name));
    TRY(read_text(file, object, "isa", out->isa, sizeof out->isa));
    TRY(need_count(file, object, "cores", 1, 1 << 16, &out->cores));
    TRY(need_count(file, object, "hardware_threads", 1, 1 << 16, &out->hardware_threads));
    TRY(need_int(file, object, "page_bytes", 1, (int64_t)1 << 30, &out->page_bytes));
    TRY(json_read_double(file, object, "fp32_flops_per_s", 0, 1e30, &out->fp32_flops_per_s));
    TRY(json_read_double(file, object, "bf16_flops_per_s", 0, 1e30, &out->bf16_flops_per_s));
    TRY(read_limits(file, json_object_get(object, "limits"), &out->limits));
    out->bf16_matrix = out->limits.bf16_flops_per_s > 0;
    TRY(json_read_bool(file, object, "bf16_matrix", &out->bf16_matrix));
    return read_tiers(file, object, out);
}

enum status cluster_from_json(const char *file, const json_t *object, struct cluster *out) {
    struct cluster cluster = {0};
    int64_t version = 0;
    TRY(json_read_version(file, object, CLUSTER_VERSION, &version));
    const json_t *devices = json_object_get(object, "devices");
    if (json_array_size(devices) != 1 || !json_is_object(json_array_get(devices, 0)))
        return status_set(STATUS_BAD_INPUT, "%s: devices: must be a list of one device in this version", file);
    TRY(read_device(file, json_array_get(devices, 0), &cluster.device));
    TRY(cluster_network_from_json(file, json_object_get(object, "network"), &cluster.network));
    const json_t *rates = json_object_get(object, "rates");
    if (rates && !json_is_null(rates)) TRY(rates_from_json(file, rates, &cluster.rates));
    const json_t *links = json_object_get(object, "links");
    if (links && !json_is_null(links)) TRY(links_from_json(file, links, &cluster.rates.links));
    *out = cluster;
    return STATUS_OK;
}

enum status cluster_read(const char *path, struct cluster *out) {
    json_auto_t *object = NULL;
    TRY(json_read_object(path, CLUSTER_FILE_LIMIT_BYTES, &object));
    return cluster_from_json(path, object, out);
}

const struct cluster_preset *cluster_preset_find(const char *name) {
    for (int i = 0; i < cluster_preset_count; i++)
        if (strcmp(cluster_presets[i].name, name) == 0) return &cluster_presets[i];
    return NULL;
}

enum status cluster_preset_document(const struct cluster_preset *preset, json_t **out) {
    return json_parse_object(preset->name, (const char *)preset->text, preset->bytes, out);
}

static enum status open_preset(const struct cluster_preset *preset, struct cluster *out) {
    json_auto_t *object = NULL;
    TRY(cluster_preset_document(preset, &object));
    return cluster_from_json(preset->name, object, out);
}

enum status cluster_open(const char *name, struct cluster *out) {
    const struct cluster_preset *preset = file_exists(name) ? NULL : cluster_preset_find(name);
    if (preset) return open_preset(preset, out);
    enum status status = cluster_read(name, out);
    if (status == STATUS_OK || file_exists(name)) return status;
    struct nearest nearest = {.wanted = name};
    for (int i = 0; i < cluster_preset_count; i++)
        nearest_consider(&nearest, cluster_presets[i].name);
    if (nearest.best) return status_hint(status, "did you mean the preset %s?", nearest.best);
    return status_hint(status, "give a file of `ballast profile -o`, or a preset such as h100x8");
}
