/* The rows of the option table (option_table.h says what a field means). */
#ifndef BALLAST_CLI_OPTION_LIST_H
#define BALLAST_CLI_OPTION_LIST_H

#define OPTION_OF(field) .setting = &setting_table[SETTING_##field]
#define OPTION_OWN(...)                                                                                                \
    .setting = &(const struct setting) { __VA_ARGS__ }
#define OPTION_FOR(mask) .commands = (mask)
#define RUN_VALUE "; resume: the run's value"

#define OPTION_LIST_COMMON(X)                                                                                          \
    X(CONFIG, OPTION_OWN(.name = "config", .type = SETTING_TEXT), .argument = "FILE", OPTION_FOR(COMMANDS_ALL),        \
      .help = "JSON file with options by key; the command line overrides it; train: also a run's "                     \
              "run.json, which repeats the run")                                                                       \
    X(JSON, OPTION_OWN(.name = "json", .type = SETTING_FLAG),                                                          \
      OPTION_FOR(COMMAND_PLAN | COMMAND_TRAIN | COMMAND_RESUME | COMMAND_EVAL | COMMAND_GENERATE | COMMAND_PROFILE |   \
                 COMMAND_SIMULATE | COMMAND_INSPECT),                                                                  \
      .help = "print one JSON document (docs/formats.md) on stdout; progress goes to stderr")                          \
    X(QUIET, OPTION_OWN(.name = "quiet", .type = SETTING_FLAG),                                                        \
      OPTION_FOR(COMMAND_INIT | COMMAND_TRAIN | COMMAND_RESUME | COMMAND_MERGE | COMMAND_EVAL | COMMAND_CHAT |         \
                 COMMAND_GENERATE | COMMAND_REPORT),                                                                   \
      .help = "omit progress and notes; keep warnings and errors")                                                     \
    X(OUTPUT, OPTION_OWN(.name = "output", .type = SETTING_TEXT), .letter = 'o', .argument = "PATH",                   \
      OPTION_FOR(COMMAND_GENERATE | COMMAND_TRAIN | COMMAND_PLAN | COMMAND_MERGE | COMMAND_PROFILE | COMMAND_REPORT),  \
      .help = "train: the run's directory, new or empty (required); merge: the model's directory, new "                \
              "or empty (required); plan: plan file to write; profile: cluster file to write; report: "                \
              "HTML file (else RUN_DIR/report.html, or next to the plan); generate: file for the texts "               \
              "of --prompts")

/* Options that plan, train, resume, eval, generate and profile share. */
#define OPTION_LIST_PLAN(X)                                                                                            \
    X(BATCH, OPTION_OF(batch), OPTION_FOR(COMMANDS_STEP),                                                              \
      .computed = ", or the value in the plan file or run; plan: 8, or 1 with --for generate",                         \
      .help = "global batch: sequences per step over all ranks; generate: texts of --prompts at a time")               \
    X(SEQ, OPTION_OF(sequence_length), OPTION_FOR(COMMANDS_MODEL),                                                     \
      .computed = ", at most the model's context, or the value in the plan file or run",                               \
      .help = "tokens per sequence")                                                                                   \
    X(DTYPE, OPTION_OF(dtype), .argument = "bf16|fp32", OPTION_FOR(COMMANDS_MODEL | COMMAND_INIT),                     \
      .computed = "bf16 if the hardware has it (AVX512-BF16, AMX or a GPU, see `ballast profile`), else fp32; or "     \
                  "the value in the plan file or run; init: fp32",                                                     \
      .help = "data type of parameters and activations. Accumulation is always fp32; init: data type of the "          \
              "weights")                                                                                               \
    X(DOCUMENT_ATTENTION, OPTION_OF(document_attention), .argument = "across|within", OPTION_FOR(COMMANDS_STEP),       \
      .computed = ", or the value in the plan file or run",                                                            \
      .help = "across: tokens attend to earlier documents in their sequence. within: each document "                   \
              "attends to itself, with positions from 0. Documents end at the model's eos_token_id")                   \
    X(PACKING, OPTION_OF(packing), .argument = "on|off",                                                               \
      OPTION_FOR(COMMAND_PLAN | COMMAND_TRAIN | COMMAND_RESUME | COMMAND_EVAL | COMMAND_PROFILE),                      \
      .computed =                                                                                                      \
          "on where the data hold supervised examples; off in plan and profile; or the value in the plan file "        \
          "or run",                                                                                                    \
      .help = "pack several supervised examples into a sequence. Each attends to itself alone, at positions from 0, "  \
              "so losses stay the same. off: one example per sequence. Part of the recipe")                            \
    X(LOSS, OPTION_OF(loss), .argument = "next-token|dpo",                                                             \
      OPTION_FOR(COMMAND_PLAN | COMMAND_TRAIN | COMMAND_EVAL | COMMAND_PROFILE),                                       \
      .computed = ", or the value in the plan file",                                                                   \
      .help = "training objective: next-token cross-entropy, or DPO on preference pairs (.jsonl with prompt, chosen "  \
              "and rejected). A pair takes two of the --batch sequences. Part of the recipe")                          \
    X(DPO_BETA, OPTION_OF(dpo_beta), OPTION_FOR(COMMAND_PLAN | COMMAND_TRAIN | COMMAND_EVAL | COMMAND_PROFILE),        \
      .computed = ", or the value in the plan file",                                                                   \
      .help = "DPO temperature (beta). Smaller values allow more divergence from the reference model. Part of the "    \
              "recipe")                                                                                                \
    X(DPO_LOSS, OPTION_OF(dpo_loss), .argument = "sigmoid|hinge|ipo|robust",                                           \
      OPTION_FOR(COMMAND_PLAN | COMMAND_TRAIN | COMMAND_EVAL | COMMAND_PROFILE),                                       \
      .computed = ", or the value in the plan file",                                                                   \
      .help = "DPO loss of a pair's margin. sigmoid: -log sigmoid. hinge: hinge at 1. ipo: squared "                   \
              "error to 1 / (2 beta), per token. robust: sigmoid corrected for --dpo-label-smoothing. "                \
              "Part of the recipe")                                                                                    \
    X(DPO_LABEL_SMOOTHING, OPTION_OF(dpo_label_smoothing),                                                             \
      OPTION_FOR(COMMAND_PLAN | COMMAND_TRAIN | COMMAND_EVAL | COMMAND_PROFILE),                                       \
      .computed = ", or the value in the plan file",                                                                   \
      .help = "assumed fraction of pairs with swapped labels, for --dpo-loss sigmoid and robust. Part "                \
              "of the recipe")                                                                                         \
    X(MICRO_BATCH, OPTION_OF(micro_batch_sequences), OPTION_FOR(COMMANDS_STEP),                                        \
      .computed = "the fewest sequences that hold 1024 tokens (on a GPU 4096 to 32768, by model and GPU), in "         \
                  "training at most a lane's share, doubled while a pipeline needs too many sends and collectives",    \
      .help = "sequences per micro-batch, which kernels process at once; --batch is the global batch. Part of "        \
              "the recipe")                                                                                            \
    X(LANES, OPTION_OF(lanes), .argument = "N|NODESxN", OPTION_FOR(COMMANDS_STEP),                                     \
      .computed = "the number of data-parallel ranks; or the value in the plan file or run",                           \
      .help = "logical data-parallel ranks. Each lane adds up the gradients of its micro-batches, and a binary tree "  \
              "adds the lanes. Any number of ranks that holds whole subtrees gives the same bits: 1, 2, 4 or 8 ranks " \
              "for 8 lanes. Part of the recipe")                                                                       \
    X(ROUND, OPTION_OF(round_micro_batches), OPTION_FOR(COMMANDS_STEP),                                                \
      .computed = ", or the value in the plan file or run",                                                            \
      .help = "micro-batches that each lane accumulates before gradients are summed over the lanes; 0: all of "        \
              "them. Part of the recipe")                                                                              \
    X(REDUCE_DTYPE, OPTION_OF(reduce_dtype), .argument = "fp32|bf16", OPTION_FOR(COMMANDS_STEP),                       \
      .computed = ", or the value in the plan file or run",                                                            \
      .help = "data type in which ranks send gradients. bf16 halves the bytes and rounds each lane's "                 \
              "gradients before they are summed. Part of the recipe")                                                  \
    X(TENSOR_PARALLEL, OPTION_OF(tensor_parallel), .argument = "N|auto", OPTION_FOR(COMMANDS_STEP),                    \
      .computed = ", or the value in the plan file or run",                                                            \
      .help = "tensor parallelism: split heads, features and vocabulary across N ranks, so that each holds a part of " \
              "the weights. N divides --ranks, heads and features. auto: the fastest N, chosen when a run begins. "    \
              "Part of the recipe")                                                                                    \
    X(SEQUENCE_PARALLEL, OPTION_OF(sequence_parallel), .argument = "[on|off]", .bare = "on",                           \
      OPTION_FOR(COMMANDS_STEP), .computed = ", or the value in the plan file or run",                                 \
      .help =                                                                                                          \
          "sequence parallelism: with --tensor-parallel N, shard activations along the sequence dimension between "    \
          "matrix multiplications. N divides --seq. Saves memory and sends the same bytes. Part of the recipe")        \
    X(LAYOUT, OPTION_OF(layout), .argument = "megatron|solver", OPTION_FOR(COMMANDS_STEP),                             \
      .computed = ", or the value in the plan file or run",                                                            \
      .help = "how --tensor-parallel splits tensors: as Megatron-LM does, or by the cheapest strategies at the "       \
              "machine's rates. Part of the recipe")                                                                   \
    X(MICRO_BATCHES_PER_WAVE, OPTION_OF(micro_batches_per_wave), OPTION_FOR(COMMANDS_STEP),                            \
      .computed = ", or the value in the plan file",                                                                   \
      .help = "micro-batches that go through forward and backward as one group. Never changes a result")               \
    X(THREADS, OPTION_OF(threads), OPTION_FOR(COMMANDS_MODEL),                                                         \
      .computed =                                                                                                      \
          "the physical cores that the process may use, divided among the ranks that share them; or the value "        \
          "in the plan file or run",                                                                                   \
      .help = "compute threads. Never changes a result")                                                               \
    X(SEED, OPTION_OF(seed), OPTION_FOR(COMMANDS_MODEL | COMMAND_INIT),                                                \
      .computed = ", or the value in the plan file or run",                                                            \
      .help = "random seed for initialization, data order and sampling")                                               \
    X(DEVICE, OPTION_OF(backend), .argument = "cpu|cuda[:N]", OPTION_FOR(COMMANDS_MODEL),                              \
      .computed = "cuda if there is a GPU that this build can use, else cpu; or the value in the plan file or run",    \
      .help = "compute device: the CPU, or GPU number N. Results differ between devices, so a run keeps "              \
              "its device")                                                                                            \
    X(DEVICE_MEMORY, OPTION_OF(device_bytes), OPTION_FOR(COMMANDS_MODEL),                                              \
      .computed = "memory available to the process (within its cgroup), less 64 MiB per process and 5%, or the "       \
                  "free memory of the GPU, less 384 MiB",                                                              \
      .help = "memory limit of the device tier")                                                                       \
    X(HOST_MEMORY, OPTION_OF(host_bytes), OPTION_FOR(COMMANDS_MODEL),                                                  \
      .computed = "none on a CPU, whose memory is the device tier, or with a GPU the memory available to the "         \
                  "process, less 64 MiB and 5%",                                                                       \
      .help = "memory limit of the host tier, which holds what does not fit on the device")                            \
    X(DISK, OPTION_OF(disk_folder), .argument = "DIR[:SIZE]",                                                          \
      OPTION_FOR(COMMANDS_MODEL | COMMAND_SIMULATE | COMMAND_REPORT),                                                  \
      .computed = "none; resume: the run's value; simulate: the run's value",                                          \
      .help = "directory and size limit of the disk tier, which holds what does not fit in memory. SIZE "              \
              "defaults to the free space, less 5%")                                                                   \
    X(RANKS, OPTION_OWN(.name = "ranks", SETTING_INT_IN(1, 4096)), OPTION_FOR(COMMANDS_RANKS | COMMAND_PLAN),          \
      .computed = "1, or as many as mpirun or srun started",                                                           \
      .help = "start N processes on this machine with mpirun, or check how many mpirun or srun started; "              \
              "plan: plan for N ranks without starting them")                                                          \
    X(NODES, OPTION_OWN(.name = "nodes", SETTING_INT_IN(1, 4096)), OPTION_FOR(COMMANDS_RANKS | COMMAND_PLAN),          \
      .computed = "the number of machines; plan: nodes as in the cluster file, else 1",                                \
      .help = "treat the ranks as N nodes with the same number of ranks each, in rank order. Never "                   \
              "changes a result")                                                                                      \
    X(RANK_TIMEOUT, OPTION_OWN(.name = "rank-timeout", SETTING_FLOAT_IN(1, 86400), SETTING_FLOAT_DEFAULT(30)),         \
      .argument = "SECONDS", OPTION_FOR(COMMANDS_RANKS),                                                               \
      .help = "seconds without a heartbeat or progress of a rank before the other ranks end with an "                  \
              "error")                                                                                                 \
    X(PIPELINE_PARALLEL, OPTION_OF(pipeline_parallel), .argument = "N|auto", OPTION_FOR(COMMANDS_STEP),                \
      .computed = ", or the value in the plan file or run",                                                            \
      .help = "pipeline parallelism: N stages, each with a part of the layers on its own ranks. N divides --ranks. "   \
              "auto: the fastest N; never changes a result (docs/clusters.md)")                                        \
    X(VIRTUAL_STAGES, OPTION_OF(virtual_stages), OPTION_FOR(COMMANDS_STEP),                                            \
      .computed = "whichever makes the fastest step",                                                                  \
      .help = "virtual pipeline stages of each rank. More of them make the pipeline's bubble smaller and send more; "  \
              "never changes a result")                                                                                \
    X(PARTITION, OPTION_OF(partition), .argument = "P", OPTION_FOR(COMMANDS_STEP),                                     \
      .computed = "the fastest that fits, or the value in the plan file or run",                                       \
      .help = "number of shards of parameters, gradients and optimizer states: ddp, zero1, zero2, "                    \
              "zero3, mics:N, hpz, hybrid:N, or p|g|os as in 8|8|32 or 8x1|8x1|8x4 (ranks of a node x "                \
              "nodes). Never changes a result (docs/clusters.md)")                                                     \
    X(COLLECTIVES, OPTION_OF(flat), .argument = "hierarchical|flat", OPTION_FOR(COMMANDS_STEP),                        \
      .computed = "the faster, or the value in the plan file or run",                                                  \
      .help = "hierarchical: collectives run within each node, then across nodes. flat: each rank sends straight to "  \
              "every other; never changes a result")                                                                   \
    X(GPU_COLLECTIVES,                                                                                                 \
      OPTION_OWN(.name = "gpu-collectives", .type = SETTING_CHOICE, .choices = "auto|nccl|host", .fallback = "auto"),  \
      .argument = "auto|nccl|host", OPTION_FOR(COMMANDS_RANKS),                                                        \
      .help =                                                                                                          \
          "how collectives of GPUs travel: from GPU to GPU by NCCL, or through the host's memory. auto: NCCL where "   \
          "it is installed and each rank has its own GPU; never changes a result")                                     \
    X(OBJECTIVE, OPTION_OWN(.name = "objective", .type = SETTING_CHOICE, .choices = "step|sum", .fallback = "step"),   \
      .argument = "step|sum", OPTION_FOR(COMMAND_PLAN),                                                                \
      .help = "how the search ranks policies. step: simulated step time. sum: total work without "                     \
              "overlap, for comparison")                                                                               \
    X(EXPLAIN, OPTION_OWN(.name = "explain", .type = SETTING_FLAG), OPTION_FOR(COMMAND_PLAN),                          \
      .help = "with several ranks: show the best policy of each partition and why the plan does not use it, "          \
              "and the strategies of operators")                                                                       \
    X(CLUSTER, OPTION_OF(cluster_path), .argument = "FILE",                                                            \
      OPTION_FOR(COMMANDS_MODEL | COMMAND_SIMULATE | COMMAND_REPORT), .computed = "measured here",                     \
      .help = "cluster file (`ballast profile -o`) whose rates replace measurements, or the name of a "                \
              "file of clusters/ (h100x8); plan: also takes the device from it, where it is not in this "              \
              "machine")                                                                                               \
    X(DEVICES, OPTION_OWN(.name = "devices", SETTING_INT_IN(1, 1 << 20)), OPTION_FOR(COMMAND_PLAN),                    \
      .computed = "a plan for one device",                                                                             \
      .help = "simulate layouts for N devices of --cluster and rank them by time and memory. Defaults "                \
              "to a batch of 4 Mi tokens, and to --seq of the model's context, at most 4096")                          \
    X(PRICE, OPTION_OWN(.name = "price", SETTING_FLOAT_IN(0, 1e6), .above = true), OPTION_FOR(COMMAND_PLAN),           \
      .computed = "no price is shown",                                                                                 \
      .help = "price of a device per hour, to show the price of a million tokens (with --devices)")                    \
    X(TRAIN_TOKENS, OPTION_OWN(.name = "tokens", .type = SETTING_TEXT), .key = "train_tokens", .argument = "N[KMBT]",  \
      OPTION_FOR(COMMAND_PLAN), .computed = "no days are shown",                                                       \
      .help = "tokens of the whole training, to show its days (with --devices or --target-days)")                      \
    X(TARGET_DAYS, OPTION_OWN(.name = "target-days", SETTING_FLOAT_IN(0, 1e6), .above = true),                         \
      OPTION_FOR(COMMAND_PLAN), .computed = "no number of devices is looked for",                                      \
      .help = "find the smallest number of devices of --cluster that trains --tokens in N days")                       \
    X(PAGE, OPTION_OWN(.name = "page", .type = SETTING_TEXT), .argument = "FILE", OPTION_FOR(COMMAND_PLAN),            \
      .computed = "no page is written",                                                                                \
      .help = "HTML page with the Pareto front, the curve over device counts, timelines and memory of "                \
              "ranks (with --devices or --target-days)")                                                               \
    X(SVG, OPTION_OWN(.name = "svg", .type = SETTING_TEXT), .argument = "DIR", OPTION_FOR(COMMAND_PLAN),               \
      .computed = "no drawings are written",                                                                           \
      .help = "directory for the page's drawings: front.svg, curve.svg, timeline.svg, memory.svg (with "               \
              "--devices or --target-days)")                                                                           \
    X(MTBF, OPTION_OWN(.name = "mtbf", SETTING_FLOAT_IN(0, 1e9), .above = true), .argument = "HOURS",                  \
      OPTION_FOR(COMMAND_PLAN), .computed = "nothing fails",                                                           \
      .help = "mean time between failures of a node, which days and prices then include (with --devices "              \
              "or --target-days)")                                                                                     \
    X(CHECKPOINT_TIME, OPTION_OWN(.name = "checkpoint-time", SETTING_FLOAT_IN(0, 1e6), .fallback = "60"),              \
      .argument = "SECONDS", OPTION_FOR(COMMAND_PLAN),                                                                 \
      .help = "seconds for which writing a checkpoint stops training (with --mtbf)")                                   \
    X(RESTART_TIME, OPTION_OWN(.name = "restart-time", SETTING_FLOAT_IN(0, 1e6), .fallback = "600"),                   \
      .argument = "SECONDS", OPTION_FOR(COMMAND_PLAN),                                                                 \
      .help = "seconds from a node's failure until training resumes from the last checkpoint (with "                   \
              "--mtbf)")

#define OPTION_LIST_TRAIN(X)                                                                                           \
    X(PLAN, OPTION_OF(plan_path), .argument = "FILE", OPTION_FOR(COMMAND_TRAIN | COMMAND_EVAL | COMMANDS_TEXT),        \
      .help = "plan file of `ballast plan -o`. Plan options on the command line must agree with it")                   \
    X(FOR, OPTION_OWN(.name = "for", .type = SETTING_CHOICE, .choices = "train|generate", .fallback = "train"),        \
      .argument = "train|generate", OPTION_FOR(COMMAND_PLAN),                                                          \
      .help = "program to plan: a training step, or generation of --batch texts at a time with key-value "             \
              "caches of --seq tokens each")                                                                           \
    X(CONTINUE, OPTION_OWN(.name = "continue", .type = SETTING_FLAG), OPTION_FOR(COMMAND_TRAIN),                       \
      .help = "resume the run in --output if it has the same settings; do nothing if it is complete. "                 \
              "For schedulers that restart one command line")                                                          \
    X(STEPS, OPTION_OF(steps), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = RUN_VALUE,                      \
      .help = "optimizer steps of the whole run, including the steps already done")                                    \
    X(EPOCHS, OPTION_OF(epochs), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .excludes = "steps",                      \
      .computed = "--steps" RUN_VALUE, .help = "passes over the training data, instead of --steps; may be fractional") \
    X(LR, OPTION_OF(learning_rate), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = RUN_VALUE,                 \
      .help = "peak learning rate; resume: scales all later rates, the schedule keeps its steps")                      \
    X(SCHEDULE, OPTION_OF(schedule), .argument = "NAME", OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME),                   \
      .computed = RUN_VALUE,                                                                                           \
      .help = "learning rate schedule after warm-up: cosine, linear, constant or wsd (constant, then "                 \
              "linear decay)")                                                                                         \
    X(SCHEDULE_STEPS, OPTION_OF(schedule_steps), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME),                           \
      .computed = "--steps" RUN_VALUE, .help = "step at which the schedule ends")                                      \
    X(WARMUP_STEPS, OPTION_OF(warmup_steps), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME),                               \
      .computed = "a tenth of the schedule, at most 100" RUN_VALUE,                                                    \
      .help = "steps of linear warm-up, from the first step of the run")                                               \
    X(MIN_LR_FRACTION, OPTION_OF(min_lr_fraction), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = RUN_VALUE,  \
      .help = "final learning rate of the schedule, as a fraction of --lr")                                            \
    X(WSD_DECAY_FRACTION, OPTION_OF(wsd_decay_fraction), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME),                   \
      .computed = RUN_VALUE, .help = "fraction of the schedule in which wsd decays")                                   \
    X(BETA1, OPTION_OF(beta1), OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN),                                               \
      .help = "decay of the first moment; sgd: momentum")                                                              \
    X(BETA2, OPTION_OF(beta2), OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN),                                               \
      .help = "adamw: decay of the second moment. lion: decay of the moment (default 0.99)")                           \
    X(EPSILON, OPTION_OF(epsilon), OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN),                                           \
      .help = "adamw: term added to the denominator")                                                                  \
    X(WEIGHT_DECAY, OPTION_OF(weight_decay), OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN),                                 \
      .help = "weight decay of matrices and embeddings; biases and norm weights do not decay")                         \
    X(CLIP_NORM, OPTION_OF(clip_norm), OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN),                                       \
      .help = "limit of the global gradient norm; 0: no clipping")                                                     \
    X(OPTIMIZER, OPTION_OF(optimizer), .argument = "NAME", OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE), \
      .computed = ", or the value in the plan file",                                                                   \
      .help = "optimizer: adamw, lion (use a tenth of AdamW's --lr), sgd (with momentum), or muon "                    \
              "(matrices of layers; other weights use adamw with the same --lr). Part of the recipe")                  \
    X(MUON_MOMENTUM, OPTION_OF(muon_momentum), OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE),             \
      .computed = ", or the value in the plan file", .help = "muon: momentum of matrices. Part of the recipe")         \
    X(OPTIMIZER_DTYPE, OPTION_OF(optimizer_dtype), .argument = "fp32|bf16|int8",                                       \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE), .computed = ", or the value in the plan file",       \
      .help = "data type of the optimizer's moments. bf16 takes half of the bytes, with stochastic rounding; int8 "    \
              "takes a quarter, with a scale for each 256 values, as in bitsandbytes. Part of the recipe")             \
    X(MASTER_WEIGHTS, OPTION_OF(master_weights), .argument = "fp32|split|none",                                        \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE), .computed = ", or the value in the plan file",       \
      .help =                                                                                                          \
          "master weights of bf16 weights: fp32; split: the 16 bits of fp32 that bf16 lacks, in half of the bytes; "   \
          "none: bf16 weights alone, with stochastic rounding. Part of the recipe")                                    \
    X(FREEZE, OPTION_OF(freeze), .argument = "PATTERN", OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE),    \
      .computed = "nothing, or the value in the plan file",                                                            \
      .help = "glob pattern (*, ?, [...]) of weight names that are not trained; may be given several "                 \
              "times")                                                                                                 \
    X(QUANTIZE_BASE, OPTION_OF(quantize_base), .argument = "none|nf4|int8|mxfp4",                                      \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE | COMMAND_INIT),                                       \
      .computed = ", or the value in the plan file",                                                                   \
      .help = "quantized format of the matrices of linear layers and experts, for adapters (--lora): nf4 (4 bits, "    \
              "double quantization as in bitsandbytes), int8 (a scale per row), mxfp4 (4 bits, blocks of 32), none "   \
              "(--dtype). Part of the recipe")                                                                         \
    X(LORA, OPTION_OF(lora), .argument = "RANK,ALPHA,TARGETS",                                                         \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE),                                                      \
      .computed = "none, or that of the model's adapter; or the value in the plan file",                               \
      .help = "train LoRA adapters on linear layers (8,16,q_proj,v_proj or 8,16,all-linear) and freeze "               \
              "all other weights. The run writes adapters in peft's format")                                           \
    X(SAVE_EVERY, OPTION_OF(save_every), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = RUN_VALUE,            \
      .help = "steps between checkpoints. A run also saves at its end and on a signal. 0: no "                         \
              "checkpoints; the run cannot be resumed")                                                                \
    X(KEEP, OPTION_OF(keep), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = RUN_VALUE,                        \
      .help = "number of newest checkpoints to keep; 0: all")                                                          \
    X(REPLAN, OPTION_OF(replan), .argument = "auto|off", OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME),                   \
      .computed = RUN_VALUE,                                                                                           \
      .help = "auto: measure instructions while training and switch to a policy that is more than 5% "                 \
              "faster, or when available memory changes. Never changes a result. off with --plan, and "                \
              "for several ranks with GPUs")                                                                           \
    X(LOSS_ON, OPTION_OF(loss_on_all), .argument = "completions|all", OPTION_FOR(COMMAND_TRAIN | COMMAND_EVAL),        \
      .help = "tokens of supervised examples that count in the loss")                                                  \
    X(CHAT_DATE, OPTION_OF(chat_time_s), .argument = "YYYY-MM-DD",                                                     \
      OPTION_FOR(COMMANDS_TEXT | COMMAND_TRAIN | COMMAND_EVAL), .computed = "today, in UTC",                           \
      .help = "date for chat templates that ask for it; a run keeps it")                                               \
    X(COLUMNS, OPTION_OF(columns), .argument = "FIELD=KEY,...", OPTION_FOR(COMMAND_TRAIN | COMMAND_EVAL),              \
      .computed = "the fields' own names",                                                                             \
      .help = "keys of .jsonl fields, as in prompt=question,completion=answer; a run keeps them")                      \
    X(VALID, OPTION_OF(valid_paths), .argument = "PATH", OPTION_FOR(COMMAND_TRAIN),                                    \
      .help = "validation data, in addition to the valid.* of directories; may be given several times")                \
    X(VALID_EVERY, OPTION_OF(valid_every), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = RUN_VALUE,          \
      .help = "steps between validations; 0: never")                                                                   \
    X(VALID_BATCHES, OPTION_OF(valid_batches), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = RUN_VALUE,      \
      .help = "maximum batches per validation; 0: all")                                                                \
    X(VALID_FRACTION, OPTION_OF(valid_fraction), OPTION_FOR(COMMAND_TRAIN),                                            \
      .help = "fraction of the training data held out if there is no other validation data")                           \
    X(SAMPLE_EVERY, OPTION_OF(sample_every), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = RUN_VALUE,        \
      .help = "steps between generated samples (samples.jsonl); 0: never")                                             \
    X(SAMPLE_PROMPT, OPTION_OF(sample_prompt), .argument = "TEXT", OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME),         \
      .computed = "the end-of-text token; resume: the run's value", .help = "prompt of samples")                       \
    X(SAMPLE_TOKENS, OPTION_OF(sample_tokens), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = RUN_VALUE,      \
      .help = "maximum tokens per sample")                                                                             \
    X(ALLOW_RECIPE_CHANGE, OPTION_OWN(.name = "allow-recipe-change", .type = SETTING_FLAG),                            \
      OPTION_FOR(COMMAND_RESUME),                                                                                      \
      .help = "resume with another instruction set or kernel version, or with other --lanes or --round. "              \
              "Results differ from then on; run.json records the step")                                                \
    X(SERVE, OPTION_OWN(.name = "serve", .type = SETTING_TEXT), .argument = "[ADDRESS:]PORT",                          \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME | COMMAND_REPORT), .computed = "no server",                            \
      .help = "serve the run's page at http://ADDRESS:PORT/ and Prometheus metrics at /metrics. Without "              \
              "ADDRESS: only for this machine. Port 0 takes a free port and prints it")                                \
    X(COMPARE, OPTION_OWN(.name = "compare", .type = SETTING_TEXT), .argument = "RUN_DIR",                             \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME | COMMAND_REPORT), .computed = "none",                                 \
      .help = "another run, whose curves the page shows in the same plots (train, resume: with --serve)")

#define OPTION_LIST_OTHER(X)                                                                                           \
    X(VERIFY, OPTION_OWN(.name = "verify", .type = SETTING_FLAG), OPTION_FOR(COMMAND_INSPECT),                         \
      .help = "read all files of a checkpoint, or of a run's checkpoints and model, and compare their "                \
              "checksums with the recorded ones. Names each damaged file and block")                                   \
    X(BASE, OPTION_OWN(.name = "base", .type = SETTING_TEXT), .argument = "MODEL_DIR",                                 \
      OPTION_FOR(COMMAND_MERGE | COMMAND_RESUME), .computed = "the path in adapter_config.json",                       \
      .help = "base model of the adapter, if it has moved")                                                            \
    X(MODEL, OPTION_OWN(.name = "model", .type = SETTING_TEXT), .argument = "MODEL_DIR|PRESET",                        \
      OPTION_FOR(COMMAND_SIMULATE | COMMAND_REPORT), .computed = "the one that the plan file or the run names",        \
      .help = "model of the plan")                                                                                     \
    X(TRACE, OPTION_OWN(.name = "trace", .type = SETTING_TEXT), .argument = "FILE", OPTION_FOR(COMMAND_SIMULATE),      \
      .help = "write the step as a Chrome trace (open it in ui.perfetto.dev): predicted, and measured "                \
              "if the run has a timeline.json")                                                                        \
    X(BATCHES, OPTION_OWN(.name = "batches", SETTING_INT_IN(0, SETTING_STEPS_MAX), SETTING_INT_DEFAULT(0)),            \
      OPTION_FOR(COMMAND_EVAL), .help = "maximum batches per file; 0: all")                                            \
    X(REFERENCE, OPTION_OWN(.name = "reference", .type = SETTING_TEXT), .argument = "MODEL_DIR",                       \
      OPTION_FOR(COMMAND_EVAL), .help = "reference model of --loss dpo: the model before training")                    \
    X(PROMPT, OPTION_OWN(.name = "prompt", .type = SETTING_TEXT, .may_be_empty = true), .argument = "TEXT",            \
      OPTION_FOR(COMMAND_GENERATE), .help = "text to continue; \"\": starts from the end-of-text token")               \
    X(PROMPTS, OPTION_OWN(.name = "prompts", .type = SETTING_TEXT), .argument = "FILE", OPTION_FOR(COMMAND_GENERATE),  \
      .help = "file of prompts, one per line. Lines of .jsonl hold {\"prompt\": TEXT} or {\"messages\": "              \
              "[...]}. Prints a line of JSON for each")                                                                \
    X(CHAT, OPTION_OWN(.name = "chat", .type = SETTING_FLAG), OPTION_FOR(COMMAND_GENERATE),                            \
      .help = "treat prompts as user messages in the model's chat template, and print only the answer")                \
    X(SYSTEM, OPTION_OWN(.name = "system", .type = SETTING_TEXT), .argument = "TEXT", OPTION_FOR(COMMANDS_TEXT),       \
      .help = "system message; generate: requires --chat")                                                             \
    X(TOKENS, OPTION_OF(tokens), OPTION_FOR(COMMANDS_TEXT),                                                            \
      .computed = "; of answers: as many as the caches of --seq tokens hold", .help = "maximum new tokens")            \
    X(TEMPERATURE, OPTION_OF(temperature), OPTION_FOR(COMMANDS_TEXT),                                                  \
      .computed = ", or the value in the model's generation_config.json (0 where that has do_sample false)",           \
      .help = "sampling temperature; 0: greedy decoding")                                                              \
    X(TOP_K, OPTION_OF(top_k), OPTION_FOR(COMMANDS_TEXT), .computed = ", or the value in generation_config.json",      \
      .help = "sample from the k most likely tokens; 0: all")                                                          \
    X(TOP_P, OPTION_OF(top_p), OPTION_FOR(COMMANDS_TEXT), .computed = ", or the value in generation_config.json",      \
      .help = "sample from the smallest set of most likely tokens with this total probability")                        \
    X(REPETITION_PENALTY, OPTION_OF(repetition_penalty), OPTION_FOR(COMMANDS_TEXT),                                    \
      .computed = ", or the value in generation_config.json",                                                          \
      .help = "penalty above 1 for tokens already in the prompt or text: divides positive logits and "                 \
              "multiplies negative ones")                                                                              \
    X(STOP, OPTION_OWN(.name = "stop", .type = SETTING_TEXTS), .argument = "TEXT", OPTION_FOR(COMMANDS_TEXT),          \
      .help = "stop before this text; may be given several times")                                                     \
    X(IGNORE_END, OPTION_OWN(.name = "ignore-end", .type = SETTING_FLAG), OPTION_FOR(COMMANDS_TEXT),                   \
      .help = "continue after an end-of-text token")

#define OPTION_LIST_INIT(X)                                                                                            \
    X(LIKE, OPTION_OWN(.name = "like", .type = SETTING_TEXT), .argument = "MODEL_DIR|PRESET",                          \
      OPTION_FOR(COMMAND_INIT),                                                                                        \
      .help = "copy config.json and tokenizer of this model (without weights), or the dimensions of a "                \
              "preset (`ballast help presets`), instead of giving dimensions")                                         \
    X(ARCH, OPTION_OWN(.name = "arch", .type = SETTING_CHOICE, .choices = MODEL_FAMILY_CHOICES), .argument = "FAMILY", \
      OPTION_FOR(COMMAND_INIT), .excludes = "like", .required = true,                                                  \
      .help = "family of the model:" MODEL_FAMILY_LIST(MODEL_FAMILY_NAME) " (`ballast help models`)")                  \
    X(HIDDEN, OPTION_OWN(.name = "hidden", SETTING_INT_IN(1, SETTING_SIZE_MAX)), OPTION_FOR(COMMAND_INIT),             \
      .excludes = "like", .required = true, .help = "hidden size (width of the residual stream)")                      \
    X(LAYERS, OPTION_OWN(.name = "layers", SETTING_INT_IN(1, 1024)), OPTION_FOR(COMMAND_INIT), .excludes = "like",     \
      .required = true, .help = "number of transformer blocks")                                                        \
    X(HEADS, OPTION_OWN(.name = "heads", SETTING_INT_IN(1, 65536)), OPTION_FOR(COMMAND_INIT), .excludes = "like",      \
      .required = true, .help = "number of attention heads")                                                           \
    X(KV_HEADS, OPTION_OWN(.name = "kv-heads", SETTING_INT_IN(1, 65536)), OPTION_FOR(COMMAND_INIT),                    \
      .excludes = "like", .computed = "--heads", .help = "number of key-value heads; divides --heads (not gpt2, opt)") \
    X(HEAD_DIM, OPTION_OWN(.name = "head-dim", SETTING_INT_IN(1, 65536)), OPTION_FOR(COMMAND_INIT),                    \
      .excludes = "like", .computed = "--hidden / --heads", .help = "dimension of a head (not gpt2, opt)")             \
    X(FFN, OPTION_OWN(.name = "ffn", SETTING_INT_IN(1, SETTING_SIZE_MAX)), OPTION_FOR(COMMAND_INIT),                   \
      .excludes = "like", .computed = "so many times --hidden as in the authors' models (`ballast help models`)",      \
      .help = "hidden size of the MLP")                                                                                \
    X(WINDOW, OPTION_OWN(.name = "window", SETTING_INT_IN(1, 1073741824)), OPTION_FOR(COMMAND_INIT),                   \
      .excludes = "like", .computed = "that of the authors' first model, or none",                                     \
      .help = "sliding attention window in tokens, including the position itself, for families that "                  \
              "have one (`ballast help models`)")                                                                      \
    X(VOCAB, OPTION_OWN(.name = "vocab", SETTING_INT_IN(1, 134217728)), OPTION_FOR(COMMAND_INIT), .excludes = "like",  \
      .required = true, .help = "vocabulary size, also of the tokenizer that --tokenizer-data trains")                 \
    X(CONTEXT, OPTION_OWN(.name = "context", SETTING_INT_IN(1, 1073741824)), OPTION_FOR(COMMAND_INIT),                 \
      .excludes = "like", .required = true, .help = "maximum sequence length in tokens")                               \
    X(TIED, OPTION_OWN(.name = "tied", .type = SETTING_FLAG), OPTION_FOR(COMMAND_INIT), .excludes = "like",            \
      .help = "tie the head's weight to the embedding (gpt2, opt: always)")                                            \
    X(TOKENIZER_DATA, OPTION_OWN(.name = "tokenizer-data", .type = SETTING_TEXT), .argument = "FILE",                  \
      OPTION_FOR(COMMAND_INIT),                                                                                        \
      .help = "text file on which to train a byte-level BPE tokenizer of --vocab tokens for the model")

#define OPTION_LIST(X)                                                                                                 \
    OPTION_LIST_INIT(X)                                                                                                \
    OPTION_LIST_PLAN(X)                                                                                                \
    OPTION_LIST_TRAIN(X)                                                                                               \
    OPTION_LIST_OTHER(X)                                                                                               \
    OPTION_LIST_COMMON(X)

#endif
