/* src/search/scale: what a step of training takes on a cluster that is only described: thousands of devices, layouts
 * that Ballast does not run yet, other systems' ways of working.
 *
 * A job (training.h) says which transformer is trained, on which cluster, in which layout, by which system. Kernels and
 * collectives cost what machine/kernel_cost.h and machine/collective_cost.h say. The job becomes a list of instructions
 * for each pipeline stage, and the lists are replayed by discrete events. Ranks that do the same are simulated once:
 * one for each stage.
 *
 * Files, in the order to read them: training (what is trained, how, and by what), layer_cost (a
 * transformer's layer on a rank, and collectives of the partition), replay (instructions and their
 * simulation), stage_program (from a job to instructions), forecast (this: seconds and bytes of a step, and what
 * failing nodes cost), choose (which layout, how many devices). */
#pragma once

#include "base/base.h"
#include "machine/kernel_cost.h"
#include "search/scale/replay.h"
#include "search/scale/stage_program.h"
#include "search/scale/training.h"

/* Bytes that a rank needs at most: states by the partition, activations by schedule and recomputation. */

struct rank_memory {
    double states;      /* parameters, gradients, optimizer */
    double activations; /* kept for the backward, of all micro-batches under way */
    double working;     /* of the layer at work, gathered weights, logits */
    double total;
};
/* Of a rank of the stage. */
struct rank_memory rank_memory_of(const struct job_costs *costs, int32_t stage);
/* Of the fullest stage. */
struct rank_memory rank_memory_max(const struct job_costs *costs);

/* What failing nodes cost a training: checkpoints, work that is done again, restarts (J. T. Daly, "A higher order
 * estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer Systems 22, 2006).
 * Failures come independently of each other, at any time, at a constant rate. */

struct failures {
    double node_mtbf_s;  /* mean time between failures of one node; above 0 */
    double checkpoint_s; /* for which a checkpoint holds the training up; at least 0 */
    double restart_s;    /* from a failure until the training goes on from its last checkpoint; at least 0 */
};

/* Seconds of work between two checkpoints for which the most of the time is work that lasts: where
 * (1 - x) exp(x + c) = 1, with x the interval and c a checkpoint, both of the time between failures of so many nodes.
 */
double failures_best_interval_s(const struct failures *failures, int64_t nodes);
/* Of the expected time, the part that is work which lasts, with a checkpoint after each `interval_s` of work:
 * t / (M exp(R / M) (exp((t + C) / M) - 1)), M the time between failures of so many nodes. 0 to 1. */
double failures_useful_part(const struct failures *failures, int64_t nodes, double interval_s);

/* No step of a forecast is measured. A source of published steps whose rows were left out of the calibration is off by
 * this much on average, at worst (bench/results/2026-11-23-scale-tables.md). */
#define FORECAST_ERROR_PART 0.126

struct forecast {
    double step_s;
    double flops;       /* of the model a step: GEMMs and attention, forward and backward, nothing twice */
    double busy_s;      /* of the slowest stage: computing */
    int64_t peak_bytes; /* of the fullest stage's devices */
    int64_t instructions;
};

/* BAD_INPUT where the job contradicts itself (training_check); FAILED without memory. Deterministic. */
enum status forecast_step(const struct training *job, const struct calibration *calibration, struct forecast *out);
/* The instructions of a step of at most so many micro-batches (at least one a stage), with when each happens: for
 * drawings, where the rounds of a long step look alike. `replay` is empty before; the caller frees it. */
enum status forecast_timeline(const struct training *job, const struct calibration *calibration, int64_t micro_batches,
                              struct replay *replay);
