#include "profile/link_rows.h"

#include "plan/layout/device_mesh.h"

static bool is_worth(const struct cluster_links *links) {
    int ranks = mesh_ranks(&links->mesh);
    double min = 0, max = 0;
    for (int i = 0; i < links->pair_count; i++) {
        double rate = links->pairs[i].rate.bytes_per_s;
        if (rate <= 0) return false;
        if (i == 0 || rate < min) min = rate;
        if (rate > max) max = rate;
    }
    return ranks > 2 && links->pair_count == ranks * (ranks - 1) / 2 && max >= LINK_ROWS_FAR * min;
}

enum status link_rows_find(const struct cluster_links *links, struct link_rows *out) {
    struct device_pair pairs[LINK_PAIRS_MAX];
    struct mesh_rows found;
    *out = (struct link_rows){.rows = 0};
    if (!is_worth(links)) return STATUS_OK;
    for (int i = 0; i < links->pair_count; i++) {
        const struct link_pair *pair = &links->pairs[i];
        pairs[i] = (struct device_pair){pair->first, pair->second, pair->rate.latency_s, 1 / pair->rate.bytes_per_s};
    }
    TRY(mesh_rows_search(mesh_ranks(&links->mesh), pairs, links->pair_count, &found));
    out->rows = found.rows, out->columns = found.columns;
    for (int i = 0; i < found.rows * found.columns; i++)
        out->ranks[i] = found.devices[i];
    mesh_rows_free(&found);
    return STATUS_OK;
}

bool link_rows_are_nodes(const struct cluster_links *links) {
    if (links->rows.rows != links->mesh.nodes) return false;
    for (int i = 0; i < links->rows.rows * links->rows.columns; i++)
        if (links->rows.ranks[i] != i) return false;
    return true;
}
