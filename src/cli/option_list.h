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
      .help = "a JSON file with options by their keys; the command line wins over it; train: or a run's run.json, "    \
              "which repeats the run")                                                                                 \
    X(JSON, OPTION_OWN(.name = "json", .type = SETTING_FLAG),                                                          \
      OPTION_FOR(COMMAND_PLAN | COMMAND_TRAIN | COMMAND_RESUME | COMMAND_EVAL | COMMAND_GENERATE | COMMAND_PROFILE |   \
                 COMMAND_SIMULATE | COMMAND_INSPECT),                                                                  \
      .help = "print one JSON document (docs/formats.md) on stdout and nothing else there; progress goes to stderr")   \
    X(QUIET, OPTION_OWN(.name = "quiet", .type = SETTING_FLAG),                                                        \
      OPTION_FOR(COMMAND_INIT | COMMAND_TRAIN | COMMAND_RESUME | COMMAND_MERGE | COMMAND_EVAL | COMMAND_CHAT |         \
                 COMMAND_GENERATE | COMMAND_REPORT),                                                                   \
      .help = "leave out progress and notes; warnings and errors stay")                                                \
    X(OUTPUT, OPTION_OWN(.name = "output", .type = SETTING_TEXT), .letter = 'o', .argument = "PATH",                   \
      OPTION_FOR(COMMAND_GENERATE | COMMAND_TRAIN | COMMAND_PLAN | COMMAND_MERGE | COMMAND_PROFILE | COMMAND_REPORT),  \
      .help = "train: the run's directory, new or empty (required); merge: the model's directory, new or empty "       \
              "(required); "                                                                                           \
              "plan: the plan file to write; profile: the "                                                            \
              "cluster file to write; report: the HTML file (else RUN_DIR/report.html, or beside the plan); "          \
              "generate: the file of texts of --prompts")

/* Options that plan, train, resume, eval, generate and profile share. */
#define OPTION_LIST_PLAN(X)                                                                                            \
    X(BATCH, OPTION_OF(batch), OPTION_FOR(COMMANDS_STEP),                                                              \
      .computed = ", or what the plan file or the run says; --for generate: 1",                                        \
      .help = "sequences per step over all ranks; of generate --prompts: texts at a time")                             \
    X(SEQ, OPTION_OF(sequence_length), OPTION_FOR(COMMANDS_MODEL),                                                     \
      .computed = ", at most the model's context, or what the plan file or the run says",                              \
      .help = "tokens per sequence")                                                                                   \
    X(DTYPE, OPTION_OF(dtype), .argument = "bf16|fp32", OPTION_FOR(COMMANDS_MODEL | COMMAND_INIT),                     \
      .computed = "bf16 where it is in hardware (AVX512-BF16, AMX or a GPU, see `ballast profile`) and thus several "  \
                  "times as fast, else fp32; or what the plan file or the run says; init: fp32",                       \
      .help = "data type of parameters and activations; accumulation is always fp32; init: that of the weights")       \
    X(DOCUMENT_ATTENTION, OPTION_OF(document_attention), .argument = "across|within", OPTION_FOR(COMMANDS_STEP),       \
      .computed = ", or what the plan file or the run says",                                                           \
      .help = "whether tokens see those of earlier documents in their sequence (documents end at the model's "         \
              "eos_token_id); within: each document by itself, its positions from 0")                                  \
    X(PACKING, OPTION_OF(packing), .argument = "on|off",                                                               \
      OPTION_FOR(COMMAND_PLAN | COMMAND_TRAIN | COMMAND_RESUME | COMMAND_EVAL | COMMAND_PROFILE),                      \
      .computed = "on where the data hold supervised examples; off in plan and profile; or what the plan file or the " \
                  "run says",                                                                                          \
      .help = "pack several supervised examples into a sequence. Each attends to itself alone, at positions from 0, "  \
              "so losses stay the same. off: one example per sequence. Part of the recipe")                            \
    X(LOSS, OPTION_OF(loss), .argument = "next-token|dpo",                                                             \
      OPTION_FOR(COMMAND_PLAN | COMMAND_TRAIN | COMMAND_EVAL | COMMAND_PROFILE),                                       \
      .computed = ", or what the plan file says",                                                                      \
      .help = "training objective: next-token cross-entropy, or DPO on preference pairs (.jsonl with prompt, chosen "  \
              "and rejected). A pair takes two of the --batch sequences. Part of the recipe")                          \
    X(DPO_BETA, OPTION_OF(dpo_beta), OPTION_FOR(COMMAND_PLAN | COMMAND_TRAIN | COMMAND_EVAL | COMMAND_PROFILE),        \
      .computed = ", or what the plan file says",                                                                      \
      .help = "DPO temperature (beta). Smaller values allow more divergence from the reference model. Part of the "    \
              "recipe")                                                                                                \
    X(DPO_LOSS, OPTION_OF(dpo_loss), .argument = "sigmoid|hinge|ipo|robust",                                           \
      OPTION_FOR(COMMAND_PLAN | COMMAND_TRAIN | COMMAND_EVAL | COMMAND_PROFILE),                                       \
      .computed = ", or what the plan file says",                                                                      \
      .help = "of --loss dpo: what a pair's margin is made of, the difference of its two rewards: -log sigmoid; a "    \
              "hinge at 1; the square of how far the answers' gains a token are from 1 / (2 beta) apart; or, where "   \
              "labels are noisy, -log sigmoid without the noise's share. Part of the recipe")                          \
    X(DPO_LABEL_SMOOTHING, OPTION_OF(dpo_label_smoothing),                                                             \
      OPTION_FOR(COMMAND_PLAN | COMMAND_TRAIN | COMMAND_EVAL | COMMAND_PROFILE),                                       \
      .computed = ", or what the plan file says",                                                                      \
      .help = "of --dpo-loss sigmoid and robust: the part of the pairs in which the rejected answer is taken to be "   \
              "the better one. Part of the recipe")                                                                    \
    X(MICRO_BATCH, OPTION_OF(micro_batch_sequences), OPTION_FOR(COMMANDS_STEP),                                        \
      .computed = "the fewest that hold 1024 tokens, on a GPU 4096 to 32768 by model and GPU, in training at most a "  \
                  "lane's share; doubled while a pipeline needs too many sends and collectives",                       \
      .help = "sequences per kernel call. Part of the recipe")                                                         \
    X(LANES, OPTION_OF(lanes), .argument = "N|NODESxN", OPTION_FOR(COMMANDS_STEP),                                     \
      .computed = "1, on several ranks their number; or what the plan file or the run says",                           \
      .help = "logical data-parallel ranks. Each lane adds up the gradients of its micro-batches, and a binary tree "  \
              "adds the lanes. Any number of ranks that holds whole subtrees gives the same bits: 1, 2, 4 or 8 ranks " \
              "for 8 lanes. Part of the recipe")                                                                       \
    X(ROUND, OPTION_OF(round_micro_batches), OPTION_FOR(COMMANDS_STEP),                                                \
      .computed = ", which is all; or what the plan file or the run says",                                             \
      .help = "add the lanes after this many micro-batches of each. Part of the recipe")                               \
    X(REDUCE_DTYPE, OPTION_OF(reduce_dtype), .argument = "fp32|bf16", OPTION_FOR(COMMANDS_STEP),                       \
      .computed = ", or what the plan file or the run says",                                                           \
      .help = "bf16 rounds a lane's gradients before they are added to another's, so that ranks send half the bytes; " \
              "part of the recipe")                                                                                    \
    X(TENSOR_PARALLEL, OPTION_OF(tensor), .argument = "N|auto", OPTION_FOR(COMMANDS_STEP),                             \
      .computed = ", or what the plan file or the run says",                                                           \
      .help = "tensor parallelism: split heads, features and vocabulary across N ranks, so that each holds a part of " \
              "the weights. N divides --ranks, heads and features. auto: the fastest N, chosen when a run begins. "    \
              "Part of the recipe")                                                                                    \
    X(SEQUENCE_PARALLEL, OPTION_OF(sequence), .argument = "[on|off]", .bare = "on", OPTION_FOR(COMMANDS_STEP),         \
      .computed = ", or what the plan file or the run says",                                                           \
      .help =                                                                                                          \
          "sequence parallelism: with --tensor-parallel N, shard activations along the sequence dimension between "    \
          "matrix multiplications. N divides --seq. Saves memory and sends the same bytes. Part of the recipe")        \
    X(LAYOUT, OPTION_OF(layout), .argument = "megatron|solver", OPTION_FOR(COMMANDS_STEP),                             \
      .computed = ", or what the plan file or the run says",                                                           \
      .help = "how --tensor-parallel splits tensors: as Megatron-LM does, or by the cheapest strategies at the "       \
              "machine's rates. Part of the recipe")                                                                   \
    X(MICRO_BATCHES_PER_WAVE, OPTION_OF(micro_batches_per_wave), OPTION_FOR(COMMANDS_STEP),                            \
      .computed = ", or what the plan file says",                                                                      \
      .help = "micro-batches whose activations are in memory at once; never changes a result")                         \
    X(THREADS, OPTION_OF(threads), OPTION_FOR(COMMANDS_MODEL),                                                         \
      .computed = "the physical cores that the process may use, divided among the ranks that share them; or what the " \
                  "plan file or the run says",                                                                         \
      .help = "compute threads; any number gives the same bits")                                                       \
    X(SEED, OPTION_OF(seed), OPTION_FOR(COMMANDS_MODEL | COMMAND_INIT),                                                \
      .computed = ", or what the plan file or the run says",                                                           \
      .help = "random seed for initialization, data order and sampling")                                               \
    X(DEVICE, OPTION_OF(backend), .argument = "cpu|cuda[:N]", OPTION_FOR(COMMANDS_MODEL),                              \
      .computed = "cuda where there is a GPU that this build can use, else cpu; or what the plan file or the run "     \
                  "was made on",                                                                                       \
      .help = "what computes: the processor, or the N-th GPU from 0; results depend on it, so a run goes on where it " \
              "began")                                                                                                 \
    X(DEVICE_MEMORY, OPTION_OF(device_bytes), OPTION_FOR(COMMANDS_MODEL),                                              \
      .computed = "memory available to the process (within its cgroup), less 64 MiB for each process and 5% left "     \
                  "free; what is free on the GPU, less 384 MiB",                                                       \
      .help = "the most that a step's arena may take")                                                                 \
    X(HOST_MEMORY, OPTION_OF(host_bytes), OPTION_FOR(COMMANDS_MODEL),                                                  \
      .computed = "none on a processor, whose memory is its device tier; with a GPU the memory available to the "      \
                  "process, less 64 MiB and 5%",                                                                       \
      .help = "a host tier of this size beside the device tier")                                                       \
    X(DISK, OPTION_OF(disk_folder), .argument = "DIR[:SIZE]",                                                          \
      OPTION_FOR(COMMANDS_MODEL | COMMAND_SIMULATE | COMMAND_REPORT),                                                  \
      .computed = "none, of resume and simulate what the run had; SIZE: what is free there, less 5%",                  \
      .help = "directory for what does not fit in memory, and the most to take there")                                 \
    X(RANKS, OPTION_OWN(.name = "ranks", SETTING_WHOLE_IN(1, 4096)), OPTION_FOR(COMMANDS_RANKS | COMMAND_PLAN),        \
      .computed = "1, or as many as mpirun or srun started",                                                           \
      .help = "start so many processes on this machine, by mpirun, which compute together; where mpirun or srun "      \
              "started this one, how many there must be; plan: for how many, of which none is started")                \
    X(NODES, OPTION_OWN(.name = "nodes", SETTING_WHOLE_IN(1, 4096)), OPTION_FOR(COMMANDS_RANKS | COMMAND_PLAN),        \
      .computed = "the machines that the ranks are on; plan: as the cluster file's links have it, else 1",             \
      .help = "take the ranks as so many nodes of as many ranks each, in their order; never changes a result")         \
    X(RANK_TIMEOUT, OPTION_OWN(.name = "rank-timeout", SETTING_REAL_IN(1, 86400), SETTING_REAL_DEFAULT(30)),           \
      .argument = "SECONDS", OPTION_FOR(COMMANDS_RANKS),                                                               \
      .help = "how long a rank may be silent or keep the others waiting before these end with an error")               \
    X(PIPELINE_PARALLEL, OPTION_OF(stages), .argument = "N|auto", OPTION_FOR(COMMANDS_STEP),                           \
      .computed = ", or what the plan file or the run says",                                                           \
      .help = "pipeline parallelism: N stages, each with a part of the layers on its own ranks. N divides --ranks. "   \
              "auto: the fastest N; never changes a result (docs/clusters.md)")                                        \
    X(VIRTUAL_STAGES, OPTION_OF(interleave), OPTION_FOR(COMMANDS_STEP),                                                \
      .computed = "whichever makes the fastest step",                                                                  \
      .help = "virtual pipeline stages of each rank. More of them make the pipeline's bubble smaller and send more; "  \
              "never changes a result")                                                                                \
    X(PARTITION, OPTION_OF(partition), .argument = "P", OPTION_FOR(COMMANDS_STEP),                                     \
      .computed = "the fastest that fits, or what the plan file or the run says",                                      \
      .help = "in how many shards, each on a rank of its own, parameters, gradients and optimizer states are: ddp, "   \
              "zero1, zero2, zero3, mics:N, hpz, hybrid:N, or three widths as in 8|8|32 or 8x1|8x1|8x4 (ranks of a "   \
              "node x nodes); never changes a result (docs/clusters.md)")                                              \
    X(COLLECTIVES, OPTION_OF(flat), .argument = "stratified|flat", OPTION_FOR(COMMANDS_STEP),                          \
      .computed = "the faster, or what the plan file or the run says",                                                 \
      .help = "stratified: collectives run within each node, then across nodes. flat: each rank sends straight to "    \
              "every other; never changes a result")                                                                   \
    X(GPU_COLLECTIVES,                                                                                                 \
      OPTION_OWN(.name = "gpu-collectives", .type = SETTING_CHOICE, .choices = "auto|nccl|host", .fallback = "auto"),  \
      .argument = "auto|nccl|host", OPTION_FOR(COMMANDS_RANKS),                                                        \
      .help =                                                                                                          \
          "how collectives of GPUs travel: from GPU to GPU by NCCL, or through the host's memory. auto: NCCL where "   \
          "it is installed and each rank has its own GPU; never changes a result")                                     \
    X(OBJECTIVE, OPTION_OWN(.name = "objective", .type = SETTING_CHOICE, .choices = "step|sum", .fallback = "step"),   \
      .argument = "step|sum", OPTION_FOR(COMMAND_PLAN),                                                                \
      .help = "what a policy is chosen by: the time of its simulated step, or, to compare, the sum of all work as if " \
              "nothing were hidden beside anything else")                                                              \
    X(EXPLAIN, OPTION_OWN(.name = "explain", .type = SETTING_FLAG), OPTION_FOR(COMMAND_PLAN),                          \
      .help = "with several ranks: for each partition, the best policy that was tried, and why it is not the plan's; " \
              "how operators could be cut among the ranks, and what does not divide")                                  \
    X(CLUSTER, OPTION_OF(cluster_path), .argument = "FILE",                                                            \
      OPTION_FOR(COMMANDS_MODEL | COMMAND_SIMULATE | COMMAND_REPORT), .computed = "measured here",                     \
      .help =                                                                                                          \
          "a cluster file (`ballast profile -o`) whose rates are taken in place of measuring them; plan: where its "   \
          "device is not here, all that the file says of that; or the name of a file of clusters/ (h100x8)")           \
    X(DEVICES, OPTION_OWN(.name = "devices", SETTING_WHOLE_IN(1, 1 << 20)), OPTION_FOR(COMMAND_PLAN),                  \
      .computed = "a plan for one device",                                                                             \
      .help = "plan for so many devices of --cluster: layouts by time and memory, simulated; --batch is then 4 Mi "    \
              "tokens and --seq the model's context, at most 4096, where they are not given")                          \
    X(PRICE, OPTION_OWN(.name = "price", SETTING_REAL_IN(0, 1e6), .above = true), OPTION_FOR(COMMAND_PLAN),            \
      .computed = "no price is shown", .help = "--devices: of a device an hour, to show that of a million tokens")     \
    X(TRAIN_TOKENS, OPTION_OWN(.name = "tokens", .type = SETTING_TEXT), .key = "train_tokens", .argument = "N[KMBT]",  \
      OPTION_FOR(COMMAND_PLAN), .computed = "no days are shown",                                                       \
      .help = "--devices, --target-days: tokens of the whole training, to show its days")                              \
    X(TARGET_DAYS, OPTION_OWN(.name = "target-days", SETTING_REAL_IN(0, 1e6), .above = true),                          \
      OPTION_FOR(COMMAND_PLAN), .computed = "no number of devices is looked for",                                      \
      .help = "the fewest devices of --cluster that train --tokens in so many days")                                   \
    X(PAGE, OPTION_OWN(.name = "page", .type = SETTING_TEXT), .argument = "FILE", OPTION_FOR(COMMAND_PLAN),            \
      .computed = "no page is written",                                                                                \
      .help = "--devices, --target-days: the front, the curve over numbers of devices, what ranks do when and their "  \
              "memory, as one HTML file")                                                                              \
    X(SVG, OPTION_OWN(.name = "svg", .type = SETTING_TEXT), .argument = "DIR", OPTION_FOR(COMMAND_PLAN),               \
      .computed = "no drawings are written",                                                                           \
      .help = "--devices, --target-days: the page's drawings as DIR/front.svg, curve.svg, timeline.svg, memory.svg")   \
    X(MTBF, OPTION_OWN(.name = "mtbf", SETTING_REAL_IN(0, 1e9), .above = true), .argument = "HOURS",                   \
      OPTION_FOR(COMMAND_PLAN), .computed = "nothing fails",                                                           \
      .help = "--devices, --target-days: mean time between failures of a node, which days and prices then include")    \
    X(CHECKPOINT_TIME, OPTION_OWN(.name = "checkpoint-time", SETTING_REAL_IN(0, 1e6), .fallback = "60"),               \
      .argument = "SECONDS", OPTION_FOR(COMMAND_PLAN), .help = "--mtbf: for which a checkpoint holds training up")     \
    X(RESTART_TIME, OPTION_OWN(.name = "restart-time", SETTING_REAL_IN(0, 1e6), .fallback = "600"),                    \
      .argument = "SECONDS", OPTION_FOR(COMMAND_PLAN),                                                                 \
      .help = "--mtbf: from a node's failure until training goes on from the last checkpoint")

#define OPTION_LIST_TRAIN(X)                                                                                           \
    X(PLAN, OPTION_OF(plan_path), .argument = "FILE", OPTION_FOR(COMMAND_TRAIN | COMMAND_EVAL | COMMANDS_TEXT),        \
      .help = "a plan that `ballast plan -o` wrote; plan options given beside it must agree with it")                  \
    X(FOR, OPTION_OWN(.name = "for", .type = SETTING_CHOICE, .choices = "train|generate", .fallback = "train"),        \
      .argument = "train|generate", OPTION_FOR(COMMAND_PLAN),                                                          \
      .help = "what to plan: a training step, or writing --batch texts at a time with key-value caches of --seq "      \
              "tokens each")                                                                                           \
    X(CONTINUE, OPTION_OWN(.name = "continue", .type = SETTING_FLAG), OPTION_FOR(COMMAND_TRAIN),                       \
      .help = "where --output holds the run of these settings already, go on with it as `ballast resume` does; where " \
              "it is complete, do nothing: one command line for a scheduler that starts it again and again")           \
    X(STEPS, OPTION_OF(steps), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = RUN_VALUE,                      \
      .help = "optimizer steps of the whole run, including the steps already done")                                    \
    X(EPOCHS, OPTION_OF(epochs), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .excludes = "steps",                      \
      .computed = "--steps" RUN_VALUE,                                                                                 \
      .help = "passes over the training data, in place of --steps; 0.5 is half of one")                                \
    X(LR, OPTION_OF(learning_rate), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = RUN_VALUE,                 \
      .help =                                                                                                          \
          "peak learning rate; resume: warm-up and decay keep their steps, and all later rates follow the new peak")   \
    X(SCHEDULE, OPTION_OF(schedule), .argument = "NAME", OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME),                   \
      .computed = RUN_VALUE,                                                                                           \
      .help = "learning rate after the warm-up: cosine, linear, constant or wsd (constant, then a linear fall)")       \
    X(SCHEDULE_STEPS, OPTION_OF(schedule_steps), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME),                           \
      .computed = "--steps" RUN_VALUE, .help = "steps after which the schedule is at its end")                         \
    X(WARMUP_STEPS, OPTION_OF(warmup_steps), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME),                               \
      .computed = "a tenth of the schedule, at most 100" RUN_VALUE,                                                    \
      .help = "steps of linear warm-up, from the run's first step")                                                    \
    X(MIN_LR_FRACTION, OPTION_OF(min_lr_fraction), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = RUN_VALUE,  \
      .help = "where the schedule ends, as a part of --lr")                                                            \
    X(WSD_DECAY_FRACTION, OPTION_OF(wsd_decay_fraction), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME),                   \
      .computed = RUN_VALUE, .help = "last part of the schedule, in which wsd falls")                                  \
    X(BETA1, OPTION_OF(beta1), OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN),                                               \
      .help = "decay of the first moment; sgd: momentum")                                                              \
    X(BETA2, OPTION_OF(beta2), OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN),                                               \
      .help = "adamw: decay of the second moment; lion: of the moment, 0.99 where it is not given")                    \
    X(EPSILON, OPTION_OF(epsilon), OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN),                                           \
      .help = "adamw: added to the root of the second moment")                                                         \
    X(WEIGHT_DECAY, OPTION_OF(weight_decay), OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN),                                 \
      .help = "of matrices and embeddings; biases and norm weights do not decay")                                      \
    X(CLIP_NORM, OPTION_OF(clip_norm), OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN),                                       \
      .help = "limit of the gradients' global norm; 0: none")                                                          \
    X(OPTIMIZER, OPTION_OF(optimizer), .argument = "NAME", OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE), \
      .computed = ", or what the plan file says",                                                                      \
      .help = "how weights are changed: adamw (two moments a weight), lion (one, and the sign of its blend: a tenth "  \
              "of AdamW's --lr), sgd (one: momentum), muon (one: matrices of layers are made orthogonal, the others "  \
              "change as by adamw, with the same --lr). Part of the recipe")                                           \
    X(MUON_MOMENTUM, OPTION_OF(muon_momentum), OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE),             \
      .computed = ", or what the plan file says", .help = "muon: decay of the matrices' moment. Part of the recipe")   \
    X(OPTIMIZER_DTYPE, OPTION_OF(optimizer_dtype), .argument = "fp32|bf16|int8",                                       \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE), .computed = ", or what the plan file says",          \
      .help = "data type of the optimizer's moments. bf16 takes half of the bytes, with stochastic rounding; int8 "    \
              "takes a quarter, with a scale for each 256 values, as in bitsandbytes. Part of the recipe")             \
    X(MASTER_WEIGHTS, OPTION_OF(master), .argument = "fp32|split|none",                                                \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE), .computed = ", or what the plan file says",          \
      .help =                                                                                                          \
          "master weights of bf16 weights: fp32; split: the 16 bits of fp32 that bf16 lacks, in half of the bytes; "   \
          "none: bf16 weights alone, with stochastic rounding. Part of the recipe")                                    \
    X(FREEZE, OPTION_OF(freeze), .argument = "PATTERN", OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE),    \
      .computed = "nothing, or what the plan file says",                                                               \
      .help = "weights that are not trained, by name, with *, ? and [...]; may be given several times")                \
    X(QUANTIZE_BASE, OPTION_OF(base_dtype), .argument = "none|nf4|int8|mxfp4",                                         \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE | COMMAND_INIT),                                       \
      .computed = ", or what the plan file says",                                                                      \
      .help = "quantized format of the matrices of linear layers and experts, for adapters (--lora): nf4 (4 bits, "    \
              "double quantization as in bitsandbytes), int8 (a scale per row), mxfp4 (4 bits, blocks of 32), none "   \
              "(--dtype). Part of the recipe")                                                                         \
    X(LORA, OPTION_OF(lora), .argument = "RANK,ALPHA,TARGETS",                                                         \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE),                                                      \
      .computed = "none, or what the plan file or the model's own adapter says",                                       \
      .help = "train adapters beside linear layers (8,16,q_proj,v_proj or 8,16,all-linear) and freeze all else; the "  \
              "run then writes adapters as peft has them")                                                             \
    X(SAVE_EVERY, OPTION_OF(save_every), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = RUN_VALUE,            \
      .help =                                                                                                          \
          "steps between checkpoints; one is also written at the end and on a signal; 0: none at all, so that the "    \
          "run leaves its model alone and cannot be resumed")                                                          \
    X(KEEP, OPTION_OF(keep), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = RUN_VALUE,                        \
      .help = "newest checkpoints that are kept; 0: all")                                                              \
    X(REPLAN, OPTION_OF(replan), .argument = "auto|off", OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME),                   \
      .computed = RUN_VALUE,                                                                                           \
      .help = "auto: a run times its own instructions and changes to another policy where that is more than 5% "       \
              "faster or memory has become less or more, with the same bits, all ranks together; off, also where "     \
              "--plan gives a policy, and for several ranks with GPUs: never")                                         \
    X(LOSS_ON, OPTION_OF(loss_on_all), .argument = "completions|all", OPTION_FOR(COMMAND_TRAIN | COMMAND_EVAL),        \
      .help = "which tokens of supervised examples (.jsonl with prompt and completion, or messages) count")            \
    X(CHAT_DATE, OPTION_OF(chat_time_s), .argument = "YYYY-MM-DD",                                                     \
      OPTION_FOR(COMMANDS_TEXT | COMMAND_TRAIN | COMMAND_EVAL), .computed = "today, in UTC",                           \
      .help = "the date that chat templates which ask for it are told; a run keeps it")                                \
    X(COLUMNS, OPTION_OF(columns), .argument = "FIELD=KEY,...", OPTION_FOR(COMMAND_TRAIN | COMMAND_EVAL),              \
      .computed = "the fields' own names",                                                                             \
      .help = "the keys by which .jsonl files have text, prompt and completion, messages, instruction, input and "     \
              "output, or prompt, chosen and rejected: prompt=question,completion=answer; a run keeps them")           \
    X(VALID, OPTION_OF(valid_paths), .argument = "PATH", OPTION_FOR(COMMAND_TRAIN),                                    \
      .help = "validation data beside the valid.* of directories; may be given several times")                         \
    X(VALID_EVERY, OPTION_OF(valid_every), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = RUN_VALUE,          \
      .help = "steps between validations, where there is validation data; 0: never")                                   \
    X(VALID_BATCHES, OPTION_OF(valid_batches), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = RUN_VALUE,      \
      .help = "the most batches of a validation; 0: all")                                                              \
    X(VALID_FRACTION, OPTION_OF(valid_fraction), OPTION_FOR(COMMAND_TRAIN),                                            \
      .help = "part of the training data held out where there is no other validation data")                            \
    X(SAMPLE_EVERY, OPTION_OF(sample_every), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = RUN_VALUE,        \
      .help = "steps between samples of what the model writes (samples.jsonl); 0: never")                              \
    X(SAMPLE_PROMPT, OPTION_OF(sample_prompt), .argument = "TEXT", OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME),         \
      .computed = "the end-of-text token" RUN_VALUE, .help = "the text that samples go on from")                       \
    X(SAMPLE_TOKENS, OPTION_OF(sample_tokens), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = RUN_VALUE,      \
      .help = "the most tokens of a sample")                                                                           \
    X(ALLOW_RECIPE_CHANGE, OPTION_OWN(.name = "allow-recipe-change", .type = SETTING_FLAG),                            \
      OPTION_FOR(COMMAND_RESUME),                                                                                      \
      .help = "go on although the instruction set or the kernels' version is another here, or with other --lanes or "  \
              "--round; the bits differ from there on, and run.json says since which step")                            \
    X(SERVE, OPTION_OWN(.name = "serve", .type = SETTING_TEXT), .argument = "[ADDRESS:]PORT",                          \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME | COMMAND_REPORT), .computed = "no server",                            \
      .help = "serve the run's page at http://ADDRESS:PORT/, and its figures for Prometheus at /metrics; without "     \
              "ADDRESS only this machine can reach it; port 0 takes a free one and prints it")                         \
    X(COMPARE, OPTION_OWN(.name = "compare", .type = SETTING_TEXT), .argument = "RUN_DIR",                             \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME | COMMAND_REPORT), .computed = "none",                                 \
      .help = "another run, whose curves the page shows in the same plots (train, resume: the page of --serve)")

#define OPTION_LIST_OTHER(X)                                                                                           \
    X(VERIFY, OPTION_OWN(.name = "verify", .type = SETTING_FLAG), OPTION_FOR(COMMAND_INSPECT),                         \
      .help =                                                                                                          \
          "read all files of a checkpoint, or of a run's checkpoints and model, again and compare their checksums "    \
          "with those that were taken when they were written; each damaged file and block is named")                   \
    X(BASE, OPTION_OWN(.name = "base", .type = SETTING_TEXT), .argument = "MODEL_DIR",                                 \
      OPTION_FOR(COMMAND_MERGE | COMMAND_RESUME), .computed = "where the adapter's config says",                       \
      .help = "the model that the adapter belongs to, where it has moved")                                             \
    X(MODEL, OPTION_OWN(.name = "model", .type = SETTING_TEXT), .argument = "MODEL_DIR|PRESET",                        \
      OPTION_FOR(COMMAND_SIMULATE | COMMAND_REPORT), .computed = "the one that the plan file or the run names",        \
      .help = "the model that the plan is for")                                                                        \
    X(TRACE, OPTION_OWN(.name = "trace", .type = SETTING_TEXT), .argument = "FILE", OPTION_FOR(COMMAND_SIMULATE),      \
      .help = "write the step as a Chrome trace, which Perfetto (ui.perfetto.dev) shows: predicted, and beside it "    \
              "measured where the run has a timeline.json")                                                            \
    X(BATCHES, OPTION_OWN(.name = "batches", SETTING_WHOLE_IN(0, SETTING_STEPS_MAX), SETTING_WHOLE_DEFAULT(0)),        \
      OPTION_FOR(COMMAND_EVAL), .help = "the most batches of each file; 0: all")                                       \
    X(REFERENCE, OPTION_OWN(.name = "reference", .type = SETTING_TEXT), .argument = "MODEL_DIR",                       \
      OPTION_FOR(COMMAND_EVAL),                                                                                        \
      .help = "of --loss dpo: the model that training began with, with which the model is compared")                   \
    X(PROMPT, OPTION_OWN(.name = "prompt", .type = SETTING_TEXT, .may_be_empty = true), .argument = "TEXT",            \
      OPTION_FOR(COMMAND_GENERATE), .help = "the text to go on from; \"\": from the end-of-text token")                \
    X(PROMPTS, OPTION_OWN(.name = "prompts", .type = SETTING_TEXT), .argument = "FILE", OPTION_FOR(COMMAND_GENERATE),  \
      .help =                                                                                                          \
          "many prompts, one a line: of .jsonl {\"prompt\": TEXT} or {\"messages\": [...]}, else the line itself; "    \
          "prints a line of JSON for each")                                                                            \
    X(CHAT, OPTION_OWN(.name = "chat", .type = SETTING_FLAG), OPTION_FOR(COMMAND_GENERATE),                            \
      .help = "take prompts as what a user says to the model, by its chat template, and print the answer alone")       \
    X(SYSTEM, OPTION_OWN(.name = "system", .type = SETTING_TEXT), .argument = "TEXT", OPTION_FOR(COMMANDS_TEXT),       \
      .help = "what the system says before the user (generate: with --chat)")                                          \
    X(TOKENS, OPTION_OF(tokens), OPTION_FOR(COMMANDS_TEXT),                                                            \
      .computed = "; of answers: as many as the caches of --seq tokens hold", .help = "the most new tokens")           \
    X(TEMPERATURE, OPTION_OF(temperature), OPTION_FOR(COMMANDS_TEXT),                                                  \
      .computed = ", or what the model's generation_config.json says (0 where that has do_sample false)",              \
      .help = "divides the logits; 0: always the likeliest token")                                                     \
    X(TOP_K, OPTION_OF(top_k), OPTION_FOR(COMMANDS_TEXT), .computed = ", or what generation_config.json says",         \
      .help = "draw among the k likeliest tokens; 0: all")                                                             \
    X(TOP_P, OPTION_OF(top_p), OPTION_FOR(COMMANDS_TEXT), .computed = ", or what generation_config.json says",         \
      .help = "draw among the fewest likeliest tokens that hold this much probability")                                \
    X(REPETITION_PENALTY, OPTION_OF(repetition_penalty), OPTION_FOR(COMMANDS_TEXT),                                    \
      .computed = ", or what generation_config.json says",                                                             \
      .help = "above 1 tokens that are in the prompt or the text are less likely to come again (their logits are "     \
              "divided by it, negative ones multiplied)")                                                              \
    X(STOP, OPTION_OWN(.name = "stop", .type = SETTING_TEXTS), .argument = "TEXT", OPTION_FOR(COMMANDS_TEXT),          \
      .help = "end before this text; may be given several times")                                                      \
    X(IGNORE_END, OPTION_OWN(.name = "ignore-end", .type = SETTING_FLAG), OPTION_FOR(COMMANDS_TEXT),                   \
      .help = "go on after an end-of-text token")

#define OPTION_LIST_INIT(X)                                                                                            \
    X(LIKE, OPTION_OWN(.name = "like", .type = SETTING_TEXT), .argument = "MODEL_DIR|PRESET",                          \
      OPTION_FOR(COMMAND_INIT),                                                                                        \
      .help = "in place of the options for dimensions: take config.json and the tokenizer of this model, whose "       \
              "weights need not be there, or the dimensions of a published one (`ballast help presets`)")              \
    X(ARCH, OPTION_OWN(.name = "arch", .type = SETTING_CHOICE, .choices = MODEL_FAMILY_CHOICES), .argument = "FAMILY", \
      OPTION_FOR(COMMAND_INIT), .excludes = "like", .required = true,                                                  \
      .help = "family of the model:" MODEL_FAMILY_LIST(MODEL_FAMILY_WORD) " (`ballast help models`)")                  \
    X(HIDDEN, OPTION_OWN(.name = "hidden", SETTING_WHOLE_IN(1, SETTING_SIZE_MAX)), OPTION_FOR(COMMAND_INIT),           \
      .excludes = "like", .required = true, .help = "width of the residual stream")                                    \
    X(LAYERS, OPTION_OWN(.name = "layers", SETTING_WHOLE_IN(1, 1024)), OPTION_FOR(COMMAND_INIT), .excludes = "like",   \
      .required = true, .help = "transformer blocks")                                                                  \
    X(HEADS, OPTION_OWN(.name = "heads", SETTING_WHOLE_IN(1, 65536)), OPTION_FOR(COMMAND_INIT), .excludes = "like",    \
      .required = true, .help = "attention heads")                                                                     \
    X(KV_HEADS, OPTION_OWN(.name = "kv-heads", SETTING_WHOLE_IN(1, 65536)), OPTION_FOR(COMMAND_INIT),                  \
      .excludes = "like", .computed = "--heads",                                                                       \
      .help = "key-value heads, of which --heads is a multiple (not gpt2, opt)")                                       \
    X(HEAD_DIM, OPTION_OWN(.name = "head-dim", SETTING_WHOLE_IN(1, 65536)), OPTION_FOR(COMMAND_INIT),                  \
      .excludes = "like", .computed = "--hidden / --heads", .help = "width of a head (not gpt2, opt)")                 \
    X(FFN, OPTION_OWN(.name = "ffn", SETTING_WHOLE_IN(1, SETTING_SIZE_MAX)), OPTION_FOR(COMMAND_INIT),                 \
      .excludes = "like", .computed = "so many times --hidden as in the authors' models (`ballast help models`)",      \
      .help = "width inside the MLP")                                                                                  \
    X(WINDOW, OPTION_OWN(.name = "window", SETTING_WHOLE_IN(1, 1073741824)), OPTION_FOR(COMMAND_INIT),                 \
      .excludes = "like", .computed = "that of the authors' first model, or none",                                     \
      .help = "tokens that a position sees in all layers, itself included; for families that have a sliding window "   \
              "(`ballast help models`)")                                                                               \
    X(VOCAB, OPTION_OWN(.name = "vocab", SETTING_WHOLE_IN(1, 134217728)), OPTION_FOR(COMMAND_INIT),                    \
      .excludes = "like", .required = true,                                                                            \
      .help = "tokens of the vocabulary, and of the tokenizer that --tokenizer-data makes")                            \
    X(CONTEXT, OPTION_OWN(.name = "context", SETTING_WHOLE_IN(1, 1073741824)), OPTION_FOR(COMMAND_INIT),               \
      .excludes = "like", .required = true, .help = "the longest sequence, in tokens")                                 \
    X(TIED, OPTION_OWN(.name = "tied", .type = SETTING_FLAG), OPTION_FOR(COMMAND_INIT), .excludes = "like",            \
      .help = "use the embedding's weight for the head too (gpt2, opt: always)")                                       \
    X(TOKENIZER_DATA, OPTION_OWN(.name = "tokenizer-data", .type = SETTING_TEXT), .argument = "FILE",                  \
      OPTION_FOR(COMMAND_INIT),                                                                                        \
      .help = "train a byte-level BPE tokenizer of --vocab tokens on this text and put it beside the model")

#define OPTION_LIST(X)                                                                                                 \
    OPTION_LIST_INIT(X)                                                                                                \
    OPTION_LIST_PLAN(X)                                                                                                \
    OPTION_LIST_TRAIN(X)                                                                                               \
    OPTION_LIST_OTHER(X)                                                                                               \
    OPTION_LIST_COMMON(X)

#endif
