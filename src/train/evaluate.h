/* The loss of a model on files. */
#pragma once

#include "base/base.h"
#include "comm/comm.h"
#include "session/checkpoint/run_folder.h"
#include "session/engine.h"
#include "session/options.h"

/* The loss over batches that ranks share. Rank b % ranks computes batch b. Losses are added in the order of batches, so
 * the sum has the same bits as on one rank. */

/* Sum of one batch, or of all so far. */
struct loss_sum {
    double figures[LOSS_FIGURES_MAX]; /* the loss first */
    int64_t targets;                  /* counted targets, or pairs */
    bool stopped;                     /* a rank received a stop request, so batches of this turn may be missing */
};

/* Collective: adds one batch of each rank, in rank order. `mine` is this rank's sum, all zeros if it has no more
 * batches. `status` is its status; a failure of one rank fails all. */
enum status loss_sum_add(struct comm *comm, enum status status, const struct loss_sum *mine, struct loss_sum *sum);
/* Collective: computes and adds one batch of each rank, from batch `first` of so many. `stopped`: this rank received a
 * stop request and computes none. */
enum status loss_sum_add_turn(struct engine *engine, const struct dataset *dataset, int64_t first, int64_t batches,
                              bool stopped, struct loss_sum *sum);
/* The figures divided by the counted targets; unchanged if nothing counts. */
void loss_sum_means(const struct loss_sum *sum, double means[LOSS_FIGURES_MAX]);

struct eval_options {
    const char *const *data_paths; /* files, or directories that hold valid.* */
    size_t data_path_count;
    int64_t max_batches;   /* per file; 0: all */
    const char *columns;   /* as in struct train_options; NULL: none */
    int64_t chat_time_s;   /* as in struct train_options; 0: today */
    bool loss_on_all;      /* also evaluates the prompts of supervised examples */
    const char *reference; /* DPO: the directory of the reference model; NULL: none */
};

struct eval_file {
    char *path;                /* "total" for all */
    int64_t sequences, tokens; /* number evaluated; tokens are counted targets, or DPO pairs */
    double loss;               /* mean negative log-likelihood of a token, in nats; with DPO, the training loss */
    double perplexity;         /* exp(loss); with DPO NaN */
    double preference[PREFERENCE_FIGURES]; /* DPO: means over pairs; otherwise all 0 */
    double bits_per_byte; /* plain text (.txt) only, by the file's ratio of tokens to bytes; NaN if unknown */
};
struct eval_result {
    struct eval_file *files; /* in the order of the paths */
    size_t file_count;
    struct eval_file total;
    struct plan plan; /* the plan of the evaluation */
    double seconds;
    bool examples; /* some file has supervised examples */
    bool pairs;    /* the files hold preference pairs */
};

/* Evaluates a model on files. If `model_folder` is a DPO run and the files hold preferences, the loss, its settings and
 * the reference are the run's unless given. Statuses as in train_begin. On success the caller calls
 * eval_result_free. */
enum status evaluate_files(const char *model_folder, const struct plan_options *plan,
                           const struct eval_options *options, struct eval_result *out);
void eval_result_free(struct eval_result *result);
