/* Reference log-probabilities of DPO: those of the preference pairs' answers before training. They are computed once
 * and saved as RUN_DIR/reference.safetensors, so a resumed run needs no second model. */
#pragma once

#include "data/dataset.h"
#include "session/engine.h"

/* By sequence of a dataset (dataset_sequences). Zero-initialize; reference_free. */
struct reference {
    double *values; /* sums over targets; NULL: there are none */
    int64_t count;
};
void reference_free(struct reference *reference);

/* Computes with the engine's current weights. Collective. Calls `check_stop` before each micro-batch of all ranks and
 * returns its status if that is not OK (a stop). NULL: nothing stops it. The bits are the same on any number of data
 * ranks and stages. */
enum status reference_compute(struct engine *engine, const struct dataset *dataset,
                              enum status (*check_stop)(const void *payload), const void *payload,
                              struct reference *out);

/* Writes it into a run's directory, with hashes of the data and of the values. */
enum status reference_write(const char *run_folder, const struct dataset *dataset, const struct reference *reference);
/* BAD_INPUT, naming the file, if it is missing, damaged or for other data. */
enum status reference_read(const char *run_folder, const struct dataset *dataset, struct reference *out);
