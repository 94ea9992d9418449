/* The options that are not settings, one row each, in the form of plan/setting_list.h. */
#pragma once

/* New models. */
#define OPTION_LIST_INIT(X)                                                                                            \
    X(like, NULL, "like", .type = SETTING_TEXT, .argument = "MODEL_DIR|PRESET", .commands = COMMAND_INIT,              \
      .group = GROUP_MODEL, .common = COMMANDS_ALL,                                                                    \
      .help = "Copy the configuration and tokenizer of a model, or the dimensions of a preset",                        \
      .details = "Copies config.json and the tokenizer, not the weights. `ballast help presets` lists the presets.")   \
    X(arch, NULL, "arch", .type = SETTING_CHOICE, .choices = MODEL_FAMILY_CHOICES, .argument = "FAMILY",               \
      .commands = COMMAND_INIT, .excludes = "like", .required = COMMAND_INIT, .group = GROUP_MODEL,                    \
      .common = COMMANDS_ALL, .help = "Model family",                                                                  \
      .details = "One of" MODEL_FAMILY_LIST(MODEL_FAMILY_NAME) ": see `ballast help models`.")                         \
    X(hidden, NULL, "hidden", SETTING_INT_IN(1, SETTING_SIZE_MAX), .commands = COMMAND_INIT, .excludes = "like",       \
      .required = COMMAND_INIT, .group = GROUP_MODEL, .common = COMMANDS_ALL,                                          \
      .help = "Hidden size: width of the residual stream")                                                             \
    X(layers, NULL, "layers", SETTING_INT_IN(1, 1024), .commands = COMMAND_INIT, .excludes = "like",                   \
      .required = COMMAND_INIT, .group = GROUP_MODEL, .common = COMMANDS_ALL, .help = "Number of transformer blocks")  \
    X(heads, NULL, "heads", SETTING_INT_IN(1, 65536), .commands = COMMAND_INIT, .excludes = "like",                    \
      .required = COMMAND_INIT, .group = GROUP_MODEL, .common = COMMANDS_ALL, .help = "Number of attention heads")     \
    X(kv_heads, NULL, "kv-heads", SETTING_INT_IN(1, 65536), .commands = COMMAND_INIT, .excludes = "like",              \
      .computed = "--heads", .group = GROUP_MODEL, .common = COMMANDS_ALL,                                             \
      .help = "Number of key-value heads; divides --heads (not gpt2, opt)")                                            \
    X(head_dim, NULL, "head-dim", SETTING_INT_IN(1, 65536), .commands = COMMAND_INIT, .excludes = "like",              \
      .computed = "--hidden / --heads", .group = GROUP_MODEL, .common = COMMANDS_ALL,                                  \
      .help = "Dimension of a head (not gpt2, opt)")                                                                   \
    X(ffn, NULL, "ffn", SETTING_INT_IN(1, SETTING_SIZE_MAX), .commands = COMMAND_INIT, .excludes = "like",             \
      .group = GROUP_MODEL, .common = COMMANDS_ALL, .computed = "the multiple of --hidden in the authors' models",     \
      .help = "Hidden size of the MLP")                                                                                \
    X(window, NULL, "window", SETTING_INT_IN(1, 1073741824), .commands = COMMAND_INIT, .excludes = "like",             \
      .group = GROUP_MODEL, .common = COMMANDS_ALL, .computed = "that of the authors' first model, or none",           \
      .help = "Sliding attention window in tokens, the position itself included",                                      \
      .details = "Only for families that have one (`ballast help models`).")                                           \
    X(vocab, NULL, "vocab", SETTING_INT_IN(1, 134217728), .commands = COMMAND_INIT, .excludes = "like",                \
      .required = COMMAND_INIT, .group = GROUP_MODEL, .common = COMMANDS_ALL,                                          \
      .help = "Vocabulary size, also of the tokenizer that --tokenizer-data trains")                                   \
    X(context, NULL, "context", SETTING_INT_IN(1, 1073741824), .commands = COMMAND_INIT, .excludes = "like",           \
      .required = COMMAND_INIT, .group = GROUP_MODEL, .common = COMMANDS_ALL,                                          \
      .help = "Maximum sequence length in tokens")                                                                     \
    X(tied, NULL, "tied", .type = SETTING_FLAG, .commands = COMMAND_INIT, .excludes = "like", .group = GROUP_MODEL,    \
      .common = COMMANDS_ALL, .help = "Tie the head's weight to the embedding (gpt2, opt: always)")                    \
    X(tokenizer_data, NULL, "tokenizer-data", .type = SETTING_TEXT, .argument = "FILE", .commands = COMMAND_INIT,      \
      .group = GROUP_MODEL, .common = COMMANDS_ALL,                                                                    \
      .help = "Text file on which to train a byte-level BPE tokenizer of --vocab tokens")

/* Ranks. */
#define OPTION_LIST_RANKS(X)                                                                                           \
    X(ranks, NULL, "ranks", SETTING_INT_IN(1, 4096), .commands = COMMANDS_RANKS | COMMAND_PLAN, .group = GROUP_RANKS,  \
      .common = COMMAND_TRAIN | COMMAND_RESUME | COMMAND_PLAN | COMMAND_EVAL | COMMAND_PROFILE,                        \
      .computed = "1, or as many as mpirun or srun started",                                                           \
      .help = "Number of ranks, which Ballast starts here with mpirun; plan: Number of ranks to plan for",             \
      .details = "Under mpirun or srun, checks how many ranks they started.")                                          \
    X(nodes, NULL, "nodes", SETTING_INT_IN(1, 4096), .commands = COMMANDS_RANKS | COMMAND_PLAN, .group = GROUP_RANKS,  \
      .common = COMMAND_PLAN, .computed = "the number of machines; plan: as in the cluster file, else 1",              \
      .help = "Treat the ranks as N nodes with equal numbers of ranks, in rank order")                                 \
    X(rank_timeout, NULL, "rank-timeout", SETTING_FLOAT_IN(1, 86400), SETTING_FLOAT_DEFAULT(30),                       \
      .argument = "SECONDS", .commands = COMMANDS_RANKS, .group = GROUP_RANKS,                                         \
      .help = "Seconds without progress of a rank after which the others end with an error")

/* `plan`. */
#define OPTION_LIST_PLAN(X)                                                                                            \
    X(purpose, NULL, "for", .type = SETTING_CHOICE, .choices = "train|generate", .fallback = "train",                  \
      .commands = COMMAND_PLAN, .group = GROUP_CLUSTER, .common = COMMAND_PLAN,                                        \
      .help = "Program to plan: a training step, or generation of text",                                               \
      .details = "generate: --batch texts at a time, with key-value caches of --seq tokens each.")                     \
    X(objective, NULL, "objective", .type = SETTING_CHOICE, .choices = "step|sum", .fallback = "step",                 \
      .commands = COMMAND_PLAN, .group = GROUP_CLUSTER,                                                                \
      .help = "How the search ranks policies: simulated step time, or sum of all work",                                \
      .details = "sum counts the work without overlap and serves comparisons.")                                        \
    X(explain, NULL, "explain", .type = SETTING_FLAG, .commands = COMMAND_PLAN, .group = GROUP_OUTPUT,                 \
      .common = COMMAND_PLAN, .help = "Show the best policy of each partition, and why the plan does not use it",      \
      .details = "For several ranks. Also shows the strategy of each operator.")                                       \
    X(devices, NULL, "devices", SETTING_INT_IN(1, 1 << 20), .commands = COMMAND_PLAN,                                  \
      .computed = "a plan for one device", .group = GROUP_CLUSTER, .common = COMMAND_PLAN,                             \
      .help = "Rank layouts for N devices of --cluster by time and memory",                                            \
      .details = "The batch defaults to 4 Mi tokens, and --seq to the model's context, at most 4096.")                 \
    X(price, NULL, "price", SETTING_FLOAT_IN(0, 1e6), .above = true, .commands = COMMAND_PLAN,                         \
      .computed = "no price is shown", .group = GROUP_CLUSTER,                                                         \
      .help = "Price of a device per hour, to show the price of a million tokens (--devices)")                         \
    X(train_tokens, NULL, "tokens", .type = SETTING_TEXT, .config_key = "train_tokens", .argument = "N[KMBT]",         \
      .commands = COMMAND_PLAN, .computed = "no days are shown", .group = GROUP_CLUSTER, .common = COMMAND_PLAN,       \
      .help = "Tokens of the whole training, to show its days (--devices, --target-days)")                             \
    X(target_days, NULL, "target-days", SETTING_FLOAT_IN(0, 1e6), .above = true, .commands = COMMAND_PLAN,             \
      .group = GROUP_CLUSTER, .common = COMMAND_PLAN, .computed = "none",                                              \
      .help = "Find the fewest devices of --cluster that train --tokens in N days")                                    \
    X(page, NULL, "page", .type = SETTING_TEXT, .argument = "FILE", .commands = COMMAND_PLAN,                          \
      .computed = "no page is written", .group = GROUP_OUTPUT,                                                         \
      .help = "HTML page of the layouts (--devices, --target-days)",                                                   \
      .details = "Shows the Pareto front, the curve over device counts, and timelines and memory of ranks.")           \
    X(svg, NULL, "svg", .type = SETTING_TEXT, .argument = "DIR", .commands = COMMAND_PLAN,                             \
      .computed = "no drawings are written", .group = GROUP_OUTPUT,                                                    \
      .help = "Directory for the page's drawings (--devices, --target-days)",                                          \
      .details = "Writes pareto_front.svg, curve.svg, timeline.svg and memory.svg.")                                   \
    X(mtbf, NULL, "mtbf", SETTING_FLOAT_IN(0, 1e9), .above = true, .argument = "HOURS", .commands = COMMAND_PLAN,      \
      .computed = "nothing fails", .group = GROUP_CLUSTER,                                                             \
      .help = "Mean time between failures of a node, which days and prices then include",                              \
      .details = "With --devices or --target-days.")                                                                   \
    X(checkpoint_time, NULL, "checkpoint-time", SETTING_FLOAT_IN(0, 1e6), .fallback = "60", .argument = "SECONDS",     \
      .commands = COMMAND_PLAN, .group = GROUP_CLUSTER,                                                                \
      .help = "Seconds for which a checkpoint stops training (--mtbf)")                                                \
    X(restart_time, NULL, "restart-time", SETTING_FLOAT_IN(0, 1e6), .fallback = "600", .argument = "SECONDS",          \
      .commands = COMMAND_PLAN, .group = GROUP_CLUSTER,                                                                \
      .help = "Seconds from a failure until training resumes from a checkpoint (--mtbf)")

/* Runs. */
#define OPTION_LIST_RUN(X)                                                                                             \
    X(continue, NULL, "continue", .type = SETTING_FLAG, .commands = COMMAND_TRAIN, .group = GROUP_OUTPUT,              \
      .common = COMMAND_TRAIN, .help = "Resume the run in --output if it is there and has the same settings",          \
      .details = "Does nothing if the run is complete. For schedulers that restart one command line.")                 \
    X(allow_recipe_change, NULL, "allow-recipe-change", .type = SETTING_FLAG, .commands = COMMAND_RESUME,              \
      .group = GROUP_OUTPUT, .help = "Resume although results will differ from here on",                               \
      .details = "Allows another instruction set or kernel version, and other --lanes or --round. run.json records "   \
                 "the step.")                                                                                          \
    X(serve, NULL, "serve", .type = SETTING_TEXT, .argument = "[ADDRESS:]PORT",                                        \
      .commands = COMMAND_TRAIN | COMMAND_RESUME | COMMAND_REPORT, .computed = "no server", .group = GROUP_OUTPUT,     \
      .common = COMMAND_TRAIN | COMMAND_RESUME | COMMAND_REPORT,                                                       \
      .help = "Serve the run's page at http://ADDRESS:PORT/ and Prometheus metrics at /metrics",                       \
      .details = "Without ADDRESS, only for this machine. Port 0 takes a free port and prints it.")                    \
    X(compare, NULL, "compare", .type = SETTING_TEXT, .argument = "RUN_DIR",                                           \
      .commands = COMMAND_TRAIN | COMMAND_RESUME | COMMAND_REPORT, .computed = "none", .group = GROUP_OUTPUT,          \
      .common = COMMAND_REPORT, .help = "Another run to show in the page's plots",                                     \
      .details = "`train` and `resume` need --serve for it.")

/* Text generation, and other commands. */
#define OPTION_LIST_TEXT(X)                                                                                            \
    X(prompt, NULL, "prompt", .type = SETTING_TEXT, .may_be_empty = true, .argument = "TEXT",                          \
      .commands = COMMAND_GENERATE, .group = GROUP_GENERATION, .common = COMMAND_GENERATE,                             \
      .help = "Text to continue; \"\": start from the end-of-text token")                                              \
    X(prompts, NULL, "prompts", .type = SETTING_TEXT, .argument = "FILE", .commands = COMMAND_GENERATE,                \
      .group = GROUP_GENERATION, .common = COMMAND_GENERATE,                                                           \
      .help = "File of prompts, one per line or .jsonl; prints a line of JSON for each",                               \
      .details = "Lines of .jsonl hold {\"prompt\": TEXT} or {\"messages\": [...]}.")                                  \
    X(chat, NULL, "chat", .type = SETTING_FLAG, .commands = COMMAND_GENERATE, .group = GROUP_GENERATION,               \
      .common = COMMAND_GENERATE,                                                                                      \
      .help = "Treat prompts as user messages in the model's chat template; print the answer")                         \
    X(system, NULL, "system", .type = SETTING_TEXT, .argument = "TEXT", .commands = COMMANDS_TEXT,                     \
      .group = GROUP_GENERATION, .common = COMMAND_GENERATE | COMMAND_CHAT,                                            \
      .help = "System message; generate: System message, with --chat")                                                 \
    X(stop, NULL, "stop", .type = SETTING_TEXTS, .argument = "TEXT", .commands = COMMANDS_TEXT,                        \
      .group = GROUP_GENERATION, .common = COMMAND_GENERATE | COMMAND_CHAT,                                            \
      .help = "Stop before this text; repeatable")                                                                     \
    X(ignore_end, NULL, "ignore-end", .type = SETTING_FLAG, .commands = COMMANDS_TEXT, .group = GROUP_GENERATION,      \
      .help = "Continue after an end-of-text token")                                                                   \
    X(batches, NULL, "batches", SETTING_INT_IN(0, SETTING_STEPS_MAX), SETTING_INT_DEFAULT(0),                          \
      .commands = COMMAND_EVAL, .group = GROUP_DATA, .common = COMMAND_EVAL,                                           \
      .help = "Maximum batches per file; 0: all")                                                                      \
    X(reference, NULL, "reference", .type = SETTING_TEXT, .argument = "MODEL_DIR", .commands = COMMAND_EVAL,           \
      .group = GROUP_MODEL, .common = COMMAND_EVAL,                                                                    \
      .help = "Reference model of --loss dpo: the model before training")                                              \
    X(base, NULL, "base", .type = SETTING_TEXT, .argument = "MODEL_DIR", .commands = COMMAND_MERGE | COMMAND_RESUME,   \
      .computed = "the path in adapter_config.json", .group = GROUP_MODEL, .common = COMMANDS_ALL,                     \
      .help = "Base model of the adapter, if it has moved")                                                            \
    X(model, NULL, "model", .type = SETTING_TEXT, .argument = "MODEL_DIR|PRESET",                                      \
      .commands = COMMAND_SIMULATE | COMMAND_REPORT, .group = GROUP_MODEL, .common = COMMANDS_ALL,                     \
      .computed = "the one that the plan file or run names", .help = "Model of the plan")                              \
    X(trace, NULL, "trace", .type = SETTING_TEXT, .argument = "FILE", .commands = COMMAND_SIMULATE,                    \
      .group = GROUP_OUTPUT, .common = COMMANDS_ALL, .help = "Write the step as a Chrome trace, for ui.perfetto.dev",  \
      .details = "Shows predicted times, and measured ones if the run has a timeline.json.")                           \
    X(verify, NULL, "verify", .type = SETTING_FLAG, .commands = COMMAND_INSPECT, .group = GROUP_OUTPUT,                \
      .common = COMMANDS_ALL, .help = "Compare all files of a run or checkpoint with their checksums",                 \
      .details = "Names each damaged file and block.")

/* Common to commands. */
#define OPTION_LIST_COMMON(X)                                                                                          \
    X(config, NULL, "config", .type = SETTING_TEXT, .argument = "FILE", .commands = COMMANDS_ALL,                      \
      .group = GROUP_OUTPUT, .help = "JSON file of options by key, which the command line overrides",                  \
      .details = "`train` also takes the run.json of a run, and repeats the run.")                                     \
    X(json, NULL, "json", .type = SETTING_FLAG,                                                                        \
      .commands = COMMAND_PLAN | COMMAND_TRAIN | COMMAND_RESUME | COMMAND_EVAL | COMMAND_GENERATE | COMMAND_PROFILE |  \
                  COMMAND_SIMULATE | COMMAND_INSPECT,                                                                  \
      .group = GROUP_OUTPUT,                                                                                           \
      .common = COMMAND_PLAN | COMMAND_EVAL | COMMAND_GENERATE | COMMAND_PROFILE | COMMAND_SIMULATE | COMMAND_INSPECT, \
      .help = "Print one JSON document on stdout; progress goes to stderr",                                            \
      .details = "docs/formats.md describes the documents.")                                                           \
    X(quiet, NULL, "quiet", .type = SETTING_FLAG,                                                                      \
      .commands = COMMAND_INIT | COMMAND_TRAIN | COMMAND_RESUME | COMMAND_MERGE | COMMAND_EVAL | COMMAND_CHAT |        \
                  COMMAND_GENERATE | COMMAND_REPORT,                                                                   \
      .group = GROUP_OUTPUT, .help = "Omit progress and notes; keep warnings and errors")                              \
    X(output, NULL, "output", .type = SETTING_TEXT, .letter = 'o', .argument = "PATH",                                 \
      .commands = COMMAND_GENERATE | COMMAND_TRAIN | COMMAND_PLAN | COMMAND_MERGE | COMMAND_PROFILE | COMMAND_REPORT,  \
      .required = COMMAND_TRAIN | COMMAND_MERGE, .group = GROUP_OUTPUT, .common = COMMANDS_ALL,                        \
      .help = "train: Directory of the run, new or empty; merge: Directory of the model, new or empty; plan: Plan "    \
              "file to write; profile: Cluster file to write; report: HTML file to write; generate: File for the "     \
              "texts of --prompts")

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
