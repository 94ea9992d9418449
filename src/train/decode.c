#include "train/decode.h"

void decoding_begin(const struct engine *engine, struct decoding *out) {
    *out = (struct decoding){.engine = engine, .positions = engine->setup->plan.recipe.sequence_length};
}

/* Runs `used` tokens at the caches' end; what is left of the program's tokens is filled up. */
static enum status run_tokens(struct decoding *decoding, struct runner *runner, const struct executable *executable,
                              const uint32_t *ids, size_t used) {
    int32_t *tokens = engine_data(runner, executable, "tokens");
    int32_t *positions = engine_optional_input(runner, executable, "positions");
    size_t length = (size_t)executable->graph->sequence_length;
    for (size_t t = 0; t < length; t++) {
        tokens[t] = t < used ? (int32_t)ids[t] : 0;
        if (positions) positions[t] = t < used ? (int32_t)(decoding->filled + t) : 0;
    }
    double scalars[SCALAR_COUNT] = {
        [SCALAR_CACHE_START] = (double)decoding->filled,
        [SCALAR_NEW_TOKENS] = (double)used,
    };
    TRY(runner_step(runner, scalars));
    decoding->filled += used;
    return STATUS_OK;
}

static void make_room(struct decoding *decoding, size_t count) {
    size_t positions = (size_t)decoding->positions, kept = decoding->filled == 0 ? positions : (positions + 1) / 2;
    if (count - decoding->start <= positions) return;
    decoding->start = count - kept;
    decoding->filled = 0;
}

enum status decoding_run(struct decoding *decoding, const uint32_t *ids, size_t count, const float **logits) {
    const struct train_setup *setup = decoding->engine->setup;
    const struct executable *executable = NULL;
    struct runner *runner = NULL;
    BUG_IF(count <= decoding->start + decoding->filled, "no new token");
    make_room(decoding, count);
    for (size_t at; (at = decoding->start + decoding->filled) < count;) {
        bool one = count - at == 1;
        executable = one ? setup->decode : setup->prefill;
        runner = one ? decoding->engine->decode : decoding->engine->prefill;
        size_t chunk = (size_t)executable->graph->sequence_length, left = count - at;
        TRY(run_tokens(decoding, runner, executable, ids + at, left < chunk ? left : chunk));
    }
    *logits = engine_data(runner, executable, "logits");
    return STATUS_OK;
}
