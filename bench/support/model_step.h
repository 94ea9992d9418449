/* A training step of a model without files: random weights and tokens, with the session, plan and engine of `ballast
 * train`. */
#pragma once

#include "session/engine.h"

struct model_step_options {
    const char *family; /* "gpt2" or "llama" */
    int64_t layers;
    int64_t hidden, heads, vocab; /* 0: GPT-2's */
    struct plan_options plan; /* batch, length, micro-batch, dtype, threads, what is trained, backend (NULL: the CPU) */
    const struct policy *policy; /* NULL: the plain one */
    const char *disk_folder;     /* of the disk tier; NULL: policies use none */
};

struct model_step {
    struct session session;
    struct session_plan plan;
    struct engine engine;
    int64_t steps; /* that have been run */
    double loss;   /* of the last one, mean over its tokens */
};
/* Of its program. */
const struct executable *model_step_executable(const struct model_step *step);

/* The session and its plan alone: nothing is in memory yet. `out` must not be moved. The caller calls model_step_close,
 * also after a failure. */
enum status model_step_compile(const struct model_step_options *options, struct model_step *out);
/* Ready to run, inputs set. The caller calls model_step_close, also after a failure. BAD_INPUT for options that make no
 * model or plan. */
enum status model_step_open(const struct model_step_options *options, struct model_step *out);
void model_step_close(struct model_step *step);
/* One step; `ns` is what it took. */
enum status model_step_run(struct model_step *step, int64_t *ns);

int64_t model_step_tokens(const struct model_step *step);
/* Of one step: 2 for each token and parameter that takes part in a matrix multiplication (the head's, not the embedding
 * that is looked up) in the forward pass and 2 for the gradient of its input, 2 more where it is trained; and 6 * heads
 * * head size * (length + 1) for each token and layer of causal attention. All that is trained: 6 a parameter. */
double model_step_model_flops(const struct model_step *step);
/* The same as the operators of the program count it, the recomputed scores of attention included. */
double model_step_program_flops(const struct model_step *step);
