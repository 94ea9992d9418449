/* What the model writes while it is trained: to RUN_DIR/samples.jsonl, one JSON object a line. */
#pragma once

#include "generate/config.h"
#include "session/engine.h"
#include "text/tokenizer/tokenizer.h"
#include "train/metrics.h"

struct samples {
    struct tokenizer *tokenizer;
    struct generation_config config;
    struct token_ids prompt;
    struct metrics file;
};

/* Tokenizer and prompt; nothing where the options want no samples. BAD_INPUT when the model has no tokenizer, or
 * nothing to begin with. The caller calls samples_close in any case, on a struct that was zeroed. */
enum status samples_prepare(const struct model *model, const struct train_options *options, struct samples *samples);
/* Opens the file and cuts it to the samples before `step`. */
enum status samples_open(const char *run_folder, int64_t step, struct samples *samples);
void samples_close(struct samples *samples);

/* Writes the model's continuation after `step`; the same for the same weights. `*text` is in fresh memory. */
enum status samples_take(struct samples *samples, const struct engine *engine, const struct train_options *options,
                         int64_t step, char **text);
