/* `ballast inspect`: makes a document for each kind of file or directory and prints it as lines or JSON. --verify
 * compares files with their checksums. */
#include <jansson.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/commands/command.h"
#include "data/token_file.h"
#include "machine/cluster.h"
#include "model/model.h"
#include "model/safetensors.h"
#include "plan/plan.h"
#include "session/checkpoint/checkpoint.h"
#include "text/tokenizer/tokenizer.h"

enum { KEY_WIDTH = 20, TEXT_BYTES = 512 };

/* Prints a scalar, or a short list of scalars, in one line. */
static char *value_text(const json_t *value, char text[TEXT_BYTES]) {
    text[0] = '\0';
    if (json_is_string(value)) snprintf(text, TEXT_BYTES, "%s", json_string_value(value));
    if (json_is_integer(value)) snprintf(text, TEXT_BYTES, "%" PRId64, (int64_t)json_integer_value(value));
    if (json_is_real(value)) snprintf(text, TEXT_BYTES, "%.9g", json_real_value(value));
    if (json_is_boolean(value)) snprintf(text, TEXT_BYTES, "%s", json_is_true(value) ? "yes" : "no");
    if (json_is_null(value)) snprintf(text, TEXT_BYTES, "-");
    if (!json_is_array(value)) return text;
    size_t used = 0, i;
    const json_t *item;
    json_array_foreach((json_t *)(uintptr_t)value, i, item) {
        char one[TEXT_BYTES];
        int wrote = snprintf(text + used, TEXT_BYTES - used, "%s%s", i ? " x " : "", value_text(item, one));
        used += wrote < 0 ? 0 : (size_t)wrote;
        if (used >= TEXT_BYTES) break;
    }
    return text;
}

/* Prints column headings, unless rows have names. */
static void print_heads(const json_t *row) {
    const char *key;
    json_t *value;
    if (!row || json_object_get(row, "name")) return;
    printf(" ");
    json_object_foreach((json_t *)(uintptr_t)row, key, value) printf(" %18s", key);
    putchar('\n');
}

static void print_table(const json_t *rows) {
    size_t i;
    const json_t *row;
    bool named = json_object_get(json_array_get(rows, 0), "name");
    print_heads(json_array_get(rows, 0));
    json_array_foreach((json_t *)(uintptr_t)rows, i, row) {
        const char *key;
        json_t *value;
        char text[TEXT_BYTES];
        printf(" ");
        json_object_foreach((json_t *)(uintptr_t)row, key, value) {
            if (strcmp(key, "name") == 0)
                printf(" %-48s", value_text(value, text));
            else
                printf(" %*s", named ? 12 : 18, value_text(value, text));
        }
        putchar('\n');
    }
}

static void print_object(const json_t *object, int indent);

static bool is_flat(const json_t *object) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) if (json_is_object(value)) return false;
    return true;
}

static void print_objects(const char *key, const json_t *list, int indent) {
    size_t i;
    const json_t *item;
    printf("%*s%s (%zu)\n", indent, "", key, json_array_size(list));
    if (is_flat(json_array_get(list, 0))) {
        print_table(list);
        return;
    }
    json_array_foreach((json_t *)(uintptr_t)list, i, item) print_object(item, indent + 2);
}

static void print_object(const json_t *object, int indent) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        char text[TEXT_BYTES];
        if (json_is_object(value)) {
            printf("%*s%s\n", indent, "", key);
            print_object(value, indent + 2);
        } else if (json_is_array(value) && json_is_object(json_array_get(value, 0)))
            print_objects(key, value, indent);
        else
            printf("%*s%-*s %s\n", indent, "", KEY_WIDTH - indent, key, value_text(value, text));
    }
}

static void inspect_print(const json_t *object) { print_object(object, 0); }

/* Documents for files: weights, tokens, tokenizers, plans, clusters. */

static const size_t JSON_LIMIT_BYTES = (size_t)256 << 20;

static json_t *tensor_to_json(const struct safetensors_tensor *tensor) {
    json_t *dims = json_array();
    for (int i = 0; i < tensor->rank; i++)
        json_push(&dims, json_integer((json_int_t)tensor->dims[i]));
    return json_pack("{s:s, s:s, s:o, s:I}", "name", tensor->name, "dtype", tensor->dtype_name, "shape", dims, "bytes",
                     (json_int_t)tensor->bytes);
}

static enum status inspect_weights(const char *path, json_t **out) {
    struct safetensors *set;
    TRY(safetensors_open(path, &set));
    json_t *tensors = json_array();
    size_t bytes = 0;
    for (size_t i = 0; i < set->tensors.count; i++) {
        json_push(&tensors, tensor_to_json(&set->tensors.items[i]));
        bytes += set->tensors.items[i].bytes;
    }
    safetensors_close(set);
    *out = json_pack("{s:s, s:s, s:I, s:o}", "kind", "safetensors", "file", path, "bytes", (json_int_t)bytes, "tensors",
                     tensors);
    return *out ? STATUS_OK : status_no_memory(0, "a list of tensors");
}

static enum status find_largest_id(const struct token_view *view, int64_t *out) {
    enum { CHUNK = 4096 };
    int32_t ids[CHUNK], max = -1;
    for (int64_t first = 0; first < view->count; first += CHUNK) {
        int64_t count = view->count - first < CHUNK ? view->count - first : CHUNK;
        TRY(token_view_read(view, first, count, ids));
        for (int64_t i = 0; i < count; i++)
            if (ids[i] > max) max = ids[i];
    }
    *out = max;
    return STATUS_OK;
}

static enum status inspect_tokens(const char *path, json_t **out) {
    AUTO(file_input_close) struct file_input file = {0};
    struct token_view view;
    int64_t largest = -1;
    TRY(file_input_open(path, &file));
    TRY(token_file_parse(path, &file, &view));
    TRY(find_largest_id(&view, &largest));
    *out = json_pack("{s:s, s:s, s:I, s:i, s:I}", "kind", "tokens", "file", path, "tokens", (json_int_t)view.count,
                     "token_bytes", view.token_bytes, "largest_id", (json_int_t)largest);
    return *out ? STATUS_OK : status_no_memory(0, "a summary");
}

static enum status inspect_tokenizer(const char *path, json_t **out) {
    struct tokenizer *tokenizer;
    TRY(tokenizer_open(path, &tokenizer));
    int64_t vocab = tokenizer_vocab_size(tokenizer);
    json_int_t special = 0;
    for (int64_t id = 0; id < vocab; id++)
        special += tokenizer_is_special(tokenizer, (uint32_t)id);
    tokenizer_free(tokenizer);
    *out = json_pack("{s:s, s:s, s:I, s:I}", "kind", "tokenizer", "file", path, "vocab_size", (json_int_t)vocab,
                     "special_tokens", special);
    return *out ? STATUS_OK : status_no_memory(0, "a summary");
}

/* Checks the plan as `train --plan` does. Also shows the file's other fields. */
static enum status inspect_plan(const char *path, json_t *object, json_t **out) {
    struct plan plan;
    TRY(plan_from_json(path, object, &plan));
    json_t *summary = json_pack("{s:s, s:s}", "kind", "plan", "file", path);
    *out = json_made(json_object_update(summary, object), summary, "a summary");
    return *out ? STATUS_OK : STATUS_FAILED;
}

/* Includes the sources of the figures, if the file gives them. */
static enum status inspect_cluster(const char *path, const json_t *object, json_t **out) {
    struct cluster cluster;
    TRY(cluster_from_json(path, object, &cluster));
    json_auto_t *whole = cluster_to_json(&cluster);
    json_t *sources = json_object_get(object, "sources");
    if (!whole) return STATUS_FAILED;
    json_t *summary =
        json_pack("{s:s, s:s, s:O, s:O}", "kind", "cluster", "file", path, "device",
                  json_array_get(json_object_get(whole, "devices"), 0), "network", json_object_get(whole, "network"));
    *out =
        json_made(json_is_object(sources) && json_object_set(summary, "sources", sources) != 0, summary, "a summary");
    return *out ? STATUS_OK : STATUS_FAILED;
}

static enum status inspect_cluster_preset(const char *name, json_t **out) {
    json_auto_t *object = NULL;
    TRY(cluster_preset_document(cluster_preset_find(name), &object));
    return inspect_cluster(name, object, out);
}

static enum status inspect_json_file(const char *path, json_t **out) {
    json_auto_t *object = NULL;
    TRY(json_read_object(path, JSON_LIMIT_BYTES, &object));
    if (json_object_get(object, "recipe") && json_object_get(object, "policy")) return inspect_plan(path, object, out);
    if (json_object_get(object, "devices")) return inspect_cluster(path, object, out);
    if (json_object_get(object, "model") || json_object_get(object, "added_tokens"))
        return inspect_tokenizer(path, out);
    return status_set(STATUS_BAD_INPUT, "%s: is no tokenizer, plan or cluster file", path);
}

/* Documents for directories: models, checkpoints, runs. */

enum { RUN_FILE_LIMIT_BYTES = 1 << 24 };

/* Adds the position and the plan, which a checkpoint has next to the weights. */
static enum status add_state(const char *folder, json_t *summary) {
    AUTO_FREE char *path = path_join(folder, "state.json");
    json_t *state = NULL;
    enum status status = path ? STATUS_OK : STATUS_FAILED;
    if (path && file_exists(path)) status = json_read_object(path, RUN_FILE_LIMIT_BYTES, &state);
    if (state && (json_object_set_new(summary, "state", state) != 0 ||
                  json_object_set_new(summary, "kind", json_string("checkpoint")) != 0))
        status = status_no_memory(0, "a summary");
    return status;
}

static enum status inspect_model(const char *folder, json_t **out) {
    AUTO(model_release) struct model *model = NULL;
    json_auto_t *summary = NULL;
    TRY(model_open(folder, &model));
    TRY(model_summarise(model, &summary));
    TRY(add_state(folder, summary));
    *out = TAKE(summary);
    return STATUS_OK;
}

/* Returns the last complete line of metrics.jsonl that has a loss, or NULL. */
static json_t *last_step(const char *folder) {
    json_t *last = NULL;
    char *path = path_join(folder, "metrics.jsonl");
    FILE *file = path ? fopen(path, "r") : NULL;
    char *line = NULL;
    size_t capacity = 0;
    while (file && getline(&line, &capacity, file) > 0) {
        json_t *object = json_loads(line, 0, NULL);
        if (json_object_get(object, "loss")) {
            json_decref(last);
            last = json_incref(object);
        }
        json_decref(object);
    }
    free(line);
    if (file) fclose(file);
    mem_free(path);
    return last;
}

static json_t *checkpoint_names(const char *folder) {
    AUTO(names_free) struct names names = {0};
    json_t *list = json_array();
    if (checkpoint_list(folder, &names) == STATUS_OK)
        for (size_t i = 0; i < names.count; i++)
            json_array_append_new(list, json_pack("{s:s}", "name", names.items[i]));
    return list;
}

static enum status inspect_run(const char *folder, json_t **out) {
    json_t *settings;
    AUTO_FREE char *path = path_join(folder, "run.json"), *model = path_join(folder, "model");
    TRY(path && model ? json_read_object(path, RUN_FILE_LIMIT_BYTES, &settings) : STATUS_FAILED);
    json_t *last = last_step(folder);
    *out = json_pack("{s:s, s:s, s:o, s:o, s:b, s:o}", "kind", "run", "folder", folder, "last_step",
                     last ? last : json_null(), "checkpoints", checkpoint_names(folder), "has_model",
                     file_is_folder(model), "settings", settings);
    return *out ? STATUS_OK : status_no_memory(0, "a summary");
}

/* `ballast inspect --verify`. */

static enum status add_problem(json_t *problems, const char *text) {
    return json_array_append_new(problems, json_string(text)) == 0 ? STATUS_OK : status_no_memory(0, "a summary");
}

static enum status list_problems(struct checkpoint_examination *found, json_t *problems) {
    enum status status = STATUS_OK;
    for (size_t i = 0; i < found->findings.items.count && status == STATUS_OK; i++) {
        char text[MANIFEST_TEXT_BYTES];
        status = add_problem(problems, manifest_finding_print(&found->findings.items.items[i], text));
    }
    vec_free(&found->findings.items);
    return status;
}

/* Adds the result for a directory: {"name", "checksums", "files", "bytes", "problems": [text]}. */
static enum status verify_folder(const char *folder, const char *name, json_t *folders) {
    struct checkpoint_examination found;
    json_auto_t *problems = json_array();
    enum status status = problems ? checkpoint_examine(folder, &found) : status_no_memory(0, "a summary");
    if (status == STATUS_BAD_INPUT) {
        found = (struct checkpoint_examination){.listed = true};
        status = add_problem(problems, status_message());
    } else if (status == STATUS_OK) {
        status = list_problems(&found, problems);
    }
    TRY(status);
    json_t *row = json_pack("{s:s, s:b, s:I, s:I, s:O}", "name", name, "checksums", found.listed, "files",
                            (json_int_t)found.files, "bytes", (json_int_t)found.bytes, "problems", problems);
    return json_array_append_new(folders, row) == 0 ? STATUS_OK : status_no_memory(0, "a summary");
}

static enum status verify_below(const char *run_folder, const char *name, json_t *folders) {
    AUTO_FREE char *path = path_join(run_folder, name);
    enum status status = path ? STATUS_OK : STATUS_FAILED;
    if (path && file_is_folder(path)) status = verify_folder(path, name, folders);
    return status;
}

static enum status verify_run(const char *folder, json_t *folders) {
    AUTO(names_free) struct names names = {0};
    TRY(checkpoint_list(folder, &names));
    for (size_t i = 0; i < names.count; i++) {
        AUTO_FREE char *name = path_join("checkpoints", names.items[i]);
        TRY(name ? verify_below(folder, name, folders) : STATUS_FAILED);
    }
    return verify_below(folder, "model", folders);
}

static void print_row(const json_t *row) {
    const json_t *problems = json_object_get(row, "problems"), *problem;
    char size[SIZE_TEXT];
    size_t i;
    bool listed = json_is_true(json_object_get(row, "checksums"));
    printf("%-28s %4lld files %12s  %s\n", json_string_value(json_object_get(row, "name")),
           (long long)json_integer_value(json_object_get(row, "files")),
           size_print(json_integer_value(json_object_get(row, "bytes")), size),
           json_array_size(problems) > 0 ? "damaged"
           : listed                      ? "as written"
                                         : "no checksums: not written by this version of Ballast");
    json_array_foreach((json_t *)(uintptr_t)problems, i, problem) printf("    %s\n", json_string_value(problem));
}

static enum status judge(const char *folder, const json_t *folders) {
    size_t i, damaged = 0, listed = 0;
    const json_t *row;
    json_array_foreach((json_t *)(uintptr_t)folders, i, row) {
        damaged += json_array_size(json_object_get(row, "problems")) > 0;
        listed += json_is_true(json_object_get(row, "checksums"));
    }
    if (damaged > 0)
        return status_set(STATUS_BAD_INPUT, "%s: %zu of %zu directories are damaged", folder, damaged,
                          json_array_size(folders));
    if (listed > 0) return STATUS_OK;
    return status_set(
        STATUS_BAD_INPUT,
        "%s: has no checksums to compare with" HINT "--verify takes a run or a checkpoint that Ballast wrote", folder);
}

/* Compares files with their checksums, and prints the result. `folder` is a checkpoint, a run (its checkpoints and
 * model), or any directory with a manifest. Returns BAD_INPUT if a file is damaged, or if there are no checksums. */
static enum status inspect_verify(const char *folder, bool json) {
    if (!file_is_folder(folder))
        return status_set(STATUS_BAD_INPUT,
                          "%s: is not a directory" HINT "--verify takes the directory of a run or of a checkpoint",
                          folder);
    json_auto_t *folders = json_array();
    if (!folders) return status_no_memory(0, "a summary");
    size_t i;
    const json_t *row;
    TRY(folder_holds(folder, "run.json") ? verify_run(folder, folders) : verify_folder(folder, folder, folders));
    if (json)
        TRY(cli_print_json(json_pack("{s:s, s:s, s:O}", "kind", "verification", "path", folder, "folders", folders)));
    else
        json_array_foreach(folders, i, row) print_row(row);
    return judge(folder, folders);
}

static enum status look_at(const char *path, json_t **out) {
    if (!file_exists(path) && cluster_preset_find(path)) return inspect_cluster_preset(path, out);
    if (!file_exists(path))
        return status_set(STATUS_BAD_INPUT, "%s: no such file or directory" HINT "check the path", path);
    if (file_is_folder(path)) {
        if (folder_holds(path, "run.json")) return inspect_run(path, out);
        if (folder_holds(path, "config.json") || folder_holds(path, "adapter_config.json"))
            return inspect_model(path, out);
        TRY(foreign_weights_refuse_folder(path));
        return status_set(STATUS_BAD_INPUT,
                          "%s: neither a run (run.json) nor a model (config.json)" HINT
                          "name the directory that holds one of these files",
                          path);
    }
    TRY(foreign_weights_refuse_file(path));
    if (path_ends(path, ".safetensors")) return inspect_weights(path, out);
    if (path_ends(path, ".bin")) return inspect_tokens(path, out);
    if (path_ends(path, ".json")) return inspect_json_file(path, out);
    TRY(foreign_weights_refuse_name(path));
    enum status status = status_set(STATUS_BAD_INPUT, "%s: not a kind of file that inspect knows", path);
    return status_hint(status, "it knows model and run directories, .safetensors, .bin token files, and .json files of "
                               "tokenizers, plans and clusters");
}

static enum status run(const struct options *options) {
    json_t *summary;
    if (options_flag(options, OPT_verify))
        return inspect_verify(options->arguments.items[0], options_flag(options, OPT_json));
    TRY(look_at(options->arguments.items[0], &summary));
    if (options_flag(options, OPT_json)) return cli_print_json(summary);
    inspect_print(summary);
    json_decref(summary);
    return STATUS_OK;
}

const struct command command_inspect = {
    .bit = COMMAND_INSPECT,
    .name = "inspect",
    .arguments = "PATH",
    .min = 1,
    .max = 1,
    .summary = "show a model, run, weight file, token file, tokenizer, plan or cluster file",
    .details = "PATH is a model, checkpoint or run directory, a .safetensors file, a .bin token file, the .json file "
               "of a tokenizer, plan or cluster, or the name of a machine in clusters/ (h100x8).",
    .notes = "The file gets the same checks as when it is used. With --verify, the exit status is 2 if any file "
             "differs from the checksum recorded when it was written.",
    .example = "ballast inspect run --verify",
    .run = run,
};
