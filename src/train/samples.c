#include "train/samples.h"

#include "base/json.h"
#include "generate/writer.h"
#include "session/model_tokenizer.h"

enum status samples_prepare(const struct model *model, const struct train_options *options, struct samples *samples) {
    samples->file.descriptor = -1;
    if (options->sample_every == 0) return STATUS_OK;
    TRY(model_tokenizer_require(model, &samples->tokenizer));
    TRY(generation_config_read(model, samples->tokenizer, &samples->config));
    return writer_encode_prompt(model, samples->tokenizer, options->sample_prompt, &samples->prompt);
}

enum status samples_open(const char *run_folder, int64_t step, struct samples *samples) {
    if (!samples->tokenizer) return STATUS_OK;
    char *path = path_join(run_folder, "samples.jsonl");
    if (!path) return STATUS_FAILED;
    bool unused;
    struct metrics_cut cut = {.step = step - 1};
    enum status status = metrics_open(path, &cut, &samples->file, &unused);
    mem_free(path);
    return status;
}

void samples_close(struct samples *samples) {
    metrics_close(&samples->file);
    vec_free(&samples->prompt);
    generation_config_free(&samples->config);
    tokenizer_free(samples->tokenizer);
    *samples = (struct samples){.file.descriptor = -1};
}

struct collected {
    VEC(char) text;
    enum status status;
};

static bool collect(void *payload, const char *text, size_t bytes) {
    struct collected *collected = payload;
    for (size_t i = 0; i < bytes && collected->status == STATUS_OK; i++)
        collected->status = vec_push(&collected->text, text[i]);
    return collected->status == STATUS_OK;
}

static enum status write_line(struct samples *samples, int64_t step, const char *prompt, const char *text) {
    json_t *object = json_pack("{s:I, s:s, s:s}", "step", (json_int_t)step, "prompt", prompt, "text", text);
    char *line = object ? json_text(object, JSON_PRESERVE_ORDER | JSON_COMPACT) : NULL, *whole = NULL;
    json_decref(object);
    if (line) whole = mem_format("%s\n", line);
    mem_free(line);
    if (!whole) return status_no_memory(strlen(text), "a sample");
    enum status status = metrics_append(&samples->file, whole, strlen(whole));
    mem_free(whole);
    return status;
}

static enum status write_sample(const struct samples *samples, const struct engine *engine,
                                const struct generate_options *options, struct collected *collected) {
    struct writer writer;
    struct token_ids ids = {0};
    TRY(writer_create(engine, samples->tokenizer, &samples->config, options, &writer));
    enum status status;
    for (size_t i = 0; i < samples->prompt.count; i++)
        TRY_GOTO(status, vec_push(&ids, samples->prompt.items[i]), done);
    status = generate_continue(&writer, 0, &ids, collect, collected, NULL);
done:
    vec_free(&ids);
    writer_free(&writer);
    return status;
}

enum status samples_take(struct samples *samples, const struct engine *engine, const struct train_options *options,
                         int64_t step, char **text) {
    struct generate_options generate;
    struct collected collected = {0};
    enum status status;
    generate_options_init(&generate);
    generate.tokens = options->sample_tokens;
    TRY_GOTO(status, write_sample(samples, engine, &generate, &collected), failed);
    TRY_GOTO(status, collected.status, failed);
    TRY_GOTO(status, vec_push(&collected.text, '\0'), failed);
    TRY_GOTO(status, write_line(samples, step, options->sample_prompt, collected.text.items), failed);
    *text = collected.text.items;
    return STATUS_OK;
failed:
    vec_free(&collected.text);
    return status;
}
