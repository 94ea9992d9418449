#include <string.h>

#include "base/file.h"
#include "cli/command.h"
#include "cli/inspect.h"
#include "machine/cluster_preset.h"
#include "model/safetensors.h"

static enum status look_at(const char *path, json_t **out) {
    if (!file_exists(path) && cluster_preset_find(path)) return inspect_cluster_preset(path, out);
    if (!file_exists(path)) return status_set(STATUS_BAD_INPUT, "%s: no such file or directory", path);
    if (file_is_folder(path)) {
        if (folder_holds(path, "run.json")) return inspect_run(path, out);
        if (folder_holds(path, "config.json") || folder_holds(path, "adapter_config.json"))
            return inspect_model(path, out);
        TRY(foreign_weights_refuse_folder(path));
        return status_set(STATUS_BAD_INPUT, "%s: neither a run (run.json) nor a model (config.json)", path);
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
               "of a tokenizer, plan or cluster, or the name of a machine in clusters/ (h100x8). The file gets the "
               "same checks as when it is used. With --verify, compares files with the checksums recorded when they "
               "were written; the exit status is 2 if any is damaged.",
    .run = run,
};
