#include <inttypes.h>
#include <stdio.h>

#include "backend/backend.h"
#include "base/json.h"
#include "base/size.h"
#include "cli/command.h"
#include "cli/new_file.h"
#include "cluster/cluster.h"
#include "profile/profile.h"

static enum status measure(const struct options *options, struct cluster *cluster) {
    const struct backend *backend;
    TRY(backend_find(options_text(options, OPT_DEVICE), &backend));
    TRY(backend->measure(cluster));
    struct cluster_device *device = &cluster->device;
    backend->set_threads(options_given(options, OPT_THREADS) ? (int)options_whole(options, OPT_THREADS)
                                                             : device->cores);
    TRY(profile_matrix_rate(backend, DTYPE_F32, &device->fp32_flops_per_s));
    return profile_matrix_rate(backend, DTYPE_BF16, &device->bf16_flops_per_s);
}

static void print_table(const struct cluster *cluster) {
    const struct cluster_device *device = &cluster->device;
    char capacity[SIZE_TEXT], page[SIZE_TEXT];
    printf("processor        %s\n", device->name);
    printf("cores            %d (%d hardware threads)\n", device->cores, device->hardware_threads);
    printf("kernels          %s\n", device->isa);
    printf("bf16 matrices    %s\n", device->bf16_matrix ? "in hardware" : "emulated");
    printf("fp32 products    %.1f GFLOP/s\n", device->fp32_flops_per_s * 1e-9);
    printf("bf16 products    %.1f GFLOP/s\n", device->bf16_flops_per_s * 1e-9);
    for (int i = 0; i < device->tier_count; i++)
        printf("%-6s tier      %s (%" PRId64 " bytes)\n", device->tiers[i].name,
               size_print(device->tiers[i].capacity_bytes, capacity), device->tiers[i].capacity_bytes);
    printf("page             %s\n", size_print(device->page_bytes, page));
}

static enum status read_cluster(const char *path) {
    struct cluster cluster;
    return cluster_read(path, &cluster);
}

static enum status run(const struct options *options) {
    struct cluster cluster;
    const char *path = options_text(options, OPT_OUTPUT);
    if (options->arguments.count > 0)
        return status_set(STATUS_BAD_INPUT,
                          "ballast profile: %s: measuring a model's operators is not supported in this "
                          "version; give no argument",
                          options->arguments.items[0]);
    if (path) TRY(new_file_check(path, "a cluster file", read_cluster));
    TRY(measure(options, &cluster));
    json_t *object = cluster_to_json(&cluster);
    if (!object) return STATUS_FAILED;
    enum status status = path ? json_write(path, object) : STATUS_OK;
    if (status == STATUS_OK && options_flag(options, OPT_JSON)) return cli_print_json(object);
    json_decref(object);
    if (status == STATUS_OK) print_table(&cluster);
    return status;
}

const struct command command_profile = {
    .bit = COMMAND_PROFILE,
    .name = "profile",
    .arguments = "[-o cluster.json]",
    .least = 0,
    .most = 1,
    .summary = "what the machine is and does",
    .details =
        "Measures the rate of matrix products in fp32 and bf16 (best of several, about a second in all), and looks "
        "up cores and memory. With -o, writes them as a cluster file.",
    .run = run,
};
