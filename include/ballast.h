/* ballast.h: train large language models within a memory budget that is known before the first step.
 *
 * This header is the manual of libballast. The program `ballast` and the library are built from the same objects. The
 * same options give the same losses, weights and text, to the bit. Each can resume the other's runs.
 *
 * UNSTABLE: this is version 0.x. A minor release (0.2, 0.3) may change names and structs. The SONAME includes the minor
 * version, so the loader refuses a program that was linked with another minor release.
 *
 *
 * ---- Introduction ----
 *
 *     #include <ballast.h>                              cc train.c $(pkg-config --cflags --libs ballast)
 *
 *     static int show(const struct ballast_step *step, void *payload) {
 *         printf("step %lld  loss %.4f\n", (long long)step->step, step->loss);
 *         return 0;                                     // any other value stops the run, with a checkpoint
 *     }
 *
 *     const char *data[] = {"data"};
 *     struct ballast_plan_options plan = BALLAST_PLAN_OPTIONS_INIT;
 *     struct ballast_train_options train = BALLAST_TRAIN_OPTIONS_INIT;
 *     struct ballast_train_events events = BALLAST_TRAIN_EVENTS_INIT;
 *     train.data_paths = data, train.data_path_count = 1;
 *     train.steps = 3000;
 *     events.step = show;
 *     if (ballast_train("model", "run", &plan, &train, &events) != BALLAST_OK)
 *         fprintf(stderr, "%s\nhint: %s\n", ballast_error_message(), ballast_error_hint());
 *
 * The library has three layers. Use the first one that does what you need:
 *   Simple calls   Each call does the work of one subcommand: plan, train, resume, evaluate, generate.
 *   Parts          A session makes a plan for you to inspect. You drive a trainer step by step. A writer keeps a model
 *                  in memory for many texts.
 *   Experimental   Define BALLAST_EXPERIMENTAL before including the header.
 * `examples/train.c` and `examples/train.py` (with ctypes) train, stop, resume and generate.
 *
 * These rules hold for every call:
 *
 * Results. A call that can fail returns enum ballast_status. It writes its results through pointers, and only if it
 *   returns BALLAST_OK. ballast_error_message() and ballast_error_hint() describe an error.
 * Defaults. In option structs, any negative number and a NULL string mean "not given". The field then has the default
 *   that its comment states. The initializers leave every field not given. A NULL pointer to an optional struct means
 *   that none of its fields is given. A value out of range fails with BALLAST_BAD_INPUT and the field's name. String
 *   values, such as those of dtype and schedule, and ranges are those of the command line (docs/options.md).
 * Versions. Each struct that you create begins with `version`, which its initializer sets. A call refuses a struct
 *   whose version is not this library's. In C, use the macros. In other languages, call the ballast_..._init functions,
 *   which do the same. Structs that callbacks receive may grow at their end.
 * Strings are UTF-8 and end with a NUL, unless a length is passed with them. Paths are as the C library takes them.
 * Ownership. You own what you pass in. Ballast does not change it, and does not need it after the call returns.
 *   Pointers that a callback receives are valid until it returns. You close what you open, while no call uses it.
 *   Closing NULL does nothing.
 * Threads. Make one call at a time, from any thread. A call that begins during another one, from another thread or from
 *   a callback, fails with BALLAST_BAD_INPUT. You may call these at any time: ballast_stop(), ballast_error_message(),
 *   ballast_error_hint(), ballast_status_name(), ballast_version() and the initializers. Any number of objects may be
 *   open. Runs, evaluations and texts may follow each other in a process, also after errors.
 * Callbacks run on the thread that made the call, except for the log callback. They must return normally: neither
 *   longjmp nor a C++ exception may pass through Ballast.
 *
 * Side effects. Ballast prints nothing and installs no signal handlers. It sends warnings to the log callback, if there
 * is one. It never exits the process, except in ballast_ranks_close. Stop a run with ballast_stop() or the step
 * callback. Ballast does not change the locale, working directory, umask or environment, and it restores the caller's
 * number of OpenMP threads. One exception: if Ballast detects a bug of its own, it prints one line on stderr and calls
 * abort(), because continuing could write wrong weights. That is always a bug in Ballast, whatever the input.
 *
 * Requirements. The program `ballast` sets these up for itself. In your process, you do:
 *   - Keep the floating-point mode with which C starts: rounding to nearest, and subnormal numbers not flushed to
 *     zero. Results depend on it. Code linked with -ffast-math may change it when it is loaded. A call on a thread in
 *     another mode fails. OpenMP reuses its threads. A thread that your program started in another mode keeps that mode
 *     in Ballast's loops.
 *   - Make no call inside an OpenMP parallel region, and none in a child of fork() if the parent made a call. Both
 *     fail. Starting a new program with exec is fine. In Python, use multiprocessing's "spawn".
 *   - Keep file descriptors 0, 1 and 2 open, if only on /dev/null. Otherwise a file of a run may get such a number, and
 *     printed output would go into it.
 *   - Ignore SIGXFSZ if `ulimit -f` may be set. A write beyond the limit then fails with an error; otherwise the signal
 *     ends the process. Checkpoints stay valid in both cases.
 *   - If other programs use the same cores, start the process with GOMP_SPINCOUNT=10000 and OMP_WAIT_POLICY=active in
 *     its environment. OpenMP reads them at process start. They limit how long threads spin at barriers before they
 *     sleep. They change no bit. The program `ballast` restarts itself with them.
 *   - BALLAST_MAX_ISA and XDG_CACHE_HOME have the same effect as in the program. Ballast reads BALLAST_MAX_ISA when it
 *     first uses the kernels, and not again.
 *
 * Memory. The plan states the size of a step's arena. Ballast allocates nothing else during a step. In your process,
 *   oneDNN allocates a few small blocks per matrix multiplication with your operator new, which a library may not
 *   replace; the program avoids this too. No bit depends on it.
 *
 * Bits. A result depends only on the recipe: dtype, batch, micro-batch, seed, instruction set, kernels' version and so
 *   on. It does not depend on the policy: memory limits, tiers, chunks, recomputation. See docs/policies.md. */
#ifndef BALLAST_H
#define BALLAST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version ---- */

#define BALLAST_VERSION_MAJOR 0
#define BALLAST_VERSION_MINOR 2
#define BALLAST_VERSION_PATCH 0

/* Version of the loaded library, "MAJOR.MINOR.PATCH". */
const char *ballast_version(void);

/* ---- Status, errors, log ---- */

/* The values equal the program's exit statuses. */
enum ballast_status {
    BALLAST_OK = 0,
    BALLAST_FAILED = 1,    /* Failure after the input was accepted: out of memory, disk full, a loss that is not finite.
                              The last checkpoint is valid. */
    BALLAST_BAD_INPUT = 2, /* An argument, an option or a file is wrong. Nothing was written. */
    BALLAST_NO_FIT = 3,    /* No plan fits the memory. The message states the shortfall, the hint what would fit. */
    BALLAST_STOPPED = 130  /* Stopped on request, after a checkpoint (unless save_every is 0). */
};
/* "OK", "FAILED", …; "unknown" for other numbers. */
const char *ballast_status_name(enum ballast_status status);

/* The error of the calling thread's last call. The message is one line that names the file and the field. The hint
 * suggests a fix, or is "". Both are "" after BALLAST_OK. Hints use the command line's names: --device-memory is
 * device_memory_bytes. The strings are valid until the thread's next call. */
const char *ballast_error_message(void);
const char *ballast_error_hint(void);

enum ballast_log_level { BALLAST_LOG_NOTE = 0, BALLAST_LOG_WARNING = 1 };
/* Receives one line of log, without a newline. Ballast calls it from any thread, one call at a time. While a trainer is
 * open it may also be called between your calls, because text is tokenized in the background. */
typedef void ballast_log_callback(enum ballast_log_level level, const char *text, void *payload);
/* Sets the log callback of the whole process. NULL discards the log. Default: NULL. Do not call it from a log
 * callback. */
void ballast_set_log(ballast_log_callback *callback, void *payload);

/* Stops the current training or text, or the open trainer. Training finishes its step and writes a checkpoint.
 * Generation ends after the current token. Safe to call from any thread, callback or signal handler: it only sets a
 * flag. The next run or text clears the flag when it begins. */
void ballast_stop(void);

/* ---- Plan options: shared by all calls ---- */

/* The recipe, which fixes the bits of the result, and limits and parallelism of the policy, which never change them.
 * The comments say "Policy" for fields of the latter kind. */
#define BALLAST_PLAN_OPTIONS_VERSION 6
struct ballast_plan_options {
    int version;

    /* Global batch: sequences per step over all ranks. Default: 8. */
    int64_t batch;
    /* Tokens per sequence. Default: 1024, or the model's context if that is shorter. */
    int64_t sequence_length;
    /* Sequences that kernels process at once. Default: the fewest that hold 1024 tokens (on a GPU 4096 to 32768), at
     * most the batch. */
    int64_t micro_batch_sequences;
    /* Policy. Compute threads per rank. Default: the physical cores that the process may use, divided among the ranks
     * that share them. */
    int64_t threads;
    /* Random seed for data order and sampling, at least 0. Default: 1. */
    int64_t seed;
    /* Data type of parameters and activations: "bf16" or "fp32". Accumulation is always fp32. Default: bf16 if the
     * hardware has it, else fp32. */
    const char *dtype;
    /* Whether tokens attend to earlier documents in their sequence: "across" or "within" (each document attends to
     * itself only). Default: across. */
    const char *document_attention;
    /* Training objective: "next-token" (cross-entropy), or "dpo" on preference pairs. Default: next-token. */
    const char *loss;
    /* DPO temperature (beta). Smaller values allow more divergence from the reference model. Default: 0.1. */
    double dpo_beta;
    /* "RANK,ALPHA,TARGETS": train LoRA adapters and freeze all other weights. Default: none. */
    const char *lora;
    /* Glob patterns (*, ?, [...]) of weight names not to train. Default: none (freeze_count 0). */
    const char *const *freeze;
    size_t freeze_count;

    /* Policy. Micro-batches that go through forward and backward as one group. Default: 1. */
    int64_t micro_batches_per_wave;
    /* Compute device: "cpu", "cuda" or "cuda:N". A process keeps the GPU that it used first. Default: cuda if this
     * build can use a GPU, else cpu. */
    const char *device;
    /* Policy. Limit on device memory in bytes. Default: the memory available to the process, less a reserve. */
    int64_t device_memory_bytes;
    /* Policy. Limit on host memory in bytes. The host tier holds what does not fit on the device. Default: none on a
     * CPU; with a GPU, the memory available to the process, less a reserve. */
    int64_t host_memory_bytes;
    /* Policy. Directory of the disk tier, which holds what does not fit in memory. Default: no disk tier; resume: the
     * directory that the run used. */
    const char *disk_folder;
    /* Policy. Limit on the disk tier in bytes; requires disk_folder. Default: the free space, less 5%. */
    int64_t disk_bytes;

    /* Logical data-parallel ranks, which fix the order in which gradients are summed: "8", or "2x4" (nodes x lanes per
     * node). A binary tree sums the lanes, so any number of ranks that holds whole subtrees gives the same bits: 1, 2,
     * 4 or 8 ranks for 8 lanes. Default: the number of data-parallel ranks when the run begins. */
    const char *lanes;
    /* Policy. Partition of parameters, gradients and optimizer states, in the syntax of `--partition`: "zero3",
     * "8|8|32". Default: the fastest that fits. */
    const char *partition;
    /* Policy. "hierarchical" runs collectives within each node first; "flat" from each rank to every other. Default:
     * the faster. */
    const char *collectives;
    /* Micro-batches that a lane accumulates before lanes are summed; 0: all of them. Default: 0. */
    int64_t round_micro_batches;
    /* Split large matrices across this many ranks. Default: 1. */
    int64_t tensor_parallel;
    /* Policy. Split the layers across this many pipeline stages, with equal numbers of ranks. Default: 1. */
    int64_t pipeline_parallel;
    /* Policy. Virtual pipeline stages per rank. Default: the fastest number. */
    int64_t virtual_stages;
    /* Data type in which ranks send gradients. "bf16" rounds each lane's gradients before they are summed. Default:
     * fp32. */
    const char *reduce_dtype;

    /* How tensor_parallel splits tensors: "megatron", or "solver" (the cheapest strategy of each operator). Default:
     * megatron. */
    const char *layout;

    /* "adamw", "lion", "sgd" (with momentum) or "muon". Default: adamw. */
    const char *optimizer;
    /* Data type of the optimizer's moments: "fp32", "bf16" (with stochastic rounding), or "int8" (with a scale for each
     * 256 values). Default: fp32. */
    const char *optimizer_dtype;
    /* Master weights of bf16 weights: "fp32"; "split" (the 16 bits of fp32 that bf16 lacks); or "none" (stochastic
     * rounding of the weights). Default: fp32. */
    const char *master_weights;

    /* Plan file of `ballast plan -o`. Options that are given must agree with it. Resume uses the run's own plan and
     * refuses this field. Default: none. */
    const char *plan_path;
    /* Cluster file of `ballast profile -o`, whose rates replace measurements. Default: none. */
    const char *cluster_path;
    /* Quantized format of the base model's matrices under `lora`: "nf4", "int8", "mxfp4" or "none". Default: none. */
    const char *quantize_base;
    /* "on": shard activations along the sequence between matrix multiplications; requires tensor_parallel. Default:
     * off. */
    const char *sequence_parallel;
    /* Momentum of muon. Default: 0.95. */
    double muon_momentum;
    /* DPO loss of a pair's margin: "sigmoid", "hinge", "ipo" or "robust". Default: sigmoid. */
    const char *dpo_loss;
    /* Assumed fraction of pairs with swapped labels, for sigmoid and robust. Default: 0. */
    double dpo_label_smoothing;
    /* "on": pack several supervised examples into a sequence; each attends to itself only. "off": one example per
     * sequence. Default: on if the data hold supervised examples. */
    const char *packing;
};
#define BALLAST_PLAN_OPTIONS_INIT                                                                                      \
    {                                                                                                                  \
        BALLAST_PLAN_OPTIONS_VERSION, -1, -1, -1, -1, -1, NULL, NULL, NULL, -1, NULL, NULL, 0, -1, NULL, -1, -1, NULL, \
            -1, NULL, NULL, NULL, -1, -1, -1, -1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, -1, NULL, -1,  \
            NULL                                                                                                       \
    }
/* Does the same at run time; likewise the other ..._init functions. */
void ballast_plan_options_init(struct ballast_plan_options *options);

/* ---- Training options ---- */

#define BALLAST_TRAIN_OPTIONS_VERSION 2
struct ballast_train_options {
    int version;

    /* Training data, at least one path. A path is a file, or a directory with train.* and valid.* files. Files are
     * .txt, .bin (tokens in llm.c's format) or .jsonl, with one of these objects per line:
     *
     * - {"text"}: plain text
     * - {"prompt", "completion"}: supervised example; the loss counts the completion
     * - {"messages"}: supervised conversation; the loss counts the answers
     * - {"prompt", "chosen", "rejected"}: preference pair, for the loss "dpo"
     *
     * PATH:WEIGHT mixes sources in exact proportions. The run stores relative paths as absolute ones. */
    const char *const *data_paths;
    size_t data_path_count;
    /* Validation data, in addition to the valid.* files of directories. Default: none (valid_path_count 0). */
    const char *const *valid_paths;
    size_t valid_path_count;
    double valid_fraction; /* Fraction of the training data held out, if there is no other validation data. Default:
                              0. */
    const char *columns;   /* "FIELD=KEY,...": keys of .jsonl fields. Default: the fields' own names. */
    const char *loss_on;   /* Tokens of supervised examples that count in the loss: "completions" or "all". Default:
                              completions. */
    int64_t chat_time_s;   /* Date for chat templates that ask for it, in seconds since 1970. Default: today. */

    int64_t steps;             /* Optimizer steps of the whole run. Default: 1000. */
    double epochs;             /* Passes over the training data, instead of steps. Default: none. */
    double learning_rate;      /* Peak learning rate. Default: 3e-4. */
    const char *schedule;      /* Learning rate after warm-up: "cosine", "linear", "constant" or "wsd". Default:
                                  cosine. */
    int64_t schedule_steps;    /* Step at which the schedule ends. Default: steps. */
    int64_t warmup_steps;      /* Steps of linear warm-up. Default: a tenth of the schedule, at most 100. */
    double min_lr_fraction;    /* Final learning rate of the schedule, as a fraction of the peak. Default: 0.1. */
    double wsd_decay_fraction; /* Fraction of the schedule in which wsd decays. Default: 0.2. */

    /* The optimizer's parameters, which belong to the recipe. */
    double beta1;        /* Decay of the first moment; sgd: momentum. Default: 0.9. */
    double beta2;        /* Decay of the second moment, or of lion's moment. Default: 0.95; lion: 0.99. */
    double epsilon;      /* Term that adamw adds to the denominator. Default: 1e-8. */
    double weight_decay; /* Weight decay of matrices and embeddings; biases and norm weights do not decay. Default:
                            0.1. */
    double clip_norm;    /* Limit of the global gradient norm; 0: no clipping. Default: 1. */

    /* Steps between checkpoints. A run also writes one at its end and at a stop. 0: none; the run then writes only its
     * model and cannot be resumed. Default: 100. */
    int64_t save_every;
    int64_t keep;              /* Number of newest checkpoints to keep; 0: all. Default: 2. */
    int64_t valid_every;       /* Steps between validations; 0: never. Default: 100. */
    int64_t valid_batches;     /* Maximum batches per validation; 0: all. Default: 0. */
    int64_t sample_every;      /* Steps between generated samples; 0: never. Default: 0. */
    int64_t sample_tokens;     /* Maximum tokens per sample. Default: 64. */
    const char *sample_prompt; /* Prompt of samples. Default: the end-of-text token. */
    /* "auto": switch to a policy that is more than 5% faster by measured step times, or when available memory changes.
     * The bits stay the same. "off": keep the plan. Default: auto, or off if a plan file gives the policy. */
    const char *replan;
};
#define BALLAST_TRAIN_OPTIONS_INIT                                                                                     \
    {                                                                                                                  \
        BALLAST_TRAIN_OPTIONS_VERSION, NULL, 0, NULL, 0, -1, NULL, NULL, -1, -1, -1, -1, NULL, -1, -1, -1, -1, -1, -1, \
            -1, -1, -1, -1, -1, -1, -1, -1, -1, NULL, NULL                                                             \
    }
void ballast_train_options_init(struct ballast_train_options *options);

/* Figures of one completed step. With the loss "dpo", means are over preference pairs. */
struct ballast_step {
    int64_t step, steps;     /* Steps done, including this one; steps of the whole run. */
    double epoch, epochs;    /* The same in epochs, if the run's length was given in epochs; else 0. */
    double loss;             /* Mean negative log-likelihood of the tokens that count, in nats; dpo: mean DPO loss of
                                the pairs. */
    double grad_norm;        /* Global gradient norm before clipping. */
    double learning_rate;    /* Learning rate of this step. */
    int64_t tokens;          /* Input tokens since the run's first step. */
    double tokens_per_s;     /* Input tokens per second in this step. */
    double step_s;           /* Time of this step in seconds. */
    double mfu;              /* Model FLOPs per second as a fraction of the machine's rate, 0 to 1; NaN if unknown. */
    double remaining_s;      /* Seconds until the run ends, at the pace of recent steps. */
    double predicted_step_s; /* Step time that the plan predicted, in seconds; 0 if unknown. */
    int64_t device_bytes;    /* Bytes of the device arena that are resident now. */
    /* Only with dpo, else 0. The reward of an answer is beta times its log-probability minus that under the reference
     * model. `margin` is the reward of the chosen answer minus that of the rejected one. `accuracy` is the fraction of
     * pairs with a positive margin. */
    double reward_chosen, reward_rejected, margin, accuracy;
};

/* Callbacks during training. Any may be NULL. */
#define BALLAST_TRAIN_EVENTS_VERSION 1
struct ballast_train_events {
    int version;
    /* Called after each step. Return 0 to continue; any other value stops the run, as ballast_stop() does. */
    int (*step)(const struct ballast_step *step, void *payload);
    /* Mean loss on the validation data after `step` steps, in nats. */
    void (*validated)(int64_t step, double loss, void *payload);
    /* A sample: the text that the model generated after the prompt. */
    void (*sampled)(int64_t step, const char *prompt, const char *text, void *payload);
    /* A checkpoint is complete. `folder` is a Hugging Face directory, which generate and evaluate accept. */
    void (*saved)(int64_t step, const char *folder, void *payload);
    void *payload; /* Passed to each callback. */
};
#define BALLAST_TRAIN_EVENTS_INIT                                                                                      \
    { BALLAST_TRAIN_EVENTS_VERSION, NULL, NULL, NULL, NULL, NULL }
void ballast_train_events_init(struct ballast_train_events *events);

/* ======== Simple calls ======== */

/* A `model` is a Hugging Face directory (config.json, *.safetensors, tokenizer.json) of a family in docs/models.md. It
 * may also be a run's directory RUN, which stands for RUN/model. */

/* Memory and time of a training step, computed before any weight is loaded. */
#define BALLAST_PLAN_RESULT_VERSION 1
struct ballast_plan_result {
    int version;
    int64_t device_bytes, host_bytes, disk_bytes; /* Arena sizes: all memory that a step uses in each tier. */
    int64_t device_capacity_bytes, host_capacity_bytes, disk_capacity_bytes; /* Available bytes; 0: no such tier. */
    double step_s;                                                           /* Predicted seconds; 0 if unknown. */
    int64_t parameters, trained_parameters;
    double flops_per_token; /* Model FLOPs of a training step per token. */
};
#define BALLAST_PLAN_RESULT_INIT                                                                                       \
    { BALLAST_PLAN_RESULT_VERSION, 0, 0, 0, 0, 0, 0, 0.0, 0, 0, 0.0 }
void ballast_plan_result_init(struct ballast_plan_result *result);

/* Plans a training step. `model` may also be a directory with only config.json, or a preset's name (`ballast help
 * presets`). `training` gives the optimizer's parameters, which belong to the recipe. Its other fields, data included,
 * are not used, and it may be NULL. Measures the model's operators, which takes some seconds the first time on a
 * machine. Initialize `out` before the call. Returns NO_FIT if no plan fits. */
enum ballast_status ballast_plan(const char *model, const struct ballast_plan_options *plan,
                                 const struct ballast_train_options *training, struct ballast_plan_result *out);

/* Trains `model` and writes the directory `run`, which must be new or empty:
 *   run.json                     all settings
 *   metrics.jsonl                one line per step, with losses to the last bit
 *   checkpoints/step-00000100 …  the checkpoints
 *   model                        the trained model, a Hugging Face directory, written at the end
 * `events` may be NULL. Returns NO_FIT, FAILED, or STOPPED after ballast_stop() or a stop by the step callback. A
 * stopped run can be resumed. */
enum ballast_status ballast_train(const char *model, const char *run, const struct ballast_plan_options *plan,
                                  const struct ballast_train_options *options,
                                  const struct ballast_train_events *events);

/* New values for the rest of a run. Fields not given keep the run's values. The run keeps new values for later
 * resumes, and run.json keeps their history. */
#define BALLAST_RESUME_OPTIONS_VERSION 3
struct ballast_resume_options {
    int version;
    int64_t steps;               /* New length of the whole run; at least the steps already done. */
    double epochs;               /* New length in epochs; do not give both. */
    int64_t allow_recipe_change; /* 1: resume with another instruction set or kernels' version, which changes the bits
                                    from here on. 0: fail. Default: 0. */
    const char *replan;          /* "auto" or "off", as in struct ballast_train_options. */
    /* The fields below are those of struct ballast_train_options. A new learning_rate is the new peak of the schedule:
     * warm-up and decay keep their steps, and all later rates scale by the new peak over the old one. */
    double learning_rate;
    const char *schedule;
    int64_t schedule_steps, warmup_steps;
    double min_lr_fraction, wsd_decay_fraction;
    int64_t save_every; /* At least 1. */
    int64_t keep, valid_every, valid_batches, sample_every, sample_tokens;
    const char *sample_prompt;
};
#define BALLAST_RESUME_OPTIONS_INIT                                                                                    \
    { BALLAST_RESUME_OPTIONS_VERSION, -1, -1, -1, NULL, -1, NULL, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, NULL }
void ballast_resume_options_init(struct ballast_resume_options *options);

/* Continues a run from its newest checkpoint. Without `options`, the result is bit-identical to that of a run without a
 * stop. Plan options must equal the run's, except memory limits, partition, collectives and micro-batches per wave. If
 * the run is complete, only writes its model again. `plan`, `options` and `events` may be NULL. Returns the statuses of
 * ballast_train. */
enum ballast_status ballast_resume(const char *run, const struct ballast_plan_options *plan,
                                   const struct ballast_resume_options *options,
                                   const struct ballast_train_events *events);

#define BALLAST_EVALUATE_OPTIONS_VERSION 2
struct ballast_evaluate_options {
    int version;
    const char *const *data_paths; /* As in training; a directory stands for its valid.* files. */
    size_t data_path_count;        /* At least 1. */
    int64_t batches;               /* Maximum batches per file; 0: all. Default: 0. */
    const char *columns, *loss_on; /* As in training. */
    int64_t chat_time_s;           /* As in training. */
    const char *reference;         /* Reference model of the loss "dpo", which requires it: the model before training.
                                      A run trained with dpo names its own. */
};
#define BALLAST_EVALUATE_OPTIONS_INIT                                                                                  \
    { BALLAST_EVALUATE_OPTIONS_VERSION, NULL, 0, -1, NULL, NULL, -1, NULL }
void ballast_evaluate_options_init(struct ballast_evaluate_options *options);

/* Loss on one file, or on all files together. */
#define BALLAST_EVALUATION_VERSION 2
struct ballast_evaluation {
    int version;
    int64_t sequences, tokens; /* Evaluated sequences, and tokens that count in the loss; dpo: pairs. */
    double loss;               /* Mean negative log-likelihood of a token, in nats; dpo: as in struct ballast_step. */
    double perplexity;         /* exp(loss); dpo: NaN. */
    double bits_per_byte;      /* Plain text only, else NaN. */
    double reward_chosen, reward_rejected, margin, accuracy; /* As in struct ballast_step. */
};
#define BALLAST_EVALUATION_INIT                                                                                        \
    { BALLAST_EVALUATION_VERSION, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0 }
void ballast_evaluation_init(struct ballast_evaluation *evaluation);
/* Receives the result of each file, in the order of the paths, after all files are evaluated. */
typedef void ballast_file_callback(const char *path, const struct ballast_evaluation *file, void *payload);

/* Evaluates the loss of a model on files. `out` receives the loss on all of them together; initialize it before the
 * call. `file` may be NULL. */
enum ballast_status ballast_evaluate(const char *model, const struct ballast_plan_options *plan,
                                     const struct ballast_evaluate_options *options, struct ballast_evaluation *out,
                                     ballast_file_callback *file, void *payload);

/* Options of text generation. The defaults of temperature, top_k, top_p and repetition_penalty are the values in the
 * model's generation_config.json, or else those stated here. */
#define BALLAST_GENERATE_OPTIONS_VERSION 1
struct ballast_generate_options {
    int version;
    int64_t tokens;     /* Maximum new tokens, at least 1. Default: 100; with chat: as many as the caches hold. */
    double temperature; /* Divides the logits; 0: greedy decoding. Default: 0.8. */
    int64_t top_k;      /* Sample from the k most likely tokens; 0: all. Default: 0. */
    double top_p; /* Sample from the fewest most likely tokens with this total probability, up to 1. Default: 1. */
    double repetition_penalty; /* Above 1 makes tokens already in the text less likely (Keskar et al., arXiv
                                  1909.05858). Default: 1. */
    int64_t ignore_end;        /* 1: continue after an end-of-text token. Default: 0. */
    const char *const *stops;  /* Stop before the first of these texts. Default: none (stop_count 0). */
    size_t stop_count;
    int64_t chat;        /* 1: treat the prompt as a user message in the model's chat template, and generate the answer.
                            Default: 0. */
    const char *system;  /* System message, with chat. Default: none. */
    int64_t chat_time_s; /* As in training. */
};
#define BALLAST_GENERATE_OPTIONS_INIT                                                                                  \
    { BALLAST_GENERATE_OPTIONS_VERSION, -1, -1, -1, -1, -1, -1, NULL, 0, -1, NULL, -1 }
void ballast_generate_options_init(struct ballast_generate_options *options);

/* Receives the next piece of a text, as soon as it consists of whole characters: `bytes` bytes of UTF-8, not
 * NUL-terminated. Return 0 to continue; any other value ends the text, which is not an error. */
typedef int ballast_piece_callback(const char *text, size_t bytes, void *payload);

enum ballast_finish {
    BALLAST_FINISH_END = 0,    /* The model generated an end-of-text token. */
    BALLAST_FINISH_STOP = 1,   /* One of `stops` matched, or the callback ended the text. */
    BALLAST_FINISH_LENGTH = 2, /* The text has the maximum number of tokens. */
    BALLAST_FINISH_STOPPED = 3 /* ballast_stop() was called. */
};
#define BALLAST_TEXT_VERSION 1
struct ballast_text {
    int version;
    enum ballast_finish finish;
    int64_t prompt_tokens, tokens; /* Tokens of the prompt; new tokens. */
    double prompt_s, s;            /* Seconds until the first new token; seconds after it. */
};
#define BALLAST_TEXT_INIT                                                                                              \
    { BALLAST_TEXT_VERSION, BALLAST_FINISH_END, 0, 0, 0.0, 0.0 }
void ballast_text_init(struct ballast_text *text);

/* Continues `prompt` and passes the new text, without the prompt, to `piece`. The prompt "" starts from the end-of-text
 * token. The plan's seed, the prompt and the recipe fix the text. Key-value caches hold plan.sequence_length tokens. If
 * the text grows longer, Ballast recomputes the caches from its last half. plan.batch is not used. `out` may be NULL;
 * otherwise initialize it before the call. */
enum ballast_status ballast_generate(const char *model, const struct ballast_plan_options *plan,
                                     const struct ballast_generate_options *options, const char *prompt,
                                     ballast_piece_callback *piece, void *payload, struct ballast_text *out);

/* ======== Parts ======== */

/* ---- Ranks: several processes, started by mpirun or srun ---- */

/* Ballast opens the MPI library that started the program, through a plugin (ballast-mpi-openmpi.so, …, next to
 * libballast.so or in lib/ballast). Your program neither links with MPI nor calls it.
 *
 *     int rank, ranks;
 *     enum ballast_status status = ballast_ranks_open(NULL, &rank, &ranks);     // rank 0 of 1 without mpirun or srun
 *     if (status == BALLAST_OK) status = ballast_train("model", "run", &plan, &train, &events);
 *     if (status != BALLAST_OK && ballast_ranks_should_report()) fprintf(stderr, "%s\n", ballast_error_message());
 *     return ballast_ranks_close(status);
 *
 * Between open and close, all ranks make the same calls with the same options. All ranks together execute
 * ballast_train, ballast_resume, ballast_trainer_… and ballast_evaluate. The bits are the same on any number of ranks
 * that the recipe's lanes allow. Callbacks run on each rank. Each rank executes ballast_generate and ballast_writer_…
 * by itself. A stop on one rank stops all, after the same step. */
#define BALLAST_RANKS_OPTIONS_VERSION 1
struct ballast_ranks_options {
    int version;
    int64_t nodes;    /* Treat the ranks as this many nodes with equal numbers of ranks. Default: the machines. */
    double timeout_s; /* Seconds without progress of a rank after which the other ranks fail. Default: 30. */
};
#define BALLAST_RANKS_OPTIONS_INIT                                                                                     \
    { BALLAST_RANKS_OPTIONS_VERSION, -1, -1 }
void ballast_ranks_options_init(struct ballast_ranks_options *options);

/* Opens the ranks. Call it once in a process, before the other calls. Returns BAD_INPUT if the plugin or its MPI is
 * missing, or if the ranks do not fill the nodes. */
enum ballast_status ballast_ranks_open(const struct ballast_ranks_options *options, int *rank, int *ranks);
/* After a failure, returns 1 on the one rank that should report it to the user, and 0 on the others. */
int ballast_ranks_should_report(void);
/* Closes the ranks. It is the process's last call; close all objects first. `status` is the program's result. If that
 * is BALLAST_OK or BALLAST_STOPPED, the call ends MPI and returns it, or FAILED. If it is a failure and there are other
 * ranks, the call ends all processes and does not return. This process's exit status is then `status`. */
enum ballast_status ballast_ranks_close(enum ballast_status status);

/* ---- Session: a model with its plan, before any weight is read ---- */

struct ballast_session;

/* Opens a model, resolves the recipe, finds a policy and compiles the training step. Accepts the models of
 * ballast_plan. A plan that does not fit is not an error here: ballast_session_require_fit reports it. The caller
 * closes the session. */
enum ballast_status ballast_session_open(const char *model, const struct ballast_plan_options *plan,
                                         const struct ballast_train_options *training, struct ballast_session **out);
void ballast_session_close(struct ballast_session *session);

/* Returns OK, or NO_FIT with the shortfall and with what would fit. Compiles other plans to find the latter. */
enum ballast_status ballast_session_require_fit(struct ballast_session *session);

enum ballast_tier { BALLAST_TIER_DEVICE = 0, BALLAST_TIER_HOST = 1, BALLAST_TIER_DISK = 2 };
/* Bytes of a tier's arena by kind, at the peak of a step. */
#define BALLAST_TIER_MEMORY_VERSION 2
struct ballast_tier_memory {
    int version;
    int64_t arena_bytes, capacity_bytes; /* Bytes that a step uses; bytes available (0: no such tier). */
    int64_t parameter_bytes, gradient_bytes, optimizer_bytes, activation_bytes;
    int64_t unreduced_bytes; /* Full gradients before ranks sum them; each rank keeps a shard of the sum. */
    int64_t input_bytes, result_bytes, workspace_bytes; /* Batches; loss and norms; workspace of kernels. */
    int64_t cache_bytes;                                /* Key-value caches, if the run generates samples. */
    int64_t unused_bytes;                               /* Gaps between buffers. */
};
#define BALLAST_TIER_MEMORY_INIT                                                                                       \
    { BALLAST_TIER_MEMORY_VERSION, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
void ballast_tier_memory_init(struct ballast_tier_memory *memory);
/* Reports a tier's memory. The fields after capacity_bytes add up to arena_bytes. Initialize `out` before the call. */
enum ballast_status ballast_session_memory(const struct ballast_session *session, enum ballast_tier tier,
                                           struct ballast_tier_memory *out);

/* Predicts the seconds of a step from the costs of the model's operators. Measures those that no call or run on this
 * machine has measured before. */
enum ballast_status ballast_session_predict(struct ballast_session *session, double *step_s);

/* Returns the plan as one JSON document, as `ballast plan --json` prints it. Written to a file, it serves as
 * ballast_plan_options.plan_path. The session owns the string, which is valid until the next such call or until the
 * session is closed. Predicts the step time first. */
enum ballast_status ballast_session_plan_json(struct ballast_session *session, const char **out);

/* ---- Trainer: training that you drive step by step ---- */

struct ballast_trainer;

/* Like ballast_train and ballast_resume up to the first step, with the same files, events and results. Ballast copies
 * the events; their payload must stay valid until the trainer is closed. The trainer locks the run's directory until
 * then. */
enum ballast_status ballast_trainer_open(const char *model, const char *run, const struct ballast_plan_options *plan,
                                         const struct ballast_train_options *options,
                                         const struct ballast_train_events *events, struct ballast_trainer **out);
enum ballast_status ballast_trainer_resume(const char *run, const struct ballast_plan_options *plan,
                                           const struct ballast_resume_options *options,
                                           const struct ballast_train_events *events, struct ballast_trainer **out);

/* Does the work that is due after the last step (validation, sample, checkpoint), then the next step. `*out` is that
 * step. The trainer owns it, and it is valid until the next call with the trainer. If the run is complete, the call
 * writes the last checkpoint and RUN/model, and sets `*out` to NULL. After that, and after any status but OK, the
 * trainer can only be closed. Returns STOPPED and FAILED as ballast_train does. */
enum ballast_status ballast_trainer_step(struct ballast_trainer *trainer, const struct ballast_step **out);

/* Writes a checkpoint of the last step, whatever save_every is, and returns when it is complete. Does nothing before
 * the first step, or if this step already has a checkpoint. */
enum ballast_status ballast_trainer_save(struct ballast_trainer *trainer);

/* Closes and frees the trainer. If the run is not complete and save_every is not 0, first writes a checkpoint, so that
 * ballast_trainer_resume can continue the run. Returns FAILED if it could not be saved; the trainer is closed all the
 * same. The trainer stays open only if the call is refused because another call is in progress. */
enum ballast_status ballast_trainer_close(struct ballast_trainer *trainer);

/* ---- Writer: a model that stays in memory for many texts ---- */

struct ballast_writer;

/* Compiles the programs, allocates their memory and reads the weights. Returns the statuses of ballast_generate. The
 * caller closes the writer. */
enum ballast_status ballast_writer_open(const char *model, const struct ballast_plan_options *plan,
                                        struct ballast_writer **out);
void ballast_writer_close(struct ballast_writer *writer);

/* Generates a text as ballast_generate does, with the same result: a text does not depend on earlier ones. */
enum ballast_status ballast_writer_write(struct ballast_writer *writer, const struct ballast_generate_options *options,
                                         const char *prompt, ballast_piece_callback *piece, void *payload,
                                         struct ballast_text *out);

/* ======== Experimental ======== */

#ifdef BALLAST_EXPERIMENTAL

/* Reports the progress of long work: reading weights, measuring, writing a checkpoint. Ballast calls it often, from any
 * thread, one call at a time. `done` grows from 0 to `total`, which counts bytes or items. */
typedef void ballast_progress_callback(const char *what, int64_t done, int64_t total, void *payload);
/* Sets the progress callback of the whole process. NULL: no reports. Default: NULL. Do not call it from a progress
 * callback. */
void ballast_set_progress(ballast_progress_callback *callback, void *payload);

/* Computes a hash (XXH3) of all weights and optimizer states of the trainer. Equal bits give equal hashes, in whatever
 * tier the data are. */
enum ballast_status ballast_trainer_hash(struct ballast_trainer *trainer, uint64_t *out);

#endif /* BALLAST_EXPERIMENTAL */

#ifdef __cplusplus
}
#endif

#endif /* BALLAST_H */
