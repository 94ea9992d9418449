/* Cluster files: reading and writing cluster.json. */

#include "base/json.h"
#include "machine/cluster.h"

enum { CLUSTER_FILE_LIMIT_BYTES = 1 << 20 };

static json_t *tiers_to_json(const struct cluster_device *device) {
    json_t *tiers = json_array();
    for (int i = 0; i < device->tier_count; i++)
        if (json_array_append_new(tiers, json_pack("{s:s, s:I}", "name", device->tiers[i].name, "capacity_bytes",
                                                   (json_int_t)device->tiers[i].capacity_bytes)) != 0) {
            json_decref(tiers);
            return NULL;
        }
    return tiers;
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
    if (!object) (void)status_no_memory(0, "a cluster's JSON");
    return object;
}

static enum status read_text(const char *file, const json_t *object, const char *field, char *out, size_t bytes) {
    const char *text = "";
    TRY(json_require(file, object, field));
    TRY(json_read_string(file, object, field, &text));
    if (strlen(text) >= bytes)
        return status_set(STATUS_BAD_INPUT, "%s: %s: longer than %zu bytes", file, field, bytes - 1);
    memcpy(out, text, strlen(text) + 1);
    return STATUS_OK;
}

static enum status read_count(const char *file, const json_t *object, const char *field, int64_t max, int64_t *out) {
    TRY(json_require(file, object, field));
    return json_read_int(file, object, field, 1, max, out);
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
        TRY(json_require(file, tier, "capacity_bytes"));
        TRY(json_read_int(file, tier, "capacity_bytes", 0, INT64_MAX, &out->tiers[i].capacity_bytes));
    }
    out->tier_count = (int)count;
    return STATUS_OK;
}

static enum status read_limits(const char *file, const json_t *object, struct cluster_limits *out) {
    char where[256];
    const struct {
        const char *field;
        double *out;
    } rates[] = {{"bf16_flops_per_s", &out->bf16_flops_per_s},
                 {"fp32_flops_per_s", &out->fp32_flops_per_s},
                 {"memory_bytes_per_s", &out->memory_bytes_per_s},
                 {"host_bytes_per_s", &out->host_bytes_per_s}};
    if (!object || json_is_null(object)) return STATUS_OK;
    snprintf(where, sizeof where, "%s: limits", file);
    if (!json_is_object(object)) return status_set(STATUS_BAD_INPUT, "%s: must be an object", where);
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        TRY(json_require(where, object, rates[i].field));
        TRY(json_read_double(where, object, rates[i].field, 1, 1e30, rates[i].out));
    }
    TRY(json_read_double(where, object, "product_part", 0, 1, &out->product_part));
    TRY(json_read_double(where, object, "watts", 0, 1e6, &out->watts));
    return read_count(where, object, "multiprocessors", 1 << 16, &out->multiprocessors);
}

static enum status read_device(const char *file, const json_t *object, struct cluster_device *out) {
    int64_t cores = 0, threads = 0;
    TRY(read_text(file, object, "kind", out->kind, sizeof out->kind));
    TRY(read_text(file, object, "name", out->name, sizeof out->name));
    TRY(read_text(file, object, "isa", out->isa, sizeof out->isa));
    TRY(read_count(file, object, "cores", 1 << 16, &cores));
    TRY(read_count(file, object, "hardware_threads", 1 << 16, &threads));
    TRY(read_count(file, object, "page_bytes", (int64_t)1 << 30, &out->page_bytes));
    TRY(json_read_double(file, object, "fp32_flops_per_s", 0, 1e30, &out->fp32_flops_per_s));
    TRY(json_read_double(file, object, "bf16_flops_per_s", 0, 1e30, &out->bf16_flops_per_s));
    TRY(read_limits(file, json_object_get(object, "limits"), &out->limits));
    out->bf16_matrix = out->limits.bf16_flops_per_s > 0;
    TRY(json_read_bool(file, object, "bf16_matrix", &out->bf16_matrix));
    out->cores = (int)cores, out->hardware_threads = (int)threads;
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
    json_t *object;
    TRY(json_read_object(path, CLUSTER_FILE_LIMIT_BYTES, &object));
    enum status status = cluster_from_json(path, object, out);
    json_decref(object);
    return status;
}
