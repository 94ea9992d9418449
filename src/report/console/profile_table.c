#include "report/console/profile_table.h"

#include "base/text.h"
#include "ir/ops/ops.h"
#include "profile/cache.h"
#include "profile/link_rates.h"
#include "profile/measurement.h"

static void print_device(FILE *out, const struct cluster_device *device) {
    char capacity[SIZE_TEXT], page[SIZE_TEXT];
    fprintf(out, "%-16s %s\n", strcmp(device->kind, "cpu") == 0 ? "processor" : "device", device->name);
    fprintf(out, "cores            %d (%d hardware threads)\n", device->cores, device->hardware_threads);
    fprintf(out, "kernels          %s\n", device->isa);
    fprintf(out, "bf16 matrices    %s\n", device->bf16_matrix ? "in hardware" : "emulated");
    fprintf(out, "fp32 GEMMs       %.1f GFLOP/s\n", device->fp32_flops_per_s * 1e-9);
    fprintf(out, "bf16 GEMMs       %.1f GFLOP/s\n", device->bf16_flops_per_s * 1e-9);
    for (int i = 0; i < device->tier_count; i++)
        fprintf(out, "%-6s tier      %s (%" PRId64 " bytes)\n", device->tiers[i].name,
                size_print(device->tiers[i].capacity_bytes, capacity), device->tiers[i].capacity_bytes);
    fprintf(out, "page             %s\n", size_print(device->page_bytes, page));
}

static void print_transfer(FILE *out, const char *from, const char *to, const struct transfer_rate *rate) {
    fprintf(out, "%-6s to %-6s %8.2f GB/s after %.1f us\n", from, to, rate->bytes_per_s * 1e-9, rate->latency_s * 1e6);
}

static void print_transfers(FILE *out, const struct cluster_rates *rates) {
    print_transfer(out, "zeros", "memory", &rates->zero);
    for (enum tier from = 0; from < TIER_COUNT; from++)
        for (enum tier to = 0; to < TIER_COUNT; to++)
            if (rates->copy[from][to].bytes_per_s > 0)
                print_transfer(out, tier_name(from), tier_name(to), &rates->copy[from][to]);
    fprintf(out, "an instruction   %.2f us apart from its work; a stream that waits for it wakes after %.1f us\n",
            rates->issue_s * 1e6, rates->wake_s * 1e6);
}

static bool is_measured(const struct cluster_rates *rates, enum activity activity) {
    switch (activity) {
    case ACTIVITY_COPY: return rates->copy[TIER_DEVICE][TIER_HOST].bytes_per_s > 0;
    case ACTIVITY_DISK_READ: return rates->copy[TIER_DISK][TIER_DEVICE].bytes_per_s > 0;
    case ACTIVITY_DISK_WRITE: return rates->copy[TIER_DEVICE][TIER_DISK].bytes_per_s > 0;
    case ACTIVITY_MESSAGE: return rates->links.mesh.nodes > 0;
    default: return true;
    }
}

static void print_slowdowns(FILE *out, const struct cluster_rates *rates) {
    if (!is_measured(rates, ACTIVITY_COPY) && !is_measured(rates, ACTIVITY_DISK_READ) &&
        !is_measured(rates, ACTIVITY_MESSAGE))
        return; /* no concurrent activity */
    fprintf(out, "\n%-18s", "times as long");
    for (enum activity b = 0; b < ACTIVITY_COUNT; b++)
        if (is_measured(rates, b)) fprintf(out, " %18s", activity_name(b));
    fprintf(out, "  concurrent with\n");
    for (enum activity a = 0; a < ACTIVITY_COUNT; a++) {
        if (!is_measured(rates, a)) continue;
        fprintf(out, "%-18s", activity_name(a));
        for (enum activity b = 0; b < ACTIVITY_COUNT; b++)
            if (is_measured(rates, b)) fprintf(out, " %18.2f", rates->slowdown[a][b]);
        fprintf(out, "\n");
    }
    if (rates_noisy(rates))
        fprintf(out, "these varied by up to %.0f%% between measurements: other programs were running\n",
                100 * rates->noise);
}

static void print_link(FILE *out, const char *what, const struct transfer_rate *rate) {
    if (rate->bytes_per_s > 0)
        fprintf(out, "%-36s %8.2f GB/s after %.1f us\n", what, rate->bytes_per_s * 1e-9, rate->latency_s * 1e6);
}

static void print_pairs(FILE *out, const struct cluster_links *links) {
    const struct link_pair *slowest = NULL, *fastest = NULL;
    for (int i = 0; i < links->pair_count; i++) {
        const struct link_pair *pair = &links->pairs[i];
        if (!slowest || pair->rate.bytes_per_s < slowest->rate.bytes_per_s) slowest = pair;
        if (!fastest || pair->rate.bytes_per_s > fastest->rate.bytes_per_s) fastest = pair;
    }
    if (!slowest || slowest == fastest) return;
    fprintf(out, "pairs of ranks alone                 %8.2f GB/s (%d and %d) to %.2f GB/s (%d and %d)\n",
            slowest->rate.bytes_per_s * 1e-9, slowest->first, slowest->second, fastest->rate.bytes_per_s * 1e-9,
            fastest->first, fastest->second);
}

/* Prints the rates of pairs if they say more than the mesh does. */
static void print_rows(FILE *out, const struct cluster_links *links) {
    const struct link_rows *rows = &links->rows;
    if (rows->rows == 0) return;
    fprintf(out, "near each other, by pairs           ");
    for (int i = 0; i < rows->rows * rows->columns; i++)
        fprintf(out, "%s%d", i == 0 ? " " : i % rows->columns == 0 ? " | " : " ", rows->ranks[i]);
    fprintf(out, "%s\n",
            link_rows_are_nodes(links) ? ": the nodes" : ": not the nodes; order the ranks so, with --nodes");
}

/* Collectives as a table: a row for each kind, group and algorithm, a column for each size. */
static void print_operations(FILE *out, const struct cluster_links *links) {
    for (int i = 0; i < links->point_count; i++) {
        const struct link_point *point = &links->points[i], *before = i > 0 ? point - 1 : NULL;
        char bytes[SIZE_TEXT];
        bool begins =
            !before || before->kind != point->kind || before->group != point->group || before->flat != point->flat;
        if (begins)
            fprintf(out, "%s%-14s %-6s %-9s%-5s", i > 0 ? "\n" : "", link_kind_name(point->kind),
                    link_group_name(point->group), point->in_place ? "in place" : "", point->flat ? "flat" : "");
        fprintf(out, " %9s %8.3f ms", size_print(point->bytes, bytes), point->seconds * 1e3);
    }
    if (links->point_count > 0) fprintf(out, "\n");
}

static void print_links(FILE *out, const struct cluster_links *links) {
    if (links->mesh.nodes == 0) return;
    fprintf(out, "\nranks            %d: %d node%s of %d\n", mesh_ranks(&links->mesh), links->mesh.nodes,
            links->mesh.nodes == 1 ? "" : "s", links->mesh.per_node);
    print_link(out, "messages of a rank within a node", &links->message[MESH_IN_NODE]);
    print_link(out, "messages of a rank across nodes", &links->message[MESH_ACROSS]);
    print_link(out, "reads of a rank within a node", &links->read);
    print_pairs(out, links);
    print_rows(out, links);
    print_operations(out, links);
}

void profile_table_print_machine(FILE *out, const struct cluster *cluster) {
    print_device(out, &cluster->device);
    if (!cluster->rates.measured) return;
    print_transfers(out, &cluster->rates);
    print_links(out, &cluster->rates.links);
    print_slowdowns(out, &cluster->rates);
}

static double row_seconds(const struct profile_row *row) { return row->profiled->seconds * (double)row->count; }

void profile_table_print_parts(FILE *out, const char *lead, const struct costs *costs) {
    if (costs->extrapolated > 0)
        fprintf(out, "%s%d of %d operators, the large ones, were measured on a part of their tokens or vocabulary\n",
                lead, costs->extrapolated, costs->operators);
}

double profile_table_sum(const struct profile_row *rows, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += row_seconds(&rows[i]);
    return sum;
}

static int longest_first(const void *left, const void *right) {
    const struct profile_row *a = left, *b = right;
    double a_s = row_seconds(a), b_s = row_seconds(b);
    if (a_s != b_s) return a_s < b_s ? 1 : -1;
    return a->profiled->node->id - b->profiled->node->id;
}

static bool is_noisy(const struct profiled_operator *profiled) {
    return measurement_noisy(&(struct measurement){profiled->seconds, profiled->noise});
}

static void print_row(FILE *out, const struct profile_row *row, double all) {
    const struct profiled_operator *profiled = row->profiled;
    struct op_cost cost;
    op_cost(profiled->node, &cost);
    fprintf(out, "%-22s %-30.30s %6" PRId64 " %10.3f %9.1f %8.1f %6.0f%% %6.1f%%%s%s\n", profiled->node->op->name,
            profiled->node->name, row->count, profiled->seconds * 1e3, cost.flops / profiled->seconds * 1e-9,
            cost.bytes / profiled->seconds * 1e-9, 100 * profiled->noise, 100 * row_seconds(row) / all,
            profiled->extrapolated ? "  from parts" : "", is_noisy(profiled) ? "  noisy" : "");
}

void profile_table_print_operators(FILE *out, struct profile_row *rows, int count) {
    double all = profile_table_sum(rows, count), noisy = 0;
    qsort(rows, (size_t)count, sizeof *rows, longest_first);
    fprintf(out, "\n%-22s %-30s %6s %10s %9s %8s %7s %7s\n", "operator", "first of its kind", "count", "ms", "GFLOP/s",
            "GB/s", "spread", "share");
    for (int i = 0; i < count; i++) {
        print_row(out, &rows[i], all);
        if (is_noisy(rows[i].profiled)) noisy += row_seconds(&rows[i]);
    }
    fprintf(out, "all operators of a step, one after the other: %.3f s\n", all);
    if (noisy > 0)
        fprintf(out, "the noisy ones (spread above %.0f%%) make up %.0f%% of it\n", 100 * MEASUREMENT_NOISY_SPREAD,
                100 * noisy / all);
}
