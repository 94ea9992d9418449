/* Every setting of training and of writing text, once: its names, the values that it may take, and its default. The
 * command line, --config files, help, docs/options.md, run.json, plan files and the checks of options and recipes all
 * read this table. What help says in words stands next to it, in cli/option_list.h. */
#ifndef BALLAST_PLAN_SETTINGS_H
#define BALLAST_PLAN_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum setting_type {
    SETTING_FLAG,  /* true or false */
    SETTING_INT,   /* a whole number within min..max */
    SETTING_FLOAT, /* a finite number within float_min..float_max; not float_min itself where `above` */
    SETTING_SIZE,  /* base/size.h; at least 1 byte */
    SETTING_TEXT,  /* text and paths, not empty unless `may_be_empty` */
    SETTING_TEXTS, /* several of them */
    SETTING_CHOICE /* one of `choices` */
};

struct setting {
    const char *key;  /* in files: "sequence_length" */
    const char *name; /* on the command line, without the dashes: "seq" */
    enum setting_type type;
    int64_t min, max;
    double float_min, float_max;
    bool above, may_be_empty;
    const char *automatic; /* the word for 0 of a whole number that is chosen then; NULL: there is none */
    const char *choices;   /* "bf16|fp32" */
    const char *hint; /* what to do instead of a value that is none of the choices; NULL: they speak for themselves */
    const char *fallback; /* the default, as text; NULL: none, or one that depends on other things */
    int64_t int_value;    /* the same as a number, */
    double float_value;   /* of its type */
};

#define SETTING_INT_IN(low, high) .type = SETTING_INT, .min = (low), .max = (high)
#define SETTING_FLOAT_IN(low, high) .type = SETTING_FLOAT, .float_min = (low), .float_max = (high)
#define SETTING_INT_DEFAULT(value) .fallback = #value, .int_value = (value)
#define SETTING_FLOAT_DEFAULT(value) .fallback = #value, .float_value = (value)
#define SETTING_STEPS_MAX 1000000000000
#define SETTING_SIZE_MAX 16777216

/* Of a step: recipe, policy, machine. A moving average's decay is below 1; epsilon is added in fp32, whose least normal
 * number is 1.2e-38. */
#define SETTING_LIST_PLAN(X)                                                                                           \
    X(batch, .key = "batch", .name = "batch", SETTING_INT_IN(1, SETTING_SIZE_MAX), SETTING_INT_DEFAULT(8))             \
    X(sequence_length, .key = "sequence_length", .name = "seq", SETTING_INT_IN(1, SETTING_SIZE_MAX),                   \
      SETTING_INT_DEFAULT(1024))                                                                                       \
    X(dtype, .key = "dtype", .name = "dtype", .type = SETTING_CHOICE, .choices = "bf16|fp32",                          \
      .hint = "use bf16, which needs no loss scaling")                                                                 \
    X(document_attention, .key = "document_attention", .name = "document-attention", .type = SETTING_CHOICE,           \
      .choices = "across|within", .fallback = "across")                                                                \
    X(packing, .key = "packing", .name = "packing", .type = SETTING_CHOICE, .choices = "on|off")                       \
    X(loss, .key = "loss", .name = "loss", .type = SETTING_CHOICE, .choices = "next-token|dpo",                        \
      .fallback = "next-token")                                                                                        \
    X(dpo_beta, .key = "dpo_beta", .name = "dpo-beta", SETTING_FLOAT_IN(1e-6, 1000), SETTING_FLOAT_DEFAULT(0.1))       \
    X(dpo_loss, .key = "dpo_loss", .name = "dpo-loss", .type = SETTING_CHOICE, .choices = "sigmoid|hinge|ipo|robust",  \
      .fallback = "sigmoid")                                                                                           \
    X(dpo_label_smoothing, .key = "dpo_label_smoothing", .name = "dpo-label-smoothing", SETTING_FLOAT_IN(0, 0.49),     \
      SETTING_FLOAT_DEFAULT(0))                                                                                        \
    X(micro_batch_sequences, .key = "micro_batch", .name = "micro-batch", SETTING_INT_IN(1, SETTING_SIZE_MAX))         \
    X(lanes, .key = "lanes", .name = "lanes", .type = SETTING_TEXT)                                                    \
    X(round_micro_batches, .key = "round_micro_batches", .name = "round", SETTING_INT_IN(0, SETTING_SIZE_MAX),         \
      SETTING_INT_DEFAULT(0))                                                                                          \
    X(reduce_dtype, .key = "reduce_dtype", .name = "reduce-dtype", .type = SETTING_CHOICE, .choices = "fp32|bf16",     \
      .fallback = "fp32")                                                                                              \
    X(tensor_parallel, .key = "tensor_parallel", .name = "tensor-parallel", SETTING_INT_IN(1, 4096),                   \
      .automatic = "auto", SETTING_INT_DEFAULT(1))                                                                     \
    X(sequence_parallel, .key = "sequence_parallel", .name = "sequence-parallel", .type = SETTING_CHOICE,              \
      .choices = "on|off", .fallback = "off")                                                                          \
    X(layout, .key = "layout", .name = "layout", .type = SETTING_CHOICE, .choices = "megatron|solver",                 \
      .fallback = "megatron")                                                                                          \
    X(micro_batches_per_wave, .key = "micro_batches_per_wave", .name = "micro-batches-per-wave",                       \
      SETTING_INT_IN(1, SETTING_SIZE_MAX), SETTING_INT_DEFAULT(1))                                                     \
    X(pipeline_parallel, .key = "pipeline_parallel", .name = "pipeline-parallel", SETTING_INT_IN(1, 4096),             \
      .automatic = "auto", SETTING_INT_DEFAULT(1))                                                                     \
    X(virtual_stages, .key = "virtual_stages", .name = "virtual-stages", SETTING_INT_IN(1, 64))                        \
    X(partition, .key = "partition", .name = "partition", .type = SETTING_TEXT)                                        \
    X(flat, .key = "collectives", .name = "collectives", .type = SETTING_CHOICE, .choices = "hierarchical|flat")       \
    X(threads, .key = "threads", .name = "threads", SETTING_INT_IN(1, 4096))                                           \
    X(seed, .key = "seed", .name = "seed", SETTING_INT_IN(0, INT64_MAX), SETTING_INT_DEFAULT(1))                       \
    X(optimizer, .key = "optimizer", .name = "optimizer", .type = SETTING_CHOICE, .choices = "adamw|lion|sgd|muon",    \
      .fallback = "adamw")                                                                                             \
    X(beta1, .key = "beta1", .name = "beta1", SETTING_FLOAT_IN(0, 0.999999), SETTING_FLOAT_DEFAULT(0.9))               \
    X(beta2, .key = "beta2", .name = "beta2", SETTING_FLOAT_IN(0, 0.999999), SETTING_FLOAT_DEFAULT(0.95))              \
    X(muon_momentum, .key = "muon_momentum", .name = "muon-momentum", SETTING_FLOAT_IN(0, 0.999999),                   \
      SETTING_FLOAT_DEFAULT(0.95))                                                                                     \
    X(epsilon, .key = "epsilon", .name = "epsilon", SETTING_FLOAT_IN(1e-30, 1), SETTING_FLOAT_DEFAULT(1e-8))           \
    X(weight_decay, .key = "weight_decay", .name = "weight-decay", SETTING_FLOAT_IN(0, 1000),                          \
      SETTING_FLOAT_DEFAULT(0.1))                                                                                      \
    X(clip_norm, .key = "clip_norm", .name = "clip-norm", SETTING_FLOAT_IN(0, 1e9), SETTING_FLOAT_DEFAULT(1))          \
    X(optimizer_dtype, .key = "optimizer_dtype", .name = "optimizer-dtype", .type = SETTING_CHOICE,                    \
      .choices = "fp32|bf16|int8", .fallback = "fp32")                                                                 \
    X(master_weights, .key = "master_weights", .name = "master-weights", .type = SETTING_CHOICE,                       \
      .choices = "fp32|split|none", .fallback = "fp32")                                                                \
    X(quantize_base, .key = "quantize_base", .name = "quantize-base", .type = SETTING_CHOICE,                          \
      .choices = "none|nf4|int8|mxfp4", .fallback = "none")                                                            \
    X(freeze, .key = "freeze", .name = "freeze", .type = SETTING_TEXTS)                                                \
    X(lora, .key = "lora", .name = "lora", .type = SETTING_TEXT)                                                       \
    X(backend, .key = "backend", .name = "device", .type = SETTING_TEXT)                                               \
    X(device_bytes, .key = "device_bytes", .name = "device-memory", .type = SETTING_SIZE)                              \
    X(host_bytes, .key = "host_bytes", .name = "host-memory", .type = SETTING_SIZE)                                    \
    X(disk_folder, .key = "disk_folder", .name = "disk", .type = SETTING_TEXT)                                         \
    X(disk_bytes, .key = "disk_bytes", .name = "disk", .type = SETTING_SIZE)                                           \
    X(plan_path, .key = "plan_path", .name = "plan", .type = SETTING_TEXT)                                             \
    X(cluster_path, .key = "cluster_path", .name = "cluster", .type = SETTING_TEXT)

/* Of a training run. chat_time_s is a date on the command line, and seconds since 1970 elsewhere. */
#define SETTING_LIST_TRAIN(X)                                                                                          \
    X(steps, .key = "steps", .name = "steps", SETTING_INT_IN(1, SETTING_STEPS_MAX), SETTING_INT_DEFAULT(1000))         \
    X(epochs, .key = "epochs", .name = "epochs", SETTING_FLOAT_IN(0, 1e6), .above = true)                              \
    X(learning_rate, .key = "learning_rate", .name = "lr", SETTING_FLOAT_IN(0, 1000), .above = true,                   \
      SETTING_FLOAT_DEFAULT(3e-4))                                                                                     \
    X(schedule, .key = "schedule", .name = "schedule", .type = SETTING_CHOICE,                                         \
      .choices = "cosine|linear|constant|wsd", .fallback = "cosine")                                                   \
    X(schedule_steps, .key = "schedule_steps", .name = "schedule-steps", SETTING_INT_IN(1, SETTING_STEPS_MAX))         \
    X(warmup_steps, .key = "warmup_steps", .name = "warmup-steps", SETTING_INT_IN(0, SETTING_STEPS_MAX))               \
    X(min_lr_fraction, .key = "min_lr_fraction", .name = "min-lr-fraction", SETTING_FLOAT_IN(0, 1),                    \
      SETTING_FLOAT_DEFAULT(0.1))                                                                                      \
    X(wsd_decay_fraction, .key = "wsd_decay_fraction", .name = "wsd-decay-fraction", SETTING_FLOAT_IN(0, 1),           \
      .above = true, SETTING_FLOAT_DEFAULT(0.2))                                                                       \
    X(save_every, .key = "save_every", .name = "save-every", SETTING_INT_IN(0, SETTING_STEPS_MAX),                     \
      SETTING_INT_DEFAULT(100))                                                                                        \
    X(keep, .key = "keep", .name = "keep", SETTING_INT_IN(0, 1000000), SETTING_INT_DEFAULT(2))                         \
    X(replan, .key = "replan", .name = "replan", .type = SETTING_CHOICE, .choices = "auto|off", .fallback = "auto")    \
    X(valid_every, .key = "valid_every", .name = "valid-every", SETTING_INT_IN(0, SETTING_STEPS_MAX),                  \
      SETTING_INT_DEFAULT(100))                                                                                        \
    X(valid_batches, .key = "valid_batches", .name = "valid-batches", SETTING_INT_IN(0, SETTING_STEPS_MAX),            \
      SETTING_INT_DEFAULT(0))                                                                                          \
    X(valid_fraction, .key = "valid_fraction", .name = "valid-fraction", SETTING_FLOAT_IN(0, 0.9),                     \
      SETTING_FLOAT_DEFAULT(0))                                                                                        \
    X(valid_paths, .key = "valid_paths", .name = "valid", .type = SETTING_TEXTS)                                       \
    X(loss_on_all, .key = "loss_on_all", .name = "loss-on", .type = SETTING_CHOICE, .choices = "completions|all",      \
      .fallback = "completions")                                                                                       \
    X(chat_time_s, .key = "chat_time_s", .name = "chat-date", .type = SETTING_TEXT, .min = 1, .max = (int64_t)1 << 40) \
    X(columns, .key = "columns", .name = "columns", .type = SETTING_TEXT)                                              \
    X(sample_every, .key = "sample_every", .name = "sample-every", SETTING_INT_IN(0, SETTING_STEPS_MAX),               \
      SETTING_INT_DEFAULT(0))                                                                                          \
    X(sample_tokens, .key = "sample_tokens", .name = "sample-tokens", SETTING_INT_IN(1, SETTING_SIZE_MAX),             \
      SETTING_INT_DEFAULT(64))                                                                                         \
    X(sample_prompt, .key = "sample_prompt", .name = "sample-prompt", .type = SETTING_TEXT, .may_be_empty = true)

/* Of writing text. generation_config.json is held to the same values. */
#define SETTING_LIST_TEXT(X)                                                                                           \
    X(tokens, .key = "tokens", .name = "tokens", SETTING_INT_IN(1, 100000000), SETTING_INT_DEFAULT(100))               \
    X(temperature, .key = "temperature", .name = "temperature", SETTING_FLOAT_IN(0, 100), SETTING_FLOAT_DEFAULT(0.8))  \
    X(top_k, .key = "top_k", .name = "top-k", SETTING_INT_IN(0, SETTING_STEPS_MAX), SETTING_INT_DEFAULT(0))            \
    X(top_p, .key = "top_p", .name = "top-p", SETTING_FLOAT_IN(0, 1), .above = true, SETTING_FLOAT_DEFAULT(1))         \
    X(repetition_penalty, .key = "repetition_penalty", .name = "repetition-penalty", SETTING_FLOAT_IN(0.001, 1000),    \
      SETTING_FLOAT_DEFAULT(1))

#define SETTING_LIST(X) SETTING_LIST_PLAN(X) SETTING_LIST_TRAIN(X) SETTING_LIST_TEXT(X)

/* SETTING_batch …, after the fields of structs that hold them. */
enum setting_id {
#define SETTING_ID(field, ...) SETTING_##field,
    SETTING_LIST(SETTING_ID) SETTING_COUNT
#undef SETTING_ID
};
extern const struct setting setting_table[SETTING_COUNT];

/* Which settings of a struct were given: the type of its member `given`. A number, path or enumeration that was not
 * given is 0 (a default that depends on nothing else may stand in its place). */
struct settings_given {
    bool of[SETTING_COUNT];
};
#define SETTINGS_HAVE(options, field) ((options)->given.of[SETTING_##field])
/* Says so of a field that is set elsewhere. */
#define SETTINGS_MARK(options, field) ((void)((options)->given.of[SETTING_##field] = true))
/* Sets a field and then says so: the value may be computed from the options as they were. */
#define SETTINGS_GIVE(options, field, ...) ((void)((options)->field = (__VA_ARGS__)), SETTINGS_MARK(options, field))
/* Takes it back. */
#define SETTINGS_DROP(options, field)                                                                                  \
    ((void)((options)->given.of[SETTING_##field] = false), (void)((options)->field = 0))
/* Adds to `given` what was given there. */
void settings_given_join(struct settings_given *given, const struct settings_given *there);

/* BAD_INPUT "WHERE: VALUE is not legal: must be …" for a number that the setting may not have. */
enum status setting_check_int(const struct setting *setting, const char *where, int64_t value);
enum status setting_check_float(const struct setting *setting, const char *where, double value);
/* The same for a choice. */
bool setting_has_choice(const struct setting *setting, const char *text);
enum status setting_check_choice(const struct setting *setting, const char *where, const char *text);

#endif
