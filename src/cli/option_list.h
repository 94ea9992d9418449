/* The options that only the program has, a row each, as the settings in plan/setting_list.h. */
#pragma once

/* A new model. */
#define OPTION_LIST_INIT(X)                                                                                            \
    X(like, NULL, "like", .type = SETTING_TEXT, .argument = "MODEL_DIR|PRESET", .commands = COMMAND_INIT,              \
      .help = "copy config.json and tokenizer of this model (without weights), or the dimensions of a preset "         \
              "(`ballast help presets`), instead of giving dimensions")                                                \
    X(arch, NULL, "arch", .type = SETTING_CHOICE, .choices = MODEL_FAMILY_CHOICES, .argument = "FAMILY",               \
      .commands = COMMAND_INIT, .excludes = "like", .required = true,                                                  \
      .help = "family of the model:" MODEL_FAMILY_LIST(MODEL_FAMILY_NAME) " (`ballast help models`)")                  \
    X(hidden, NULL, "hidden", SETTING_INT_IN(1, SETTING_SIZE_MAX), .commands = COMMAND_INIT, .excludes = "like",       \
      .required = true, .help = "hidden size (width of the residual stream)")                                          \
    X(layers, NULL, "layers", SETTING_INT_IN(1, 1024), .commands = COMMAND_INIT, .excludes = "like", .required = true, \
      .help = "number of transformer blocks")                                                                          \
    X(heads, NULL, "heads", SETTING_INT_IN(1, 65536), .commands = COMMAND_INIT, .excludes = "like", .required = true,  \
      .help = "number of attention heads")                                                                             \
    X(kv_heads, NULL, "kv-heads", SETTING_INT_IN(1, 65536), .commands = COMMAND_INIT, .excludes = "like",              \
      .computed = "--heads", .help = "number of key-value heads; divides --heads (not gpt2, opt)")                     \
    X(head_dim, NULL, "head-dim", SETTING_INT_IN(1, 65536), .commands = COMMAND_INIT, .excludes = "like",              \
      .computed = "--hidden / --heads", .help = "dimension of a head (not gpt2, opt)")                                 \
    X(ffn, NULL, "ffn", SETTING_INT_IN(1, SETTING_SIZE_MAX), .commands = COMMAND_INIT, .excludes = "like",             \
      .computed = "so many times --hidden as in the authors' models (`ballast help models`)",                          \
      .help = "hidden size of the MLP")                                                                                \
    X(window, NULL, "window", SETTING_INT_IN(1, 1073741824), .commands = COMMAND_INIT, .excludes = "like",             \
      .computed = "that of the authors' first model, or none",                                                         \
      .help = "sliding attention window in tokens, including the position itself, for families that have one "         \
              "(`ballast help models`)")                                                                               \
    X(vocab, NULL, "vocab", SETTING_INT_IN(1, 134217728), .commands = COMMAND_INIT, .excludes = "like",                \
      .required = true, .help = "vocabulary size, also of the tokenizer that --tokenizer-data trains")                 \
    X(context, NULL, "context", SETTING_INT_IN(1, 1073741824), .commands = COMMAND_INIT, .excludes = "like",           \
      .required = true, .help = "maximum sequence length in tokens")                                                   \
    X(tied, NULL, "tied", .type = SETTING_FLAG, .commands = COMMAND_INIT, .excludes = "like",                          \
      .help = "tie the head's weight to the embedding (gpt2, opt: always)")                                            \
    X(tokenizer_data, NULL, "tokenizer-data", .type = SETTING_TEXT, .argument = "FILE", .commands = COMMAND_INIT,      \
      .help = "text file on which to train a byte-level BPE tokenizer of --vocab tokens for the model")

/* Ranks. */
#define OPTION_LIST_RANKS(X)                                                                                           \
    X(ranks, NULL, "ranks", SETTING_INT_IN(1, 4096), .commands = COMMANDS_RANKS | COMMAND_PLAN,                        \
      .computed = "1, or as many as mpirun or srun started",                                                           \
      .help = "start N processes on this machine with mpirun, or check how many mpirun or srun started; plan: plan "   \
              "for N ranks without starting them")                                                                     \
    X(nodes, NULL, "nodes", SETTING_INT_IN(1, 4096), .commands = COMMANDS_RANKS | COMMAND_PLAN,                        \
      .computed = "the number of machines; plan: nodes as in the cluster file, else 1",                                \
      .help = "treat the ranks as N nodes with the same number of ranks each, in rank order. Never changes a result")  \
    X(rank_timeout, NULL, "rank-timeout", SETTING_FLOAT_IN(1, 86400), SETTING_FLOAT_DEFAULT(30),                       \
      .argument = "SECONDS", .commands = COMMANDS_RANKS,                                                               \
      .help = "seconds without a heartbeat or progress of a rank before the other ranks end with an error")

/* What `plan` shows. */
#define OPTION_LIST_PLAN(X)                                                                                                                                                                                                                              \
X(for, NULL, "for", .type = SETTING_CHOICE, .choices = "train|generate", .fallback = "train", .commands = COMMAND_PLAN, .help = "program to plan: a training step, or generation of --batch texts at a time with key-value caches of --seq tokens each") \
    X(objective, NULL, "objective", .type = SETTING_CHOICE, .choices = "step|sum", .fallback = "step",                                                                                                                                                   \
      .commands = COMMAND_PLAN,                                                                                                                                                                                                                          \
      .help =                                                                                                                                                                                                                                            \
          "how the search ranks policies. step: simulated step time. sum: total work without overlap, for comparison")                                                                                                                                   \
    X(explain, NULL, "explain", .type = SETTING_FLAG, .commands = COMMAND_PLAN,                                                                                                                                                                          \
      .help = "with several ranks: show the best policy of each partition and why the plan does not use it, and the "                                                                                                                                    \
              "strategies of operators")                                                                                                                                                                                                                 \
    X(devices, NULL, "devices", SETTING_INT_IN(1, 1 << 20), .commands = COMMAND_PLAN,                                                                                                                                                                    \
      .computed = "a plan for one device",                                                                                                                                                                                                               \
      .help = "simulate layouts for N devices of --cluster and rank them by time and memory. Defaults to a batch of "                                                                                                                                    \
              "4 Mi tokens, and to --seq of the model's context, at most 4096")                                                                                                                                                                          \
    X(price, NULL, "price", SETTING_FLOAT_IN(0, 1e6), .above = true, .commands = COMMAND_PLAN,                                                                                                                                                           \
      .computed = "no price is shown",                                                                                                                                                                                                                   \
      .help = "price of a device per hour, to show the price of a million tokens (with --devices)")                                                                                                                                                      \
    X(train_tokens, NULL, "tokens", .type = SETTING_TEXT, .config_key = "train_tokens", .argument = "N[KMBT]",                                                                                                                                           \
      .commands = COMMAND_PLAN, .computed = "no days are shown",                                                                                                                                                                                         \
      .help = "tokens of the whole training, to show its days (with --devices or --target-days)")                                                                                                                                                        \
    X(target_days, NULL, "target-days", SETTING_FLOAT_IN(0, 1e6), .above = true, .commands = COMMAND_PLAN,                                                                                                                                               \
      .computed = "no number of devices is looked for",                                                                                                                                                                                                  \
      .help = "find the smallest number of devices of --cluster that trains --tokens in N days")                                                                                                                                                         \
    X(page, NULL, "page", .type = SETTING_TEXT, .argument = "FILE", .commands = COMMAND_PLAN,                                                                                                                                                            \
      .computed = "no page is written",                                                                                                                                                                                                                  \
      .help = "HTML page with the Pareto front, the curve over device counts, timelines and memory of ranks (with "                                                                                                                                      \
              "--devices or --target-days)")                                                                                                                                                                                                             \
    X(svg, NULL, "svg", .type = SETTING_TEXT, .argument = "DIR", .commands = COMMAND_PLAN,                                                                                                                                                               \
      .computed = "no drawings are written",                                                                                                                                                                                                             \
      .help = "directory for the page's drawings: pareto_front.svg, curve.svg, timeline.svg, memory.svg (with "                                                                                                                                          \
              "--devices or "                                                                                                                                                                                                                            \
              "--target-days)")                                                                                                                                                                                                                          \
    X(mtbf, NULL, "mtbf", SETTING_FLOAT_IN(0, 1e9), .above = true, .argument = "HOURS", .commands = COMMAND_PLAN,                                                                                                                                        \
      .computed = "nothing fails",                                                                                                                                                                                                                       \
      .help = "mean time between failures of a node, which days and prices then include (with --devices or "                                                                                                                                             \
              "--target-days)")                                                                                                                                                                                                                          \
    X(checkpoint_time, NULL, "checkpoint-time", SETTING_FLOAT_IN(0, 1e6), .fallback = "60", .argument = "SECONDS",                                                                                                                                       \
      .commands = COMMAND_PLAN, .help = "seconds for which writing a checkpoint stops training (with --mtbf)")                                                                                                                                           \
    X(restart_time, NULL, "restart-time", SETTING_FLOAT_IN(0, 1e6), .fallback = "600", .argument = "SECONDS",                                                                                                                                            \
      .commands = COMMAND_PLAN,                                                                                                                                                                                                                          \
      .help = "seconds from a node's failure until training resumes from the last checkpoint (with --mtbf)")

/* Runs. */
#define OPTION_LIST_RUN(X)                                                                                             \
    X(continue, NULL, "continue", .type = SETTING_FLAG, .commands = COMMAND_TRAIN,                                     \
      .help = "resume the run in --output if it has the same settings; do nothing if it is complete. For schedulers "  \
              "that restart one command line")                                                                         \
    X(allow_recipe_change, NULL, "allow-recipe-change", .type = SETTING_FLAG, .commands = COMMAND_RESUME,              \
      .help = "resume with another instruction set or kernel version, or with other --lanes or --round. Results "      \
              "differ from then on; run.json records the step")                                                        \
    X(serve, NULL, "serve", .type = SETTING_TEXT, .argument = "[ADDRESS:]PORT",                                        \
      .commands = COMMAND_TRAIN | COMMAND_RESUME | COMMAND_REPORT, .computed = "no server",                            \
      .help = "serve the run's page at http://ADDRESS:PORT/ and Prometheus metrics at /metrics. Without ADDRESS: "     \
              "only for this machine. Port 0 takes a free port and prints it")                                         \
    X(compare, NULL, "compare", .type = SETTING_TEXT, .argument = "RUN_DIR",                                           \
      .commands = COMMAND_TRAIN | COMMAND_RESUME | COMMAND_REPORT, .computed = "none",                                 \
      .help = "another run, whose curves the page shows in the same plots (train, resume: with --serve)")

/* Text from a model, and files. */
#define OPTION_LIST_TEXT(X)                                                                                            \
    X(prompt, NULL, "prompt", .type = SETTING_TEXT, .may_be_empty = true, .argument = "TEXT",                          \
      .commands = COMMAND_GENERATE, .help = "text to continue; \"\": starts from the end-of-text token")               \
    X(prompts, NULL, "prompts", .type = SETTING_TEXT, .argument = "FILE", .commands = COMMAND_GENERATE,                \
      .help = "file of prompts, one per line. Lines of .jsonl hold {\"prompt\": TEXT} or {\"messages\": [...]}. "      \
              "Prints a line of JSON for each")                                                                        \
    X(chat, NULL, "chat", .type = SETTING_FLAG, .commands = COMMAND_GENERATE,                                          \
      .help = "treat prompts as user messages in the model's chat template, and print only the answer")                \
    X(system, NULL, "system", .type = SETTING_TEXT, .argument = "TEXT", .commands = COMMANDS_TEXT,                     \
      .help = "system message; generate: requires --chat")                                                             \
    X(stop, NULL, "stop", .type = SETTING_TEXTS, .argument = "TEXT", .commands = COMMANDS_TEXT,                        \
      .help = "stop before this text; may be given several times")                                                     \
    X(ignore_end, NULL, "ignore-end", .type = SETTING_FLAG, .commands = COMMANDS_TEXT,                                 \
      .help = "continue after an end-of-text token")                                                                   \
    X(batches, NULL, "batches", SETTING_INT_IN(0, SETTING_STEPS_MAX), SETTING_INT_DEFAULT(0),                          \
      .commands = COMMAND_EVAL, .help = "maximum batches per file; 0: all")                                            \
    X(reference, NULL, "reference", .type = SETTING_TEXT, .argument = "MODEL_DIR", .commands = COMMAND_EVAL,           \
      .help = "reference model of --loss dpo: the model before training")                                              \
    X(base, NULL, "base", .type = SETTING_TEXT, .argument = "MODEL_DIR", .commands = COMMAND_MERGE | COMMAND_RESUME,   \
      .computed = "the path in adapter_config.json", .help = "base model of the adapter, if it has moved")             \
    X(model, NULL, "model", .type = SETTING_TEXT, .argument = "MODEL_DIR|PRESET",                                      \
      .commands = COMMAND_SIMULATE | COMMAND_REPORT, .computed = "the one that the plan file or the run names",        \
      .help = "model of the plan")                                                                                     \
    X(trace, NULL, "trace", .type = SETTING_TEXT, .argument = "FILE", .commands = COMMAND_SIMULATE,                    \
      .help = "write the step as a Chrome trace (open it in ui.perfetto.dev): predicted, and measured if the run has " \
              "a timeline.json")                                                                                       \
    X(verify, NULL, "verify", .type = SETTING_FLAG, .commands = COMMAND_INSPECT,                                       \
      .help = "read all files of a checkpoint, or of a run's checkpoints and model, and compare their checksums with " \
              "the recorded ones. Names each damaged file and block")

/* Common to commands. */
#define OPTION_LIST_COMMON(X)                                                                                          \
    X(config, NULL, "config", .type = SETTING_TEXT, .argument = "FILE", .commands = COMMANDS_ALL,                      \
      .help = "JSON file with options by key; the command line overrides it; train: also a run's run.json, which "     \
              "repeats the run")                                                                                       \
    X(json, NULL, "json", .type = SETTING_FLAG,                                                                        \
      .commands = COMMAND_PLAN | COMMAND_TRAIN | COMMAND_RESUME | COMMAND_EVAL | COMMAND_GENERATE | COMMAND_PROFILE |  \
                  COMMAND_SIMULATE | COMMAND_INSPECT,                                                                  \
      .help = "print one JSON document (docs/formats.md) on stdout; progress goes to stderr")                          \
    X(quiet, NULL, "quiet", .type = SETTING_FLAG,                                                                      \
      .commands = COMMAND_INIT | COMMAND_TRAIN | COMMAND_RESUME | COMMAND_MERGE | COMMAND_EVAL | COMMAND_CHAT |        \
                  COMMAND_GENERATE | COMMAND_REPORT,                                                                   \
      .help = "omit progress and notes; keep warnings and errors")                                                     \
    X(output, NULL, "output", .type = SETTING_TEXT, .letter = 'o', .argument = "PATH",                                 \
      .commands = COMMAND_GENERATE | COMMAND_TRAIN | COMMAND_PLAN | COMMAND_MERGE | COMMAND_PROFILE | COMMAND_REPORT,  \
      .help = "train: the run's directory, new or empty (required); merge: the model's directory, new or empty "       \
              "(required); plan: plan file to write; profile: cluster file to write; report: HTML file (else "         \
              "RUN_DIR/report.html, or next to the plan); generate: file for the texts of --prompts")

/* All options, in the order of help. */
#define OPTION_LIST(X)                                                                                                 \
    OPTION_LIST_INIT(X)                                                                                                \
    SETTING_LIST_RECIPE(X)                                                                                             \
    SETTING_LIST_TRAINED(X)                                                                                            \
    SETTING_LIST_OPTIMIZER(X)                                                                                          \
    SETTING_LIST_POLICY(X)                                                                                             \
    SETTING_LIST_MACHINE(X)                                                                                            \
    OPTION_LIST_RANKS(X)                                                                                               \
    OPTION_LIST_PLAN(X)                                                                                                \
    OPTION_LIST_RUN(X)                                                                                                 \
    SETTING_LIST_RUN(X)                                                                                                \
    SETTING_LIST_DATA(X)                                                                                               \
    SETTING_LIST_EXAMPLES(X)                                                                                           \
    OPTION_LIST_TEXT(X)                                                                                                \
    SETTING_LIST_TEXT(X)                                                                                               \
    OPTION_LIST_COMMON(X)
