#include "plan/pipeline_order.h"

int32_t pipeline_chunks(int64_t stages, int64_t chunks, int64_t waves) {
    return stages > 1 && waves % stages == 0 ? (int32_t)chunks : 1;
}

int64_t pipeline_step_count(const struct pipeline_shape *pipeline) {
    return 2 * (int64_t)pipeline->chunks * pipeline->waves;
}

/* The nth forward, or backward, of a stage: a chunk takes as many waves as there are stages, then the next
 * chunk does; backward from the last chunk to the first. */
static struct pipeline_step nth(const struct pipeline_shape *pipeline, int64_t n, bool backward) {
    int64_t stages = pipeline->chunks > 1 ? pipeline->stages : 1, group = stages * pipeline->chunks;
    int32_t chunk = (int32_t)(n % group / stages);
    return (struct pipeline_step){.chunk = backward ? pipeline->chunks - 1 - chunk : chunk,
                                  .wave = (int32_t)(n / group * stages + n % stages),
                                  .backward = backward};
}

/* Forwards before the first backward. */
static int64_t warm_up(const struct pipeline_shape *pipeline, int32_t stage) {
    int64_t max = (int64_t)pipeline->chunks * pipeline->waves, after = pipeline->stages - 1 - stage;
    int64_t wanted = pipeline->chunks > 1 ? 2 * after + (int64_t)(pipeline->chunks - 1) * pipeline->stages : after;
    return wanted < max ? wanted : max;
}

void pipeline_order(const struct pipeline_shape *pipeline, int32_t stage, struct pipeline_step *out) {
    int64_t all = (int64_t)pipeline->chunks * pipeline->waves, ahead = warm_up(pipeline, stage), at = 0;
    for (int64_t n = 0; n < ahead; n++)
        out[at++] = nth(pipeline, n, false);
    for (int64_t n = 0; n < all; n++) {
        if (ahead + n < all) out[at++] = nth(pipeline, ahead + n, false);
        out[at++] = nth(pipeline, n, true);
    }
}

int64_t pipeline_held(const struct pipeline_shape *pipeline, int32_t stage) {
    int64_t all = (int64_t)pipeline->chunks * pipeline->waves, ahead = warm_up(pipeline, stage) + 1;
    return ahead < all ? ahead : all;
}
