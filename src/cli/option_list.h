/* The rows of the option table (option_table.h says what a field means). */
#ifndef BALLAST_CLI_OPTION_LIST_H
#define BALLAST_CLI_OPTION_LIST_H

#define OPTION_WHOLE_RANGE(low, high) .type = OPTION_WHOLE, .argument = "N", .least = (low), .most = (high)
#define OPTION_REAL_RANGE(low, high) .type = OPTION_REAL, .argument = "X", .real_least = (low), .real_most = (high)
#define OPTION_FOR(mask) .commands = (mask)
#define OPTION_MOST_STEPS 1000000000000
#define OPTION_MOST_SIZE 16777216

#define OPTION_LIST_COMMON(X)                                                                                          \
    X(CONFIG, .name = "config", .type = OPTION_TEXT, .argument = "FILE", OPTION_FOR(COMMANDS_ALL),                     \
      .help = "a JSON file with options by their keys; the command line wins over it")                                 \
    X(JSON, .name = "json", .type = OPTION_FLAG,                                                                       \
      OPTION_FOR(COMMAND_PLAN | COMMAND_EVAL | COMMAND_PROFILE | COMMAND_SIMULATE | COMMAND_INSPECT),                  \
      .help = "print one JSON document on stdout and nothing else there")                                              \
    X(QUIET, .name = "quiet", .type = OPTION_FLAG,                                                                     \
      OPTION_FOR(COMMAND_INIT | COMMAND_TRAIN | COMMAND_RESUME | COMMAND_MERGE | COMMAND_EVAL | COMMAND_CHAT |         \
                 COMMAND_GENERATE | COMMAND_REPORT),                                                                   \
      .help = "leave out progress and notes; warnings and errors stay")                                                \
    X(OUTPUT, .name = "output", .letter = 'o', .type = OPTION_TEXT, .argument = "PATH",                                \
      OPTION_FOR(COMMAND_GENERATE | COMMAND_TRAIN | COMMAND_PLAN | COMMAND_MERGE | COMMAND_PROFILE | COMMAND_REPORT),  \
      .help = "train (required there): the run's folder, new or empty; merge (required there): the same of the "       \
              "model; plan: the plan file to write; profile: the "                                                     \
              "cluster file to write; report: the HTML file (else RUN_DIR/report.html, or beside the plan); "          \
              "generate: the file of texts of --prompts")

/* Options that plan, train, resume, eval, generate and profile share. */
#define OPTION_LIST_PLAN(X)                                                                                            \
    X(BATCH, .name = "batch", OPTION_WHOLE_RANGE(1, OPTION_MOST_SIZE), OPTION_FOR(COMMANDS_STEP),                      \
      .computed = "8, or what the plan file or the run says; --for generate: 1",                                       \
      .help = "sequences per step over all ranks; of generate --prompts: texts at a time")                             \
    X(SEQ, .name = "seq", OPTION_WHOLE_RANGE(1, OPTION_MOST_SIZE), OPTION_FOR(COMMANDS_MODEL),                         \
      .computed = "the model's context, at most 1024, or what the plan file or the run says",                          \
      .help = "tokens per sequence")                                                                                   \
    X(DTYPE, .name = "dtype", .type = OPTION_CHOICE, .argument = "bf16|fp32", .choices = "bf16|fp32",                  \
      OPTION_FOR(COMMANDS_MODEL),                                                                                      \
      .computed = "bf16 where it is in hardware (AVX512-BF16, AMX or a GPU, see `ballast profile`) and thus several "  \
                  "times as fast, else fp32; or what the plan file or the run says",                                   \
      .help = "numbers of parameters and activations; sums and the optimizer are fp32 in both")                        \
    X(DOCUMENT_ATTENTION, .name = "document-attention", .type = OPTION_CHOICE, .argument = "across|within",            \
      .choices = "across|within", OPTION_FOR(COMMANDS_STEP),                                                           \
      .computed = "across, or what the plan file or the run says",                                                     \
      .help = "whether tokens see those of earlier documents in their sequence (documents end at the model's "         \
              "eos_token_id); within: each document by itself, its positions from 0")                                  \
    X(GRAIN, .name = "grain", OPTION_WHOLE_RANGE(1, OPTION_MOST_SIZE), OPTION_FOR(COMMANDS_STEP),                      \
      .computed = "the fewest that hold 1024 tokens, on a GPU 4096 to 32768 by model and card, at most the batch",     \
      .help = "sequences on which each kernel is called; part of the recipe")                                          \
    X(GRAINS_PER_PASS, .name = "grains-per-pass", OPTION_WHOLE_RANGE(1, OPTION_MOST_SIZE), OPTION_FOR(COMMANDS_STEP),  \
      .computed = "1, or what the plan file says",                                                                     \
      .help = "grains whose activations are in memory at once; never changes a result")                                \
    X(THREADS, .name = "threads", OPTION_WHOLE_RANGE(1, 4096), OPTION_FOR(COMMANDS_MODEL),                             \
      .computed = "the physical cores that the process may use", .help = "compute threads; part of the recipe")        \
    X(SEED, .name = "seed", OPTION_WHOLE_RANGE(0, INT64_MAX), OPTION_FOR(COMMANDS_MODEL | COMMAND_INIT),               \
      .computed = "1, or what the plan file or the run says",                                                          \
      .help = "of all that is random: initial weights (init), order of the data, sampling")                            \
    X(DEVICE, .name = "device", .type = OPTION_TEXT, .argument = "cpu|cuda[:N]", OPTION_FOR(COMMANDS_MODEL),           \
      .computed = "cuda where there is a GPU that this build can use, else cpu; or what the plan file or the run "     \
                  "was made on",                                                                                       \
      .help = "what computes: the processor, or the N-th GPU from 0; results depend on it, so a run goes on where it " \
              "began")                                                                                                 \
    X(DEVICE_MEMORY, .name = "device-memory", .type = OPTION_SIZE, .argument = "SIZE", OPTION_FOR(COMMANDS_MODEL),     \
      .computed = "memory available to the process (within its cgroup), less 64 MiB for the process and 5% left "      \
                  "free; what is free on the GPU, less 384 MiB",                                                       \
      .help = "the most that a step's arena may take")                                                                 \
    X(HOST_MEMORY, .name = "host-memory", .type = OPTION_SIZE, .argument = "SIZE", OPTION_FOR(COMMANDS_MODEL),         \
      .computed = "none on a processor, whose memory is its device tier; with a GPU the memory available to the "      \
                  "process, less 64 MiB and 5%",                                                                       \
      .help = "a host tier of this size beside the device tier")                                                       \
    X(DISK, .name = "disk", .type = OPTION_TEXT, .argument = "DIR[:SIZE]",                                             \
      OPTION_FOR(COMMANDS_MODEL | COMMAND_SIMULATE | COMMAND_REPORT),                                                  \
      .computed = "none, or for simulate what the run had; SIZE: what is free there, less 5%",                         \
      .help = "folder for what does not fit in memory, and the most to take there")                                    \
    X(PARTITION, .name = "partition", .type = OPTION_TEXT, .argument = "P", OPTION_FOR(COMMANDS_STEP),                 \
      .refusal = "this version runs on one rank",                                                                      \
      .help = "how parameters, gradients and states are spread over ranks")                                            \
    X(CLUSTER, .name = "cluster", .type = OPTION_TEXT, .argument = "FILE",                                             \
      OPTION_FOR(COMMANDS_MODEL | COMMAND_SIMULATE | COMMAND_REPORT), .computed = "measured here",                     \
      .help =                                                                                                          \
          "a cluster file (`ballast profile -o`) whose rates are taken in place of measuring them; plan: where its "   \
          "device is not here, all that the file says of that (clusters/h100-sxm.json)")

#define OPTION_LIST_TRAIN(X)                                                                                           \
    X(PLAN, .name = "plan", .type = OPTION_TEXT, .argument = "FILE",                                                   \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_EVAL | COMMANDS_TEXT),                                                        \
      .help = "a plan that `ballast plan -o` wrote; plan options given beside it must agree with it")                  \
    X(FOR, .name = "for", .type = OPTION_CHOICE, .argument = "train|generate", .choices = "train|generate",            \
      OPTION_FOR(COMMAND_PLAN), .fallback = "train",                                                                   \
      .help = "what to plan: a training step, or writing --batch texts at a time with key-value caches of --seq "      \
              "tokens each")                                                                                           \
    X(STEPS, .name = "steps", OPTION_WHOLE_RANGE(1, OPTION_MOST_STEPS), OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME),    \
      .computed = "1000; resume: what the run says", .help = "optimizer steps of the whole run")                       \
    X(EPOCHS, .name = "epochs", OPTION_REAL_RANGE(0, 1e6), .above = true, OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME),  \
      .excludes = "steps", .computed = "--steps",                                                                      \
      .help = "passes over the training data, in place of --steps; 0.5 is half of one")                                \
    X(LR, .name = "lr", OPTION_REAL_RANGE(0, 1000), .above = true, OPTION_FOR(COMMAND_TRAIN), .fallback = "3e-4",      \
      .help = "peak learning rate")                                                                                    \
    X(SCHEDULE, .name = "schedule", .type = OPTION_CHOICE, .argument = "NAME",                                         \
      .choices = "cosine|linear|constant|wsd", OPTION_FOR(COMMAND_TRAIN), .fallback = "cosine",                        \
      .help = "learning rate after the warm-up: cosine, linear, constant or wsd (constant, then a linear fall)")       \
    X(SCHEDULE_STEPS, .name = "schedule-steps", OPTION_WHOLE_RANGE(1, OPTION_MOST_STEPS), OPTION_FOR(COMMAND_TRAIN),   \
      .computed = "--steps", .help = "steps after which the schedule is at its end")                                   \
    X(WARMUP_STEPS, .name = "warmup-steps", OPTION_WHOLE_RANGE(0, OPTION_MOST_STEPS), OPTION_FOR(COMMAND_TRAIN),       \
      .computed = "a tenth of the schedule, at most 100", .help = "steps of linear warm-up")                           \
    X(MIN_LR_FRACTION, .name = "min-lr-fraction", OPTION_REAL_RANGE(0, 1), OPTION_FOR(COMMAND_TRAIN),                  \
      .fallback = "0.1", .help = "where the schedule ends, as a part of --lr")                                         \
    X(WSD_DECAY_FRACTION, .name = "wsd-decay-fraction", OPTION_REAL_RANGE(0, 1), .above = true,                        \
      OPTION_FOR(COMMAND_TRAIN), .fallback = "0.2", .help = "last part of the schedule, in which wsd falls")           \
    X(BETA1, .name = "beta1", OPTION_REAL_RANGE(0, 0.999999), OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN),                \
      .fallback = "0.9", .help = "AdamW: decay of the first moment")                                                   \
    X(BETA2, .name = "beta2", OPTION_REAL_RANGE(0, 0.999999), OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN),                \
      .fallback = "0.95", .help = "AdamW: decay of the second moment")                                                 \
    X(EPSILON, .name = "epsilon", OPTION_REAL_RANGE(0, 1), .above = true, OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN),    \
      .fallback = "1e-8", .help = "AdamW: added to the root of the second moment")                                     \
    X(WEIGHT_DECAY, .name = "weight-decay", OPTION_REAL_RANGE(0, 1000), OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN),      \
      .fallback = "0.1", .help = "AdamW: of matrices and embeddings; biases and norm weights do not decay")            \
    X(CLIP_NORM, .name = "clip-norm", OPTION_REAL_RANGE(0, 1e9), OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN),             \
      .fallback = "1", .help = "limit of the gradients' global norm; 0: none")                                         \
    X(FREEZE, .name = "freeze", .type = OPTION_TEXTS, .argument = "PATTERN",                                           \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE), .computed = "nothing, or what the plan file says",   \
      .help = "weights that are not trained, by name, with *, ? and [...]; may be given several times")                \
    X(LORA, .name = "lora", .type = OPTION_TEXT, .argument = "RANK,ALPHA,TARGETS",                                     \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_PLAN | COMMAND_PROFILE),                                                      \
      .computed = "none, or what the plan file or the model's own adapter says",                                       \
      .help = "train adapters beside linear layers (8,16,q_proj,v_proj or 8,16,all-linear) and freeze all else; the "  \
              "run then writes adapters as peft has them")                                                             \
    X(SAVE_EVERY, .name = "save-every", OPTION_WHOLE_RANGE(0, OPTION_MOST_STEPS), OPTION_FOR(COMMAND_TRAIN),           \
      .fallback = "100",                                                                                               \
      .help =                                                                                                          \
          "steps between checkpoints; one is also written at the end and on a signal; 0: none at all, so that the "    \
          "run leaves its model alone and cannot be resumed")                                                          \
    X(KEEP, .name = "keep", OPTION_WHOLE_RANGE(0, 1000000), OPTION_FOR(COMMAND_TRAIN), .fallback = "2",                \
      .help = "newest checkpoints that are kept; 0: all")                                                              \
    X(LOSS_ON, .name = "loss-on", .type = OPTION_CHOICE, .argument = "completions|all", .choices = "completions|all",  \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_EVAL), .fallback = "completions",                                             \
      .help = "which tokens of supervised examples (.jsonl with prompt and completion, or messages) count")            \
    X(CHAT_DATE, .name = "chat-date", .type = OPTION_TEXT, .argument = "YYYY-MM-DD",                                   \
      OPTION_FOR(COMMANDS_TEXT | COMMAND_TRAIN | COMMAND_EVAL), .computed = "today, in UTC",                           \
      .help = "the date that chat templates which ask for it are told; a run keeps it")                                \
    X(COLUMNS, .name = "columns", .type = OPTION_TEXT, .argument = "FIELD=KEY,...",                                    \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_EVAL), .computed = "the fields' own names",                                   \
      .help = "the keys by which .jsonl files have text, prompt and completion, messages, or instruction, input and "  \
              "output: prompt=question,completion=answer; a run keeps them")                                           \
    X(VALID, .name = "valid", .type = OPTION_TEXTS, .argument = "PATH", OPTION_FOR(COMMAND_TRAIN),                     \
      .help = "validation data beside the valid.* of folders; may be given several times")                             \
    X(VALID_EVERY, .name = "valid-every", OPTION_WHOLE_RANGE(0, OPTION_MOST_STEPS), OPTION_FOR(COMMAND_TRAIN),         \
      .fallback = "100", .help = "steps between validations, where there is validation data; 0: never")                \
    X(VALID_BATCHES, .name = "valid-batches", OPTION_WHOLE_RANGE(0, OPTION_MOST_STEPS), OPTION_FOR(COMMAND_TRAIN),     \
      .fallback = "0", .help = "the most batches of a validation; 0: all")                                             \
    X(VALID_FRACTION, .name = "valid-fraction", OPTION_REAL_RANGE(0, 0.9), OPTION_FOR(COMMAND_TRAIN), .fallback = "0", \
      .help = "part of the training data held out where there is no other validation data")                            \
    X(SAMPLE_EVERY, .name = "sample-every", OPTION_WHOLE_RANGE(0, OPTION_MOST_STEPS), OPTION_FOR(COMMAND_TRAIN),       \
      .fallback = "0", .help = "steps between samples of what the model writes (samples.jsonl); 0: never")             \
    X(SAMPLE_PROMPT, .name = "sample-prompt", .type = OPTION_TEXT, .argument = "TEXT", OPTION_FOR(COMMAND_TRAIN),      \
      .may_be_empty = true, .computed = "the end-of-text token", .help = "the text that samples go on from")           \
    X(SAMPLE_TOKENS, .name = "sample-tokens", OPTION_WHOLE_RANGE(1, OPTION_MOST_SIZE), OPTION_FOR(COMMAND_TRAIN),      \
      .fallback = "64", .help = "the most tokens of a sample")                                                         \
    X(ALLOW_RECIPE_CHANGE, .name = "allow-recipe-change", .type = OPTION_FLAG, OPTION_FOR(COMMAND_RESUME),             \
      .help = "go on although the instruction set or the kernels' version is another here, or with other --threads; "  \
              "the bits differ from there on, and run.json says since which step")                                     \
    X(SERVE, .name = "serve", .type = OPTION_TEXT, .argument = "[ADDRESS:]PORT",                                       \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME), .computed = "no server",                                             \
      .help = "while it trains, show the run's page at http://ADDRESS:PORT/ and its numbers for Prometheus at "        \
              "/metrics; without ADDRESS only this machine can reach it; port 0 takes a free one and tells which")     \
    X(BESIDE, .name = "beside", .type = OPTION_TEXT, .argument = "RUN_DIR",                                            \
      OPTION_FOR(COMMAND_TRAIN | COMMAND_RESUME | COMMAND_REPORT), .computed = "none",                                 \
      .help = "another run, whose curves the page (of --serve, where training) shows in the same plots")

#define OPTION_LIST_OTHER(X)                                                                                           \
    X(VERIFY, .name = "verify", .type = OPTION_FLAG, OPTION_FOR(COMMAND_INSPECT),                                      \
      .help =                                                                                                          \
          "read all files of a checkpoint, or of a run's checkpoints and model, again and compare their checksums "    \
          "with those that were taken when they were written; each damaged file and block is named")                   \
    X(BASE, .name = "base", .type = OPTION_TEXT, .argument = "MODEL_DIR", OPTION_FOR(COMMAND_MERGE),                   \
      .computed = "where the adapter's config says", .help = "the model that the adapter belongs to")                  \
    X(MODEL, .name = "model", .type = OPTION_TEXT, .argument = "MODEL_DIR|PRESET",                                     \
      OPTION_FOR(COMMAND_SIMULATE | COMMAND_REPORT), .computed = "the one that the plan file or the run names",        \
      .help = "the model that the plan is for")                                                                        \
    X(TRACE, .name = "trace", .type = OPTION_TEXT, .argument = "FILE", OPTION_FOR(COMMAND_SIMULATE),                   \
      .help = "write the step as a Chrome trace, which Perfetto (ui.perfetto.dev) shows: predicted, and beside it "    \
              "measured where the run has a timeline.json")                                                            \
    X(BATCHES, .name = "batches", OPTION_WHOLE_RANGE(0, OPTION_MOST_STEPS), OPTION_FOR(COMMAND_EVAL), .fallback = "0", \
      .help = "the most batches of each file; 0: all")                                                                 \
    X(PROMPT, .name = "prompt", .type = OPTION_TEXT, .argument = "TEXT", OPTION_FOR(COMMAND_GENERATE),                 \
      .may_be_empty = true, .help = "the text to go on from; \"\": from the end-of-text token")                        \
    X(PROMPTS, .name = "prompts", .type = OPTION_TEXT, .argument = "FILE", OPTION_FOR(COMMAND_GENERATE),               \
      .help =                                                                                                          \
          "many prompts, one a line: of .jsonl {\"prompt\": TEXT} or {\"messages\": [...]}, else the line itself; "    \
          "prints a line of JSON for each")                                                                            \
    X(CHAT, .name = "chat", .type = OPTION_FLAG, OPTION_FOR(COMMAND_GENERATE),                                         \
      .help = "take prompts as what a user says to the model, by its chat template, and print the answer alone")       \
    X(SYSTEM, .name = "system", .type = OPTION_TEXT, .argument = "TEXT", OPTION_FOR(COMMANDS_TEXT),                    \
      .help = "what the system says before the user (generate: with --chat)")                                          \
    X(TOKENS, .name = "tokens", OPTION_WHOLE_RANGE(1, 100000000), OPTION_FOR(COMMANDS_TEXT),                           \
      .computed = "100; of answers: as many as the caches of --seq tokens hold", .help = "the most new tokens")        \
    X(TEMPERATURE, .name = "temperature", OPTION_REAL_RANGE(0, 100), OPTION_FOR(COMMANDS_TEXT),                        \
      .computed = "what the model's generation_config.json says (0 where that has do_sample false), else 0.8",         \
      .help = "divides the logits; 0: always the likeliest token")                                                     \
    X(TOP_K, .name = "top-k", OPTION_WHOLE_RANGE(0, OPTION_MOST_STEPS), OPTION_FOR(COMMANDS_TEXT),                     \
      .computed = "what generation_config.json says, else 0", .help = "draw among the k likeliest tokens; 0: all")     \
    X(TOP_P, .name = "top-p", OPTION_REAL_RANGE(0, 1), .above = true, OPTION_FOR(COMMANDS_TEXT),                       \
      .computed = "what generation_config.json says, else 1",                                                          \
      .help = "draw among the fewest likeliest tokens that hold this much probability")                                \
    X(REPETITION_PENALTY, .name = "repetition-penalty", OPTION_REAL_RANGE(0.001, 1000), OPTION_FOR(COMMANDS_TEXT),     \
      .computed = "what generation_config.json says, else 1",                                                          \
      .help = "above 1 tokens that are in the prompt or the text are less likely to come again (their logits are "     \
              "divided by it, negative ones multiplied)")                                                              \
    X(STOP, .name = "stop", .type = OPTION_TEXTS, .argument = "TEXT", OPTION_FOR(COMMANDS_TEXT),                       \
      .help = "end before this text; may be given several times")                                                      \
    X(IGNORE_END, .name = "ignore-end", .type = OPTION_FLAG, OPTION_FOR(COMMANDS_TEXT),                                \
      .help = "go on after an end-of-text token")

#define OPTION_LIST_INIT(X)                                                                                            \
    X(ARCH, .name = "arch", .type = OPTION_CHOICE, .argument = "FAMILY",                                               \
      .choices = "gpt2|llama|mistral|opt|phi3|qwen2|qwen3", OPTION_FOR(COMMAND_INIT), .required = true,                \
      .help = "family of the model: gpt2, llama, mistral, opt, phi3, qwen2 or qwen3 (`ballast help models`)")          \
    X(HIDDEN, .name = "hidden", OPTION_WHOLE_RANGE(1, OPTION_MOST_SIZE), OPTION_FOR(COMMAND_INIT), .required = true,   \
      .help = "width of the residual stream")                                                                          \
    X(LAYERS, .name = "layers", OPTION_WHOLE_RANGE(1, 1024), OPTION_FOR(COMMAND_INIT), .required = true,               \
      .help = "transformer blocks")                                                                                    \
    X(HEADS, .name = "heads", OPTION_WHOLE_RANGE(1, 65536), OPTION_FOR(COMMAND_INIT), .required = true,                \
      .help = "attention heads")                                                                                       \
    X(KV_HEADS, .name = "kv-heads", OPTION_WHOLE_RANGE(1, 65536), OPTION_FOR(COMMAND_INIT), .computed = "--heads",     \
      .help = "key-value heads, of which --heads is a multiple (not gpt2, opt)")                                       \
    X(HEAD_DIM, .name = "head-dim", OPTION_WHOLE_RANGE(1, 65536), OPTION_FOR(COMMAND_INIT),                            \
      .computed = "--hidden / --heads", .help = "width of a head (not gpt2, opt)")                                     \
    X(FFN, .name = "ffn", OPTION_WHOLE_RANGE(1, OPTION_MOST_SIZE), OPTION_FOR(COMMAND_INIT),                           \
      .computed = "gpt2, opt: 4 times --hidden; llama, phi3: 8/3, mistral: 7/2, rounded up to 256s; qwen2: 16/3, "     \
                  "rounded up to 128s; qwen3: 3 times",                                                                \
      .help = "width inside the MLP")                                                                                  \
    X(WINDOW, .name = "window", OPTION_WHOLE_RANGE(1, 1073741824), OPTION_FOR(COMMAND_INIT),                           \
      .computed = "mistral: 4096; others: none",                                                                       \
      .help = "tokens that a position sees in all layers, itself included (mistral, phi3, qwen2, qwen3)")              \
    X(VOCAB, .name = "vocab", OPTION_WHOLE_RANGE(1, 134217728), OPTION_FOR(COMMAND_INIT), .required = true,            \
      .help = "tokens of the vocabulary, and of the tokenizer that --tokenizer-data makes")                            \
    X(CONTEXT, .name = "context", OPTION_WHOLE_RANGE(1, 1073741824), OPTION_FOR(COMMAND_INIT), .required = true,       \
      .help = "the longest sequence, in tokens")                                                                       \
    X(TIED, .name = "tied", .type = OPTION_FLAG, OPTION_FOR(COMMAND_INIT),                                             \
      .help = "use the embedding's weight for the head too (gpt2, opt: always)")                                       \
    X(TOKENIZER_DATA, .name = "tokenizer-data", .type = OPTION_TEXT, .argument = "FILE", OPTION_FOR(COMMAND_INIT),     \
      .help = "train a byte-level BPE tokenizer of --vocab tokens on this text and put it beside the model")

#define OPTION_LIST(X)                                                                                                 \
    OPTION_LIST_INIT(X)                                                                                                \
    OPTION_LIST_PLAN(X)                                                                                                \
    OPTION_LIST_TRAIN(X)                                                                                               \
    OPTION_LIST_OTHER(X)                                                                                               \
    OPTION_LIST_COMMON(X)

#endif
