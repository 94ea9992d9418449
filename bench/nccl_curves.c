/* Compares the collective times of src/search/scale with measured ones.
 *
 *     build/bench/nccl_curves FILE        by curve: sizes, mean and worst error of bus bandwidth, small and large sizes
 *     build/bench/nccl_curves --points FILE        each point, with algorithm and protocol
 *
 * FILE is {"curves": [{"hw", "op", "nodes1": [[BYTES, GB_PER_S], ...], "nodes4": ..., "busbw": ...}],
 * "single_points": [{"hw", "op": "all_reduce 16GiB", "busbw"}]}. "nodesN" is a curve on N nodes, "busbw" on one. Bus
 * bandwidth is defined as in nccl-tests. Nothing is fitted: links have NCCL's own rates and latencies, adapters 95% of
 * the data sheet's rate, and CALL_S is PyTorch's overhead per call. Exits with 2 if the file is wrong. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/terminal.h"
#include "machine/cluster.h"
#include "machine/collective_cost.h"

/* Overhead of a collective that PyTorch calls and times with events: its smallest all-reduce minus NCCL's latency. */
static const double CALL_S = 20e-6;
/* From this size on, bytes matter more than latency. */
static const double LARGE_BYTES = 16 << 20;

struct curve {
    const char *file, *where;
    struct fabric fabric;
    enum comm_kind kind;
    struct rank_group group;
    bool points;
};

struct errors {
    int count;
    double sum, worst;
};

static void add_error(struct errors *errors, double error) {
    errors->count++;
    errors->sum += fabs(error);
    errors->worst = fmax(errors->worst, fabs(error));
}

static void print_errors(const char *what, const struct errors *errors) {
    if (errors->count == 0) return;
    printf("  %s: %d, mean error %.1f%%, worst %.1f%%\n", what, errors->count, 100 * errors->sum / errors->count,
           100 * errors->worst);
}

/* Bytes per second as nccl-tests count them. */
static double bus_rate(const struct curve *curve, double bytes, struct collective_cost *cost) {
    double ranks = (double)(curve->group.in_node * curve->group.nodes);
    double passes = (curve->kind == COMM_ALL_REDUCE ? 2 : 1) * (ranks - 1) / ranks;
    *cost = collective_cost(&curve->fabric, curve->kind, bytes, curve->group);
    return bytes * passes / (cost->seconds + CALL_S);
}

static const char *collective_algorithm_name(enum collective_algorithm algorithm) {
    static const char *const names[] = {"ring", "tree", "switch", "pairs"};
    return names[algorithm];
}

static const char *collective_protocol_name(enum collective_protocol protocol) {
    static const char *const names[] = {"LL", "LL128", "Simple"};
    return names[protocol];
}

static double point_error(const struct curve *curve, double bytes, double measured_gb) {
    struct collective_cost cost;
    double rate = bus_rate(curve, bytes, &cost) / 1e9;
    if (curve->points)
        printf("    %12.0f bytes: %7.2f GB/s for %7.2f (%+.1f%%) %s %s\n", bytes, rate, measured_gb,
               100 * (rate / measured_gb - 1), collective_algorithm_name(cost.algorithm),
               collective_protocol_name(cost.protocol));
    return rate / measured_gb - 1;
}

static enum status read_point(const struct curve *curve, const json_t *point, double *bytes, double *rate) {
    *bytes = json_number_value(json_array_get(point, 0));
    *rate = json_number_value(json_array_get(point, 1));
    if (json_array_size(point) == 2 && *bytes >= 1 && *rate > 0) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s: each point must be [BYTES, GB_PER_S]", curve->file, curve->where);
}

static enum status compare_curve(const struct curve *curve, const char *title, const json_t *points) {
    struct errors small = {0}, large = {0};
    size_t index;
    const json_t *point;
    if (!json_is_array(points))
        return status_set(STATUS_BAD_INPUT, "%s: %s: must be a list of points", curve->file, curve->where);
    printf("%s, %lld x %lld\n", title, (long long)curve->group.nodes, (long long)curve->group.in_node);
    json_array_foreach(points, index, point) {
        double bytes, rate;
        TRY(read_point(curve, point, &bytes, &rate));
        add_error(bytes < LARGE_BYTES ? &small : &large, point_error(curve, bytes, rate));
    }
    print_errors("sizes below 16 MiB", &small);
    print_errors("sizes from 16 MiB on", &large);
    return STATUS_OK;
}

/* Finds the preset of the GPUs, and sets the network rates in the text. */
static enum status find_machine(const char *file, const char *hw, struct cluster *out) {
    static const char *const gpus[][2] = {
        {"B200", "b200x8"}, {"H200", "h200x8"}, {"H100", "h100x8"}, {"A800", "a800x8"}, {"A100", "a100-80x8"}};
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
        if (strstr(hw, gpus[i][0])) return cluster_open(gpus[i][1], out);
    return status_set(STATUS_BAD_INPUT, "%s: hw: no machine that is known: %s", file, hw);
}

static enum status start_curve(const char *file, const json_t *object, struct curve *out) {
    const char *hw = "", *op = "";
    struct cluster cluster;
    TRY(json_require(file, object, "hw"));
    TRY(json_read_string(file, object, "hw", &hw));
    TRY(json_read_string(file, object, "op", &op));
    TRY(find_machine(file, hw, &cluster));
    *out = (struct curve){.file = file,
                          .fabric = fabric_describe(&cluster, 0),
                          .kind = strstr(op, "gather")    ? COMM_ALL_GATHER
                                  : strstr(op, "scatter") ? COMM_REDUCE_SCATTER
                                                          : COMM_ALL_REDUCE,
                          .group = {cluster.network.devices, 1}};
    if (strstr(hw, "ring")) out->fabric.switch_bytes_per_s = 0;
    return STATUS_OK;
}

static enum status compare_object(const char *file, const json_t *object, bool points) {
    struct curve curve;
    const char *field;
    json_t *value;
    TRY(start_curve(file, object, &curve));
    curve.points = points;
    json_object_foreach((json_t *)object, field, value) {
        bool nodes = strncmp(field, "nodes", 5) == 0;
        if (!nodes && strcmp(field, "busbw") != 0) continue;
        curve.where = field;
        curve.group.nodes = nodes ? strtol(field + 5, NULL, 10) : 1;
        if (curve.group.nodes < 1) return status_set(STATUS_BAD_INPUT, "%s: %s: no number of nodes", file, field);
        TRY(compare_curve(&curve, json_string_value(json_object_get(object, "hw")), value));
    }
    return STATUS_OK;
}

/* "all_reduce 16GiB". */
static enum status compare_single(const char *file, const json_t *object) {
    struct curve curve;
    TRY(start_curve(file, object, &curve));
    const char *op = json_string_value(json_object_get(object, "op"));
    const char *size = op ? strchr(op, ' ') : NULL;
    double measured = json_number_value(json_object_get(object, "busbw"));
    if (!size || measured <= 0) return status_set(STATUS_BAD_INPUT, "%s: single_points: no size or rate", file);
    curve.points = true;
    printf("%s, %s\n", json_string_value(json_object_get(object, "hw")), op);
    (void)point_error(&curve, strtod(size, NULL) * 0x1p30, measured);
    return STATUS_OK;
}

static enum status compare(const char *file, const json_t *document, bool points) {
    size_t index;
    const json_t *object;
    json_array_foreach(json_object_get(document, "curves"), index, object) TRY(compare_object(file, object, points));
    json_array_foreach(json_object_get(document, "single_points"), index, object) TRY(compare_single(file, object));
    return STATUS_OK;
}

int main(int argc, char **argv) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    bool points = argc == 3 && strcmp(argv[1], "--points") == 0;
    if (argc != 2 + points || (!points && argv[1][0] == '-')) {
        fprintf(stderr, "usage: nccl_curves [--points] FILE\n");
        return STATUS_BAD_INPUT;
    }
    json_t *document;
    enum status status = json_read_object(argv[argc - 1], 16 << 20, &document);
    if (status == STATUS_OK) {
        status = compare(argv[argc - 1], document, points);
        json_decref(document);
    }
    if (status == STATUS_OK) return STATUS_OK;
    fprintf(stderr, "nccl_curves: %s\n", status_message());
    return (int)status;
}
