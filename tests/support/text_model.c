#include "support/text_model.h"

#include <string.h>

#include "support/temp_folder.h"
#include "support/tokenizer_text.h"
#include "support/unit.h"
#include "support/weight_files.h"
#include "text/tokenizer/tokenizer.h"

static void require(enum status status) {
    if (status != STATUS_OK) fail_msg("text_model_make: %s", status_message());
}

void text_model_make(const char *folder, const char *text, int64_t tokens, int64_t vocab, bool zero) {
    struct model_config config;
    struct model *model;
    require(model_config_init("llama", &config));
    config.vocab_size = vocab;
    config.hidden = 16;
    config.layers = 2;
    config.heads = 2;
    config.ffn = 24;
    config.context = 64;
    require(model_create(&config, &model));
    require(folder_create(folder));
    struct model_targets targets = model_targets_make(model, DTYPE_F32);
    if (zero)
        for (int i = 0; i < targets.count; i++)
            memset(targets.items[i].data, 0, (size_t)shape_bytes(&targets.items[i].tensor->shape));
    else
        (void)model_initialise_weights(model, 5, targets.items, targets.count);
    require(model_write(model, folder, targets.items, targets.count, NULL));
    require(tokenizer_train(text, strlen(text), tokens, NULL, 0, temp_path(folder, "tokenizer.json")));
    model_targets_drop(&targets);
    model_free(model);
}
