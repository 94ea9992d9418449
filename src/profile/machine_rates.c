#include "profile/machine_rates.h"

#include "base/clock.h"
#include "profile/issue_rate.h"
#include "profile/slowdown.h"
#include "profile/transfer_rates.h"

static const int64_t RATES_BUDGET_NS = 1200000000;

static enum status measure(struct rate_machine *machine, const struct rates_options *options,
                           struct cluster_rates *rates) {
    bool disk = options->disk_folder != NULL;
    const bool present[ACTIVITY_COUNT] = {[ACTIVITY_PRODUCT] = true,
                                          [ACTIVITY_STREAMING] = true,
                                          [ACTIVITY_COPY] = options->host_tier,
                                          [ACTIVITY_DISK_READ] = disk,
                                          [ACTIVITY_DISK_WRITE] = disk};
    bool beside = disk || options->host_tier; /* with the device tier alone a program has one stream */
    machine->allowance->left = transfer_sizes(machine, options->host_tier) + (beside ? slowdown_races(present) : 0);
    TRY(issue_measure(machine->backend, &rates->issue_s, &rates->wake_s));
    TRY(transfer_measure_zero(machine, rates));
    if (options->host_tier) TRY(transfer_measure_host(machine, rates));
    TRY(transfer_measure_disk(machine, rates));
    if (beside) return slowdown_measure(machine, present, rates);
    slowdown_none(rates);
    return STATUS_OK;
}

static enum status measure_member(const struct backend *backend, const struct rates_options *options,
                                  struct cluster_rates *out) {
    struct allowance allowance = {.end_ns = clock_now_ns() + RATES_BUDGET_NS};
    struct rate_machine machine = rate_machine_make(backend, options->threads, options->memory_bytes);
    struct arena_settings settings = {.folder = options->disk_folder, .channels = RATE_WORK_CHANNELS};
    struct cluster_rates rates = {.measured = true};
    machine.allowance = &allowance;
    backend->set_threads(options->threads);
    if (backend->streams) TRY(backend->streams->enter());
    if (options->disk_folder) TRY(arena_open(TIER_DISK, RATE_WORK_DISK_BYTES, &settings, &machine.disk));
    enum status status = measure(&machine, options, &rates);
    arena_close(&machine.disk);
    if (status == STATUS_OK) *out = rates;
    return status;
}

struct request {
    const struct backend *backend;
    const struct rates_options *options;
    struct cluster_rates *out;
};

static enum status lead(void *payload) {
    const struct request *request = payload;
    return measure_member(request->backend, request->options, request->out);
}

/* Once: it takes about as long as the first one's, and a disk's takes seconds. */
static enum status contend(void *payload, int member, const atomic_bool *ended) {
    const struct request *request = payload;
    struct cluster_rates dropped;
    (void)member, (void)ended;
    return measure_member(request->backend, request->options, &dropped);
}

enum status machine_rates_measure(const struct backend *backend, const struct rates_options *options,
                                  struct cluster_rates *out) {
    static const struct contention_work work = {lead, contend};
    struct request request = {backend, options, out};
    return contention_measure(options->contention, &work, &request);
}
