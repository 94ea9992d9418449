/* The log-probabilities that a model gives to the answers of preferences before it is trained, against which training
 * compares: computed once, and kept as RUN_DIR/reference.safetensors, so that a run that goes on needs no second model.
 */
#pragma once

#include "data/dataset.h"
#include "session/engine.h"

/* By sequence of a dataset (dataset_sequences). Zero-initialise; reference_free. */
struct reference {
    double *values; /* sums over targets; NULL: there are none */
    int64_t count;
};
void reference_free(struct reference *reference);

/* With the weights that the engine has now; collective. `check_stop` says before each micro-batch of all ranks whether
 * to go on: OK, or a status that stands for a stop, which is returned; NULL: nothing stops it. The same bits on any
 * number of data ranks and stages. */
enum status reference_compute(struct engine *engine, const struct dataset *dataset,
                              enum status (*check_stop)(const void *payload), const void *payload,
                              struct reference *out);

/* Writes it into a run's directory, with hashes of the data and of itself. */
enum status reference_write(const char *run_folder, const struct dataset *dataset, const struct reference *reference);
/* BAD_INPUT, naming the file, where it is missing or damaged, or of other data. */
enum status reference_read(const char *run_folder, const struct dataset *dataset, struct reference *out);
