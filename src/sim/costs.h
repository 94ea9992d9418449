/* Costs: how long what a program is made of takes. With them a program can be simulated (sim/simulate.h).
 *
 * An instruction alone takes its own seconds, and rates.wake_s before them where its stream slept until another's
 * ended. Beside others, those active at once share the machine as measured: it then advances at the rate 1 / (1 + sum
 * over the others of (slowdown[mine][theirs] - 1)), which is exact for n equal users of one resource (slowdown 2, rate
 * 1 / n) and for users of different ones (1). */
#ifndef BALLAST_SIM_COSTS_H
#define BALLAST_SIM_COSTS_H

#include "cluster/rates.h"
#include "program/program.h"

struct kernel_cost {
    double seconds; /* one call with nothing beside it, operands as cold as they are in a step */
    enum activity activity;
};

struct costs {
    struct kernel_cost *kernels; /* by node id of one graph */
    int32_t count;
    struct cluster_rates rates;
    bool estimated; /* by costs_estimate: good for comparing policies, not for telling a step's time */
};

/* Seconds and activity of an instruction that runs alone, rates.issue_s included. A copy's are by the tiers of its
 * operands and by what is moved, whole blocks on the disk. */
struct kernel_cost costs_of(const struct costs *costs, const struct program *program,
                            const struct instruction *instruction);
/* FAILED naming the first kind of transfer of the program that has no rate. */
enum status costs_check(const struct costs *costs, const struct program *program);
/* Costs of a device that was not measured, from op_cost and round figures of one accelerator of today beside its host:
 * 300 TFLOP/s, 2 TB/s, 25 GB/s each way to the host, 3 GB/s to the disk, activities of one kind sharing, others not
 * slowing each other. FAILED when out of memory; the caller frees. */
enum status costs_estimate(const struct graph *graph, struct costs *out);
void costs_free(struct costs *costs);

#endif
