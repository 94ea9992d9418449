#include "profile/link_rows.h"

static bool is_worth(const struct cluster_links *links) {
    int ranks = mesh_ranks(&links->mesh);
    double least = 0, most = 0;
    for (int i = 0; i < links->pair_count; i++) {
        double rate = links->pairs[i].rate.bytes_per_s;
        if (rate <= 0) return false;
        if (i == 0 || rate < least) least = rate;
        if (rate > most) most = rate;
    }
    return ranks > 2 && links->pair_count == ranks * (ranks - 1) / 2 && most >= LINK_ROWS_FAR * least;
}

enum status link_rows_find(const struct cluster_links *links, struct mesh_rows *out) {
    struct device_pair pairs[LINK_PAIRS_MAX];
    *out = (struct mesh_rows){.rows = 0};
    if (!is_worth(links)) return STATUS_OK;
    for (int i = 0; i < links->pair_count; i++) {
        const struct link_pair *pair = &links->pairs[i];
        pairs[i] = (struct device_pair){pair->first, pair->second, pair->rate.latency_s, 1 / pair->rate.bytes_per_s};
    }
    return mesh_rows_search(mesh_ranks(&links->mesh), pairs, links->pair_count, out);
}

bool link_rows_are_nodes(const struct cluster_links *links, const struct mesh_rows *rows) {
    if (rows->rows != links->mesh.nodes) return false;
    for (int i = 0; i < rows->rows * rows->columns; i++)
        if (rows->devices[i] != i) return false;
    return true;
}
