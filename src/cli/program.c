#include "cli/program.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/base.h"
#include "base/json.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/commands/command.h"
#include "cli/help.h"
#include "cli/options.h"
#include "cli/ranks.h"
#include "model/model.h"
#include "report/console/console.h"
#include "text/chat/chat.h"
#include "text/tokenizer/tokenizer.h"

/* Sets the name that `ps` and `top` show. After the second start it would be that of the link, "exe". */
static void take_name(char **arguments) {
    if (!arguments[0]) return;
    const char *slash = strrchr(arguments[0], '/');
    (void)prctl(PR_SET_NAME, slash ? slash + 1 : arguments[0]);
}

/* OpenMP reads its environment when it is loaded, before main, so the program has to start again. If the environment
 * binds threads to cores, it does not: OpenMP has already bound this thread, and all threads of a second start would
 * share its core. */
void limit_spinning(char **arguments) {
    static const char *const settled[] = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "OMP_PLACES",
                                          "GOMP_CPU_AFFINITY"};
    take_name(arguments);
    for (size_t i = 0; i < sizeof settled / sizeof *settled; i++)
        if (getenv(settled[i])) return;
    if (setenv("GOMP_SPINCOUNT", "10000", 1) == 0 && setenv("OMP_WAIT_POLICY", "active", 1) == 0)
        execv("/proc/self/exe", arguments);
}

/* The program: finds the subcommand, runs it, and turns its status into messages and an exit status. */

enum { COMMAND_STACK_BYTES = 8 << 20 };

struct call {
    int (*run)(int count, char **arguments);
    int count;
    char **arguments;
    sigset_t mask;
    int result;
};

static void *make_call(void *payload) {
    struct call *call = payload;
    pthread_sigmask(SIG_SETMASK, &call->mask, NULL);
    call->result = call->run(call->count, call->arguments);
    return NULL;
}

static bool is_small(void) {
    struct rlimit limit;
    return getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < COMMAND_STACK_BYTES;
}

static int start(struct call *call, pthread_t *thread) {
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error) return error;
    error = pthread_attr_setstacksize(&attributes, COMMAND_STACK_BYTES);
    if (!error) error = pthread_setattr_default_np(&attributes);
    if (!error) error = pthread_create(thread, &attributes, make_call, call);
    pthread_attr_destroy(&attributes);
    return error;
}

/* Signals must interrupt the system calls of the new thread, so this thread blocks them before it starts that one. */
int command_stack_run(int (*run)(int count, char **arguments), int count, char **arguments) {
    struct call call = {.run = run, .count = count, .arguments = arguments, .result = STATUS_FAILED};
    pthread_t thread;
    sigset_t all;
    if (!is_small()) return run(count, arguments);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &call.mask);
    int error = start(&call, &thread);
    if (error) {
        fprintf(stderr, "ballast: error: cannot allocate a stack of %d KiB: %s\nhint: raise `ulimit -s`\n",
                COMMAND_STACK_BYTES >> 10, strerror(error));
        return STATUS_FAILED;
    }
    pthread_join(thread, NULL);
    return call.result;
}

const struct command *const commands[COMMAND_COUNT] = {
#define COMMAND_ENTRY(id, name) &command_##name,
    COMMAND_LIST(COMMAND_ENTRY)};

static const struct command *command_find(const char *name) {
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

/* Commands of other programs, with Ballast's equivalents. */
static const struct {
    const char *names, *hint;
} other_commands[] = {
    {"finetune fine-tune lora qlora tune", "`ballast train MODEL_DIR DATA -o RUN_DIR` does that; --lora for adapters"},
    {"sft", "`ballast train MODEL_DIR CHATS.jsonl -o RUN_DIR` does that"},
    {"dpo preference rlhf", "`ballast train MODEL_DIR PAIRS.jsonl -o RUN_DIR --loss dpo` does that"},
    {"kto orpo grpo ppo rl reward rm", "DPO is the only preference method: `ballast train ... --loss dpo`"},
    {"pretrain pt", "`ballast init` makes a model, `ballast train` trains it"},
    {"run infer inference predict", "`ballast chat MODEL_DIR` talks to a model, `ballast generate` continues a prompt"},
    {"serve api", "there is no model server; `ballast report RUN_DIR --serve PORT` serves the page of a run"},
    {"webui ui dashboard", "`ballast train ... --serve PORT` shows a run while it trains, `ballast report` afterwards"},
    {"export merge-lora merge-adapter",
     "RUN_DIR/model is a Hugging Face directory; `ballast merge` merges an adapter into its base model"},
    {"convert", "RUN_DIR/model is a Hugging Face directory; nothing needs converting"},
    {"quantize", "`ballast train ... --lora ... --quantize-base nf4` quantizes an adapter's base; Ballast writes no "
                 "quantized models"},
    {"download pull fetch", "fetch the model with another tool: any Hugging Face directory will do"},
    {"upload push", "upload RUN_DIR/model with another tool: it is a Hugging Face directory"},
    {"preprocess tokenize prepare", "`ballast train` tokenizes text itself and keeps the tokens for later runs"},
    {"evaluate test lm-eval",
     "`ballast eval MODEL_DIR FILE...` prints the loss on files; Ballast has no task benchmarks"},
    {"launch accelerate torchrun", "`ballast train ... --ranks N` starts N processes; mpirun and srun work too"},
    {"continue", "`ballast resume RUN_DIR` continues a run"},
    {"benchmark bench", "`ballast profile` measures the machine and a model's operators"},
};

static enum status unknown_command(const char *name) {
    struct nearest nearest = {.wanted = name};
    for (int i = 0; i < COMMAND_COUNT; i++)
        nearest_consider(&nearest, commands[i]->name);
    nearest_consider(&nearest, "help");
    nearest_consider(&nearest, "version");
    enum status status = status_set(STATUS_BAD_INPUT, "ballast has no command '%s'", name);
    for (size_t i = 0; i < sizeof other_commands / sizeof *other_commands; i++)
        if (option_alias_lists(other_commands[i].names, name)) return status_hint(status, "%s", other_commands[i].hint);
    if (nearest.best) return status_hint(status, "did you mean `ballast %s`?", nearest.best);
    return status_hint(status, "`ballast help` lists all");
}

static enum status run_here(const struct command *command, const struct options *options) {
    /* A closed pipe (`| head`) does not end training, because metrics.jsonl also records what is printed. */
    if (command->bit & (COMMAND_TRAIN | COMMAND_RESUME)) signal(SIGPIPE, SIG_IGN);
    log_set_quiet(options_flag(options, OPT_quiet));
    if (!options_flag(options, OPT_quiet) && ranks_talk()) progress_view_open(stderr);
    option_effects_warn(options);
    return command->run(options);
}

static enum status run_part(const struct command *command, const struct options *options, enum status parsed, int count,
                            char **arguments) {
    switch (ranks_part(options, parsed)) {
    case RANKS_IDLE: return STATUS_OK;
    case RANKS_PARENT: return ranks_launch(options, count, arguments);
    case RANKS_MEMBER: TRY(ranks_open(options, parsed)); break;
    case RANKS_ALONE: TRY(parsed); break;
    }
    return run_here(command, options);
}

static enum status run_command(const struct command *command, int count, char **arguments) {
    AUTO(options_free) struct options options = {0};
    enum status status = options_parse(command, count, arguments, &options);
    if (status == STATUS_OK && options.help)
        help_print_command(command, options.help_all, stdout);
    else
        status = run_part(command, &options, status, count, arguments);
    return status;
}

static enum status print_schemas(__attribute__((unused)) FILE *out) { return help_print_schemas(); }
static enum status print_manual(const char *name) {
    const struct command *command = name ? command_find(name) : NULL;
    if (name && !command) return unknown_command(name);
    manual_print(command, stdout);
    return STATUS_OK;
}
static enum status print_completion(const char *name) { return completion_print(name ? name : "", stdout); }

/* Texts of `ballast help NAME` that are not a command's help. Each has one function. */
static const struct {
    const char *name;
    void (*print)(FILE *out);
    enum status (*try_print)(FILE *out);
    enum status (*print_of)(const char *name); /* takes one more argument, or NULL */
} documents[] = {
    {"options", .print = help_print_document},
    {"schemas", .try_print = print_schemas},
    {"models", .try_print = model_print_document},
    {"presets", .try_print = model_preset_print_list},
    {"tokenizers", .print = tokenizer_print_document},
    {"templates", .print = chat_print_document},
    {"manual", .print_of = print_manual},
    {"completion", .print_of = print_completion},
};

static enum status run_help(int count, char **arguments) {
    if (count == 0) {
        help_print_program(stdout);
        return STATUS_OK;
    }
    size_t i = 0, known = sizeof documents / sizeof *documents;
    while (i < known && strcmp(documents[i].name, arguments[0]) != 0)
        i++;
    int limit = i < known && documents[i].print_of ? 2 : 1;
    if (count > limit)
        return status_set(STATUS_BAD_INPUT, "ballast help: '%s' is one argument too many" HINT "leave out '%s'",
                          arguments[limit], arguments[limit]);
    if (i < known && documents[i].print_of) return documents[i].print_of(count > 1 ? arguments[1] : NULL);
    if (i < known && documents[i].try_print) return documents[i].try_print(stdout);
    if (i < known) {
        documents[i].print(stdout);
        return STATUS_OK;
    }
    const struct command *command = command_find(arguments[0]);
    if (!command) return unknown_command(arguments[0]);
    help_print_command(command, false, stdout);
    return STATUS_OK;
}

/* Handles help, version and unknown commands. */
static enum status run_other(int count, char **arguments) {
    if (count == 0)
        return status_set(STATUS_BAD_INPUT,
                          "no command given" HINT "`ballast help` lists all; `make demo` shows them at work");
    const char *name = arguments[0];
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return run_help(count - 1, arguments + 1);
    if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0) {
        printf("ballast %s\n", BALLAST_VERSION);
        return STATUS_OK;
    }
    return unknown_command(name);
}

/* All ranks run a command and agree on the result of parsing its options. Only rank 0 handles anything else: if
 * another rank failed too, mpirun could kill rank 0 before it reports the error. */
static enum status dispatch(int count, char **arguments) {
    const struct command *command = count > 0 ? command_find(arguments[0]) : NULL;
    if (command) return run_command(command, count - 1, arguments + 1);
    return ranks_talk() ? run_other(count, arguments) : STATUS_OK;
}

/* Reports a failure if standard output could not be written, for example on a full disk. */
static enum status finish_output(enum status status) {
    bool failed = fflush(stdout) != 0 || ferror(stdout);
    if (!failed || status != STATUS_OK) return status;
    return status_set(STATUS_FAILED, "standard output: cannot write: %s", strerror(errno));
}

static void report(enum status status) {
    if (status_is_stop(status) && status_message()[0])
        fprintf(stderr, "ballast: %s\n", status_message());
    else
        fprintf(stderr, "ballast: error: %s\n", status_message()[0] ? status_message() : status_name(status));
    if (status_hint_text()[0]) fprintf(stderr, "hint: %s\n", status_hint_text());
}

int cli_run(int count, char **arguments) {
    enum status status = ranks_join();
    if (status == STATUS_OK) status = finish_output(dispatch(count, arguments));
    live_line_wipe();
    bool stopped = status_is_stop(status);
    /* Report before the other ranks end: mpirun kills this one as soon as another exits with a status. */
    if (stopped && ranks_should_report(status)) report(status);
    enum status end = ranks_close(status);
    if ((!stopped || end != status) && ranks_should_report(end)) report(end);
    ranks_leave(end);
    return (int)end;
}

enum status cli_print_json(json_t *document) {
    if (!document) return STATUS_FAILED;
    char *text = json_text(document, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(document);
    if (!text) return STATUS_FAILED;
    bool failed = puts(text) < 0;
    mem_free(text);
    return failed ? status_set(STATUS_FAILED, "standard output: cannot write JSON") : STATUS_OK;
}
