/* The network of a cluster file. */

#include "base/json.h"
#include "base/nearest.h"
#include "machine/cluster.h"

static const char *const link_names[CLUSTER_LINK_COUNT] = {
    [CLUSTER_LINK_PCIE] = "pcie", [CLUSTER_LINK_NVLINK] = "nvlink"};

static const char *cluster_link_name(enum cluster_link link) { return link_names[link]; }

json_t *cluster_network_to_json(const struct cluster_network *network) {
    if (network->devices == 0) return json_null();
    return json_pack("{s:I, s:s, s:f, s:f, s:f}", "devices", (json_int_t)network->devices, "link",
                     cluster_link_name(network->link), "link_bytes_per_s", network->link_bytes_per_s,
                     "node_bytes_per_s", network->node_bytes_per_s, "hop_s", network->hop_s);
}

static enum status read_link(const char *where, const json_t *object, enum cluster_link *out) {
    const char *name = "";
    TRY(json_require(where, object, "link"));
    TRY(json_read_string(where, object, "link", &name));
    for (int link = 0; link < CLUSTER_LINK_COUNT; link++) {
        if (strcmp(name, link_names[link]) != 0) continue;
        *out = (enum cluster_link)link;
        return STATUS_OK;
    }
    enum status status = status_set(STATUS_BAD_INPUT, "%s: link: \"%s\" is none that is known", where, name);
    return nearest_hint(status, "link", name, link_names, CLUSTER_LINK_COUNT);
}

static enum status read_rate(const char *where, const json_t *object, const char *field, double min, double max,
                             double *out) {
    TRY(json_require(where, object, field));
    return json_read_double(where, object, field, min, max, out);
}

enum status cluster_network_from_json(const char *file, const json_t *object, struct cluster_network *out) {
    static const char *const known[] = {"devices", "link", "link_bytes_per_s", "node_bytes_per_s", "hop_s"};
    struct cluster_network network = {0};
    char where[256];
    if (!object || json_is_null(object)) return STATUS_OK;
    snprintf(where, sizeof where, "%s: network", file);
    if (!json_is_object(object)) return status_set(STATUS_BAD_INPUT, "%s: must be an object", where);
    TRY(json_refuse_unknown(file, "network.", object, known, sizeof known / sizeof *known));
    TRY(json_require(where, object, "devices"));
    TRY(json_read_int(where, object, "devices", 1, 1 << 16, &network.devices));
    TRY(read_link(where, object, &network.link));
    TRY(read_rate(where, object, "link_bytes_per_s", 1, 1e18, &network.link_bytes_per_s));
    TRY(read_rate(where, object, "node_bytes_per_s", 1, 1e18, &network.node_bytes_per_s));
    TRY(read_rate(where, object, "hop_s", 0, 1, &network.hop_s));
    *out = network;
    return STATUS_OK;
}
