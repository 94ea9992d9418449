/* Runs a model's program directly, below src/train: for tests that compare it with recorded references and with itself.
 */
#ifndef BALLAST_TESTS_HARNESS_H
#define BALLAST_TESTS_HARNESS_H

#include "model/model.h"
#include "model/safetensors.h"
#include "runtime/runner.h"

struct harness_options {
    /* NULL: that of the device which the environment's BALLAST_TEST_BACKEND names, else the CPU's. Where there is no
     * such device the test program ends as one that is skipped. */
    const struct backend *backend;
    const char *folder; /* a Hugging Face directory; NULL: `config`, with initial weights */
    const struct model_config *config;
    const char *adapter;                 /* the folder of an adapter on that model, NULL: none */
    const char *lora, *freeze;           /* as model_set_adapter and model_set_frozen take them; NULL: "" */
    void (*before_arena)(void *payload); /* called when all is compiled; NULL: nothing */
    void *payload;
    enum model_purpose purpose;
    bool forward_only; /* MODEL_LOSS without gradients */
    enum dtype dtype;
    int64_t batch, sequence_length, grain_sequences, grains_per_pass;
    struct policy policy; /* but for the grains */
    uint64_t policy_seed; /* not 0: a random policy, grains and all */
    const char *disk;     /* the folder of the disk tier; NULL: the one for temporary files */
    enum disk_engine_choice engine;
    bool buffered;  /* the disk through the page cache */
    bool evaluates; /* also compiles the forward pass, in the same arenas: harness_evaluate */
    int threads;    /* 0: 2 */
    double clip_norm, weight_decay, epsilon, beta1, beta2;
    int streams;                /* more than 1: instructions are dealt to streams at random, by the sum of the seeds */
    uint64_t seed, stream_seed; /* `seed` is also that of weights and adapters which no file has */
};

struct harness {
    struct harness_options options;
    struct model *model;
    struct executable *executable;
    struct arena arenas[TIER_COUNT];
    struct runner *runner;
    struct executable *evaluation; /* NULL: none */
    struct runner *evaluator;
    struct tensor *output; /* loss or logits */
    int64_t step;
};

/* Ends the test on any failure. */
void harness_open(const struct harness_options *options, struct harness *out);
void harness_close(struct harness *harness);
struct graph *harness_graph(const struct harness *harness);
void *harness_data(const struct harness *harness, const char *name);

/* Sets the inputs from `batch` sequences; targets may be NULL (logits). Sequences beyond the batch have weight zero. */
void harness_set_inputs(struct harness *harness, const int32_t *tokens, const int32_t *targets);
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

#endif
