/* From a job to instructions: for each pipeline stage its passes over the micro-batches, the collectives of the
 * partition around them, and the update. */
#pragma once

#include "search/scale/layer_cost.h"
#include "search/scale/replay.h"

void job_costs_find(const struct training *job, const struct calibration *calibration, struct job_costs *out);

/* Layers of a stage's chunk. */
int64_t stage_layers(const struct job_costs *costs, int32_t stage, int32_t chunk);
/* A rank's parameters of a layer: its tensor-parallel share, and its own experts. */
double layer_parameters(const struct job_costs *costs);
/* Parameters of a rank of the stage before the partition cuts them: its tensor-parallel share. */
int64_t stage_parameters(const struct job_costs *costs, int32_t stage);
/* Parameters of the stage for which a rank has a state that the partition cuts this finely. */
double stage_cut(const struct job_costs *costs, int32_t stage, int64_t cut);

/* Appends the instructions of all stages to an empty replay. FAILED without memory. */
enum status stage_program_make(const struct job_costs *costs, struct replay *out);
