#include "support/synthetic_costs.h"

#include "base/random.h"
#include "support/unit.h"

struct machine {
    const char *name;
    double disk, copies, kernels;
};
static const struct machine machines[] = {
#define MACHINE_ROW(name, disk, copies, kernels) {name, disk, copies, kernels},
    SYNTHETIC_MACHINE_LIST(MACHINE_ROW)
#undef MACHINE_ROW
};
_Static_assert(sizeof machines / sizeof *machines == SYNTHETIC_MACHINES, "a name for each machine");

const char *synthetic_machine_name(int machine) { return machines[machine].name; }

/* From 0 to 1. */
static double draw(uint64_t seed, uint64_t item) {
    return (double)(random_u64(seed, RANDOM_TEST, 11, item) % 1000) / 1000;
}

static void set_rates(const struct machine *machine, uint64_t seed, struct cluster_rates *rates) {
    rates->measured = true;
    rates->issue_s = 1e-7;
    rates->zero = (struct transfer_rate){1e-7, 1e10};
    for (int from = 0; from < TIER_COUNT; from++)
        for (int to = 0; to < TIER_COUNT; to++) {
            bool disk = from == TIER_DISK || to == TIER_DISK;
            double slower = (disk ? machine->disk : machine->copies) * (1 + draw(seed, (uint64_t)(10 * from + to)));
            rates->copy[from][to] = (struct transfer_rate){slower * (disk ? 3e-6 : 3e-7), (disk ? 1e9 : 5e9) / slower};
        }
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            rates->slowdown[a][b] = 1 + draw(seed, 1000 + (uint64_t)(10 * a + b));
}

struct costs synthetic_costs(const struct graph *graph, int machine, uint64_t seed) {
    struct costs costs = {.count = (int32_t)graph->nodes.count};
    costs.kernels = mem_array(graph->nodes.count, sizeof *costs.kernels);
    assert_non_null(costs.kernels);
    set_rates(&machines[machine], seed, &costs.rates);
    for (size_t n = 0; n < graph->nodes.count; n++) {
        struct op_cost cost;
        op_cost(graph->nodes.items[n], &cost);
        double seconds = machines[machine].kernels * (cost.flops / 1e10 + cost.bytes / 1e10 + 2e-7);
        costs.kernels[n].seconds = seconds * (0.5 + draw(seed, 5000 + n));
        costs.kernels[n].activity = cost.flops > 4 * cost.bytes ? ACTIVITY_PRODUCT : ACTIVITY_STREAMING;
    }
    return costs;
}

struct disturbance {
    double noise;
    uint64_t seed, draws;
};

static double factor(struct disturbance *disturbance, uint64_t item) {
    double unit = (double)(random_u64(disturbance->seed, RANDOM_TEST, 13, item) >> 11) * 0x1p-53;
    return 1 + disturbance->noise * (2 * unit - 1);
}

static void disturb(struct disturbance *disturbance, double *value) {
    *value *= factor(disturbance, disturbance->draws++);
}

static void disturb_rates(struct disturbance *disturbance, struct cluster_rates *rates) {
    disturb(disturbance, &rates->issue_s);
    disturb(disturbance, &rates->wake_s);
    disturb(disturbance, &rates->zero.latency_s);
    disturb(disturbance, &rates->zero.bytes_per_s);
    for (int from = 0; from < TIER_COUNT; from++)
        for (int to = 0; to < TIER_COUNT; to++) {
            disturb(disturbance, &rates->copy[from][to].latency_s);
            disturb(disturbance, &rates->copy[from][to].bytes_per_s);
        }
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            rates->slowdown[a][b] = 1 + (rates->slowdown[a][b] - 1) * factor(disturbance, disturbance->draws++);
}

/* The same for all nodes of an operator. */
static uint64_t number_of(const struct op *op) {
    uint64_t number = 1 << 20; /* after all draws by count */
    for (const char *letter = op->name; *letter; letter++)
        number = number * 31 + (unsigned char)*letter;
    return number;
}

struct costs disturbed_costs(const struct graph *graph, const struct costs *costs, double noise, uint64_t seed) {
    struct disturbance disturbance = {.noise = noise, .seed = seed};
    struct costs other = *costs;
    other.kernels = mem_array(graph->nodes.count, sizeof *other.kernels);
    assert_non_null(other.kernels);
    disturb_rates(&disturbance, &other.rates);
    for (size_t n = 0; n < graph->nodes.count; n++) {
        other.kernels[n] = costs->kernels[n];
        other.kernels[n].seconds *= factor(&disturbance, number_of(graph->nodes.items[n]->op));
    }
    return other;
}
