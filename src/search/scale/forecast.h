/* src/search/scale forecasts training steps on a described cluster: with thousands of devices, with layouts that
 * Ballast does not run yet, and with other training systems.
 *
 * A job (training.h) has a transformer, a cluster, a layout and a system. Costs of kernels and collectives come from
 * machine/kernel_cost.h and machine/collective_cost.h. The job becomes a list of instructions for each pipeline stage,
 * and the lists are simulated by discrete events. Ranks that do the same are simulated once: one rank for each stage.
 *
 * Files, in the order to read them:
 *   training: the model, the layout and the training system;
 *   layer_cost: a transformer's layer on a rank, and collectives of the partition;
 *   replay: instructions and their simulation;
 *   stage_program: from a job to instructions;
 *   forecast: seconds and bytes of a step, and the cost of failing nodes;
 *   choose: which layout, and how many devices. */
#pragma once

#include "base/base.h"
#include "machine/kernel_cost.h"
#include "search/scale/replay.h"
#include "search/scale/stage_program.h"
#include "search/scale/training.h"

/* Peak bytes of a rank: states by the partition, activations by schedule and recomputation. */

struct rank_memory {
    double states;      /* parameters, gradients, optimizer */
    double activations; /* kept for the backward, of all micro-batches in flight */
    double working;     /* of the current layer, gathered weights, logits */
    double total;
};
/* Memory of a rank of the stage. */
struct rank_memory rank_memory_of(const struct job_costs *costs, int32_t stage);
/* Memory of the fullest stage. */
struct rank_memory rank_memory_max(const struct job_costs *costs);

/* Cost of failing nodes: checkpoints, repeated work, restarts (J. T. Daly, "A higher order estimate of the optimum
 * checkpoint interval for restart dumps", Future Generation Computer Systems 22, 2006). Failures are independent, at a
 * constant rate. */

struct failures {
    double node_mtbf_s;  /* mean time between failures of one node; above 0 */
    double checkpoint_s; /* time that a checkpoint stops the training; at least 0 */
    double restart_s;    /* from a failure until the training resumes from its last checkpoint; at least 0 */
};

/* Seconds of work between two checkpoints that maximize the fraction of useful time. Solves (1 - x) exp(x + c) = 1,
 * with x the interval and c a checkpoint, both relative to the time between failures of so many nodes. */
double failures_best_interval_s(const struct failures *failures, int64_t nodes);
/* Fraction of the expected time that is useful work, with a checkpoint after each `interval_s` of work, from 0 to 1. It
 * is t / (M exp(R / M) (exp((t + C) / M) - 1)), with M the time between failures of so many nodes. */
double failures_useful_part(const struct failures *failures, int64_t nodes, double interval_s);

/* Relative error of a forecast, none of whose steps is measured. It is the worst average error over the steps of a
 * published source that the calibration excluded (bench/results/2026-11-23-scale-tables.md). */
#define FORECAST_ERROR_PART 0.126

struct forecast {
    double step_s;
    double flops;       /* model FLOPs of a step: GEMMs and attention, forward and backward, without recomputation */
    double busy_s;      /* compute time of the slowest stage */
    int64_t peak_bytes; /* per device of the fullest stage */
    int64_t instructions;
};

/* BAD_INPUT if the job is inconsistent (training_check); FAILED without memory. Deterministic. */
enum status forecast_step(const struct training *job, const struct calibration *calibration, struct forecast *out);
/* The instructions of a step with at most so many micro-batches (at least one per stage), with their times. For
 * drawings, since the rounds of a long step look alike. `replay` is empty before; the caller frees it. */
enum status forecast_timeline(const struct training *job, const struct calibration *calibration, int64_t micro_batches,
                              struct replay *replay);
