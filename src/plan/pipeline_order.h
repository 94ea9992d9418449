/* Which wave a pipeline stage works on when: 1F1B and its interleaved form (arXiv 2104.04473, figures 3 and 4).
 */
#ifndef BALLAST_PLAN_PIPELINE_ORDER_H
#define BALLAST_PLAN_PIPELINE_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct pipeline_step {
    int32_t chunk; /* of the stage's virtual stages */
    int32_t wave;  /* from 0 */
    bool backward;
};

struct pipeline_shape {
    int32_t stages, chunks, waves; /* chunks: virtual stages of each stage */
};

/* Interleaving needs groups of as many waves as there are stages: chunks that can be had, 1 or `chunks`. */
int32_t pipeline_chunks(int64_t stages, int64_t chunks, int64_t waves);
/* Steps of a stage: 2 * chunks * waves of them. */
int64_t pipeline_step_count(const struct pipeline_shape *pipeline);
void pipeline_order(const struct pipeline_shape *pipeline, int32_t stage, struct pipeline_step *out);
/* Chunks of waves whose activations a stage holds at most. */
int64_t pipeline_held(const struct pipeline_shape *pipeline, int32_t stage);

#endif
