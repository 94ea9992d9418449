/* ballast.h: train large language models within a memory budget that is known before the first step.
 *
 * This header is the manual of libballast. The program `ballast` and this library are made of the same objects: the
 * same options give the same bits, in losses, weights and text, and a run that one began the other can go on with.
 *
 * UNSTABLE: this is 0.x. A minor release (0.2, 0.3) may change names and structs; the SONAME has the minor version, so
 * a program that was linked with another one does not start.
 *
 *
 * ---- Introduction ----
 *
 *     #include <ballast.h>                              cc train.c $(pkg-config --cflags --libs ballast)
 *
 *     static int show(const struct ballast_step *step, void *payload) {
 *         printf("step %lld  loss %.4f\n", (long long)step->step, step->loss);
 *         return 0;                                     // anything else stops the run, which is saved
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
 * There are three layers. Use the first that is enough:
 *   Simple calls   one call does the work of one subcommand: plan, train, resume, evaluate, generate.
 *   Parts          a session makes a plan and lets you read it; a trainer is stepped by you; a writer keeps a model in
 *                  memory for many texts.
 *   Experimental   with BALLAST_EXPERIMENTAL defined before the header is included.
 * `examples/train.c` and `examples/train.py` (by ctypes) train, stop, go on and generate.
 *
 * What holds for every call:
 *
 * Results. A call that can fail returns enum ballast_status; results come back through pointers, which are written only
 *   where it returns BALLAST_OK. What went wrong is in ballast_error_message() and ballast_error_hint().
 * Absent values. In option structs a number of -1 (any negative one) and a NULL text are "not given": the default that
 *   is next to the field is then taken. The initialisers leave everything not given. A struct that may be NULL is as
 *   if all of it were not given. Values out of range are refused with BALLAST_BAD_INPUT and the field's name. Texts
 *   such as dtype and schedule are those of the command line, and ranges are too (docs/options.md).
 * Versions. Each struct that you make begins with `version`, which its initialiser sets; another one than this
 *   library's is refused. From C, use the macros; from other languages, the ballast_..._init functions do the same.
 *   Structs that callbacks get may grow at their end.
 * Texts are UTF-8 and end with a NUL unless a length is next to them. Paths are as the C library takes them.
 * Ownership. What you hand in is yours, is not changed, and is not needed after the call returns. What callbacks get is
 *   valid until they return. What is opened is closed by you, when no call uses it; closing NULL does nothing.
 * Threads. Calls come one after the other, from any thread: a second one that begins while one is under way, from
 *   another thread or from a callback, is refused with BALLAST_BAD_INPUT. Free at any time, everywhere:
 *   ballast_stop(), ballast_error_message(), ballast_error_hint(), ballast_status_name(), ballast_version() and the
 *   initialisers. Any number of objects may be open, and runs, evaluations and texts may follow each other in a
 *   process, after errors too.
 * Callbacks are called on the thread that made the call, but for the log's. They return normally: no longjmp, no C++
 *   exception may pass through Ballast.
 *
 * What it does not do. It never ends the process (but for ballast_ranks_close), prints nothing, and sets no signal
 * handlers: warnings go to the log callback, if there is one, and to stop a run is for ballast_stop() or the step
 * callback. (One exception: where Ballast finds a defect of its own, whatever the input was, it prints one line on
 * stderr and calls abort(), as to go on could write wrong weights.) It changes no locale, working directory, umask or
 * environment; the number of OpenMP's threads is put back to what the caller had.
 *
 * What your process has to be like. The program sets these up for itself; in a library they are yours:
 *   - Floating-point arithmetic as C starts it, round to nearest and no flushing of small numbers to zero: results
 *     depend on it. (What is linked with -ffast-math may change it when it is loaded.) A calling thread that has it
 *     otherwise is refused. OpenMP keeps its threads: one that your program started in another mode has that mode in
 *     Ballast's loops too.
 *   - No call from within an OpenMP parallel region, nor in a child made by fork() after the parent made a call (a new
 *     program by exec is fine; Python: multiprocessing's "spawn"): both are refused.
 *   - File descriptors 0, 1 and 2 are open, if only on /dev/null: else a file of a run would get such a number,
 *     and what is printed would go into it.
 *   - Ignore SIGXFSZ where `ulimit -f` may be set. A write beyond the limit then fails and is reported; else the signal
 *     ends the process. (Checkpoints stay whole in any case.)
 *   - OpenMP's threads spin at barriers before they sleep. Where other programs use the same cores, start the process
 *     with GOMP_SPINCOUNT=10000 and OMP_WAIT_POLICY=active in its environment, as the program starts itself again.
 *     Read when the process starts, so it cannot be set later. Changes no bit.
 *   - BALLAST_MAX_ISA and XDG_CACHE_HOME are read as by the program; the first use of the kernels fixes the former.
 *
 * Memory. A step's arena is what the plan says, and nothing of Ballast's own is allocated in a step. In the program
 *   that holds for oneDNN too; in a process of yours its few small blocks in each product come from your operator new,
 *   which a library may not replace. No bit depends on it.
 *
 * Bits. A result depends on the recipe alone (dtype, batch, micro-batch, seed, instruction set, kernels'
 *   version) and not on the policy (memory limits, tiers, chunks, what is recomputed). docs/policies.md has more. */
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

/* The values are the exit statuses of the program. */
enum ballast_status {
    BALLAST_OK = 0,
    BALLAST_FAILED = 1,    /* after the input was accepted: no memory, a full disk, a loss that is not finite. The last
                              checkpoint is whole */
    BALLAST_BAD_INPUT = 2, /* an argument, an option or a file is wrong; nothing was written */
    BALLAST_NO_FIT = 3,    /* no plan fits the memory: the message says by how much, the hint what would fit */
    BALLAST_STOPPED = 130  /* as it was asked to, after a checkpoint (of a run that writes any) */
};
/* "OK", "FAILED", …; "unknown" for other numbers. */
const char *ballast_status_name(enum ballast_status status);

/* Of the calling thread's last call: what went wrong, with file and field, in one line; and what to try, "" where there
 * is nothing to say. Both "" after BALLAST_OK. Hints name options as the command line writes them (--device-memory is
 * device_memory_bytes). Valid until the thread's next call. */
const char *ballast_error_message(void);
const char *ballast_error_hint(void);

enum ballast_log_level { BALLAST_LOG_NOTE = 0, BALLAST_LOG_WARNING = 1 };
/* One line without a newline. From any thread, one at a time; may be called between your calls while a trainer is open,
 * as text is tokenized during the steps. */
typedef void ballast_log_callback(enum ballast_log_level level, const char *text, void *payload);
/* For the whole process from now on; NULL, as it is at first: nowhere. Not from a log callback. */
void ballast_set_log(ballast_log_callback *callback, void *payload);

/* Asks the training or the text that is under way, or the open trainer, to stop. Training finishes its step and writes
 * a checkpoint; a text ends where it is. From any thread, callback or signal handler (it only sets a flag). Forgotten
 * when the next run or text begins. */
void ballast_stop(void);

/* ---- Plan options: what every call shares ---- */

/* The recipe, which fixes the bits, and what the tiers may take, which never changes them. */
#define BALLAST_PLAN_OPTIONS_VERSION 6
struct ballast_plan_options {
    int version;

    int64_t batch;                 /* sequences a step; not given: 8 */
    int64_t sequence_length;       /* tokens a sequence; not given: the model's context, at most 1024 */
    int64_t micro_batch_sequences; /* sequences on which each kernel is called; not given: the fewest that hold 1024
                                tokens (on a GPU 4096 to 32768), at most the batch */
    int64_t threads;   /* compute threads, which change no bit; not given: the physical cores that the process may use,
                          divided among the ranks that share them */
    int64_t seed;      /* of the data's order and of sampling, from 0; not given: 1 */
    const char *dtype; /* "bf16" or "fp32"; not given: bf16 where it is in hardware and so faster, else fp32 */
    const char *document_attention; /* "across" or "within" the documents of a sequence; not given: across */
    const char *loss; /* "next-token", or "dpo" for pairs of answers of which one is preferred; not given: next-token */
    double dpo_beta;  /* of "dpo": what log-probabilities count relative to those before training; not given: 0.1 */
    const char *lora; /* "RANK,ALPHA,TARGETS": adapters are trained, all else is frozen; not given: none */
    const char *const *freeze; /* patterns (*, ?, [...]) over names of weights that are not trained */
    size_t freeze_count;       /* 0: none */

    int64_t micro_batches_per_wave; /* micro-batches whose activations are in memory at once; not given: 1. Changes no
                                       bit */
    const char *device;          /* "cpu", "cuda" or "cuda:N"; not given: cuda where this build can use one. A process
                                    keeps to the GPU that it used first */
    int64_t device_memory_bytes; /* the most that the arena may take; not given: what is available to the process */
    int64_t host_memory_bytes;   /* a host tier of this size; not given: none, with a GPU what is available */
    const char *disk_folder;     /* for what does not fit in memory; not given: there is no disk tier; of a run that
                                    goes on, the one that it had */
    int64_t disk_bytes;          /* the most to take there; not given: what is free, less 5% */

    const char *lanes; /* "8", or "2x4" (nodes x lanes a node): the shares of a step whose sums are added by halves, so
                          that as many ranks, or a half, a quarter of them …, have the same bits; not given: the
                          ranks of the first start */
    const char *partition;   /* in how many shards parameters, gradients and optimizer states are, as `--partition` has
                                it; not given: the fastest that fits. Changes no bit */
    const char *collectives; /* "hierarchical" or "flat"; not given: the faster. Changes no bit */
    int64_t round_micro_batches; /* add the lanes after so many micro-batches of each; not given: 0, all of them */
    int64_t tensor_parallel;     /* ranks that share each tensor; not given: 1, none do */
    int64_t pipeline_parallel;   /* of a pipeline, each on as many ranks; not given: 1. Changes no bit */
    int64_t virtual_stages;      /* runs of layers of each stage; not given: whichever is fastest. Changes no bit */
    const char *reduce_dtype; /* "bf16" rounds a lane's gradients before they are added to another's; not given: fp32 */

    const char *layout; /* of what ranks share: "megatron" or "solver"; not given: megatron */

    const char *optimizer;       /* "adamw", "lion", "sgd" with momentum, or "muon"; not given: adamw */
    const char *optimizer_dtype; /* of its moments: "fp32", "bf16" with stochastic rounding, or "int8", with a scale for
                                    each 256 of them; not given: fp32 */
    const char *master_weights;  /* of bf16 weights: "fp32"; "split": the 16 bits that bf16 lacks; or "none", where they
                            are rounded stochastically; not given: fp32 */

    const char *plan_path;    /* a plan file (`ballast plan -o`), with which options that are given must agree. Resuming
                                 takes the run's own plan, and refuses this */
    const char *cluster_path; /* a cluster file (`ballast profile -o`), whose rates are taken instead of measuring */
    const char *quantize_base;     /* of the matrices to which `lora` trains adapters: "nf4", "int8" or "mxfp4"; not
                                   given: "none", they are of `dtype` */
    const char *sequence_parallel; /* "on": ranks that share tensors have parts of the positions where they would have
                             all, between products; not given: "off" */
    double muon_momentum;          /* of the optimizer "muon"; not given: 0.95 */
    const char *dpo_loss;          /* of "dpo": "sigmoid", "hinge", "ipo" or "robust"; not given: sigmoid */
    double dpo_label_smoothing; /* of these sigmoid and robust: the part of the pairs that is taken to be the other way
                                   round; not given: 0 */
    const char *packing; /* "on": several supervised examples share a sequence, each attending to itself alone; or
                            "off"; not given: on where the data hold such examples */
};
#define BALLAST_PLAN_OPTIONS_INIT                                                                                      \
    {                                                                                                                  \
        BALLAST_PLAN_OPTIONS_VERSION, -1, -1, -1, -1, -1, NULL, NULL, NULL, -1, NULL, NULL, 0, -1, NULL, -1, -1, NULL, \
            -1, NULL, NULL, NULL, -1, -1, -1, -1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, -1, NULL, -1,  \
            NULL                                                                                                       \
    }
/* The same at run time. */
void ballast_plan_options_init(struct ballast_plan_options *options);

/* ---- Training options ---- */

#define BALLAST_TRAIN_OPTIONS_VERSION 2
struct ballast_train_options {
    int version;

    /* Data: .txt, .jsonl ({"text"}, or {"prompt", "completion"} or {"messages"}, whose completions are trained on, or
     * for the loss "dpo" {"prompt", "chosen", "rejected"}), .bin (llm.c's tokens), or directories that hold train.* and
     * valid.*; PATH:WEIGHT draws sequences in exact proportions. Relative paths are taken from the working directory,
     * and kept in the run as absolute ones. */
    const char *const *data_paths;
    size_t data_path_count;         /* at least 1 */
    const char *const *valid_paths; /* validation data next to the valid.* of directories */
    size_t valid_path_count;        /* 0: none */
    double
        valid_fraction;  /* part of the training data held out where there is no other validation data; not given: 0 */
    const char *columns; /* "FIELD=KEY,...": keys by which .jsonl files have their fields; not given: their own names */
    const char *loss_on; /* of examples: "completions" or "all"; not given: completions */
    int64_t chat_time_s; /* what chat templates are told of the time, in seconds since 1970; not given: today */

    int64_t steps;             /* of the whole run; not given: 1000 */
    double epochs;             /* passes over the data, in place of steps; not given: none */
    double learning_rate;      /* the peak; not given: 3e-4 */
    const char *schedule;      /* "cosine", "linear", "constant", "wsd"; not given: cosine */
    int64_t schedule_steps;    /* after which the schedule is at its end; not given: steps */
    int64_t warmup_steps;      /* of linear warm-up; not given: a tenth of the schedule, at most 100 */
    double min_lr_fraction;    /* where the schedule ends, as a part of the peak; not given: 0.1 */
    double wsd_decay_fraction; /* last part of the schedule in which wsd falls; not given: 0.2 */

    /* Of the optimizer, part of the recipe. Biases and norm weights do not decay. */
    double beta1;        /* SGD: its momentum; not given: 0.9 */
    double beta2;        /* not given: 0.95, Lion: 0.99 */
    double epsilon;      /* not given: 1e-8 */
    double weight_decay; /* not given: 0.1 */
    double clip_norm;    /* limit of the global gradient norm, 0: none; not given: 1 */

    int64_t save_every;  /* steps between checkpoints; one is also written at the end and at a stop. 0: none at all, so
                            that the run leaves its model alone and cannot be resumed. Not given: 100 */
    int64_t keep;        /* newest checkpoints that are kept, 0: all; not given: 2 */
    int64_t valid_every; /* steps between validations, 0: never; not given: 100 */
    int64_t valid_batches;     /* the most of a validation, 0: all; not given: 0 */
    int64_t sample_every;      /* steps between samples of what the model writes, 0: never; not given: 0 */
    int64_t sample_tokens;     /* the most of a sample; not given: 64 */
    const char *sample_prompt; /* what samples go on from; not given: the end-of-text token */
    const char *replan;        /* "auto": the run may change its policy between steps, with the same bits, where another
                                  one is more than 5% faster by what its steps took, or memory has become less or more;
                                  "off": it keeps its plan; not given: auto, where no plan file gives the policy */
};
#define BALLAST_TRAIN_OPTIONS_INIT                                                                                     \
    {                                                                                                                  \
        BALLAST_TRAIN_OPTIONS_VERSION, NULL, 0, NULL, 0, -1, NULL, NULL, -1, -1, -1, -1, NULL, -1, -1, -1, -1, -1, -1, \
            -1, -1, -1, -1, -1, -1, -1, -1, -1, NULL, NULL                                                             \
    }
void ballast_train_options_init(struct ballast_train_options *options);

/* One step that is done. */
struct ballast_step {
    int64_t step, steps;     /* steps done, this one included; of the run */
    double epoch, epochs;    /* the same in passes over the data, where the run's length was given so; else 0 */
    double loss;             /* mean negative log-likelihood of the step's tokens that count, in nats; of preferences
                                mean -log sigmoid(margin) of its pairs */
    double grad_norm;        /* global, before clipping */
    double learning_rate;    /* of this step */
    int64_t tokens;          /* input tokens since the run's first step */
    double tokens_per_s;     /* of this step */
    double step_s;           /* seconds */
    double mfu;              /* model FLOPs per second over the machine's rate, 0 to 1; NaN where that is unknown */
    double remaining_s;      /* to the run's end, at the pace of recent steps */
    double predicted_step_s; /* what the plan said; 0 where it was not known */
    int64_t device_bytes;    /* of the arena, resident now */
    /* Of preferences, means over pairs, else 0: beta times how much likelier the chosen and the rejected answer are
     * than before training, the difference, and how often the chosen one has more. */
    double reward_chosen, reward_rejected, margin, accuracy;
};

/* What to call while training; any may be NULL. */
#define BALLAST_TRAIN_EVENTS_VERSION 1
struct ballast_train_events {
    int version;
    /* After each step. 0: go on; anything else stops the run, as ballast_stop() does. */
    int (*step)(const struct ballast_step *step, void *payload);
    /* The mean loss on the validation data after `step` steps, in nats. */
    void (*validated)(int64_t step, double loss, void *payload);
    /* What the model wrote after the prompt. */
    void (*sampled)(int64_t step, const char *prompt, const char *text, void *payload);
    /* A checkpoint is whole: a Hugging Face directory, which generate and evaluate take. */
    void (*saved)(int64_t step, const char *folder, void *payload);
    void *payload; /* handed to each */
};
#define BALLAST_TRAIN_EVENTS_INIT                                                                                      \
    { BALLAST_TRAIN_EVENTS_VERSION, NULL, NULL, NULL, NULL, NULL }
void ballast_train_events_init(struct ballast_train_events *events);

/* ======== Simple calls ======== */

/* A model is a Hugging Face directory (config.json, *.safetensors, tokenizer.json) of a family that docs/models.md
 * lists, or a run's directory, which stands for its RUN/model. */

/* What a training step takes, before anything is loaded. */
#define BALLAST_PLAN_RESULT_VERSION 1
struct ballast_plan_result {
    int version;
    int64_t device_bytes, host_bytes, disk_bytes; /* of the tiers' arenas; all that a step uses there */
    int64_t device_capacity_bytes, host_capacity_bytes, disk_capacity_bytes; /* what there is; 0: no such tier */
    double step_s;                                                           /* predicted; 0 where it is not known */
    int64_t parameters, trained_parameters;
    double flops_per_token; /* model FLOPs of a training step */
};
#define BALLAST_PLAN_RESULT_INIT                                                                                       \
    { BALLAST_PLAN_RESULT_VERSION, 0, 0, 0, 0, 0, 0, 0.0, 0, 0, 0.0 }
void ballast_plan_result_init(struct ballast_plan_result *result);

/* Plans a training step. `model` may also be a directory with config.json alone, or the name of a published model
 * (`ballast help presets`). `training` gives the optimizer's numbers, which are a part of the recipe; the rest of it is
 * not used, data included; may be NULL. Measures the model's operators, some seconds the first time on a machine. `out`
 * is initialised. NO_FIT where no plan fits. */
enum ballast_status ballast_plan(const char *model, const struct ballast_plan_options *plan,
                                 const struct ballast_train_options *training, struct ballast_plan_result *out);

/* Trains `model` into the directory `run`, which must not exist or be empty: run.json (all settings), metrics.jsonl (a
 * line a step, losses to the last bit), checkpoints/step-00000100 … and at the end the trained model in RUN/model, a
 * Hugging Face directory. `events` may be NULL. NO_FIT; FAILED; STOPPED by ballast_stop() or the step callback: the run
 * can be resumed. */
enum ballast_status ballast_train(const char *model, const char *run, const struct ballast_plan_options *plan,
                                  const struct ballast_train_options *options,
                                  const struct ballast_train_events *events);

/* New values for the rest of a run. Fields not given keep the run's values. The run keeps new values for later
 * resumes, and run.json keeps their history. */
#define BALLAST_RESUME_OPTIONS_VERSION 3
struct ballast_resume_options {
    int version;
    int64_t steps;               /* the run's new length, at least the steps that are done */
    double epochs;               /* the same in epochs; not both */
    int64_t allow_recipe_change; /* 1: continue although the kernels are others here, with other bits from there on;
                                    not given: 0, refuse */
    const char *replan;          /* "auto" or "off", as of training */
    /* As of training. A new learning_rate is the schedule's peak: warm-up and decay keep their steps, and every later
     * rate is multiplied by the new peak over the old one. */
    double learning_rate;
    const char *schedule;
    int64_t schedule_steps, warmup_steps;
    double min_lr_fraction, wsd_decay_fraction;
    int64_t save_every; /* at least 1 */
    int64_t keep, valid_every, valid_batches, sample_every, sample_tokens;
    const char *sample_prompt;
};
#define BALLAST_RESUME_OPTIONS_INIT                                                                                    \
    { BALLAST_RESUME_OPTIONS_VERSION, -1, -1, -1, NULL, -1, NULL, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, NULL }
void ballast_resume_options_init(struct ballast_resume_options *options);

/* Continues a run from its newest checkpoint; without options bit for bit as if it had not stopped. Plan options
 * must equal the run's, except memory limits, partition, collectives and micro-batches per wave. A complete run only
 * gets its model written again. `plan`, `options` and `events` may be NULL. Statuses as ballast_train. */
enum ballast_status ballast_resume(const char *run, const struct ballast_plan_options *plan,
                                   const struct ballast_resume_options *options,
                                   const struct ballast_train_events *events);

#define BALLAST_EVALUATE_OPTIONS_VERSION 2
struct ballast_evaluate_options {
    int version;
    const char *const *data_paths; /* as for training; of a directory its valid.* */
    size_t data_path_count;        /* at least 1 */
    int64_t batches;               /* the most of each file, 0: all; not given: 0 */
    const char *columns, *loss_on; /* as for training */
    int64_t chat_time_s;           /* as for training */
    const char *reference;         /* of the loss "dpo", which needs it: the model that training began with */
};
#define BALLAST_EVALUATE_OPTIONS_INIT                                                                                  \
    { BALLAST_EVALUATE_OPTIONS_VERSION, NULL, 0, -1, NULL, NULL, -1, NULL }
void ballast_evaluate_options_init(struct ballast_evaluate_options *options);

/* The loss on a file, or on all of them. */
#define BALLAST_EVALUATION_VERSION 2
struct ballast_evaluation {
    int version;
    int64_t sequences, tokens; /* evaluated; tokens are those that count, or of preferences pairs */
    double loss;               /* mean negative log-likelihood of a token, in nats; of preferences as in training */
    double perplexity;         /* exp(loss); of preferences NaN */
    double bits_per_byte;      /* of plain text; NaN elsewhere */
    double reward_chosen, reward_rejected, margin, accuracy; /* as in struct ballast_step */
};
#define BALLAST_EVALUATION_INIT                                                                                        \
    { BALLAST_EVALUATION_VERSION, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0 }
void ballast_evaluation_init(struct ballast_evaluation *evaluation);
/* Each file, in the order of the paths, when all are done. */
typedef void ballast_file_callback(const char *path, const struct ballast_evaluation *file, void *payload);

/* The loss of a model on files. `out` is all of them together; it is initialised. `file` may be NULL. */
enum ballast_status ballast_evaluate(const char *model, const struct ballast_plan_options *plan,
                                     const struct ballast_evaluate_options *options, struct ballast_evaluation *out,
                                     ballast_file_callback *file, void *payload);

#define BALLAST_GENERATE_OPTIONS_VERSION 1
struct ballast_generate_options {
    int version;
    int64_t tokens;     /* the most new ones, from 1; not given: 100, of an answer (chat) as many as the caches hold */
    double temperature; /* divides the logits, 0: always the likeliest token. Not given, as with the next three: what
                           the model's generation_config.json says, else 0.8 */
    int64_t top_k;      /* draw among the k likeliest, 0: all; else 0 */
    double top_p;       /* among the fewest likeliest that hold this much probability, up to 1; else 1 */
    double
        repetition_penalty; /* above 1 what is there already is less likely; else 1 (Keskar et al., arXiv 1909.05858) */
    int64_t ignore_end;     /* 1: go on after an end-of-text token; not given: 0 */
    const char *const *stops; /* end before the first of these texts */
    size_t stop_count;        /* 0: none */
    int64_t chat;        /* 1: the prompt is what a user says, and an answer is written, by the model's chat template;
                            not given: 0 */
    const char *system;  /* with chat: what the system says before the user; not given: nothing */
    int64_t chat_time_s; /* as for training */
};
#define BALLAST_GENERATE_OPTIONS_INIT                                                                                  \
    { BALLAST_GENERATE_OPTIONS_VERSION, -1, -1, -1, -1, -1, -1, NULL, 0, -1, NULL, -1 }
void ballast_generate_options_init(struct ballast_generate_options *options);

/* The next piece of a text, as soon as it is whole characters: `bytes` bytes of UTF-8, not NUL-terminated. 0: go on;
 * anything else ends the text, which is no failure. */
typedef int ballast_piece_callback(const char *text, size_t bytes, void *payload);

enum ballast_finish {
    BALLAST_FINISH_END = 0,    /* an end-of-text token */
    BALLAST_FINISH_STOP = 1,   /* one of the stops, or the callback */
    BALLAST_FINISH_LENGTH = 2, /* as many tokens as asked for */
    BALLAST_FINISH_STOPPED = 3 /* ballast_stop() */
};
#define BALLAST_TEXT_VERSION 1
struct ballast_text {
    int version;
    enum ballast_finish finish;
    int64_t prompt_tokens, tokens; /* of the prompt; new ones */
    double prompt_s, s;            /* seconds to the first new token; of those after it */
};
#define BALLAST_TEXT_INIT                                                                                              \
    { BALLAST_TEXT_VERSION, BALLAST_FINISH_END, 0, 0, 0.0, 0.0 }
void ballast_text_init(struct ballast_text *text);

/* Writes on from `prompt` ("": from the end-of-text token), handing the new text, without the prompt, to `piece`. The
 * plan's seed, the prompt and the recipe fix the text. Keys and values are kept in caches of plan.sequence_length
 * tokens; a text that outgrows them is computed anew from its last half. plan.batch is not used. `out` may be NULL,
 * else it is initialised. */
enum ballast_status ballast_generate(const char *model, const struct ballast_plan_options *plan,
                                     const struct ballast_generate_options *options, const char *prompt,
                                     ballast_piece_callback *piece, void *payload, struct ballast_text *out);

/* ======== Parts ======== */

/* ---- Ranks: a program that mpirun or srun started several times ---- */

/* Ballast opens MPI, by the library that started the program and a plugin for it (ballast-mpi-openmpi.so, …, next to
 * libballast.so or in lib/ballast): the program is neither linked with MPI nor uses it itself.
 *
 *     int rank, ranks;
 *     enum ballast_status status = ballast_ranks_open(NULL, &rank, &ranks);     // 0 of 1 where it was started alone
 *     if (status == BALLAST_OK) status = ballast_train("model", "run", &plan, &train, &events);
 *     if (status != BALLAST_OK && ballast_ranks_should_report()) fprintf(stderr, "%s\n", ballast_error_message());
 *     return ballast_ranks_close(status);
 *
 * Between open and close all ranks make the same calls with the same options. ballast_train, ballast_resume,
 * ballast_trainer_… and ballast_evaluate are then carried out by all together, with the same bits on any number of
 * ranks that the recipe's lanes allow; callbacks are called on each. ballast_generate and ballast_writer_… are each
 * rank's own. A stop that one rank asks for stops all, after the same step. */
#define BALLAST_RANKS_OPTIONS_VERSION 1
struct ballast_ranks_options {
    int version;
    int64_t nodes;    /* take the ranks as so many nodes of as many ranks each; not given: the machines they are on */
    double timeout_s; /* how long a rank may be silent, or keep the others waiting, before these fail; not given: 30 */
};
#define BALLAST_RANKS_OPTIONS_INIT                                                                                     \
    { BALLAST_RANKS_OPTIONS_VERSION, -1, -1 }
void ballast_ranks_options_init(struct ballast_ranks_options *options);

/* Once in a process, before its other calls. BAD_INPUT where the plugin or its MPI is missing, and for nodes that the
 * ranks do not fill. */
enum ballast_status ballast_ranks_open(const struct ballast_ranks_options *options, int *rank, int *ranks);
/* After a failure: 1 on the one rank that is to tell the user of it, 0 on the others. */
int ballast_ranks_should_report(void);
/* The process's last call, with nothing open any more: `status` is what the program came to. Where that is BALLAST_OK
 * or BALLAST_STOPPED, ends MPI and returns it, or FAILED. Where it is a failure, and there are other ranks, all are
 * ended, this one with exit status `status`: the call does not return then. */
enum ballast_status ballast_ranks_close(enum ballast_status status);

/* ---- Session: a model with its plan, before any weight is read ---- */

struct ballast_session;

/* Opens the model (ballast_plan says which), resolves the recipe, finds a policy, compiles the training step. A plan
 * that does not fit is no failure yet: ballast_session_require_fit says so. The caller closes it. */
enum ballast_status ballast_session_open(const char *model, const struct ballast_plan_options *plan,
                                         const struct ballast_train_options *training, struct ballast_session **out);
void ballast_session_close(struct ballast_session *session);

/* OK, or NO_FIT with what is missing and what would fit (it compiles other plans to find out). */
enum ballast_status ballast_session_require_fit(struct ballast_session *session);

enum ballast_tier { BALLAST_TIER_DEVICE = 0, BALLAST_TIER_HOST = 1, BALLAST_TIER_DISK = 2 };
/* Bytes of a tier's arena by kind, at the peak of a step. */
#define BALLAST_TIER_MEMORY_VERSION 2
struct ballast_tier_memory {
    int version;
    int64_t arena_bytes, capacity_bytes; /* what a step takes; what there is, 0: no such tier */
    int64_t parameter_bytes, gradient_bytes, optimizer_bytes, activation_bytes;
    int64_t unreduced_bytes; /* whole gradients, before ranks add them, of whose sums each keeps a shard */
    int64_t input_bytes, result_bytes, workspace_bytes; /* batches; loss and norms; kernels' own */
    int64_t cache_bytes;                                /* keys and values, where the run takes samples */
    int64_t unused_bytes;                               /* between buffers */
};
#define BALLAST_TIER_MEMORY_INIT                                                                                       \
    { BALLAST_TIER_MEMORY_VERSION, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
void ballast_tier_memory_init(struct ballast_tier_memory *memory);
/* All numbers but capacity_bytes add up to arena_bytes. `out` is initialised. */
enum ballast_status ballast_session_memory(const struct ballast_session *session, enum ballast_tier tier,
                                           struct ballast_tier_memory *out);

/* Seconds that a step is predicted to take, from the costs of the model's operators: measures those that no call or run
 * measured before. */
enum ballast_status ballast_session_predict(struct ballast_session *session, double *step_s);

/* The plan as JSON, one document, as `ballast plan --json` prints it; what ballast_plan_options.plan_path takes when it
 * is written to a file. The text is the session's, valid until it is closed or asked again. Predicts first. */
enum ballast_status ballast_session_plan_json(struct ballast_session *session, const char **out);

/* ---- Trainer: a run that you step ---- */

struct ballast_trainer;

/* As ballast_train and ballast_resume up to the first step, with the same files, events and results. Events are copied;
 * their payload must stay valid until the trainer is closed. The run's directory is locked as long. */
enum ballast_status ballast_trainer_open(const char *model, const char *run, const struct ballast_plan_options *plan,
                                         const struct ballast_train_options *options,
                                         const struct ballast_train_events *events, struct ballast_trainer **out);
enum ballast_status ballast_trainer_resume(const char *run, const struct ballast_plan_options *plan,
                                           const struct ballast_resume_options *options,
                                           const struct ballast_train_events *events, struct ballast_trainer **out);

/* Does what is due after the last step (a validation, a sample, a checkpoint), then the next step. `*out` is that step,
 * the trainer's, valid until the next call with it; NULL where the run was complete: then its last checkpoint and
 * RUN/model are written. After that, and after any status but OK, the trainer can only be closed; STOPPED and FAILED as
 * ballast_train. */
enum ballast_status ballast_trainer_step(struct ballast_trainer *trainer, const struct ballast_step **out);

/* Writes a checkpoint of the last step now, and returns when it is whole, whatever save_every says. Nothing before the
 * first step, or where this step has one. */
enum ballast_status ballast_trainer_save(struct ballast_trainer *trainer);

/* Frees it. A run that is not complete is first saved, as at a stop, unless its save_every is 0: nothing is lost, and
 * ballast_trainer_resume goes on. FAILED: that could not be saved; it is closed all the same. Only where the call is
 * refused, since another is under way, it stays open. */
enum ballast_status ballast_trainer_close(struct ballast_trainer *trainer);

/* ---- Writer: a model in memory, for many texts ---- */

struct ballast_writer;

/* Compiles the programs, takes their memory and reads the weights. Statuses as ballast_generate. */
enum ballast_status ballast_writer_open(const char *model, const struct ballast_plan_options *plan,
                                        struct ballast_writer **out);
void ballast_writer_close(struct ballast_writer *writer);

/* As ballast_generate, and the same text: one text does not depend on those before it. */
enum ballast_status ballast_writer_write(struct ballast_writer *writer, const struct ballast_generate_options *options,
                                         const char *prompt, ballast_piece_callback *piece, void *payload,
                                         struct ballast_text *out);

/* ======== Experimental ======== */

#ifdef BALLAST_EXPERIMENTAL

/* How far a long piece of work is: reading weights, measuring, writing a checkpoint. From any thread, one at a time,
 * and often. `total` is in bytes or in pieces; `done` grows from 0 to it. */
typedef void ballast_progress_callback(const char *what, int64_t done, int64_t total, void *payload);
/* For the whole process from now on; NULL, as it is at first: nobody is told. Not from a progress callback. */
void ballast_set_progress(ballast_progress_callback *callback, void *payload);

/* A hash (XXH3) of all weights and optimizer states of the trainer: equal for equal bits, wherever they lie. */
enum ballast_status ballast_trainer_hash(struct ballast_trainer *trainer, uint64_t *out);

#endif /* BALLAST_EXPERIMENTAL */

#ifdef __cplusplus
}
#endif

#endif /* BALLAST_H */
