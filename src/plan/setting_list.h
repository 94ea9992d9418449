/* The table of settings, a row each: X(FIELD, KEY, NAME, ...). FIELD is the name in structs, KEY that in files, NAME
 * that of the option; settings.h says what the other columns mean. A list holds the settings that the same structs
 * have. */
#pragma once

#define SETTING_INT_IN(low, high) .type = SETTING_INT, .min = (low), .max = (high)
#define SETTING_FLOAT_IN(low, high) .type = SETTING_FLOAT, .float_min = (low), .float_max = (high)
#define SETTING_INT_DEFAULT(value) .fallback = #value, .int_value = (value)
#define SETTING_FLOAT_DEFAULT(value) .fallback = #value, .float_value = (value)
#define SETTING_ONLY_WITH(other, value) .only_with = SETTING_##other + 1, .only_value = (value)
#define SETTING_STEPS_MAX 1000000000000
#define SETTING_SIZE_MAX 16777216
#define SETTING_RUN_VALUE "; resume: the run's value"

/* Recipe settings: fields of struct recipe and of struct plan_options. */
#define SETTING_LIST_RECIPE(X)                                                                                         \
    X(batch, "batch", "batch", SETTING_INT_IN(1, SETTING_SIZE_MAX), SETTING_INT_DEFAULT(8),                            \
      .rule = "a step needs at least one sequence", .commands = COMMANDS_STEP, .group = GROUP_TRAINING,                \
      .common = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_EVAL | COMMAND_GENERATE | COMMAND_PROFILE, .saved = true,       \
      .computed = "plan: 8, or 1 with --for generate",                                                                 \
      .help = "Global batch: sequences per step over all ranks; generate: Texts of --prompts at a time")               \
    X(sequence_length, "sequence_length", "seq", SETTING_INT_IN(1, SETTING_SIZE_MAX), SETTING_INT_DEFAULT(1024),       \
      .rule = "a sequence needs at least one token", .commands = COMMANDS_MODEL, .group = GROUP_TRAINING,              \
      .common = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_EVAL | COMMAND_CHAT | COMMAND_PROFILE, .saved = true,           \
      .computed = ", at most the model's context", .help = "Tokens per sequence",                                      \
      .details = "At most the model's context; the default shrinks to it.")                                            \
    X(dtype, "dtype", "dtype", .type = SETTING_CHOICE, .choices = "bf16|fp32",                                         \
      .hint = "use fp32, or bf16, which needs no loss scaling", .names = "none|fp64|fp32|bf16",                        \
      .commands = COMMANDS_MODEL | COMMAND_INIT, .group = GROUP_TRAINING,                                              \
      .common = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_EVAL | COMMAND_GENERATE | COMMAND_CHAT | COMMAND_PROFILE |      \
                COMMAND_INIT,                                                                                          \
      .saved = true, .computed = "bf16 if the hardware has it, else fp32; init: fp32",                                 \
      .help = "Data type of parameters and activations; init: Data type of the weights",                               \
      .details = "Accumulation is always fp32. bf16 is the default where the hardware has it: AVX512-BF16, AMX or a "  \
                 "GPU (see `ballast profile`).")                                                                       \
    X(document_attention, "document_attention", "document-attention", .type = SETTING_CHOICE,                          \
      .choices = "across|within", .fallback = "across", .commands = COMMANDS_STEP, .group = GROUP_TRAINING,            \
      .saved = true, .help = "Whether tokens attend to earlier documents in their sequence",                           \
      .details = "within: each document attends to itself, with positions from 0. Documents end at the model's "       \
                 "eos_token_id.")                                                                                      \
    X(packing, "packing", "packing", .type = SETTING_CHOICE, .choices = "on|off", .automatic = "auto",                 \
      .names = "off|on|rows-held", .names_in_files = true, .later = true,                                              \
      .commands = COMMAND_PLAN | COMMAND_TRAIN | COMMAND_RESUME | COMMAND_EVAL | COMMAND_PROFILE,                      \
      .group = GROUP_TRAINING, .saved = true, .computed = "on where the data hold supervised examples",                \
      .help = "Pack several supervised examples into a sequence",                                                      \
      .details = "Each example attends to itself alone, at positions from 0, so packing does not change losses. off: " \
                 "one example per sequence. Packing is off in `plan` and `profile`, which read no data.")              \
    X(loss, "loss", "loss", .type = SETTING_CHOICE, .choices = "next-token|dpo", .fallback = "next-token",             \
      .later = true, .commands = COMMAND_PLAN | COMMAND_TRAIN | COMMAND_EVAL | COMMAND_PROFILE,                        \
      .group = GROUP_TRAINING, .common = COMMAND_TRAIN | COMMAND_PLAN, .saved = true,                                  \
      .help = "Training objective: next-token cross-entropy, or DPO on preference pairs",                              \
      .details = "Preference pairs are lines of .jsonl with prompt, chosen and rejected. A pair takes two of the "     \
                 "--batch sequences.")                                                                                 \
    X(dpo_beta, "dpo_beta", "dpo-beta", SETTING_FLOAT_IN(1e-6, 1000), SETTING_FLOAT_DEFAULT(0.1),                      \
      SETTING_ONLY_WITH(loss, TRAINING_DPO), .rule = "what a log-probability counts",                                  \
      .commands = COMMAND_PLAN | COMMAND_TRAIN | COMMAND_EVAL | COMMAND_PROFILE, .group = GROUP_PREFERENCES,           \
      .saved = true, .help = "DPO temperature (beta)",                                                                 \
      .details = "Smaller values allow more divergence from the reference model.")                                     \
    X(dpo_loss, "dpo_loss", "dpo-loss", .type = SETTING_CHOICE, .choices = "sigmoid|hinge|ipo|robust",                 \
      .fallback = "sigmoid", SETTING_ONLY_WITH(loss, TRAINING_DPO), .later = true,                                     \
      .commands = COMMAND_PLAN | COMMAND_TRAIN | COMMAND_EVAL | COMMAND_PROFILE, .group = GROUP_PREFERENCES,           \
      .saved = true, .help = "DPO loss of a pair's margin",                                                            \
      .details = "sigmoid: -log sigmoid. hinge: hinge at 1. ipo: squared error to 1 / (2 beta), per token. robust: "   \
                 "sigmoid corrected for --dpo-label-smoothing.")                                                       \
    X(dpo_label_smoothing, "dpo_label_smoothing", "dpo-label-smoothing", SETTING_FLOAT_IN(0, 0.49),                    \
      SETTING_FLOAT_DEFAULT(0), SETTING_ONLY_WITH(loss, TRAINING_DPO), .later = true,                                  \
      .rule = "the part of the pairs that is the other way round",                                                     \
      .commands = COMMAND_PLAN | COMMAND_TRAIN | COMMAND_EVAL | COMMAND_PROFILE, .group = GROUP_PREFERENCES,           \
      .saved = true, .help = "Assumed fraction of pairs with swapped labels (--dpo-loss sigmoid, robust)")             \
    X(micro_batch_sequences, "micro_batch", "micro-batch", SETTING_INT_IN(1, SETTING_SIZE_MAX),                        \
      .rule = "a micro-batch holds whole sequences and at most the batch", .commands = COMMANDS_STEP,                  \
      .group = GROUP_TRAINING, .saved = true, .computed = "enough sequences for 1024 tokens, or more on a GPU",        \
      .help = "Sequences that kernels process at once; --batch is the global batch",                                   \
      .details =                                                                                                       \
          "The default is the fewest sequences that hold 1024 tokens (on a GPU 4096 to 32768, by model and GPU). In "  \
          "training it is at most a lane's share, and doubles while a pipeline needs too many sends and collectives.") \
    X(lanes, "lanes", "lanes", .type = SETTING_LANES, .later = true, .argument = "N|NODESxN",                          \
      .commands = COMMANDS_STEP, .group = GROUP_RANKS, .saved = true, .computed = "the number of data-parallel ranks", \
      .help = "Logical data-parallel ranks, which fix the order in which gradients are summed",                        \
      .details = "Each lane adds up the gradients of its micro-batches, and a binary tree adds the lanes. Any number " \
                 "of ranks that holds whole subtrees gives the same bits: 1, 2, 4 or 8 ranks for 8 lanes.")            \
    X(round_micro_batches, "round_micro_batches", "round", SETTING_INT_IN(0, SETTING_SIZE_MAX),                        \
      SETTING_INT_DEFAULT(0), .later = true, .rule = "0 for all micro-batches of a lane", .commands = COMMANDS_STEP,   \
      .group = GROUP_RANKS, .saved = true,                                                                             \
      .help = "Micro-batches that a lane accumulates before lanes are summed; 0: all of them")                         \
    X(reduce_dtype, "reduce_dtype", "reduce-dtype", .type = SETTING_CHOICE, .choices = "fp32|bf16",                    \
      .fallback = "fp32", .names = "none|fp64|fp32|bf16", .later = true, .commands = COMMANDS_STEP,                    \
      .group = GROUP_RANKS, .saved = true, .help = "Data type in which ranks send gradients",                          \
      .details = "bf16 halves the bytes and rounds each lane's gradients before they are summed.")                     \
    X(tensor_parallel, "tensor_parallel", "tensor-parallel", SETTING_INT_IN(1, 4096), .automatic = "auto",             \
      SETTING_INT_DEFAULT(1), .later = true, .rule = "at least one rank", .argument = "N|auto",                        \
      .commands = COMMANDS_STEP, .group = GROUP_RANKS, .common = COMMAND_TRAIN | COMMAND_PLAN, .saved = true,          \
      .help = "Split large matrices across N ranks; auto: the fastest N",                                              \
      .details = "Splits heads, features and vocabulary, so that each rank holds a part of the weights. N divides "    \
                 "--ranks, heads and features. auto chooses N when the run begins.")                                   \
    X(sequence_parallel, "sequence_parallel", "sequence-parallel", .type = SETTING_CHOICE, .choices = "on|off",        \
      .fallback = "off", .names = "off|on", .later = true, .argument = "[on|off]", .bare = "on",                       \
      .commands = COMMANDS_STEP, .group = GROUP_RANKS, .saved = true,                                                  \
      .help = "Shard activations along the sequence between matrix multiplications",                                   \
      .details = "Requires --tensor-parallel N, where N divides --seq. Saves memory and sends the same bytes.")        \
    X(layout, "layout", "layout", .type = SETTING_CHOICE, .choices = "megatron|solver", .fallback = "megatron",        \
      .later = true, .commands = COMMANDS_STEP, .group = GROUP_RANKS, .saved = true,                                   \
      .help = "How --tensor-parallel splits tensors: as Megatron-LM does, or by the solver",                           \
      .details = "solver chooses the cheapest strategy of each operator at the machine's rates.")                      \
    X(seed, "seed", "seed", SETTING_INT_IN(0, INT64_MAX), SETTING_INT_DEFAULT(1), .rule = "a seed is not negative",    \
      .commands = COMMANDS_MODEL | COMMAND_INIT, .group = GROUP_TRAINING,                                              \
      .common = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_GENERATE | COMMAND_CHAT | COMMAND_INIT, .saved = true,          \
      .help = "Random seed for initialization, data order and sampling")                                               \
    X(optimizer, "optimizer", "optimizer", .type = SETTING_CHOICE, .choices = "adamw|lion|sgd|muon",                   \
      .fallback = "adamw", .later = true, .argument = "NAME",                                                          \
      .commands = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE, .group = GROUP_TRAINING,                             \
      .common = COMMAND_TRAIN | COMMAND_PLAN, .saved = true,                                                           \
      .help = "Optimizer: adamw, lion, sgd (with momentum) or muon",                                                   \
      .details = "lion needs about a tenth of AdamW's --lr. muon updates the matrices of layers; adamw updates all "   \
                 "other weights with the same --lr.")                                                                  \
    X(muon_momentum, "muon_momentum", "muon-momentum", SETTING_FLOAT_IN(0, 0.999999), SETTING_FLOAT_DEFAULT(0.95),     \
      SETTING_ONLY_WITH(optimizer, UPDATE_MUON), .rule = "a decaying average's share is below 1",                      \
      .commands = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE, .group = GROUP_TRAINING, .saved = true,              \
      .help = "Momentum of muon")                                                                                      \
    X(optimizer_dtype, "optimizer_dtype", "optimizer-dtype", .type = SETTING_CHOICE, .choices = "fp32|bf16|int8",      \
      .fallback = "fp32", .later = true, .commands = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE,                   \
      .group = GROUP_MEMORY, .saved = true, .help = "Data type of the optimizer's moments",                            \
      .details = "bf16 takes half of the bytes, with stochastic rounding. int8 takes a quarter, with a scale for "     \
                 "each 256 values, as in bitsandbytes.")                                                               \
    X(master_weights, "master_weights", "master-weights", .type = SETTING_CHOICE, .choices = "fp32|split|none",        \
      .fallback = "fp32", .later = true, .commands = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE,                   \
      .group = GROUP_MEMORY, .saved = true,                                                                            \
      .help = "Master weights of bf16 weights: fp32, split (half of the bytes) or none",                               \
      .details =                                                                                                       \
          "split stores the 16 bits of fp32 that bf16 lacks. none updates the bf16 weights with stochastic rounding.") \
    X(quantize_base, "quantize_base", "quantize-base", .type = SETTING_CHOICE, .choices = "none|nf4|int8|mxfp4",       \
      .fallback = "none", .names = "none|nf4|nf4-fp32|int8|mxfp4|w4a16|w4a16-asym|w8a16|w8a16-asym",                   \
      .names_in_files = true, .later = true,                                                                           \
      .commands = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE | COMMAND_INIT, .group = GROUP_ADAPTERS,              \
      .common = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_INIT, .saved = true,                                            \
      .help = "Quantized format of the base model's matrices under --lora",                                            \
      .details = "Applies to linear layers and experts. nf4: 4 bits, double quantization as in bitsandbytes. int8: a " \
                 "scale per row. mxfp4: 4 bits, blocks of 32. none: --dtype.")

/* Selection of trained weights: texts in struct recipe, made from those of struct plan_options. */
#define SETTING_LIST_TRAINED(X)                                                                                        \
    X(lora, "lora", "lora", .type = SETTING_TEXT, .later = true, .argument = "RANK,ALPHA,TARGETS",                     \
      .commands = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE, .group = GROUP_ADAPTERS,                             \
      .common = COMMAND_TRAIN | COMMAND_PLAN, .saved = true, .computed = "none, or the model's own adapter",           \
      .help = "Train LoRA adapters and freeze all other weights: 8,16,all-linear",                                     \
      .details = "RANK, ALPHA and the names of linear layers (8,16,q_proj,v_proj) or all-linear. The run writes "      \
                 "adapters in peft's format.")                                                                         \
    X(freeze, "freeze", "freeze", .type = SETTING_TEXTS, .later = true, .argument = "PATTERN",                         \
      .commands = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE, .group = GROUP_ADAPTERS, .saved = true,              \
      .computed = "nothing", .help = "Glob pattern (*, ?, [...]) of weight names not to train; repeatable")

/* Optimizer settings: fields of struct recipe and of struct train_options. A moving average's decay is below 1. Epsilon
 * is added in fp32, whose smallest normal number is 1.2e-38. */
#define SETTING_LIST_OPTIMIZER(X)                                                                                      \
    X(beta1, "beta1", "beta1", SETTING_FLOAT_IN(0, 0.999999), SETTING_FLOAT_DEFAULT(0.9),                              \
      .rule = "a decaying average's share is below 1", .commands = COMMAND_TRAIN | COMMAND_PLAN,                       \
      .group = GROUP_TRAINING, .help = "Decay of the first moment; sgd: momentum")                                     \
    X(beta2, "beta2", "beta2", SETTING_FLOAT_IN(0, 0.999999), SETTING_FLOAT_DEFAULT(0.95),                             \
      .rule = "a decaying average's share is below 1", .commands = COMMAND_TRAIN | COMMAND_PLAN,                       \
      .group = GROUP_TRAINING, .help = "Decay of the second moment (adamw), or of the moment (lion: default 0.99)")    \
    X(epsilon, "epsilon", "epsilon", SETTING_FLOAT_IN(1e-30, 1), SETTING_FLOAT_DEFAULT(1e-8),                          \
      .rule = "what keeps divisors from 0 is above 0, in fp32 too, and at most 1",                                     \
      .commands = COMMAND_TRAIN | COMMAND_PLAN, .group = GROUP_TRAINING,                                               \
      .help = "Term that adamw adds to the denominator")                                                               \
    X(weight_decay, "weight_decay", "weight-decay", SETTING_FLOAT_IN(0, 1000), SETTING_FLOAT_DEFAULT(0.1),             \
      .rule = "0 for none, and at most 1000", .commands = COMMAND_TRAIN | COMMAND_PLAN, .group = GROUP_TRAINING,       \
      .help = "Weight decay of matrices and embeddings", .details = "Biases and norm weights do not decay.")           \
    X(clip_norm, "clip_norm", "clip-norm", SETTING_FLOAT_IN(0, 1e9), SETTING_FLOAT_DEFAULT(1),                         \
      .rule = "0 for none, and at most 1e9", .commands = COMMAND_TRAIN | COMMAND_PLAN, .group = GROUP_TRAINING,        \
      .help = "Limit of the global gradient norm; 0: no clipping")

/* Never change a result: fields of struct plan_options. */
#define SETTING_LIST_POLICY(X)                                                                                         \
    X(micro_batches_per_wave, "micro_batches_per_wave", "micro-batches-per-wave", SETTING_INT_IN(1, SETTING_SIZE_MAX), \
      SETTING_INT_DEFAULT(1), .commands = COMMANDS_STEP, .group = GROUP_MEMORY, .saved = true,                         \
      .help = "Micro-batches that go through forward and backward as one group")                                       \
    X(pipeline_parallel, "pipeline_parallel", "pipeline-parallel", SETTING_INT_IN(1, 4096), .automatic = "auto",       \
      SETTING_INT_DEFAULT(1), .argument = "N|auto", .commands = COMMANDS_STEP, .group = GROUP_RANKS,                   \
      .common = COMMAND_PLAN, .saved = true, .help = "Split the layers across N pipeline stages; auto: the fastest N", \
      .details = "Each stage has its own ranks. N divides --ranks. See docs/clusters.md.")                             \
    X(virtual_stages, "virtual_stages", "virtual-stages", SETTING_INT_IN(1, 64), .commands = COMMANDS_STEP,            \
      .group = GROUP_RANKS, .saved = true, .computed = "the fastest", .help = "Virtual pipeline stages per rank",      \
      .details = "More of them make the pipeline's bubble smaller and send more.")                                     \
    X(partition, "partition", "partition", .type = SETTING_TEXT, .argument = "P", .commands = COMMANDS_STEP,           \
      .group = GROUP_RANKS, .common = COMMAND_PLAN, .saved = true, .computed = "the fastest that fits",                \
      .help = "Partition of parameters, gradients and optimizer states: zero3, 8|8|32",                                \
      .details = "ddp, zero1, zero2, zero3, mics:N, hpz, hybrid:N, or the number of shards of each as p|g|os: "        \
                 "8|8|32, or 8x1|8x1|8x4 (ranks of a node x nodes). See docs/clusters.md.")                            \
    X(collectives, "collectives", "collectives", .type = SETTING_CHOICE, .choices = "hierarchical|flat",               \
      .commands = COMMANDS_STEP, .group = GROUP_RANKS, .saved = true, .computed = "the faster",                        \
      .help = "Run collectives within each node first, or from each rank to every other")                              \
    X(threads, "threads", "threads", SETTING_INT_IN(1, 4096), .rule = "at least one compute thread",                   \
      .commands = COMMANDS_MODEL, .group = GROUP_MEMORY,                                                               \
      .common = COMMAND_EVAL | COMMAND_GENERATE | COMMAND_CHAT | COMMAND_PROFILE, .saved = true,                       \
      .computed = "the physical cores available", .help = "Compute threads per rank",                                  \
      .details =                                                                                                       \
          "The default is the physical cores that the process may use, divided among the ranks that share them.")      \
    X(plan_path, "plan_path", "plan", .type = SETTING_TEXT, .argument = "FILE",                                        \
      .commands = COMMAND_TRAIN | COMMAND_EVAL | COMMANDS_TEXT, .group = GROUP_OUTPUT, .common = COMMAND_TRAIN,        \
      .help = "Plan file of `ballast plan -o`, whose options the command line may not change")                         \
    X(cluster_path, "cluster_path", "cluster", .type = SETTING_TEXT, .argument = "FILE",                               \
      .commands = COMMANDS_MODEL | COMMAND_SIMULATE | COMMAND_REPORT, .computed = "measured here",                     \
      .group = GROUP_CLUSTER, .common = COMMAND_PLAN | COMMAND_SIMULATE | COMMAND_REPORT,                              \
      .help = "Cluster file (`ballast profile -o`) or preset (h100x8) to use instead of measuring",                    \
      .details = "`plan` also takes the device from it, where that is not in this machine. Presets are the files of "  \
                 "clusters/.")

/* The device and the tiers, which struct plan_options holds in other forms than text and numbers. */
#define SETTING_LIST_MACHINE(X)                                                                                        \
    X(backend, "backend", "device", .type = SETTING_TEXT, .argument = "cpu|cuda[:N]", .commands = COMMANDS_MODEL,      \
      .group = GROUP_MEMORY,                                                                                           \
      .common = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_EVAL | COMMAND_GENERATE | COMMAND_CHAT | COMMAND_PROFILE,       \
      .saved = true, .computed = "cuda if this build can use a GPU, else cpu",                                         \
      .help = "Compute device: the CPU, or GPU number N",                                                              \
      .details = "Results differ between devices, so a run keeps its device.")                                         \
    X(gpu_collectives, "gpu_collectives", "gpu-collectives", .type = SETTING_CHOICE, .choices = "auto|nccl|host",      \
      .fallback = "auto", .commands = COMMANDS_RANKS, .group = GROUP_RANKS,                                            \
      .help = "Path of collectives between GPUs: NCCL, or through host memory",                                        \
      .details = "auto: NCCL where it is installed and each rank has its own GPU.")                                    \
    X(device_bytes, "device_bytes", "device-memory", .type = SETTING_SIZE, .commands = COMMANDS_MODEL,                 \
      .group = GROUP_MEMORY,                                                                                           \
      .common = COMMAND_TRAIN | COMMAND_RESUME | COMMAND_PLAN | COMMAND_EVAL | COMMAND_GENERATE | COMMAND_CHAT,        \
      .computed = "what is available, less a reserve", .help = "Limit on device memory",                               \
      .details = "On a CPU, the default is the memory available to the process (within its cgroup), less 64 MiB per "  \
                 "process and 5%. On a GPU it is the free memory, less 384 MiB.")                                      \
    X(host_bytes, "host_bytes", "host-memory", .type = SETTING_SIZE, .commands = COMMANDS_MODEL,                       \
      .group = GROUP_MEMORY, .common = COMMAND_TRAIN | COMMAND_RESUME | COMMAND_PLAN,                                  \
      .computed = "what is available, less a reserve; none on a CPU",                                                  \
      .help = "Limit on host memory, which holds what does not fit on a GPU",                                          \
      .details = "With a GPU, the default is the memory available to the process, less 64 MiB and 5%. On a CPU, main " \
                 "memory is the device tier, and the host tier is empty.")                                             \
    X(disk_folder, "disk_folder", "disk", .type = SETTING_TEXT, .argument = "DIR[:SIZE]",                              \
      .commands = COMMANDS_MODEL | COMMAND_SIMULATE | COMMAND_REPORT, .group = GROUP_MEMORY,                           \
      .common = COMMAND_TRAIN | COMMAND_RESUME | COMMAND_PLAN | COMMAND_SIMULATE | COMMAND_REPORT, .saved = true,      \
      .computed = "none; simulate: the run's",                                                                         \
      .help = "Directory and size of the disk tier, which holds what does not fit in memory",                          \
      .details = "SIZE defaults to the free space, less 5%.")                                                          \
    X(disk_bytes, "disk_bytes", "disk", .type = SETTING_SIZE)

/* Settings of a training run that `resume` may change: fields of struct train_options. */
#define SETTING_LIST_RUN(X)                                                                                            \
    X(steps, "steps", "steps", SETTING_INT_IN(1, SETTING_STEPS_MAX), SETTING_INT_DEFAULT(1000),                        \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .group = GROUP_TRAINING, .common = COMMAND_TRAIN | COMMAND_RESUME,   \
      .saved = true, .help = "Optimizer steps of the whole run, including the steps already done")                     \
    X(epochs, "epochs", "epochs", SETTING_FLOAT_IN(0, 1e6), .above = true, .later = true,                              \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .excludes = "steps", .group = GROUP_TRAINING,                        \
      .common = COMMAND_TRAIN | COMMAND_RESUME, .saved = true, .computed = "--steps",                                  \
      .help = "Passes over the training data, instead of --steps; may be fractional")                                  \
    X(learning_rate, "learning_rate", "lr", SETTING_FLOAT_IN(0, 1000), .above = true, SETTING_FLOAT_DEFAULT(3e-4),     \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .group = GROUP_TRAINING, .common = COMMAND_TRAIN | COMMAND_RESUME,   \
      .saved = true, .help = "Peak learning rate",                                                                     \
      .details = "In `resume`, scales all later rates; the schedule keeps its steps.")                                 \
    X(schedule, "schedule", "schedule", .type = SETTING_CHOICE, .choices = "cosine|linear|constant|wsd",               \
      .fallback = "cosine", .argument = "NAME", .commands = COMMAND_TRAIN | COMMAND_RESUME, .group = GROUP_TRAINING,   \
      .saved = true, .help = "Learning rate after warm-up: cosine, linear, constant or wsd",                           \
      .details = "wsd: constant, then linear decay.")                                                                  \
    X(schedule_steps, "schedule_steps", "schedule-steps", SETTING_INT_IN(1, SETTING_STEPS_MAX),                        \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .group = GROUP_TRAINING, .saved = true, .computed = "--steps",       \
      .help = "Step at which the schedule ends")                                                                       \
    X(warmup_steps, "warmup_steps", "warmup-steps", SETTING_INT_IN(0, SETTING_STEPS_MAX),                              \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .group = GROUP_TRAINING, .common = COMMAND_TRAIN, .saved = true,     \
      .computed = "a tenth of the schedule, at most 100",                                                              \
      .help = "Steps of linear warm-up, from the first step of the run")                                               \
    X(min_lr_fraction, "min_lr_fraction", "min-lr-fraction", SETTING_FLOAT_IN(0, 1), SETTING_FLOAT_DEFAULT(0.1),       \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .group = GROUP_TRAINING, .saved = true,                              \
      .help = "Final learning rate of the schedule, as a fraction of --lr")                                            \
    X(wsd_decay_fraction, "wsd_decay_fraction", "wsd-decay-fraction", SETTING_FLOAT_IN(0, 1), .above = true,           \
      SETTING_FLOAT_DEFAULT(0.2), .commands = COMMAND_TRAIN | COMMAND_RESUME, .group = GROUP_TRAINING, .saved = true,  \
      .help = "Fraction of the schedule in which wsd decays")                                                          \
    X(save_every, "save_every", "save-every", SETTING_INT_IN(0, SETTING_STEPS_MAX), SETTING_INT_DEFAULT(100),          \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .same_bits = true, .group = GROUP_OUTPUT,                            \
      .common = COMMAND_TRAIN | COMMAND_RESUME, .saved = true,                                                         \
      .help = "Steps between checkpoints; 0: none, and the run cannot be resumed",                                     \
      .details = "A run also writes a checkpoint at its end and on a signal.")                                         \
    X(keep, "keep", "keep", SETTING_INT_IN(0, 1000000), SETTING_INT_DEFAULT(2),                                        \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .same_bits = true, .group = GROUP_OUTPUT, .saved = true,             \
      .help = "Number of newest checkpoints to keep; 0: all")                                                          \
    X(replan, "replan", "replan", .type = SETTING_CHOICE, .choices = "auto|off", .fallback = "auto",                   \
      .names = "off|auto", .flag_in_files = true, .later = true, .commands = COMMAND_TRAIN | COMMAND_RESUME,           \
      .same_bits = true, .group = GROUP_MEMORY, .saved = true,                                                         \
      .help = "Switch to a faster policy while training, or when available memory changes",                            \
      .details = "auto: measures instructions while training and switches to a policy that is more than 5% faster. "   \
                 "Off with --plan, and for several ranks with GPUs.")                                                  \
    X(valid_every, "valid_every", "valid-every", SETTING_INT_IN(0, SETTING_STEPS_MAX), SETTING_INT_DEFAULT(100),       \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .same_bits = true, .group = GROUP_DATA, .common = COMMAND_RESUME,    \
      .saved = true, .help = "Steps between validations; 0: never")                                                    \
    X(valid_batches, "valid_batches", "valid-batches", SETTING_INT_IN(0, SETTING_STEPS_MAX), SETTING_INT_DEFAULT(0),   \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .same_bits = true, .group = GROUP_DATA, .saved = true,               \
      .help = "Maximum batches per validation; 0: all")                                                                \
    X(sample_every, "sample_every", "sample-every", SETTING_INT_IN(0, SETTING_STEPS_MAX), SETTING_INT_DEFAULT(0),      \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .same_bits = true, .group = GROUP_OUTPUT, .saved = true,             \
      .help = "Steps between generated samples (samples.jsonl); 0: never")                                             \
    X(sample_tokens, "sample_tokens", "sample-tokens", SETTING_INT_IN(1, SETTING_SIZE_MAX), SETTING_INT_DEFAULT(64),   \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .same_bits = true, .group = GROUP_OUTPUT, .saved = true,             \
      .help = "Maximum tokens per sample")

/* Settings of a training run that its data fixes: fields of struct train_options. chat_time_s is a date on the command
 * line, and seconds since 1970 elsewhere. */
#define SETTING_LIST_DATA(X)                                                                                           \
    X(valid_fraction, "valid_fraction", "valid-fraction", SETTING_FLOAT_IN(0, 0.9), SETTING_FLOAT_DEFAULT(0),          \
      .commands = COMMAND_TRAIN, .group = GROUP_DATA, .common = COMMAND_TRAIN,                                         \
      .help = "Fraction of the training data held out, if there is no other validation data")                          \
    X(sample_prompt, "sample_prompt", "sample-prompt", .type = SETTING_TEXT, .may_be_empty = true, .argument = "TEXT", \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .group = GROUP_OUTPUT, .saved = true,                                \
      .computed = "the end-of-text token", .help = "Prompt of samples")                                                \
    X(columns, "columns", "columns", .type = SETTING_TEXT, .later = true, .argument = "FIELD=KEY,...",                 \
      .commands = COMMAND_TRAIN | COMMAND_EVAL, .computed = "the fields' own names", .group = GROUP_DATA,              \
      .help = "Keys of .jsonl fields, as in prompt=question,completion=answer")                                        \
    X(chat_time_s, "chat_time_s", "chat-date", .type = SETTING_DATE, .min = 1, .max = (int64_t)1 << 40,                \
      .argument = "YYYY-MM-DD", .commands = COMMANDS_TEXT | COMMAND_TRAIN | COMMAND_EVAL, .computed = "today, in UTC", \
      .group = GROUP_DATA, .help = "Date for chat templates that ask for it; a run keeps it")

/* Likewise, in other forms in include/ballast.h. */
#define SETTING_LIST_EXAMPLES(X)                                                                                       \
    X(valid_paths, "valid_paths", "valid", .type = SETTING_TEXTS, .argument = "PATH", .commands = COMMAND_TRAIN,       \
      .group = GROUP_DATA, .common = COMMAND_TRAIN,                                                                    \
      .help = "Validation data, in addition to the valid.* of directories; repeatable")                                \
    X(loss_on_all, "loss_on_all", "loss-on", .type = SETTING_CHOICE, .choices = "completions|all",                     \
      .fallback = "completions", .flag_in_files = true, .commands = COMMAND_TRAIN | COMMAND_EVAL, .group = GROUP_DATA, \
      .help = "Tokens of supervised examples that count in the loss")

/* Settings for generating text: fields of struct generate_options. generation_config.json has the same ranges. */
#define SETTING_LIST_TEXT(X)                                                                                           \
    X(tokens, "tokens", "tokens", SETTING_INT_IN(1, 100000000), SETTING_INT_DEFAULT(100), .commands = COMMANDS_TEXT,   \
      .group = GROUP_GENERATION, .common = COMMAND_GENERATE | COMMAND_CHAT,                                            \
      .computed = ", for answers the rest of the cache", .help = "Maximum new tokens",                                 \
      .details = "Answers may use the whole cache of --seq tokens by default.")                                        \
    X(temperature, "temperature", "temperature", SETTING_FLOAT_IN(0, 100), SETTING_FLOAT_DEFAULT(0.8),                 \
      .commands = COMMANDS_TEXT, .group = GROUP_GENERATION, .common = COMMAND_GENERATE | COMMAND_CHAT,                 \
      .computed = ", or the value in generation_config.json", .help = "Sampling temperature; 0: greedy decoding",      \
      .details = "0 if generation_config.json has do_sample false.")                                                   \
    X(top_k, "top_k", "top-k", SETTING_INT_IN(0, SETTING_STEPS_MAX), SETTING_INT_DEFAULT(0),                           \
      .commands = COMMANDS_TEXT, .computed = ", or the value in generation_config.json", .group = GROUP_GENERATION,    \
      .common = COMMAND_GENERATE | COMMAND_CHAT, .help = "Sample from the k most likely tokens; 0: all")               \
    X(top_p, "top_p", "top-p", SETTING_FLOAT_IN(0, 1), .above = true, SETTING_FLOAT_DEFAULT(1),                        \
      .commands = COMMANDS_TEXT, .computed = ", or the value in generation_config.json", .group = GROUP_GENERATION,    \
      .common = COMMAND_GENERATE | COMMAND_CHAT,                                                                       \
      .help = "Sample from the fewest most likely tokens with this total probability")                                 \
    X(repetition_penalty, "repetition_penalty", "repetition-penalty", SETTING_FLOAT_IN(0.001, 1000),                   \
      SETTING_FLOAT_DEFAULT(1), .commands = COMMANDS_TEXT, .computed = ", or the value in generation_config.json",     \
      .group = GROUP_GENERATION, .help = "Penalty for tokens already in the text; above 1 makes them less likely",     \
      .details = "Divides positive logits and multiplies negative ones.")

#define SETTING_LIST(X)                                                                                                \
    SETTING_LIST_RECIPE(X)                                                                                             \
    SETTING_LIST_TRAINED(X)                                                                                            \
    SETTING_LIST_OPTIMIZER(X)                                                                                          \
    SETTING_LIST_POLICY(X)                                                                                             \
    SETTING_LIST_MACHINE(X)                                                                                            \
    SETTING_LIST_RUN(X)                                                                                                \
    SETTING_LIST_DATA(X)                                                                                               \
    SETTING_LIST_EXAMPLES(X)                                                                                           \
    SETTING_LIST_TEXT(X)
