/* Runs a model's program step by step, with a session, its plan and its engine. Tests compare it with recorded
 * references and with itself, under any policy. */
#pragma once

#include "model/safetensors.h"
#include "session/engine.h"
#include "support/random_policy.h"

struct harness_options {
    const struct backend *backend; /* NULL: harness_default_backend */
    const char *folder;            /* a Hugging Face directory; NULL: `config`, with initial weights */
    const struct model_config *config;
    const char *adapter;                 /* the directory of an adapter on that model, NULL: none */
    const char *lora, *freeze;           /* as model_set_adapter and model_set_frozen take them; NULL: "" */
    void (*before_arena)(void *payload); /* called when all is compiled; NULL: nothing */
    void *payload;
    enum model_purpose purpose;
    bool forward_only; /* MODEL_LOSS without gradients */
    enum dtype dtype;
    enum training_loss loss; /* TRAINING_DPO: rows are pairs */
    double dpo_beta;
    enum update_rule optimizer;
    enum state_format optimizer_dtype;
    enum master_weights master_weights;
    enum weight_format quantize_base;
    int64_t batch, sequence_length, micro_batch_sequences, micro_batches_per_wave;
    struct policy policy; /* but for the micro-batches */
    uint64_t policy_seed; /* not 0: a random policy, micro-batches and all, but for */
    struct policy_traits policy_traits;
    int stages;                 /* of a pipeline; 0: one */
    const char *spans;          /* policy.spans; NULL: "" */
    struct partition partition; /* of both, with operations between ranks that are flat or not */
    bool flat;
    const char *disk; /* the directory of the disk tier; NULL: the one for temporary files */
    enum disk_engine_choice engine;
    bool buffered;  /* the disk through the page cache */
    bool evaluates; /* also compiles PROGRAM_LOSS, in the same arenas: harness_evaluate */
    int threads;    /* 0: 2 */
    struct lane_shape lanes;
    int64_t round_micro_batches;
    bool sequence;                    /* of recipe */
    int tensor;                       /* ranks of `comm` that share each tensor; 0: 1 */
    struct layout_rates layout_rates; /* by which a solver says which parts; all 0: Megatron-LM's */
    const char
        *strategies; /* with these: what the solver would choose (plan/layout/tensor_layout.h); NULL: it chooses */
    enum dtype reduce_dtype;
    double clip_norm, weight_decay, epsilon, beta1, beta2;
    double muon_momentum;       /* 0: 0.95 where the optimizer is muon */
    struct comm *comm;          /* ranks that open and step together, each with its rows; NULL: one */
    int streams;                /* more than 1: instructions are dealt to streams at random, by the sum of the seeds */
    uint64_t seed, stream_seed; /* `seed` is also that of weights and adapters which no file has */
};

struct harness {
    struct harness_options options;
    struct session session;
    struct session_plan plan;
    struct engine engine;
    const struct executable *executable; /* the main program's, of the plan */
    struct runner *runner;               /* its, of the engine */
    int64_t step;
    double figures[LOSS_FIGURES_MAX]; /* sums of the last step's loss's, of all ranks */
};

/* The backend of the device that BALLAST_TEST_BACKEND names in the environment: as --device does, or "deferred"
 * (deferred_backend.h). Default: the CPU's. Skips the test program where the device is missing. */
const struct backend *harness_default_backend(void);

/* Ends the test on any failure. `out` must not be moved. */
void harness_open(const struct harness_options *options, struct harness *out);
void harness_close(struct harness *harness);
const struct graph *harness_graph(const struct harness *harness);
/* Of the main program's inputs and results; NULL where it has none of that name. */
void *harness_data(const struct harness *harness, const char *name);
/* Logits [batch, length, vocabulary] of a program that makes them. */
const float *harness_logits(const struct harness *harness);

/* Sets the inputs from `batch` sequences, of a step this rank's; targets may be NULL (logits). Sequences beyond the
 * batch have weight zero. */
void harness_set_inputs(struct harness *harness, const int32_t *tokens, const int32_t *targets);
/* How many of the targets that were set count: of a step, this rank's. */
int64_t harness_count_targets(const struct harness *harness);
/* Of TRAINING_DPO, behind harness_set_inputs: a number of each of the batch's sequences. */
void harness_set_references(struct harness *harness, const double *references);
/* One step over what harness_set_inputs set; returns the mean loss. `interleaved`: by runner_step_interleaved. */
double harness_step(struct harness *harness, double learning_rate, bool interleaved);
/* The mean loss by the program that only runs forward, with the weights after the last step. */
double harness_evaluate(struct harness *harness, const int32_t *tokens, const int32_t *targets);
/* Makes the updates that the last step left, so that weights can be looked at. */
void harness_finish(struct harness *harness);
/* Weights of a parameter as fp32 (the master where there is one), for mem_free. */
float *harness_weights(const struct harness *harness, const struct tensor *parameter);
/* Mixes all parameters' and states' bytes into one number: equal for equal bits. */
uint64_t harness_fingerprint(struct harness *harness);
