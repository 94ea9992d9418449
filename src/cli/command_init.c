#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/log.h"
#include "cli/command.h"
#include "cli/new_model.h"
#include "session/train_options.h"

/* An option for a field that the family's config has no key for. */
static enum status check_field(const struct options *options, enum option_id id, const struct model_family *family,
                               size_t field_offset) {
    if (!options_given(options, id) || model_family_has(family, field_offset)) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "--%s: %s models have no such setting", option_table[id]->name, family->name);
}

/* Refuses formats whose markup the tokenizer would learn as if it were text. */
static enum status check_text_path(const char *path) {
    const char *dot = path ? strrchr(path, '.') : NULL;
    if (!dot || (strcmp(dot, ".jsonl") != 0 && strcmp(dot, ".json") != 0 && strcmp(dot, ".bin") != 0)) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "--tokenizer-data: %s: must be plain text", path);
}

static enum status read_config(const struct options *options, struct model_config *out) {
    TRY(model_config_init(options_text(options, OPT_arch), out));
    TRY(check_field(options, OPT_kv_heads, out->family, offsetof(struct model_config, kv_heads)));
    TRY(check_field(options, OPT_head_dim, out->family, offsetof(struct model_config, head_dim)));
    TRY(check_field(options, OPT_window, out->family, offsetof(struct model_config, window)));
    out->hidden = options_int(options, OPT_hidden);
    out->layers = options_int(options, OPT_layers);
    out->heads = options_int(options, OPT_heads);
    out->kv_heads = options_int(options, OPT_kv_heads);
    out->head_dim = options_int(options, OPT_head_dim);
    out->ffn = options_int(options, OPT_ffn);
    out->vocab_size = options_int(options, OPT_vocab);
    out->context = options_int(options, OPT_context);
    if (options_given(options, OPT_window)) model_config_set_window(out, options_int(options, OPT_window));
    out->tied = out->tied || options_flag(options, OPT_tied);
    return STATUS_OK;
}

static enum status run(const struct options *options) {
    const char *folder = options->arguments.items[0];
    int64_t parameters = 0;
    struct new_model wanted = {.tokenizer_text = options_text(options, OPT_tokenizer_data),
                               .like = options_text(options, OPT_like),
                               .seed = (uint64_t)options_int(options, OPT_seed)};
    const char *dtype = options_text(options, OPT_dtype), *format = options_text(options, OPT_quantize_base);
    wanted.dtype = dtype ? dtype_find(dtype) : DTYPE_F32;
    if (format) wanted.base_format = weight_format_find(format);
    TRY(check_text_path(wanted.tokenizer_text));
    if (!wanted.like) TRY(read_config(options, &wanted.config));
    TRY(new_model_write(&wanted, folder, &parameters));
    log_note("%s: a %s%s%s with %" PRId64 " parameters%s", folder, wanted.like ? "model like " : "",
             wanted.like ? wanted.like : options_text(options, OPT_arch), wanted.like ? "" : " model", parameters,
             wanted.tokenizer_text ? " and its tokenizer" : "");
    return STATUS_OK;
}

const struct command command_init = {
    .bit = COMMAND_INIT,
    .name = "init",
    .arguments = "MODEL_DIR (--like MODEL | --arch FAMILY --hidden N --layers N --heads N --vocab N --context N)",
    .min = 1,
    .max = 1,
    .summary = "create a model with random weights",
    .details = "Writes a Hugging Face directory: config.json, model.safetensors (in --dtype, matrices in the format "
               "of --quantize-base) and, with --tokenizer-data, a tokenizer trained on that text, with <|endoftext|> "
               "as its special token. MODEL_DIR must be new or empty.",
    .run = run,
};
