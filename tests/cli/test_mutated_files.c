/* Makes one random change to each file that Ballast reads. The program accepts the file with the result of the
 * original, or refuses it by name. `may_change` lists other allowed effects.
 *
 *     test_mutated_files [--seed N] [--runs N] [SUBJECT...]
 *
 * A failure prints the arguments that repeat it, and keeps the changed file. */
/* ctest: PROCESSORS 2 LABELS long */
#include <fnmatch.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "support/data_files.h"
#include "support/mutation.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/unit.h"
#include "support/weight_files.h"

enum { CPU_SECONDS = 120, WORDS = 24, NAMES = 512, USUAL_RUNS = 1, LONG_RUNS = 100 };

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define EVAL(model, data) LIST("eval", model, data, "--seq", "64", "--dtype", "fp32", "--json")

struct subject {
    const char *name, *file; /* in the place of `make_place` */
    enum file_form form;
    const char *const *arguments;  /* of the command */
    const char *result;            /* a file that the command writes, or a key of its JSON output; NULL: all output */
    const char *const *named;      /* texts by which a message may name what does not fit otherwise; NULL */
    const char *const *may_change; /* patterns of mutation_paths; NULL: nothing */
    const char *makes;             /* pattern of the files that the command makes; NULL: none */
};

/* Dimensions and choices of the model; other keys of config.json change nothing, or are refused. */
#define CONFIG                                                                                                         \
    "rms_norm_eps", "rope_parameters*", "rope_theta", "rope_scaling*", "hidden_act", "sliding_window*",                \
        "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings", "tie_word_embeddings",    \
        "eos_token_id*", "bos_token_id*", "dtype", "torch_dtype", "layer_types*", "use_sliding_window"
#define WEIGHTS "<data>", "*.data_offsets*", "*.dtype", "*.shape*", "model.*", "lm_head*", "base_model*"

static const struct subject subjects[] = {
    {.name = "config",
     .file = "model/config.json",
     .form = FORM_JSON,
     .arguments = EVAL("model", "chat.jsonl"),
     .result = "total",
     .named = LIST("model.safetensors", "the model's context of"),
     .may_change = LIST(CONFIG)},
    {.name = "generation_config",
     .file = "model/generation_config.json",
     .form = FORM_JSON,
     .arguments = LIST("generate", "model", "--prompt", "the river", "--tokens", "6", "--dtype", "fp32"),
     .may_change = LIST("temperature", "top_k", "top_p", "repetition_penalty", "do_sample", "eos_token_id*")},
    {.name = "tokenizer",
     .file = "model/tokenizer.json",
     .form = FORM_JSON,
     .arguments = EVAL("model", "chat.jsonl"),
     .result = "total",
     .may_change = LIST("model*", "added_tokens*", "normalizer*", "pre_tokenizer*", "post_processor*", "decoder*")},
    {.name = "tokenizer_config",
     .file = "model/tokenizer_config.json",
     .form = FORM_JSON,
     .arguments = EVAL("model", "chat.jsonl"),
     .result = "total",
     .may_change =
         LIST("eos_token*", "bos_token*", "pad_token*", "unk_token*", "chat_template*", "added_tokens_decoder*",
              "additional_special_tokens*", "extra_special_tokens*", "add_bos_token", "add_eos_token", "*_token")},
    {.name = "special_tokens_map",
     .file = "model/special_tokens_map.json",
     .form = FORM_JSON,
     .arguments = EVAL("model", "chat.jsonl"),
     .result = "total",
     .may_change = LIST("*")},
    {.name = "added_tokens",
     .file = "model/added_tokens.json",
     .form = FORM_JSON,
     .arguments = EVAL("model", "chat.jsonl"),
     .result = "total",
     .may_change = LIST("*")},
    {.name = "template",
     .file = "model/chat_template.jinja",
     .form = FORM_BYTES,
     .arguments = EVAL("model", "chat.jsonl"),
     .result = "total",
     .named = LIST("chat.jsonl: line "),
     .may_change = LIST("<data>")},
    {.name = "weights",
     .file = "model/model.safetensors",
     .form = FORM_WEIGHTS,
     .arguments = EVAL("model", "chat.jsonl"),
     .result = "total",
     .may_change = LIST(WEIGHTS)},
    {.name = "index",
     .file = "sharded/model.safetensors.index.json",
     .form = FORM_JSON,
     .arguments = EVAL("sharded", "chat.jsonl"),
     .result = "total",
     .named = LIST("shard-")},
    {.name = "shard",
     .file = "sharded/shard-2.safetensors",
     .form = FORM_WEIGHTS,
     .arguments = EVAL("sharded", "chat.jsonl"),
     .result = "total",
     .named = LIST("index.json"),
     .may_change = LIST(WEIGHTS)},
    {.name = "adapter_config",
     .file = "adapter/adapter_config.json",
     .form = FORM_JSON,
     .arguments = EVAL("adapter", "chat.jsonl"),
     .result = "total",
     .named = LIST("adapter_model.safetensors"),
     .may_change = LIST("lora_alpha", "r", "use_rslora", "target_modules*", "rank_pattern*", "alpha_pattern*",
                        "base_model_name_or_path")},
    {.name = "adapter_weights",
     .file = "adapter/adapter_model.safetensors",
     .form = FORM_WEIGHTS,
     .arguments = EVAL("adapter", "chat.jsonl"),
     .result = "total",
     .named = LIST("adapter_config.json"),
     .may_change = LIST(WEIGHTS)},
    {.name = "merge",
     .file = "adapter/adapter_config.json",
     .form = FORM_JSON,
     .arguments = LIST("merge", "adapter", "-o", "out", "--quiet"),
     .result = "out/model.safetensors",
     .named = LIST("adapter_model.safetensors"),
     .makes = "out*",
     .may_change = LIST("lora_alpha", "r", "use_rslora", "target_modules*", "rank_pattern*", "alpha_pattern*",
                        "base_model_name_or_path")},
#define ROWS(kind)                                                                                                     \
    {                                                                                                                  \
        .name = kind, .file = kind ".jsonl", .form = FORM_LINES, .arguments = EVAL("model", kind ".jsonl"),            \
        .result = "total", .may_change = LIST("*")                                                                     \
    }
    ROWS("chat"),
    ROWS("sharegpt"),
    ROWS("alpaca"),
    ROWS("completions"),
    ROWS("texts"),
    ROWS("tools"),
    {.name = "preferences",
     .file = "pairs.jsonl",
     .form = FORM_LINES,
     .arguments = LIST("eval", "model", "pairs.jsonl", "--seq", "64", "--dtype", "fp32", "--json", "--loss", "dpo",
                       "--reference", "sharded"),
     .result = "total",
     .may_change = LIST("*")},
    {.name = "text",
     .file = "text.txt",
     .form = FORM_BYTES,
     .arguments = EVAL("model", "text.txt"),
     .result = "total",
     .may_change = LIST("<data>")},
    {.name = "prompts",
     .file = "prompts.jsonl",
     .form = FORM_LINES,
     .arguments = LIST("generate", "model", "--prompts", "prompts.jsonl", "--tokens", "4", "--dtype", "fp32"),
     .may_change = LIST("*")},
    {.name = "tokens",
     .file = "tokens.bin",
     .form = FORM_BYTES,
     .arguments = EVAL("model", "tokens.bin"),
     .result = "total",
     .may_change = LIST("<data>")},
    {.name = "kept_tokens",
     .file = "ballast/*.tokens",
     .form = FORM_BYTES,
     .arguments = EVAL("model", "text.txt"),
     .result = "total"},
    {.name = "kept_costs",
     .file = "ballast/profile-*.json",
     .form = FORM_JSON,
     .arguments = LIST("plan", "model", "--batch", "2", "--seq", "16", "--json"),
     .result = "recipe"},
    {.name = "plan",
     .file = "plan.json",
     .form = FORM_JSON,
     .arguments = LIST("train", "model", "chat.jsonl", "-o", "out", "--plan", "plan.json", "--steps", "1", "--quiet"),
     .result = "out/model/model.safetensors",
     .makes = "out*",
     .may_change = LIST("recipe.*")},
    {.name = "plan_page",
     .file = "plan.json",
     .form = FORM_JSON,
     .arguments = LIST("report", "plan.json", "-o", "page.html", "--quiet"),
     .makes = "page.html",
     .may_change = LIST("*")},
    {.name = "cluster",
     .file = "cluster.json",
     .form = FORM_JSON,
     .arguments = LIST("plan", "model", "--cluster", "cluster.json", "--batch", "2", "--seq", "16", "--json"),
     .may_change = LIST("*")},
    {.name = "options",
     .file = "options.json",
     .form = FORM_JSON,
     .arguments = LIST("train", "model", "chat.jsonl", "-o", "out", "--config", "options.json", "--quiet"),
     .named = LIST("--"),
     .result = "out/model/model.safetensors",
     .makes = "out*",
     .may_change = LIST("batch", "seq", "steps", "lr", "seed", "dtype", "schedule", "warmup_steps", "beta1",
                        "weight_decay", "lora", "micro_batch")},
#define RESUMED(part, path, kind, changing)                                                                            \
    {                                                                                                                  \
        .name = part, .file = "run/" path, .form = kind,                                                               \
        .arguments = LIST("resume", "run", "--steps", "4", "--quiet"), .result = "run/model/model.safetensors",        \
        .named = LIST("checkpoints", "ballast inspect"), .makes = "run/*", .may_change = changing                      \
    }
    RESUMED("run_settings", "run.json", FORM_JSON, LIST("plan.recipe.*", "options.*", "model")),
    RESUMED("run_plan", "plan.json", FORM_JSON, NULL),
    RESUMED("run_metrics", "metrics.jsonl", FORM_LINES, NULL),
    RESUMED("run_samples", "samples.jsonl", FORM_LINES, NULL),
    RESUMED("run_end", "end.json", FORM_JSON, NULL),
    RESUMED("checkpoint_manifest", "checkpoints/step-00000002/ballast_manifest.json", FORM_JSON, NULL),
    RESUMED("checkpoint_state", "checkpoints/step-00000002/state.json", FORM_JSON, NULL),
    RESUMED("checkpoint_optimizer", "checkpoints/step-00000002/optimizer.safetensors", FORM_WEIGHTS, NULL),
    RESUMED("checkpoint_weights", "checkpoints/step-00000002/model.safetensors", FORM_WEIGHTS, NULL),
    RESUMED("checkpoint_tokenizer", "checkpoints/step-00000002/tokenizer.json", FORM_JSON, NULL),
    {.name = "preference_reference",
     .file = "dpo/reference.safetensors",
     .form = FORM_WEIGHTS,
     .arguments = LIST("resume", "dpo", "--steps", "3", "--quiet"),
     .result = "dpo/model/model.safetensors",
     .named = LIST("reference.safetensors: does not hold the log-probabilities"),
     .makes = "dpo/*"},
#define PAGE(part, path, kind)                                                                                         \
    {                                                                                                                  \
        .name = part, .file = "run/" path, .form = kind, .arguments = LIST("report", "run", "--quiet"),                \
        .named = LIST("timeline.json: events["), .makes = "run/report.html", .may_change = LIST("*")                   \
    }
    PAGE("page_metrics", "metrics.jsonl", FORM_LINES),
    PAGE("page_samples", "samples.jsonl", FORM_LINES),
    PAGE("page_timeline", "timeline.json", FORM_JSON),
    PAGE("page_settings", "run.json", FORM_JSON),
    PAGE("page_plan", "plan.json", FORM_JSON),
    PAGE("page_end", "end.json", FORM_JSON),
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

static uint64_t campaign_seed = 1;
static size_t runs_each;
static const char *const *wanted; /* names of subjects; NULL: all */
static char *place;               /* holds "sound", and "here", the copy that a command works in */
static char sound_folder[512], here[512];
static int failures;

/* ---- The place: every kind of file that Ballast reads. */

static void shell(const char *command) {
    if (system(command) != 0) fail_msg("failed: %s", command);
}

static void run_ballast(const char *const *arguments) { program_expect(sound_folder, 0, NULL, arguments); }

static void write_rows(void) {
    temp_write_text("chat.jsonl",
                    "{\"messages\": [{\"role\": \"user\", \"content\": \"Where is the river?\"}, {\"role\": "
                    "\"assistant\", \"content\": \"Under the bridge.\"}]}\n"
                    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be short.\"}, {\"role\": \"user\", "
                    "\"content\": \"Why?\"}, {\"role\": \"assistant\", \"content\": \"It is.\", \"weight\": 1}]}\n"
                    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": "
                    "\"b\"}], \"id\": 7}\n");
    temp_write_text("sharegpt.jsonl", "{\"conversations\": [{\"from\": \"human\", \"value\": \"Where?\"}, {\"from\": "
                                      "\"gpt\", \"value\": \"Here.\"}], \"system\": \"Be short.\"}\n"
                                      "{\"conversations\": [{\"from\": \"human\", \"value\": \"Who?\"}, {\"from\": "
                                      "\"gpt\", \"value\": \"The river.\", \"train\": true}]}\n");
    temp_write_text(
        "alpaca.jsonl",
        "{\"instruction\": \"Add.\", \"input\": \"2 3\", \"output\": \"5\", \"history\": [[\"a\", \"b\"]]}\n"
        "{\"instruction\": \"Name a river.\", \"output\": \"Nile\", \"system\": \"Be short.\"}\n");
    temp_write_text("completions.jsonl", "{\"prompt\": \"the river\", \"completion\": \" runs\"}\n"
                                         "{\"prompt\": \"a bridge\", \"completion\": \" stands\"}\n");
    temp_write_text(
        "texts.jsonl",
        "{\"text\": \"the river runs under the bridge\"}\n{\"text\": \"and on and on to the sea, where it ends\"}\n"
        "{\"text\": \"a third text, which is there so that a row of sixty-four tokens can be filled from these "
        "lines\", \"meta\": {\"a\": 1}}\n");
    temp_write_text(
        "tools.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"2+3?\"}, {\"role\": \"assistant\", \"content\": \"5\"}], "
        "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"add\", \"parameters\": {\"type\": \"object\", "
        "\"properties\": {}}}}], \"chat_template_kwargs\": {\"enable_thinking\": false}}\n");
    temp_write_text(
        "pairs.jsonl",
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"Where?\"}], \"chosen\": [{\"role\": \"assistant\", "
        "\"content\": \"Here.\"}], \"rejected\": [{\"role\": \"assistant\", \"content\": \"No.\"}]}\n"
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"Who?\"}], \"chosen\": [{\"role\": \"assistant\", "
        "\"content\": \"A child.\"}], \"rejected\": [{\"role\": \"assistant\", \"content\": \"I.\"}]}\n");
    temp_write_text("prompts.jsonl",
                    "{\"prompt\": \"the river\"}\n{\"messages\": [{\"role\": \"user\", \"content\": \"Where?\"}]}\n");
    temp_write_text("model/generation_config.json",
                    "{\"do_sample\": true, \"temperature\": 0.7, \"top_k\": 20, \"top_p\": 0.9, \"eos_token_id\": [3, "
                    "1], \"transformers_version\": \"5.24.0\"}\n");
    temp_write_text("model/special_tokens_map.json",
                    "{\"eos_token\": \"<|im_end|>\", \"pad_token\": {\"content\": \"<pad>\", \"lstrip\": false}}\n");
    temp_write_text("model/added_tokens.json", "{\"<pad>\": 4}\n");
    temp_write_text("options.json",
                    "{\"batch\": 2, \"seq\": 32, \"steps\": 2, \"lr\": 0.001, \"seed\": 3, \"dtype\": \"fp32\", "
                    "\"schedule\": \"linear\", \"warmup_steps\": 1, \"beta1\": 0.8, \"weight_decay\": 0.05}\n");
}

/* The model's tensors in two files with an index. */
static void write_shards(void) {
    struct weight_file whole = weight_file_load("model/model.safetensors");
    json_t *shards[2] = {json_object(), json_object()}, *map = json_object(), *tensor;
    const char *name;
    size_t count = 0;
    json_object_foreach(whole.header, name, tensor) {
        int shard = (int)(count++ % 2);
        if (strcmp(name, "__metadata__") == 0) continue;
        json_object_set(shards[shard], name, tensor);
        json_object_set_new(map, name, json_sprintf("shard-%d.safetensors", shard + 1));
    }
    for (int i = 0; i < 2; i++) {
        struct weight_file file = {.header = json_object(), .data = malloc(1)};
        char path[64];
        json_object_foreach(shards[i], name, tensor) {
            const json_t *offsets = json_object_get(tensor, "data_offsets");
            size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
            size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
            weight_file_append(&file, name, json_string_value(json_object_get(tensor, "dtype")),
                               json_deep_copy(json_object_get(tensor, "shape")), whole.data + begin, end - begin);
        }
        snprintf(path, sizeof path, "sharded/shard-%d.safetensors", i + 1);
        weight_file_save(&file, path);
        weight_file_drop(&file);
        json_decref(shards[i]);
    }
    json_t *index = json_pack("{s:{s:i}, s:o}", "metadata", "total_size", 162176, "weight_map", map);
    write_json("sharded/model.safetensors.index.json", index);
    json_decref(index);
    weight_file_drop(&whole);
}

static void write_tokens(void) {
    uint32_t ids[300];
    for (uint32_t i = 0; i < 300; i++)
        ids[i] = 12 + i * 7 % 400;
    token_file_write("tokens.bin", 2, ids, 300);
}

static int make_place(void **state) {
    if (temp_folder_make(state) != 0) return -1;
    place = *state;
    snprintf(sound_folder, sizeof sound_folder, "%s/sound", place);
    snprintf(here, sizeof here, "%s/here", place);
    if (chdir(place) != 0 || mkdir("sound", 0700) != 0 || chdir("sound") != 0) return -1;
    shell("cp -r " BALLAST_FIXTURES "/reports/model . && chmod -R u+w model && cp " BALLAST_SOURCE
          "/clusters/h100x8.json cluster.json");
    write_rows();
    make_text("text.txt", 120);
    shell("cp -r model sharded && rm sharded/model.safetensors");
    write_shards();
    write_tokens();
    run_ballast(LIST("train", "model", "chat.jsonl", "-o", "adapter_run", "--lora", "4,8,q_proj,v_proj", "--steps", "2",
                     "--lr", "1e-2", "--seq", "32", "--batch", "2", "--dtype", "fp32", "--quiet"));
    shell("mv adapter_run/model adapter && rm -r adapter_run adapter/ballast_manifest.json");
    run_ballast(LIST("plan", "model", "--batch", "2", "--seq", "32", "--dtype", "fp32", "-o", "plan.json"));
    run_ballast(LIST("train", "model", "chat.jsonl", "-o", "run", "--steps", "2", "--save-every", "2", "--sample-every",
                     "1", "--sample-tokens", "4", "--schedule-steps", "8", "--seq", "32", "--batch", "2", "--dtype",
                     "fp32", "--quiet"));
    run_ballast(LIST("train", "model", "pairs.jsonl", "-o", "dpo", "--loss", "dpo", "--steps", "2", "--schedule-steps",
                     "8", "--seq", "32", "--batch", "2", "--dtype", "fp32", "--quiet"));
    run_ballast(EVAL("model", "text.txt"));
    run_ballast(LIST("plan", "model", "--batch", "2", "--seq", "16", "--json"));
    return chdir(place);
}

static int drop_place(void **state) { return chdir("/") == 0 ? temp_folder_drop(state) : -1; }

/* ---- What there is in a directory. */

static struct {
    char *items[NAMES];
    size_t count;
} found;

static int add_name(const char *path, const struct stat *what, int kind, struct FTW *at) {
    (void)what, (void)kind;
    assert_true(found.count < NAMES);
    if (at->level > 0) found.items[found.count++] = strdup(path + strlen("./"));
    return 0;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void forget_names(void) {
    while (found.count > 0)
        free(found.items[--found.count]);
}

static void find_names(void) {
    forget_names();
    assert_int_equal(nftw(".", add_name, 16, FTW_PHYS), 0);
    qsort(found.items, found.count, sizeof *found.items, by_name);
}

/* Fails where a file is left that neither was there nor is what the command makes. */
static const char *leftover(const struct subject *subject, bool refused) {
    static char path[4096];
    for (size_t i = 0; i < found.count; i++) {
        const char *name = found.items[i];
        snprintf(path, sizeof path, "%s/%s", sound_folder, name);
        if (file_exists(path) || strcmp(name, ".stdout") == 0 || strcmp(name, ".stderr") == 0) continue;
        bool temporary = strstr(name, ".tmp") || strstr(name, ".old-");
        bool kept = fnmatch("ballast/*", name, 0) == 0;
        bool made = subject->makes && fnmatch(subject->makes, name, 0) == 0;
        if (temporary || (!kept && (refused || !made))) return name;
    }
    return NULL;
}

/* ---- One run. */

/* What came of it, as text; free. */
static char *result_of(const struct subject *subject, const struct program_run *run) {
    if (subject->result && strchr(subject->result, '/')) {
        struct bytes file = bytes_read(subject->result);
        uint64_t hash = 14695981039346656037u;
        char *text = malloc(32);
        for (size_t i = 0; i < file.count; i++)
            hash = (hash ^ (unsigned char)file.data[i]) * 1099511628211u;
        snprintf(text, 32, "%016llx", (unsigned long long)hash);
        free(file.data);
        return text;
    }
    if (!subject->result) return strdup(run->out);
    json_t *output = json_loads(run->out, 0, NULL);
    if (!output) return strdup("output is no JSON");
    char *text = json_dumps(json_object_get(output, subject->result), JSON_ENCODE_ANY | JSON_SORT_KEYS);
    json_decref(output);
    return text ? text : strdup("");
}

static void enter_copy(void) {
    assert_int_equal(chdir(place), 0);
    shell("rm -rf here && cp -r sound here");
    assert_int_equal(chdir("here"), 0);
}

static bool matches_any(const char *const *patterns, const char *text) {
    for (; patterns && *patterns; patterns++)
        if (fnmatch(*patterns, text, 0) == 0) return true;
    return false;
}

static bool may_change(const struct subject *subject, const json_t *paths) {
    for (size_t i = 0; i < json_array_size(paths); i++)
        if (matches_any(subject->may_change, json_string_value(json_array_get(paths, i)))) return true;
    return false;
}

static bool names_other(const struct subject *subject, const char *message) {
    for (const char *const *text = subject->named; text && *text; text++)
        if (strstr(message, *text)) return true;
    return false;
}

static int count_text(const char *text, const char *part) {
    int count = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        count++;
    return count;
}

/* Whether a message has a key on the way to a changed value, the place in the text, or that the checksum is another;
 * true where no value was changed. */
static bool names_field(const json_t *paths, const char *message) {
    if (strstr(message, ": line ") || strstr(message, "damaged")) return true;
    for (size_t i = 0; i < json_array_size(paths); i++) {
        char *path = strdup(json_string_value(json_array_get(paths, i))), *rest = NULL;
        bool named = path[0] == '<'; /* bytes, or text that is no JSON */
        for (char *key = strtok_r(path, ".", &rest); key && !named; key = strtok_r(NULL, ".", &rest))
            named = strcmp(key, "[]") != 0 && strstr(message, key);
        free(path);
        if (named) return true;
    }
    return false;
}

/* NULL where the run is right. */
static const char *judge(const struct subject *subject, const char *file, const struct program_run *run,
                         const char *sound, const json_t *paths) {
    static const char error[] = "ballast: error: ";
    static char text[256];
    bool refused = run->status == 2 || run->status == 3;
    if (run->status == 1 && subject->form == FORM_WEIGHTS && strstr(run->err, "is not finite")) return NULL;
    const char *message = strstr(run->err, error);
    if (strstr(run->err, "Sanitizer") || strstr(run->err, "runtime error:")) return "the sanitizer reports it";
    if (run->status != 0 && !refused) return "neither taken nor refused";
    find_names();
    const char *left = leftover(subject, refused);
    if (left) {
        snprintf(text, sizeof text, "%.200s is left behind", left);
        return text;
    }
    if (refused) {
        if (!message || count_text(run->err, error) != 1) return "not one message";
        if (run->status == 3 && !strstr(message, "no plan fits")) return "status 3 without its message";
        const char *name = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
        if (names_other(subject, message)) return NULL;
        if (!strstr(message, name)) return "the message does not name the file";
        return names_field(paths, message) ? NULL : "the message does not name the field";
    }
    char *result = result_of(subject, run);
    bool same = strcmp(result, sound) == 0;
    free(result);
    return same || may_change(subject, paths) ? NULL : "taken, with another result";
}

static void report(const struct subject *subject, const char *file, uint64_t seed, const struct mutation *mutation,
                   const struct program_run *run, const json_t *paths, const char *fault) {
    char kept[256], *changes = json_dumps(paths, JSON_ENSURE_ASCII);
    const char *folder = getenv("TMPDIR");
    snprintf(kept, sizeof kept, "%s/ballast-mutated-%s-%llu", folder ? folder : "/tmp", subject->name,
             (unsigned long long)seed);
    temp_write(kept, mutation->bytes.data, mutation->bytes.count);
    print_error("%s: %s: %s (%s): status %d\n    repeat: test_mutated_files --seed %llu --runs 1 %s\n    %s: kept as "
                "%s\n    %.600s\n",
                fault, file, mutation->text, changes, run->status, (unsigned long long)seed, subject->name, file, kept,
                run->err);
    free(changes);
    failures++;
}

/* The file's path, of which the last part may be a pattern. */
static const char *find_file(const struct subject *subject) {
    find_names();
    for (size_t i = 0; i < found.count; i++)
        if (fnmatch(subject->file, found.items[i], 0) == 0) return found.items[i];
    fail_msg("%s is not there", subject->file);
    return NULL;
}

static void run_mutation(const struct subject *subject, const char *file, struct bytes original, const char *sound,
                         uint64_t seed) {
    struct mutation mutation = mutation_make(subject->form, original, seed);
    json_t *paths = mutation_paths(subject->form, original, mutation.bytes);
    if (subject->makes) enter_copy();
    temp_write(file, mutation.bytes.data, mutation.bytes.count);
    struct program_run run = program_run(here, subject->arguments);
    const char *fault = judge(subject, file, &run, sound, paths);
    if (fault) report(subject, file, seed, &mutation, &run, paths, fault);
    program_run_free(&run);
    json_decref(paths);
    free(mutation.bytes.data);
}

static void run_subject(const struct subject *subject) {
    enter_copy();
    char file[512];
    snprintf(file, sizeof file, "%s", find_file(subject));
    struct bytes original = bytes_read(file);
    struct program_run run = program_run(here, subject->arguments);
    if (run.status != 0) fail_msg("%s: the sound file: status %d: %s", subject->name, run.status, run.err);
    char *sound = result_of(subject, &run);
    program_run_free(&run);
    for (size_t i = 0; i < runs_each; i++)
        run_mutation(subject, file, original, sound, campaign_seed + i);
    free(sound);
    free(original.data);
}

static bool is_wanted(const char *name) {
    for (const char *const *one = wanted; one && *one; one++)
        if (strcmp(*one, name) == 0) return true;
    return !wanted || !*wanted;
}

static void changed_files_are_taken_with_the_same_result_or_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < SUBJECTS; i++) {
        if (!is_wanted(subjects[i].name)) continue;
        int before = failures;
        run_subject(&subjects[i]);
        print_message("%s: %zu mutations, %d faults\n", subjects[i].name, runs_each, failures - before);
    }
    forget_names();
    if (failures > 0) fail_msg("%d mutated files were neither taken as sound nor refused by name", failures);
}

static void go_on(int number) { (void)number; }

/* A hang ends by SIGXCPU. The limit is for the programs: this process, which has it too, handles the signal, as no
 * program that it starts does. */
static void limit_time(void) {
    struct rlimit limit;
    signal(SIGXCPU, go_on);
    if (getrlimit(RLIMIT_CPU, &limit) != 0) return;
    limit.rlim_cur = CPU_SECONDS;
    setrlimit(RLIMIT_CPU, &limit);
}

int main(int count, char **arguments) {
    runs_each = unit_sweep(USUAL_RUNS, LONG_RUNS);
    int at = 1;
    for (; at + 1 < count && strncmp(arguments[at], "--", 2) == 0; at += 2) {
        uint64_t value = strtoull(arguments[at + 1], NULL, 10);
        if (strcmp(arguments[at], "--seed") == 0) campaign_seed = value;
        if (strcmp(arguments[at], "--runs") == 0) runs_each = value;
    }
    wanted = (const char *const *)(arguments + at);
    limit_time();
    print_message("seed %llu\n", (unsigned long long)campaign_seed);
    const struct CMUnitTest tests[] = {cmocka_unit_test(changed_files_are_taken_with_the_same_result_or_refused)};
    return cmocka_run_group_tests(tests, make_place, drop_place);
}
