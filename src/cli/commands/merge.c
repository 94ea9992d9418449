#include "base/folder.h"
#include "base/terminal.h"
#include "cli/commands/command.h"
#include "cli/new_output.h"
#include "session/checkpoint/checkpoint.h"

static enum status write_merged(void *payload, const char *folder) { return model_write_merged(payload, folder); }

static enum status merge(const struct options *options, struct model *model) {
    const char *adapter = options->arguments.items[0], *folder = options_text(options, OPT_output);
    if (!model->adapter_weights)
        return status_set(STATUS_BAD_INPUT,
                          "%s: is a model without adapters: there is nothing to merge" HINT
                          "name the directory that `ballast train --lora` or peft wrote",
                          adapter);
    TRY(checkpoint_verify_model(NULL, adapter, model));
    TRY(new_folder_write(folder, write_merged, model));
    log_note("%s: the model of %s with the adapters of %s in its weights", folder, model->folder, adapter);
    return STATUS_OK;
}

static enum status run(const struct options *options) {
    const char *adapter = options->arguments.items[0], *folder = options_text(options, OPT_output);
    const char *base = options_text(options, OPT_base);
    AUTO(model_release) struct model *model = NULL;
    TRY(new_folder_check(folder));
    TRY(base ? model_open_adapter(adapter, base, &model) : model_open(adapter, &model));
    return merge(options, model);
}

const struct command command_merge = {
    .bit = COMMAND_MERGE,
    .name = "merge",
    .arguments = "ADAPTER_DIR -o DIR",
    .min = 1,
    .max = 1,
    .summary = "add an adapter to the weights of its base model",
    .details = "ADAPTER_DIR is a directory that `ballast train --lora` or peft wrote. DIR, new or empty, becomes a "
               "Hugging Face directory without adapters.",
    .notes = "The weights are W + (alpha / rank) B A, computed in fp32 and rounded to the data type of the model's "
             "file (fp32 if that is F16).",
    .example = "ballast merge run/model -o merged",
    .run = run,
};
