#include "cli/options.h"

#include <ctype.h>

#include "cli/commands/command.h"

enum { NAME_BYTES = 64 };

#define ROW(id, list, text)                                                                                            \
    { .option = (id), .names = (list), .note = (text) }

#define RENAMED(id, name)                                                                                              \
    { .option = (id), .names = (name), .renamed = true }

#define ARGUMENT(list, text)                                                                                           \
    { .option = OPT_COUNT, .names = (list), .note = (text), .argument = true }

const struct option_alias option_aliases[] = {
    /* Ballast 0.1.0 */
    RENAMED(OPT_micro_batch_sequences, "grain"),
    RENAMED(OPT_micro_batches_per_wave, "grains-per-pass"),
    RENAMED(OPT_tensor_parallel, "tensor"),
    RENAMED(OPT_sequence_parallel, "sequence"),
    RENAMED(OPT_pipeline_parallel, "stages"),
    RENAMED(OPT_virtual_stages, "interleave"),
    RENAMED(OPT_master_weights, "master"),
    RENAMED(OPT_quantize_base, "base-dtype"),
    RENAMED(OPT_compare, "beside"),
    /* run length */
    ROW(OPT_steps,
        "max-steps num-steps n-steps train-steps training-steps total-steps max-train-steps max-iters iters iterations "
        "num-iterations max-steps-per-epoch train-iters",
        NULL),
    ROW(OPT_epochs, "num-train-epochs num-epochs n-epochs max-epochs train-epochs epoch", NULL),
    ROW(OPT_batch,
        "batch-size bs train-batch-size mini-batch-size total-batch-size global-batch-size effective-batch-size",
        "sequences per step over all ranks"),
    ROW(OPT_micro_batch_sequences,
        "micro-batch-size micro-bsz mbs per-device-train-batch-size per-device-batch-size per-gpu-train-batch-size "
        "train-micro-batch-size-per-gpu device-batch-size local-batch-size",
        "--batch is the global batch"),
    ROW(OPT_COUNT,
        "gradient-accumulation-steps gradient-accumulation grad-accum grad-accum-steps accumulate-grad-batches "
        "num-microbatches num-micro-batches",
        "no option is needed: --batch is the global batch, and gradients accumulate over its micro-batches "
        "(--micro-batch)"),
    ROW(OPT_batch, "per-device-eval-batch-size eval-batch-size val-batch-size", "validation has the same batch"),
    ROW(OPT_sequence_length,
        "seq-len seq-length sequence-len sequence-length max-seq-length max-seq-len max-length block-size cutoff-len "
        "model-max-length context-length context n-ctx ctx-size",
        NULL),
    /* learning rate */
    ROW(OPT_learning_rate, "learning-rate max-lr peak-lr", NULL),
    ROW(OPT_min_lr_fraction,
        "min-lr min-lr-ratio final-lr-fraction learning-rate-decay-frac lr-min min-learning-rate end-lr "
        "cosine-min-lr-ratio",
        "a fraction of --lr, 0 to 1"),
    ROW(OPT_schedule,
        "lr-scheduler lr-scheduler-type lr-schedule lr-decay-style scheduler decay-lr learning-rate-scheduler", NULL),
    ROW(OPT_schedule_steps, "lr-decay-iters lr-decay-steps decay-steps", NULL),
    ROW(OPT_warmup_steps, "warmup warmup-iters warmup-iterations num-warmup-steps lr-warmup-steps lr-warmup-iters",
        NULL),
    ROW(OPT_COUNT, "warmup-ratio warmup-fraction lr-warmup-fraction warmup-tokens",
        "--warmup-steps N is the warm-up in steps"),
    /* optimizer */
    ROW(OPT_beta1, "adam-beta1", NULL),
    ROW(OPT_beta2, "adam-beta2", NULL),
    ROW(OPT_beta1, "betas adam-betas", "and --beta2"),
    ROW(OPT_epsilon, "adam-epsilon adam-eps eps", NULL),
    ROW(OPT_weight_decay, "wd decay", NULL),
    ROW(OPT_clip_norm, "max-grad-norm max-norm grad-clip clip-grad clip-grad-norm gradient-clip-val gradient-clipping",
        NULL),
    ROW(OPT_optimizer, "optim optimizer-type optimizer-name", NULL),
    ROW(OPT_beta1, "momentum", "with --optimizer sgd; --muon-momentum with muon"),
    ROW(OPT_optimizer_dtype, "adam8bit use-8bit-adam optim-bits paged-adamw", "int8 takes a quarter of the bytes"),
    ROW(OPT_COUNT, "optim-args optimizer-args",
        "--beta1, --beta2, --epsilon and --weight-decay are options of their own"),
    ROW(OPT_wsd_decay_fraction, "decay-fraction", NULL),
    ROW(OPT_COUNT, "lr-scheduler-kwargs lr-scheduler-args",
        "--schedule-steps, --warmup-steps, --min-lr-fraction and --wsd-decay-fraction shape the schedule"),
    ROW(OPT_COUNT, "rampup-batch-size", "all steps have the same --batch"),
    /* preferences */
    ROW(OPT_loss, "dpo preference rl stage trainer", "dpo"),
    ROW(OPT_dpo_beta, "beta pref-beta kl-beta", "with --loss dpo"),
    ROW(OPT_dpo_loss, "loss-type pref-loss dpo-loss-type", "with --loss dpo"),
    ROW(OPT_dpo_label_smoothing, "label-smoothing label-smoothing-factor", "with --loss dpo"),
    ROW(OPT_reference, "ref-model reference-model ref-model-name-or-path",
        "training itself compares with the model that it begins with"),
    ROW(OPT_dpo_loss, "ipo", "ipo, with --loss dpo"),
    ROW(OPT_COUNT,
        "kto orpo simpo-gamma cpo-alpha rpo-alpha f-divergence-type reward-model reward-funcs num-generations ppo grpo",
        "DPO is the only preference method: --loss dpo --dpo-loss sigmoid|hinge|ipo|robust"),
    ROW(OPT_COUNT, "precompute-ref-log-probs reference-free sync-ref-model ref-model-mixup-alpha",
        "the reference is the model that training begins with; its log-probabilities are computed once"),
    /* trained weights */
    ROW(OPT_lora,
        "lora-r lora-rank lora-alpha lora-target-modules lora-targets lora-modules use-lora use-peft peft adapter "
        "lora-attn-modules target-modules r alpha finetuning-type",
        "8,16,q_proj,v_proj or 8,16,all-linear"),
    ROW(OPT_quantize_base,
        "qlora load-in-4bit use-qlora quantization-bit nf4 bnb-4bit-quant-type quantization quantization-method",
        "nf4, with --lora"),
    ROW(OPT_quantize_base, "load-in-8bit int8", "int8, with --lora"),
    ROW(OPT_COUNT, "lora-dropout", "adapters are trained without dropout: leave it out"),
    ROW(OPT_freeze, "freeze-layers freeze-modules frozen freeze-trainable-layers", NULL),
    ROW(OPT_COUNT,
        "use-rslora rslora use-dora dora lora-plus loraplus-lr-ratio init-lora-weights lora-init lora-bias "
        "modules-to-save",
        "training has plain LoRA: --lora RANK,ALPHA,TARGETS"),
    ROW(OPT_COUNT, "bnb-4bit-compute-dtype bnb-4bit-use-double-quant use-bnb-nested-quant double-quantization",
        "--quantize-base nf4 has bitsandbytes' double quantization, and computes in --dtype"),
    ROW(OPT_COUNT, "dropout attention-dropout hidden-dropout neftune-noise-alpha",
        "training has no dropout and adds no noise: leave it out"),
    ROW(OPT_COUNT, "ema average-checkpoints", "weights are not averaged: leave it out"),
    ROW(OPT_COUNT, "rope-scaling rope-theta", "the model's config.json decides"),
    ROW(OPT_COUNT,
        "flash-attn use-flash-attn flash-attention use-flash-attention attn-implementation attention-impl "
        "sdp-attention xformers unsloth use-unsloth torch-compile torchcompile compile compile-mode fused-optimizer "
        "use-cuda-graph overlap-grad-reduce overlap-param-gather tp-comm-overlap transformer-impl use-mcore-models",
        "no option is needed: Ballast chooses kernels and overlaps collectives itself"),
    /* data and validation */
    ROW(OPT_valid_paths,
        "validation-file validation-data validation val-data val-file valid-file valid-data eval-data eval-file "
        "eval-dataset val",
        NULL),
    ROW(OPT_valid_every,
        "eval-every eval-steps eval-interval eval-freq val-every val-interval val-loss-every val-check-interval "
        "validation-every validation-interval eval-iter-interval",
        NULL),
    ROW(OPT_valid_every, "eval-strategy evaluation-strategy do-eval eval-on-start eval-delay", "in steps; 0 for none"),
    ROW(OPT_valid_batches,
        "eval-iters eval-batches max-eval-samples val-batches val-max-steps max-eval-batches limit-val-batches", NULL),
    ROW(OPT_valid_fraction, "val-set-size val-size validation-split val-split test-size eval-split-ratio", "0 to 0.9"),
    ROW(OPT_COUNT,
        "chat-template template prompt-template chat-template-path conversation-template template-name chat-format",
        "the template is the model's: chat_template.jinja, or the field of tokenizer_config.json, in its directory"),
    ROW(OPT_loss_on_all,
        "train-on-inputs train-on-source train-on-input mask-prompt completion-only-loss assistant-only-loss",
        "completions, or all"),
    ROW(OPT_columns, "dataset-text-field text-column prompt-column response-column", "such as text=content"),
    ROW(OPT_sequence_length, "max-prompt-length max-completion-length truncation-side",
        "it limits prompt and answer together"),
    ROW(OPT_COUNT,
        "dataset-split dataset-train-split dataset-config split streaming max-samples max-train-samples train-samples",
        "data are local files, which are read in full"),
    ROW(OPT_COUNT, "dataset-format data-format sharegpt remove-unused-columns",
        "the keys of a .jsonl file tell its format; --columns names other keys"),
    ROW(OPT_COUNT, "cache-dir overwrite-cache data-cache-path",
        "tokens are kept in $XDG_CACHE_HOME/ballast, and Ballast tokenizes changed text again"),
    ROW(OPT_COUNT, "shuffle", "no option is needed: data are always shuffled, by --seed"),
    ROW(OPT_COUNT, "add-eos-token add-bos-token", "the tokenizer's files decide which tokens begin and end a document"),
    ROW(OPT_COUNT, "special-tokens resize-vocab", "the vocabulary is that of the model's directory"),
    ROW(OPT_COUNT,
        "padding-free group-by-length length-column-name pad-to-sequence-len "
        "pad-to-max-length drop-last",
        "all sequences have --seq tokens: leave it out"),
    ROW(OPT_packing,
        "sample-packing neat-packing no-packing multipack pack packed pack-dataset dataset-packing eval-packing "
        "packing-strategy sample-packing-group-size",
        "on by default: each example attends to itself alone"),
    /* output */
    ROW(OPT_save_every,
        "save-steps save-interval save-freq save-every-n-steps checkpoint-every checkpoint-interval "
        "checkpointing-steps "
        "ckpt-every every-n-train-steps",
        NULL),
    ROW(OPT_keep, "save-total-limit keep-last keep-checkpoints max-checkpoints keep-last-n", NULL),
    ROW(OPT_output, "output-dir out-dir outdir out save-dir checkpoint-dir run-dir log-dir save-path checkpoint-folder",
        NULL),
    ROW(OPT_COUNT,
        "logging-steps log-interval log-every log-freq logging-dir report-to wandb wandb-project tensorboard "
        "report-to-wandb wandb-run-id "
        "logging-strategy logging-first-step plot-loss mlflow wandb-entity",
        "every step is in RUN_DIR/metrics.jsonl and in a file for TensorBoard; --serve shows them meanwhile"),
    ROW(OPT_COUNT, "resume-from-checkpoint resume-from resume-checkpoint resume auto-resume",
        "ballast resume RUN_DIR goes on from the newest checkpoint"),
    ROW(OPT_save_every, "save-strategy", "in steps"),
    ROW(OPT_COUNT, "save-only-model save-safetensors",
        "checkpoints are safetensors with the optimizer's state; RUN_DIR/model has the weights alone"),
    ROW(OPT_COUNT,
        "load-best-model-at-end metric-for-best-model greater-is-better early-stopping-patience early-stopping",
        "each checkpoint is a model: --keep 0 keeps all, and metrics.jsonl has their validation losses"),
    ROW(OPT_COUNT, "exit-interval exit-duration-in-mins", "SIGUSR1 ends a run with a checkpoint"),
    ROW(OPT_output, "run-name", "the directory's name is the run's"),
    ROW(OPT_COUNT, "log-level verbose verbosity debug", "progress and notes are printed unless --quiet is given"),
    ROW(OPT_COUNT, "dry-run", "`ballast plan MODEL_DIR` shows what a step takes"),
    ROW(OPT_COUNT, "do-train do-predict",
        "`ballast train` trains, `ballast eval` evaluates, `ballast generate` writes text"),
    ROW(OPT_COUNT, "push-to-hub hub-model-id hf-token token revision model-revision trust-remote-code",
        "models are local directories: nothing is fetched or uploaded, and no code of a model runs"),
    ROW(OPT_config, "config-file config-name recipe yaml", "a JSON file"),
    /* data types, memory, machine */
    ROW(OPT_dtype, "bf16 bfloat16 bf16-full-eval", "bf16"),
    ROW(OPT_dtype, "fp32 float32 tf32", "fp32"),
    ROW(OPT_COUNT, "fp16 float16 half amp fp8 fp16-full-eval",
        "there is no training in fp16 or fp8: use --dtype bf16, which needs no loss scaling"),
    ROW(OPT_dtype, "precision mixed-precision torch-dtype", "bf16 or fp32"),
    ROW(OPT_device_bytes, "memory max-memory mem gpu-memory vram ram memory-limit max-memory-mb", "such as 8G"),
    ROW(OPT_COUNT,
        "gradient-checkpointing activation-checkpointing enable-activation-checkpointing recompute "
        "grad-checkpoint use-gradient-checkpointing gradient-checkpointing-kwargs recompute-granularity "
        "recompute-method recompute-num-layers recompute-activations recompute-modules",
        "no option is needed: the plan decides what to recompute, within --device-memory"),
    ROW(OPT_host_bytes, "cpu-memory", NULL),
    ROW(OPT_COUNT,
        "offload cpu-offload offload-optimizer optimizer-cpu-offload offload-params cpu-offload-gb cpu-offloading",
        "the plan decides what to offload: --host-memory SIZE and --disk DIR set where it may go"),
    ROW(OPT_disk_folder, "offload-dir offload-folder nvme-offload swap", "for what does not fit in memory"),
    ROW(OPT_partition, "fsdp fsdp-config sharding-strategy",
        "FULL_SHARD is zero3, SHARD_GRAD_OP zero2, NO_SHARD ddp, HYBRID_SHARD mics:N"),
    ROW(OPT_partition, "hybrid-shard dp-shard", "mics:N, with N ranks in each shard group"),
    ROW(OPT_partition, "data-parallel-sharding-strategy",
        "no_shard is ddp, optim zero1, optim_grads zero2, optim_grads_params zero3"),
    ROW(OPT_partition, "use-distributed-optimizer distributed-optimizer", "zero1, with --ranks N"),
    ROW(OPT_partition, "deepspeed deepspeed-config ds-config zero zero-stage zero3 stage3",
        "ZeRO stages 1, 2 and 3 are zero1, zero2 and zero3"),
    ROW(OPT_partition, "ddp", "ddp, with --ranks N"),
    ROW(OPT_COUNT, "device-map low-cpu-mem-usage",
        "no option is needed: the plan places weights and optimizer states, within --device-memory"),
    ROW(OPT_tensor_parallel, "tensor-model-parallel-size tensor-parallel-size tensor-parallel-degree tp-size tp",
        "with --ranks N"),
    ROW(OPT_pipeline_parallel,
        "pipeline-model-parallel-size pipeline-parallel-size pipeline-parallel-degree pp-size pp", "with --ranks N"),
    ROW(OPT_virtual_stages, "virtual-pipeline-model-parallel-size", "virtual stages per rank"),
    ROW(OPT_COUNT, "num-layers-per-virtual-pipeline-stage",
        "--virtual-stages N is the number of virtual stages per rank, not of layers per stage"),
    ROW(OPT_sequence_parallel, "enable-sequence-parallel", "with --tensor-parallel N"),
    ROW(OPT_COUNT, "context-parallel-size cp expert-model-parallel-size ep",
        "there is no context or expert parallelism; --partition, --tensor-parallel and --pipeline-parallel shard a "
        "model"),
    ROW(OPT_ranks, "nproc-per-node gpus num-gpus num-processes world-size", "processes on all nodes, one per GPU"),
    ROW(OPT_COUNT, "data-parallel-size dp-size", "--ranks N is the product of data, tensor and pipeline parallelism"),
    ROW(OPT_nodes, "nnodes num-machines", "with --ranks N"),
    ROW(OPT_COUNT, "node-rank local-rank master-addr master-port distributed-backend accelerate-config",
        "mpirun or srun starts and connects ranks; on one machine --ranks N does (docs/clusters.md)"),
    ROW(OPT_COUNT, "deterministic full-determinism", "the same recipe always gives the same bits"),
    ROW(OPT_threads, "num-threads n-threads cpus cores", NULL),
    ROW(OPT_COUNT, "num-workers dataloader-num-workers num-proc dataset-num-proc preprocessing-num-workers",
        "no option is needed: a background thread tokenizes text while steps run"),
    ROW(OPT_backend, "gpu cuda cpu use-cpu no-cuda accelerator", "cpu, cuda or cuda:1"),
    ROW(OPT_seed, "random-seed data-seed rng-seed seed-everything seed-data", NULL),
    ROW(OPT_serve, "port dashboard", NULL),
    /* text generation */
    ROW(OPT_tokens, "max-new-tokens max-tokens n-predict num-tokens new-tokens length", NULL),
    ROW(OPT_temperature, "temp", NULL),
    ROW(OPT_temperature, "do-sample greedy", "0 always takes the likeliest token"),
    ROW(OPT_top_k, "topk", NULL),
    ROW(OPT_top_p, "topp nucleus", NULL),
    ROW(OPT_prompt, "text input query", NULL),
    ROW(OPT_stop, "stop-strings stop-sequences stop-words", NULL),
    ROW(OPT_batches, "limit max-batches num-batches", NULL),
    ROW(OPT_system, "system-prompt system-message", NULL),
    ROW(OPT_prompt, "instruction messages", "with --chat"),
    ROW(OPT_COUNT, "presence-penalty frequency-penalty", "--repetition-penalty is the only penalty"),
    ROW(OPT_COUNT, "min-p typical-p", "--top-k and --top-p are the limits of sampling"),
    ROW(OPT_COUNT, "num-beams beam", "there is no beam search; --temperature 0 takes the likeliest token"),
    ROW(OPT_COUNT, "interactive", "`ballast chat MODEL_DIR` talks to a model"),
    ROW(OPT_COUNT, "stream", "text is printed while it is made"),
    /* new models */
    ROW(OPT_arch, "model-type architecture family", NULL),
    ROW(OPT_hidden, "hidden-size n-embd d-model dim embed-dim model-dim", NULL),
    ROW(OPT_layers, "num-layers num-hidden-layers n-layer n-layers depth", NULL),
    ROW(OPT_heads, "num-heads num-attention-heads n-head n-heads", NULL),
    ROW(OPT_kv_heads, "num-key-value-heads num-kv-heads n-kv-head n-kv-heads num-query-groups", NULL),
    ROW(OPT_ffn, "intermediate-size ffn-size ffn-dim hidden-dim d-ff mlp-dim ffn-hidden-size", NULL),
    ROW(OPT_vocab, "vocab-size n-vocab", NULL),
    ROW(OPT_context,
        "max-position-embeddings context-length context-len n-positions n-ctx block-size seq seq-len max-seq-len",
        NULL),
    ROW(OPT_window, "sliding-window", NULL),
    ROW(OPT_tied, "tie-word-embeddings tie-embeddings tied-embeddings", NULL),
    ROW(OPT_COUNT, "untie-embeddings-and-output-weights", "embedding and head are apart unless --tied is given"),
    ROW(OPT_head_dim, "kv-channels", NULL),
    ROW(OPT_arch, "swiglu normalization position-embedding-type group-query-attention make-vocab-size-divisible-by",
        "the model family decides"),
    ROW(OPT_COUNT, "tokenizer-name tokenizer-path tokenizer-model vocab-file merge-file use-fast-tokenizer",
        "the tokenizer is tokenizer.json in the model's directory"),
    ROW(OPT_tokenizer_data, "tokenizer train-tokenizer tokenizer-text", NULL),
    /* arguments */
    ARGUMENT(
        "model model-name-or-path model-path model-dir model-name base-model pretrained-model-name-or-path hf-path "
        "checkpoint-path init-from model-id hf-model adapter-name-or-path lora-path",
        "the model's directory is the first argument, without an option"),
    ARGUMENT("data dataset datasets data-path data-dir dataset-name dataset-path train-data train-file train-files "
             "input-data "
             "train-dataset",
             "the data are arguments after the model's directory, without an option"),
};
const int option_alias_count = sizeof option_aliases / sizeof *option_aliases;

bool option_alias_lists(const char *list, const char *name) {
    size_t length = strlen(name);
    while (*list) {
        size_t here = strcspn(list, " ");
        if (here == length && strncmp(list, name, length) == 0) return true;
        list += here + strspn(list + here, " ");
    }
    return false;
}

static bool serves(const struct command *command, const struct option_alias *alias) {
    return alias->option == OPT_COUNT || (option_table[alias->option]->commands & command->bit);
}

/* Converts a name to the table's form: lower case, with "-" for "_". False if it is too long for the table. */
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
        if (!option_alias_lists(alias->names, name)) continue;
        if (serves(command, alias)) return alias;
        if (!other) other = alias;
    }
    return other;
}

/* Prints a name as it stands on the command line, or with `config` as in a config file. */
static const char *print_name(const char *name, bool config, char text[NAME_BYTES]) {
    const char *quote = config ? "\"" : "";
    snprintf(text, NAME_BYTES, "%s%s%s", config ? quote : "--", name, quote);
    for (char *at = text; config && *at; at++)
        if (*at == '-') *at = '_';
    return text;
}

static enum status hint_renamed(enum status status, const struct option_alias *alias, bool config) {
    char before[NAME_BYTES], now[NAME_BYTES];
    return status_hint(status, "%s was renamed to %s in 0.2.0", print_name(alias->names, config, before),
                       print_name(option_table[alias->option]->name, config, now));
}

enum status option_alias_hint(enum status status, const struct command *command, const struct option_alias *alias,
                              bool config) {
    if (alias->renamed) return hint_renamed(status, alias, config);
    if (alias->option == OPT_COUNT && alias->argument)
        return status_hint(status, "%s: ballast %s %s", alias->note, command->name, command->arguments);
    if (alias->option == OPT_COUNT) return status_hint(status, "%s", alias->note);
    const struct setting *option = option_table[alias->option];
    char key[64], list[OPTION_COMMANDS_BYTES];
    bool served = serves(command, alias), value = !config && option_argument(option)[0];
    return status_hint(
        status, "%s%s%s%s%s does that%s%s%s%s", config ? "\"" : "--", config ? option_key(option, key) : option->name,
        config ? "\"" : "", value ? " " : "", value ? option_argument(option) : "", served ? "" : ", in ",
        served ? "" : option_print_commands(option, list), alias->note ? ": " : "", alias->note ? alias->note : "");
}
