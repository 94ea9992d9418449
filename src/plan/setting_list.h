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

/* Of the recipe: fields of struct recipe and of struct plan_options. */
#define SETTING_LIST_RECIPE(X)                                                                                         \
    X(batch, "batch", "batch", SETTING_INT_IN(1, SETTING_SIZE_MAX), SETTING_INT_DEFAULT(8),                            \
      .rule = "a step needs at least one sequence", .commands = COMMANDS_STEP,                                         \
      .computed = ", or the value in the plan file or run; plan: 8, or 1 with --for generate",                         \
      .help = "global batch: sequences per step over all ranks; generate: texts of --prompts at a time")               \
    X(sequence_length, "sequence_length", "seq", SETTING_INT_IN(1, SETTING_SIZE_MAX), SETTING_INT_DEFAULT(1024),       \
      .rule = "a sequence needs at least one token", .commands = COMMANDS_MODEL,                                       \
      .computed = ", at most the model's context, or the value in the plan file or run",                               \
      .help = "tokens per sequence")                                                                                   \
    X(dtype, "dtype", "dtype", .type = SETTING_CHOICE, .choices = "bf16|fp32",                                         \
      .hint = "use bf16, which needs no loss scaling", .names = "none|fp64|fp32|bf16",                                 \
      .commands = COMMANDS_MODEL | COMMAND_INIT,                                                                       \
      .computed = "bf16 if the hardware has it (AVX512-BF16, AMX or a GPU, see `ballast profile`), else fp32; or the " \
                  "value in the plan file or run; init: fp32",                                                         \
      .help = "data type of parameters and activations. Accumulation is always fp32; init: data type of the weights")  \
    X(document_attention, "document_attention", "document-attention", .type = SETTING_CHOICE,                          \
      .choices = "across|within", .fallback = "across", .commands = COMMANDS_STEP,                                     \
      .computed = ", or the value in the plan file or run",                                                            \
      .help = "across: tokens attend to earlier documents in their sequence. within: each document attends to "        \
              "itself, with positions from 0. Documents end at the model's eos_token_id")                              \
    X(packing, "packing", "packing", .type = SETTING_CHOICE, .choices = "on|off", .automatic = "auto",                 \
      .names = "off|on|rows-held", .names_in_files = true, .later = true,                                              \
      .commands = COMMAND_PLAN | COMMAND_TRAIN | COMMAND_RESUME | COMMAND_EVAL | COMMAND_PROFILE,                      \
      .computed =                                                                                                      \
          "on where the data hold supervised examples; off in plan and profile; or the value in the plan file or run", \
      .help = "pack several supervised examples into a sequence. Each attends to itself alone, at positions from 0, "  \
              "so losses stay the same. off: one example per sequence. Part of the recipe")                            \
    X(loss, "loss", "loss", .type = SETTING_CHOICE, .choices = "next-token|dpo", .fallback = "next-token",             \
      .later = true, .commands = COMMAND_PLAN | COMMAND_TRAIN | COMMAND_EVAL | COMMAND_PROFILE,                        \
      .computed = ", or the value in the plan file",                                                                   \
      .help = "training objective: next-token cross-entropy, or DPO on preference pairs (.jsonl with prompt, chosen "  \
              "and rejected). A pair takes two of the --batch sequences. Part of the recipe")                          \
    X(dpo_beta, "dpo_beta", "dpo-beta", SETTING_FLOAT_IN(1e-6, 1000), SETTING_FLOAT_DEFAULT(0.1),                      \
      SETTING_ONLY_WITH(loss, TRAINING_DPO), .rule = "what a log-probability counts",                                  \
      .commands = COMMAND_PLAN | COMMAND_TRAIN | COMMAND_EVAL | COMMAND_PROFILE,                                       \
      .computed = ", or the value in the plan file",                                                                   \
      .help =                                                                                                          \
          "DPO temperature (beta). Smaller values allow more divergence from the reference model. Part of the recipe") \
    X(dpo_loss, "dpo_loss", "dpo-loss", .type = SETTING_CHOICE, .choices = "sigmoid|hinge|ipo|robust",                 \
      .fallback = "sigmoid", SETTING_ONLY_WITH(loss, TRAINING_DPO), .later = true,                                     \
      .commands = COMMAND_PLAN | COMMAND_TRAIN | COMMAND_EVAL | COMMAND_PROFILE,                                       \
      .computed = ", or the value in the plan file",                                                                   \
      .help = "DPO loss of a pair's margin. sigmoid: -log sigmoid. hinge: hinge at 1. ipo: squared error to 1 / (2 "   \
              "beta), per token. robust: sigmoid corrected for --dpo-label-smoothing. Part of the recipe")             \
    X(dpo_label_smoothing, "dpo_label_smoothing", "dpo-label-smoothing", SETTING_FLOAT_IN(0, 0.49),                    \
      SETTING_FLOAT_DEFAULT(0), SETTING_ONLY_WITH(loss, TRAINING_DPO), .later = true,                                  \
      .rule = "the part of the pairs that is the other way round",                                                     \
      .commands = COMMAND_PLAN | COMMAND_TRAIN | COMMAND_EVAL | COMMAND_PROFILE,                                       \
      .computed = ", or the value in the plan file",                                                                   \
      .help = "assumed fraction of pairs with swapped labels, for --dpo-loss sigmoid and robust. Part of the recipe")  \
    X(micro_batch_sequences, "micro_batch", "micro-batch", SETTING_INT_IN(1, SETTING_SIZE_MAX),                        \
      .rule = "a micro-batch holds whole sequences and at most the batch", .commands = COMMANDS_STEP,                  \
      .computed = "the fewest sequences that hold 1024 tokens (on a GPU 4096 to 32768, by model and GPU), in "         \
                  "training at most a lane's share, doubled while a pipeline needs too many sends and collectives",    \
      .help =                                                                                                          \
          "sequences per micro-batch, which kernels process at once; --batch is the global batch. Part of the recipe") \
    X(lanes, "lanes", "lanes", .type = SETTING_LANES, .later = true, .argument = "N|NODESxN",                          \
      .commands = COMMANDS_STEP,                                                                                       \
      .computed = "the number of data-parallel ranks; or the value in the plan file or run",                           \
      .help = "logical data-parallel ranks. Each lane adds up the gradients of its micro-batches, and a binary tree "  \
              "adds the lanes. Any number of ranks that holds whole subtrees gives the same bits: 1, 2, 4 or 8 ranks " \
              "for 8 lanes. Part of the recipe")                                                                       \
    X(round_micro_batches, "round_micro_batches", "round", SETTING_INT_IN(0, SETTING_SIZE_MAX),                        \
      SETTING_INT_DEFAULT(0), .later = true, .rule = "0 for all micro-batches of a lane", .commands = COMMANDS_STEP,   \
      .computed = ", or the value in the plan file or run",                                                            \
      .help = "micro-batches that each lane accumulates before gradients are summed over the lanes; 0: all of them. "  \
              "Part of the recipe")                                                                                    \
    X(reduce_dtype, "reduce_dtype", "reduce-dtype", .type = SETTING_CHOICE, .choices = "fp32|bf16",                    \
      .fallback = "fp32", .names = "none|fp64|fp32|bf16", .later = true, .commands = COMMANDS_STEP,                    \
      .computed = ", or the value in the plan file or run",                                                            \
      .help = "data type in which ranks send gradients. bf16 halves the bytes and rounds each lane's gradients "       \
              "before they are summed. Part of the recipe")                                                            \
    X(tensor_parallel, "tensor_parallel", "tensor-parallel", SETTING_INT_IN(1, 4096), .automatic = "auto",             \
      SETTING_INT_DEFAULT(1), .later = true, .rule = "at least one rank", .argument = "N|auto",                        \
      .commands = COMMANDS_STEP, .computed = ", or the value in the plan file or run",                                 \
      .help = "tensor parallelism: split heads, features and vocabulary across N ranks, so that each holds a part of " \
              "the weights. N divides --ranks, heads and features. auto: the fastest N, chosen when a run begins. "    \
              "Part of the recipe")                                                                                    \
    X(sequence_parallel, "sequence_parallel", "sequence-parallel", .type = SETTING_CHOICE, .choices = "on|off",        \
      .fallback = "off", .names = "off|on", .later = true, .argument = "[on|off]", .bare = "on",                       \
      .commands = COMMANDS_STEP, .computed = ", or the value in the plan file or run",                                 \
      .help =                                                                                                          \
          "sequence parallelism: with --tensor-parallel N, shard activations along the sequence dimension between "    \
          "matrix multiplications. N divides --seq. Saves memory and sends the same bytes. Part of the recipe")        \
    X(layout, "layout", "layout", .type = SETTING_CHOICE, .choices = "megatron|solver", .fallback = "megatron",        \
      .later = true, .commands = COMMANDS_STEP, .computed = ", or the value in the plan file or run",                  \
      .help = "how --tensor-parallel splits tensors: as Megatron-LM does, or by the cheapest strategies at the "       \
              "machine's rates. Part of the recipe")                                                                   \
    X(seed, "seed", "seed", SETTING_INT_IN(0, INT64_MAX), SETTING_INT_DEFAULT(1), .rule = "a seed is not negative",    \
      .commands = COMMANDS_MODEL | COMMAND_INIT, .computed = ", or the value in the plan file or run",                 \
      .help = "random seed for initialization, data order and sampling")                                               \
    X(optimizer, "optimizer", "optimizer", .type = SETTING_CHOICE, .choices = "adamw|lion|sgd|muon",                   \
      .fallback = "adamw", .later = true, .argument = "NAME",                                                          \
      .commands = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE, .computed = ", or the value in the plan file",       \
      .help = "optimizer: adamw, lion (use a tenth of AdamW's --lr), sgd (with momentum), or muon (matrices of "       \
              "layers; other weights use adamw with the same --lr). Part of the recipe")                               \
    X(muon_momentum, "muon_momentum", "muon-momentum", SETTING_FLOAT_IN(0, 0.999999), SETTING_FLOAT_DEFAULT(0.95),     \
      SETTING_ONLY_WITH(optimizer, UPDATE_MUON), .rule = "a decaying average's share is below 1",                      \
      .commands = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE, .computed = ", or the value in the plan file",       \
      .help = "muon: momentum of matrices. Part of the recipe")                                                        \
    X(optimizer_dtype, "optimizer_dtype", "optimizer-dtype", .type = SETTING_CHOICE, .choices = "fp32|bf16|int8",      \
      .fallback = "fp32", .later = true, .commands = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE,                   \
      .computed = ", or the value in the plan file",                                                                   \
      .help = "data type of the optimizer's moments. bf16 takes half of the bytes, with stochastic rounding; int8 "    \
              "takes a quarter, with a scale for each 256 values, as in bitsandbytes. Part of the recipe")             \
    X(master_weights, "master_weights", "master-weights", .type = SETTING_CHOICE, .choices = "fp32|split|none",        \
      .fallback = "fp32", .later = true, .commands = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE,                   \
      .computed = ", or the value in the plan file",                                                                   \
      .help = "master weights of bf16 weights: fp32; split: the 16 bits of fp32 that bf16 lacks, in half of the "      \
              "bytes; none: bf16 weights alone, with stochastic rounding. Part of the recipe")                         \
    X(quantize_base, "quantize_base", "quantize-base", .type = SETTING_CHOICE, .choices = "none|nf4|int8|mxfp4",       \
      .fallback = "none", .names = "none|nf4|nf4-fp32|int8|mxfp4|w4a16|w4a16-asym|w8a16|w8a16-asym",                   \
      .names_in_files = true, .later = true,                                                                           \
      .commands = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE | COMMAND_INIT,                                       \
      .computed = ", or the value in the plan file",                                                                   \
      .help = "quantized format of the matrices of linear layers and experts, for adapters (--lora): nf4 (4 bits, "    \
              "double quantization as in bitsandbytes), int8 (a scale per row), mxfp4 (4 bits, blocks of 32), none "   \
              "(--dtype). Part of the recipe")

/* Which weights are trained: texts in struct recipe, made from those of struct plan_options. */
#define SETTING_LIST_TRAINED(X)                                                                                        \
    X(lora, "lora", "lora", .type = SETTING_TEXT, .later = true, .argument = "RANK,ALPHA,TARGETS",                     \
      .commands = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE,                                                      \
      .computed = "none, or that of the model's adapter; or the value in the plan file",                               \
      .help = "train LoRA adapters on linear layers (8,16,q_proj,v_proj or 8,16,all-linear) and freeze all other "     \
              "weights. The run writes adapters in peft's format")                                                     \
    X(freeze, "freeze", "freeze", .type = SETTING_TEXTS, .later = true, .argument = "PATTERN",                         \
      .commands = COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE,                                                      \
      .computed = "nothing, or the value in the plan file",                                                            \
      .help = "glob pattern (*, ?, [...]) of weight names that are not trained; may be given several times")

/* Of the optimizer: fields of struct recipe and of struct train_options. A moving average's decay is below 1; epsilon
 * is added in fp32, whose smallest normal number is 1.2e-38. */
#define SETTING_LIST_OPTIMIZER(X)                                                                                      \
    X(beta1, "beta1", "beta1", SETTING_FLOAT_IN(0, 0.999999), SETTING_FLOAT_DEFAULT(0.9),                              \
      .rule = "a decaying average's share is below 1", .commands = COMMAND_TRAIN | COMMAND_PLAN,                       \
      .help = "decay of the first moment; sgd: momentum")                                                              \
    X(beta2, "beta2", "beta2", SETTING_FLOAT_IN(0, 0.999999), SETTING_FLOAT_DEFAULT(0.95),                             \
      .rule = "a decaying average's share is below 1", .commands = COMMAND_TRAIN | COMMAND_PLAN,                       \
      .help = "adamw: decay of the second moment. lion: decay of the moment (default 0.99)")                           \
    X(epsilon, "epsilon", "epsilon", SETTING_FLOAT_IN(1e-30, 1), SETTING_FLOAT_DEFAULT(1e-8),                          \
      .rule = "what keeps divisors from 0 is above 0, in fp32 too, and at most 1",                                     \
      .commands = COMMAND_TRAIN | COMMAND_PLAN, .help = "adamw: term added to the denominator")                        \
    X(weight_decay, "weight_decay", "weight-decay", SETTING_FLOAT_IN(0, 1000), SETTING_FLOAT_DEFAULT(0.1),             \
      .rule = "0 for none, and at most 1000", .commands = COMMAND_TRAIN | COMMAND_PLAN,                                \
      .help = "weight decay of matrices and embeddings; biases and norm weights do not decay")                         \
    X(clip_norm, "clip_norm", "clip-norm", SETTING_FLOAT_IN(0, 1e9), SETTING_FLOAT_DEFAULT(1),                         \
      .rule = "0 for none, and at most 1e9", .commands = COMMAND_TRAIN | COMMAND_PLAN,                                 \
      .help = "limit of the global gradient norm; 0: no clipping")

/* Never change a result: fields of struct plan_options. */
#define SETTING_LIST_POLICY(X)                                                                                         \
    X(micro_batches_per_wave, "micro_batches_per_wave", "micro-batches-per-wave", SETTING_INT_IN(1, SETTING_SIZE_MAX), \
      SETTING_INT_DEFAULT(1), .commands = COMMANDS_STEP, .computed = ", or the value in the plan file",                \
      .help = "micro-batches that go through forward and backward as one group. Never changes a result")               \
    X(pipeline_parallel, "pipeline_parallel", "pipeline-parallel", SETTING_INT_IN(1, 4096), .automatic = "auto",       \
      SETTING_INT_DEFAULT(1), .argument = "N|auto", .commands = COMMANDS_STEP,                                         \
      .computed = ", or the value in the plan file or run",                                                            \
      .help = "pipeline parallelism: N stages, each with a part of the layers on its own ranks. N divides --ranks. "   \
              "auto: the fastest N; never changes a result (docs/clusters.md)")                                        \
    X(virtual_stages, "virtual_stages", "virtual-stages", SETTING_INT_IN(1, 64), .commands = COMMANDS_STEP,            \
      .computed = "whichever makes the fastest step",                                                                  \
      .help = "virtual pipeline stages of each rank. More of them make the pipeline's bubble smaller and send more; "  \
              "never changes a result")                                                                                \
    X(partition, "partition", "partition", .type = SETTING_TEXT, .argument = "P", .commands = COMMANDS_STEP,           \
      .computed = "the fastest that fits, or the value in the plan file or run",                                       \
      .help = "number of shards of parameters, gradients and optimizer states: ddp, zero1, zero2, zero3, mics:N, "     \
              "hpz, hybrid:N, or p|g|os as in 8|8|32 or 8x1|8x1|8x4 (ranks of a node x nodes). Never changes a "       \
              "result (docs/clusters.md)")                                                                             \
    X(collectives, "collectives", "collectives", .type = SETTING_CHOICE, .choices = "hierarchical|flat",               \
      .commands = COMMANDS_STEP, .computed = "the faster, or the value in the plan file or run",                       \
      .help = "hierarchical: collectives run within each node, then across nodes. flat: each rank sends straight to "  \
              "every other; never changes a result")                                                                   \
    X(threads, "threads", "threads", SETTING_INT_IN(1, 4096), .rule = "at least one compute thread",                   \
      .commands = COMMANDS_MODEL,                                                                                      \
      .computed = "the physical cores that the process may use, divided among the ranks that share them; or the "      \
                  "value in the plan file or run",                                                                     \
      .help = "compute threads. Never changes a result")                                                               \
    X(plan_path, "plan_path", "plan", .type = SETTING_TEXT, .argument = "FILE",                                        \
      .commands = COMMAND_TRAIN | COMMAND_EVAL | COMMANDS_TEXT,                                                        \
      .help = "plan file of `ballast plan -o`. Plan options on the command line must agree with it")                   \
    X(cluster_path, "cluster_path", "cluster", .type = SETTING_TEXT, .argument = "FILE",                               \
      .commands = COMMANDS_MODEL | COMMAND_SIMULATE | COMMAND_REPORT, .computed = "measured here",                     \
      .help = "cluster file (`ballast profile -o`) whose rates replace measurements, or the name of a file of "        \
              "clusters/ (h100x8); plan: also takes the device from it, where it is not in this machine")

/* The device and the tiers, which struct plan_options holds in other forms than text and numbers. */
#define SETTING_LIST_MACHINE(X)                                                                                        \
    X(backend, "backend", "device", .type = SETTING_TEXT, .argument = "cpu|cuda[:N]", .commands = COMMANDS_MODEL,      \
      .computed = "cuda if there is a GPU that this build can use, else cpu; or the value in the plan file or run",    \
      .help = "compute device: the CPU, or GPU number N. Results differ between devices, so a run keeps its device")   \
    X(gpu_collectives, "gpu_collectives", "gpu-collectives", .type = SETTING_CHOICE, .choices = "auto|nccl|host",      \
      .fallback = "auto", .commands = COMMANDS_RANKS,                                                                  \
      .help = "how collectives of GPUs travel: from GPU to GPU by NCCL, or through the host's memory. auto: NCCL "     \
              "where it is installed and each rank has its own GPU; never changes a result")                           \
    X(device_bytes, "device_bytes", "device-memory", .type = SETTING_SIZE, .commands = COMMANDS_MODEL,                 \
      .computed = "memory available to the process (within its cgroup), less 64 MiB per process and 5%, or the free "  \
                  "memory of the GPU, less 384 MiB",                                                                   \
      .help = "memory limit of the device tier")                                                                       \
    X(host_bytes, "host_bytes", "host-memory", .type = SETTING_SIZE, .commands = COMMANDS_MODEL,                       \
      .computed = "none on a CPU, whose memory is the device tier, or with a GPU the memory available to the "         \
                  "process, less 64 MiB and 5%",                                                                       \
      .help = "memory limit of the host tier, which holds what does not fit on the device")                            \
    X(disk_folder, "disk_folder", "disk", .type = SETTING_TEXT, .argument = "DIR[:SIZE]",                              \
      .commands = COMMANDS_MODEL | COMMAND_SIMULATE | COMMAND_REPORT,                                                  \
      .computed = "none; resume: the run's value; simulate: the run's value",                                          \
      .help = "directory and size limit of the disk tier, which holds what does not fit in memory. SIZE defaults to "  \
              "the free space, less 5%")                                                                               \
    X(disk_bytes, "disk_bytes", "disk", .type = SETTING_SIZE)

/* Of a training run, and what `resume` may change of it: fields of struct train_options. */
#define SETTING_LIST_RUN(X)                                                                                            \
    X(steps, "steps", "steps", SETTING_INT_IN(1, SETTING_STEPS_MAX), SETTING_INT_DEFAULT(1000),                        \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .computed = SETTING_RUN_VALUE,                                       \
      .help = "optimizer steps of the whole run, including the steps already done")                                    \
    X(epochs, "epochs", "epochs", SETTING_FLOAT_IN(0, 1e6), .above = true, .later = true,                              \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .excludes = "steps", .computed = "--steps" SETTING_RUN_VALUE,        \
      .help = "passes over the training data, instead of --steps; may be fractional")                                  \
    X(learning_rate, "learning_rate", "lr", SETTING_FLOAT_IN(0, 1000), .above = true, SETTING_FLOAT_DEFAULT(3e-4),     \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .computed = SETTING_RUN_VALUE,                                       \
      .help = "peak learning rate; resume: scales all later rates, the schedule keeps its steps")                      \
    X(schedule, "schedule", "schedule", .type = SETTING_CHOICE, .choices = "cosine|linear|constant|wsd",               \
      .fallback = "cosine", .argument = "NAME", .commands = COMMAND_TRAIN | COMMAND_RESUME,                            \
      .computed = SETTING_RUN_VALUE,                                                                                   \
      .help = "learning rate schedule after warm-up: cosine, linear, constant or wsd (constant, then linear decay)")   \
    X(schedule_steps, "schedule_steps", "schedule-steps", SETTING_INT_IN(1, SETTING_STEPS_MAX),                        \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .computed = "--steps" SETTING_RUN_VALUE,                             \
      .help = "step at which the schedule ends")                                                                       \
    X(warmup_steps, "warmup_steps", "warmup-steps", SETTING_INT_IN(0, SETTING_STEPS_MAX),                              \
      .commands = COMMAND_TRAIN | COMMAND_RESUME,                                                                      \
      .computed = "a tenth of the schedule, at most 100" SETTING_RUN_VALUE,                                            \
      .help = "steps of linear warm-up, from the first step of the run")                                               \
    X(min_lr_fraction, "min_lr_fraction", "min-lr-fraction", SETTING_FLOAT_IN(0, 1), SETTING_FLOAT_DEFAULT(0.1),       \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .computed = SETTING_RUN_VALUE,                                       \
      .help = "final learning rate of the schedule, as a fraction of --lr")                                            \
    X(wsd_decay_fraction, "wsd_decay_fraction", "wsd-decay-fraction", SETTING_FLOAT_IN(0, 1), .above = true,           \
      SETTING_FLOAT_DEFAULT(0.2), .commands = COMMAND_TRAIN | COMMAND_RESUME, .computed = SETTING_RUN_VALUE,           \
      .help = "fraction of the schedule in which wsd decays")                                                          \
    X(save_every, "save_every", "save-every", SETTING_INT_IN(0, SETTING_STEPS_MAX), SETTING_INT_DEFAULT(100),          \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .same_bits = true, .computed = SETTING_RUN_VALUE,                    \
      .help = "steps between checkpoints. A run also saves at its end and on a signal. 0: no checkpoints; the run "    \
              "cannot be resumed")                                                                                     \
    X(keep, "keep", "keep", SETTING_INT_IN(0, 1000000), SETTING_INT_DEFAULT(2),                                        \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .same_bits = true, .computed = SETTING_RUN_VALUE,                    \
      .help = "number of newest checkpoints to keep; 0: all")                                                          \
    X(replan, "replan", "replan", .type = SETTING_CHOICE, .choices = "auto|off", .fallback = "auto",                   \
      .names = "off|auto", .flag_in_files = true, .later = true, .commands = COMMAND_TRAIN | COMMAND_RESUME,           \
      .same_bits = true, .computed = SETTING_RUN_VALUE,                                                                \
      .help = "auto: measure instructions while training and switch to a policy that is more than 5% faster, or when " \
              "available memory changes. Never changes a result. off with --plan, and for several ranks with GPUs")    \
    X(valid_every, "valid_every", "valid-every", SETTING_INT_IN(0, SETTING_STEPS_MAX), SETTING_INT_DEFAULT(100),       \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .same_bits = true, .computed = SETTING_RUN_VALUE,                    \
      .help = "steps between validations; 0: never")                                                                   \
    X(valid_batches, "valid_batches", "valid-batches", SETTING_INT_IN(0, SETTING_STEPS_MAX), SETTING_INT_DEFAULT(0),   \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .same_bits = true, .computed = SETTING_RUN_VALUE,                    \
      .help = "maximum batches per validation; 0: all")                                                                \
    X(sample_every, "sample_every", "sample-every", SETTING_INT_IN(0, SETTING_STEPS_MAX), SETTING_INT_DEFAULT(0),      \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .same_bits = true, .computed = SETTING_RUN_VALUE,                    \
      .help = "steps between generated samples (samples.jsonl); 0: never")                                             \
    X(sample_tokens, "sample_tokens", "sample-tokens", SETTING_INT_IN(1, SETTING_SIZE_MAX), SETTING_INT_DEFAULT(64),   \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .same_bits = true, .computed = SETTING_RUN_VALUE,                    \
      .help = "maximum tokens per sample")

/* Of a training run, fixed with its data: fields of struct train_options. chat_time_s is a date on the command line,
 * and seconds since 1970 elsewhere. */
#define SETTING_LIST_DATA(X)                                                                                           \
    X(valid_fraction, "valid_fraction", "valid-fraction", SETTING_FLOAT_IN(0, 0.9), SETTING_FLOAT_DEFAULT(0),          \
      .commands = COMMAND_TRAIN,                                                                                       \
      .help = "fraction of the training data held out if there is no other validation data")                           \
    X(sample_prompt, "sample_prompt", "sample-prompt", .type = SETTING_TEXT, .may_be_empty = true, .argument = "TEXT", \
      .commands = COMMAND_TRAIN | COMMAND_RESUME, .computed = "the end-of-text token; resume: the run's value",        \
      .help = "prompt of samples")                                                                                     \
    X(columns, "columns", "columns", .type = SETTING_TEXT, .later = true, .argument = "FIELD=KEY,...",                 \
      .commands = COMMAND_TRAIN | COMMAND_EVAL, .computed = "the fields' own names",                                   \
      .help = "keys of .jsonl fields, as in prompt=question,completion=answer; a run keeps them")                      \
    X(chat_time_s, "chat_time_s", "chat-date", .type = SETTING_DATE, .min = 1, .max = (int64_t)1 << 40,                \
      .argument = "YYYY-MM-DD", .commands = COMMANDS_TEXT | COMMAND_TRAIN | COMMAND_EVAL, .computed = "today, in UTC", \
      .help = "date for chat templates that ask for it; a run keeps it")

/* Likewise, in other forms in include/ballast.h. */
#define SETTING_LIST_EXAMPLES(X)                                                                                       \
    X(valid_paths, "valid_paths", "valid", .type = SETTING_TEXTS, .argument = "PATH", .commands = COMMAND_TRAIN,       \
      .help = "validation data, in addition to the valid.* of directories; may be given several times")                \
    X(loss_on_all, "loss_on_all", "loss-on", .type = SETTING_CHOICE, .choices = "completions|all",                     \
      .fallback = "completions", .flag_in_files = true, .commands = COMMAND_TRAIN | COMMAND_EVAL,                      \
      .help = "tokens of supervised examples that count in the loss")

/* Of writing text: fields of struct generate_options. generation_config.json has the same ranges. */
#define SETTING_LIST_TEXT(X)                                                                                           \
    X(tokens, "tokens", "tokens", SETTING_INT_IN(1, 100000000), SETTING_INT_DEFAULT(100), .commands = COMMANDS_TEXT,   \
      .computed = "; of answers: as many as the caches of --seq tokens hold", .help = "maximum new tokens")            \
    X(temperature, "temperature", "temperature", SETTING_FLOAT_IN(0, 100), SETTING_FLOAT_DEFAULT(0.8),                 \
      .commands = COMMANDS_TEXT,                                                                                       \
      .computed = ", or the value in the model's generation_config.json (0 where that has do_sample false)",           \
      .help = "sampling temperature; 0: greedy decoding")                                                              \
    X(top_k, "top_k", "top-k", SETTING_INT_IN(0, SETTING_STEPS_MAX), SETTING_INT_DEFAULT(0),                           \
      .commands = COMMANDS_TEXT, .computed = ", or the value in generation_config.json",                               \
      .help = "sample from the k most likely tokens; 0: all")                                                          \
    X(top_p, "top_p", "top-p", SETTING_FLOAT_IN(0, 1), .above = true, SETTING_FLOAT_DEFAULT(1),                        \
      .commands = COMMANDS_TEXT, .computed = ", or the value in generation_config.json",                               \
      .help = "sample from the smallest set of most likely tokens with this total probability")                        \
    X(repetition_penalty, "repetition_penalty", "repetition-penalty", SETTING_FLOAT_IN(0.001, 1000),                   \
      SETTING_FLOAT_DEFAULT(1), .commands = COMMANDS_TEXT, .computed = ", or the value in generation_config.json",     \
      .help = "penalty above 1 for tokens already in the prompt or text: divides positive logits and multiplies "      \
              "negative ones")

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
