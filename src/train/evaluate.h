/* The loss of a model on files. */
#pragma once

#include "base/base.h"
#include "comm/comm.h"
#include "session/checkpoint/run_folder.h"
#include "session/engine.h"
#include "session/options.h"

/* The loss over batches that ranks share. Batch b is computed by rank b % ranks; what the batches come to is added in
 * their order, so that the sum has the bits of one rank's. */

/* Of one batch, or of all so far. */
struct loss_sum {
    double figures[LOSS_FIGURES_MAX]; /* the loss first */
    int64_t targets;                  /* that count, or pairs */
    bool stopped;                     /* a rank was asked to stop, and the batches of this turn may be missing */
};

/* Collective: adds a batch of each rank, in the order of ranks. `mine` is what this rank's came to: of all zeros where
 * there is none for it any more. With its status; a failure of one is all ranks'. */
enum status loss_sum_add(struct comm *comm, enum status status, const struct loss_sum *mine, struct loss_sum *sum);
/* Collective: computes and adds a batch of each rank, from batch `first` of so many on. `stopped`: this rank was asked
 * to stop, and computes none. */
enum status loss_sum_add_turn(struct engine *engine, const struct dataset *dataset, int64_t first, int64_t batches,
                              bool stopped, struct loss_sum *sum);
/* The figures by what counts; as they are where nothing does. */
void loss_sum_means(const struct loss_sum *sum, double means[LOSS_FIGURES_MAX]);

struct eval_options {
    const char *const *data_paths; /* files, or directories that hold valid.* */
    size_t data_path_count;
    int64_t max_batches;   /* of each file; 0: all */
    const char *columns;   /* as in struct train_options; NULL: none */
    int64_t chat_time_s;   /* as in struct train_options; 0: today */
    bool loss_on_all;      /* of supervised examples the prompts too */
    const char *reference; /* of preferences: the directory of the model that they are compared with; NULL: none */
};

struct eval_file {
    char *path;                /* "total" for all */
    int64_t sequences, tokens; /* evaluated; tokens are targets that count, or of preferences pairs */
    double loss;               /* mean negative log-likelihood of a token, in nats; of preferences as in training */
    double perplexity;         /* exp(loss); of preferences NaN */
    double preference[PREFERENCE_FIGURES]; /* of preferences: means over pairs; else all 0 */
    double bits_per_byte; /* plain text (.txt) only, by the file's ratio of tokens to bytes; NaN where unknown */
};
struct eval_result {
    struct eval_file *files; /* in the order of the paths */
    size_t file_count;
    struct eval_file total;
    struct plan plan; /* what it was computed with */
    double seconds;
    bool examples; /* some file has supervised examples */
    bool pairs;    /* the files are of preferences */
};

/* Of a run's directory that was trained on preferences, the loss, its settings and the reference are the run's where
 * they are not given, if the files hold preferences. Statuses as train_begin. On success the caller calls
 * eval_result_free.
 */
enum status evaluate_files(const char *model_folder, const struct plan_options *plan,
                           const struct eval_options *options, struct eval_result *out);
void eval_result_free(struct eval_result *result);
