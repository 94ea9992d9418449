/* src/search/scale: what a step of training takes on a cluster that is only described: thousands of devices, layouts
 * that Ballast does not run yet, other systems' ways of working.
 *
 * A job (training.h) says which transformer is trained, on which cluster, in which layout, by which system. Kernels and
 * collectives cost what machine/kernel_cost.h and machine/collective_cost.h say. The job becomes a list of instructions
 * for each pipeline stage, and the lists are replayed by discrete events. Ranks that do the same are simulated once:
 * one for each stage.
 *
 * Files, in the order to read them: training (what is trained, how, and by what),
 * layer_cost (a transformer's layer on a rank), partition_collectives (collectives of the partition), replay
 * (instructions and their simulation), stage_program (from a job to instructions), rank_memory (bytes), forecast (this:
 * all together), choose (which layout, how many devices), failures (what failing nodes cost), system (training systems
 * by name). */
#pragma once

#include "machine/kernel_cost.h"
#include "search/scale/replay.h"
#include "search/scale/training.h"

/* No step of a forecast is measured. A source of published steps whose rows were left out of the calibration is off by
 * this much on average, at worst (bench/results/2026-11-23-scale-tables.md). */
#define FORECAST_ERROR_PART 0.126

struct forecast {
    double step_s;
    double flops;       /* of the model a step: GEMMs and attention, forward and backward, nothing twice */
    double busy_s;      /* of the slowest stage: computing */
    double exposed_s;   /* of that stage: neither computing nor with work to do */
    int64_t peak_bytes; /* of the fullest stage's devices */
    int64_t instructions;
};

/* BAD_INPUT where the job contradicts itself (training_check); FAILED without memory. Deterministic. */
enum status forecast_step(const struct training *job, const struct calibration *calibration, struct forecast *out);
/* The instructions of a step of at most so many micro-batches (at least one a stage), with when each happens: for
 * drawings, where the rounds of a long step look alike. `replay` is empty before; the caller frees it. */
enum status forecast_timeline(const struct training *job, const struct calibration *calibration, int64_t micro_batches,
                              struct replay *replay);
