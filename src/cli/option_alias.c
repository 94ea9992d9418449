#include "cli/option_alias.h"

#include <ctype.h>
#include <string.h>

#include "cli/command.h"

enum { NAME_BYTES = 64 };

#define ROW(id, list, text)                                                                                            \
    { .option = (id), .names = (list), .note = (text) }
#define ARGUMENT(list, text)                                                                                           \
    { .option = OPTION_COUNT, .names = (list), .note = (text), .argument = true }

const struct option_alias option_aliases[] = {
    /* the length of a run */
    ROW(OPT_STEPS,
        "max-steps num-steps n-steps train-steps training-steps total-steps max-train-steps max-iters iters iterations "
        "num-iterations max-steps-per-epoch",
        NULL),
    ROW(OPT_EPOCHS, "num-train-epochs num-epochs n-epochs max-epochs train-epochs epoch", NULL),
    ROW(OPT_BATCH,
        "batch-size bs per-device-train-batch-size per-device-batch-size train-batch-size micro-batch-size "
        "mini-batch-size total-batch-size global-batch-size",
        "sequences of a whole step"),
    ROW(OPT_BATCH,
        "gradient-accumulation-steps gradient-accumulation grad-accum grad-accum-steps accumulate-grad-batches",
        "it holds all sequences of a step, and gradients add up over as many passes as memory needs "
        "(--grains-per-pass)"),
    ROW(OPT_BATCH, "per-device-eval-batch-size eval-batch-size val-batch-size", "validation has the same batch"),
    ROW(OPT_SEQ,
        "seq-len seq-length sequence-len sequence-length max-seq-length max-seq-len max-length block-size cutoff-len "
        "model-max-length context-length context n-ctx ctx-size",
        NULL),
    /* the learning rate */
    ROW(OPT_LR, "learning-rate max-lr peak-lr", NULL),
    ROW(OPT_MIN_LR_FRACTION, "min-lr min-lr-ratio final-lr-fraction learning-rate-decay-frac lr-min",
        "a part of --lr, 0 to 1"),
    ROW(OPT_SCHEDULE, "lr-scheduler lr-scheduler-type lr-schedule lr-decay-style scheduler decay-lr", NULL),
    ROW(OPT_SCHEDULE_STEPS, "lr-decay-iters lr-decay-steps decay-steps", NULL),
    ROW(OPT_WARMUP_STEPS, "warmup warmup-iters warmup-iterations num-warmup-steps lr-warmup-steps lr-warmup-iters",
        NULL),
    ROW(OPT_WARMUP_STEPS, "warmup-ratio warmup-fraction", "in steps"),
    /* the optimizer */
    ROW(OPT_BETA1, "adam-beta1", NULL),
    ROW(OPT_BETA2, "adam-beta2", NULL),
    ROW(OPT_BETA1, "betas adam-betas", "and --beta2"),
    ROW(OPT_EPSILON, "adam-epsilon adam-eps eps", NULL),
    ROW(OPT_WEIGHT_DECAY, "wd decay", NULL),
    ROW(OPT_CLIP_NORM, "max-grad-norm max-norm grad-clip clip-grad clip-grad-norm gradient-clip-val gradient-clipping",
        NULL),
    ROW(OPT_OPTIMIZER, "optim optimizer-type optimizer-name", NULL),
    ROW(OPT_BETA1, "momentum", "with --optimizer sgd; --muon-momentum with muon"),
    /* preferences */
    ROW(OPT_LOSS, "dpo preference rl stage trainer", "dpo"),
    ROW(OPT_DPO_BETA, "beta pref-beta kl-beta", "with --loss dpo"),
    ROW(OPT_DPO_LOSS, "loss-type pref-loss dpo-loss-type", "with --loss dpo"),
    ROW(OPT_DPO_LABEL_SMOOTHING, "label-smoothing label-smoothing-factor", "with --loss dpo"),
    ROW(OPT_REFERENCE, "ref-model reference-model ref-model-name-or-path",
        "training itself compares with the model that it begins with"),
    /* what is trained */
    ROW(OPT_LORA,
        "lora-r lora-rank lora-alpha lora-target-modules lora-targets lora-modules use-lora use-peft peft adapter "
        "lora-attn-modules",
        "8,16,q_proj,v_proj or 8,16,all-linear"),
    ROW(OPT_BASE_DTYPE, "qlora load-in-4bit use-qlora quantization-bit", "nf4, with --lora"),
    ROW(OPT_BASE_DTYPE, "load-in-8bit", "int8, with --lora"),
    ROW(OPTION_COUNT, "lora-dropout", "adapters are trained without dropout: leave it out"),
    ROW(OPT_FREEZE, "freeze-layers freeze-modules frozen", NULL),
    /* data and validation */
    ROW(OPT_VALID,
        "validation-file validation-data validation val-data val-file valid-file valid-data eval-data eval-file "
        "eval-dataset val",
        NULL),
    ROW(OPT_VALID_EVERY,
        "eval-every eval-steps eval-interval eval-freq val-every val-interval val-loss-every val-check-interval "
        "validation-every validation-interval eval-iter-interval",
        NULL),
    ROW(OPT_VALID_EVERY, "eval-strategy evaluation-strategy do-eval", "in steps; 0 for none"),
    ROW(OPT_VALID_BATCHES, "eval-iters eval-batches val-batches val-max-steps max-eval-batches limit-val-batches",
        NULL),
    ROW(OPT_VALID_FRACTION, "val-set-size val-size validation-split val-split test-size eval-split-ratio", "0 to 0.9"),
    ROW(OPTION_COUNT, "chat-template template prompt-template chat-template-path",
        "the template is the model's: chat_template.jinja, or the field of tokenizer_config.json, in its directory"),
    ROW(OPT_LOSS_ON, "train-on-inputs train-on-source train-on-input mask-prompt completion-only-loss",
        "completions, or all"),
    ROW(OPT_DOCUMENT_ATTENTION, "packing sample-packing pack packed", "within packs several examples into a sequence"),
    /* what is written */
    ROW(OPT_SAVE_EVERY,
        "save-steps save-interval save-freq save-every-n-steps checkpoint-every checkpoint-interval "
        "checkpointing-steps "
        "ckpt-every every-n-train-steps",
        NULL),
    ROW(OPT_KEEP, "save-total-limit keep-last keep-checkpoints max-checkpoints keep-last-n", NULL),
    ROW(OPT_OUTPUT, "output-dir out-dir outdir out save-dir checkpoint-dir run-dir log-dir", NULL),
    ROW(OPTION_COUNT,
        "logging-steps log-interval log-every log-freq logging-dir report-to wandb wandb-project tensorboard",
        "every step is in RUN_DIR/metrics.jsonl and in a file for TensorBoard; --serve shows them meanwhile"),
    ROW(OPTION_COUNT, "resume-from-checkpoint resume-from resume-checkpoint resume auto-resume",
        "ballast resume RUN_DIR goes on from the newest checkpoint"),
    /* numbers, memory, machine */
    ROW(OPT_DTYPE, "bf16 bfloat16", "bf16"),
    ROW(OPT_DTYPE, "fp32 float32 tf32", "fp32"),
    ROW(OPT_DTYPE, "fp16 float16 half amp", "bf16 or fp32; there is no training in fp16"),
    ROW(OPT_DTYPE, "precision mixed-precision torch-dtype", "bf16 or fp32"),
    ROW(OPT_DEVICE_MEMORY, "memory max-memory mem gpu-memory vram ram memory-limit", "such as 8G"),
    ROW(OPT_DEVICE_MEMORY, "gradient-checkpointing activation-checkpointing enable-activation-checkpointing recompute",
        "what does not fit is computed again or moved, as the plan decides"),
    ROW(OPT_HOST_MEMORY, "cpu-memory", NULL),
    ROW(OPT_DISK, "offload cpu-offload offload-dir offload-folder nvme-offload swap",
        "for what does not fit in memory"),
    ROW(OPT_PARTITION, "deepspeed fsdp zero-stage sharding-strategy ddp", "zero1, zero2, zero3 or ddp, with --ranks N"),
    ROW(OPT_THREADS, "num-threads n-threads cpus cores num-workers dataloader-num-workers", NULL),
    ROW(OPT_DEVICE, "gpu gpus cuda cpu use-cpu no-cuda accelerator", "cpu, cuda or cuda:1"),
    ROW(OPT_SEED, "random-seed data-seed rng-seed", NULL),
    ROW(OPT_SERVE, "port dashboard", NULL),
    /* text from a model */
    ROW(OPT_TOKENS, "max-new-tokens max-tokens n-predict num-tokens new-tokens length", NULL),
    ROW(OPT_TEMPERATURE, "temp", NULL),
    ROW(OPT_TEMPERATURE, "do-sample greedy", "0 always takes the likeliest token"),
    ROW(OPT_TOP_K, "topk", NULL),
    ROW(OPT_TOP_P, "topp nucleus", NULL),
    ROW(OPT_PROMPT, "text input query", NULL),
    ROW(OPT_STOP, "stop-strings stop-sequences stop-words", NULL),
    ROW(OPT_BATCHES, "limit max-batches num-batches", NULL),
    /* a new model */
    ROW(OPT_ARCH, "model-type architecture family", NULL),
    ROW(OPT_HIDDEN, "hidden-size n-embd d-model dim embed-dim model-dim", NULL),
    ROW(OPT_LAYERS, "num-layers num-hidden-layers n-layer n-layers depth", NULL),
    ROW(OPT_HEADS, "num-heads num-attention-heads n-head n-heads", NULL),
    ROW(OPT_KV_HEADS, "num-key-value-heads num-kv-heads n-kv-head n-kv-heads", NULL),
    ROW(OPT_FFN, "intermediate-size ffn-size ffn-dim hidden-dim d-ff mlp-dim", NULL),
    ROW(OPT_VOCAB, "vocab-size n-vocab", NULL),
    ROW(OPT_CONTEXT,
        "max-position-embeddings context-length context-len n-positions n-ctx block-size seq seq-len max-seq-len",
        NULL),
    ROW(OPT_WINDOW, "sliding-window", NULL),
    ROW(OPT_TIED, "tie-word-embeddings tie-embeddings tied-embeddings", NULL),
    ROW(OPT_TOKENIZER_DATA, "tokenizer train-tokenizer tokenizer-text", NULL),
    /* arguments */
    ARGUMENT(
        "model model-name-or-path model-path model-dir model-name base-model pretrained-model-name-or-path hf-path "
        "checkpoint-path init-from",
        "the model's folder is the first argument, without an option"),
    ARGUMENT("data dataset datasets data-path data-dir dataset-name dataset-path train-data train-file train-files "
             "input-data "
             "train-dataset",
             "the data are arguments after the model's folder, without an option"),
};
const int option_alias_count = sizeof option_aliases / sizeof *option_aliases;

static bool holds_word(const char *list, const char *word) {
    size_t length = strlen(word);
    while (*list) {
        size_t here = strcspn(list, " ");
        if (here == length && strncmp(list, word, length) == 0) return true;
        list += here + strspn(list + here, " ");
    }
    return false;
}

static bool serves(const struct command *command, const struct option_alias *alias) {
    return alias->option == OPTION_COUNT || (option_table[alias->option].commands & command->bit);
}

/* As the table has it: small, with "-"; false where it is too long to be there. */
static bool make_name(const char *typed, char name[NAME_BYTES]) {
    if (strlen(typed) >= NAME_BYTES) return false;
    for (; *typed; typed++)
        *name++ = *typed == '_' ? '-' : (char)tolower((unsigned char)*typed);
    *name = '\0';
    return true;
}

const struct option_alias *option_alias_find(const struct command *command, const char *typed) {
    const struct option_alias *other = NULL;
    char name[NAME_BYTES];
    for (int i = 0; make_name(typed, name) && i < option_alias_count; i++) {
        const struct option_alias *alias = &option_aliases[i];
        if (!holds_word(alias->names, name)) continue;
        if (serves(command, alias)) return alias;
        if (!other) other = alias;
    }
    return other;
}

enum status option_alias_hint(enum status status, const struct command *command, const struct option_alias *alias,
                              bool config) {
    if (alias->option == OPTION_COUNT && alias->argument)
        return status_hint(status, "%s: ballast %s %s", alias->note, command->name, command->arguments);
    if (alias->option == OPTION_COUNT) return status_hint(status, "%s", alias->note);
    const struct option *option = &option_table[alias->option];
    char key[64], list[OPTION_COMMANDS_BYTES];
    bool served = serves(command, alias), value = !config && option_argument(option)[0];
    return status_hint(status, "%s%s%s%s%s does that%s%s%s%s", config ? "\"" : "--",
                       config ? option_key(option, key) : option->setting->name, config ? "\"" : "", value ? " " : "",
                       value ? option_argument(option) : "", served ? "" : ", in ",
                       served ? "" : option_print_commands(option, list), alias->note ? ": " : "",
                       alias->note ? alias->note : "");
}
