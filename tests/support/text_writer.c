#include "support/text_writer.h"

#include <string.h>

#include "support/unit.h"

struct plan_options text_writer_plan(int64_t positions) {
    struct plan_options plan;
    plan_options_init(&plan);
    SETTINGS_GIVE(&plan, threads, 2);
    SETTINGS_GIVE(&plan, sequence_length, positions);
    SETTINGS_GIVE(&plan.memory, device_bytes, 256 << 20);
    return plan;
}

static bool collect(void *payload, const char *bytes, size_t count) {
    char *text = payload;
    assert_true(strlen(text) + count < TEXT_WRITER_BYTES);
    strncat(text, bytes, count);
    return true;
}

static enum status write_text(struct writer_model *model, struct writer *writer, const struct generate_options *options,
                              const char *prompt, char *text, struct generate_result *result) {
    struct token_ids ids = {0};
    enum status status = writer_encode_prompt(model->session.model, model->tokenizer, prompt, &ids);
    if (status == STATUS_OK) status = writer_model_load(model);
    if (status == STATUS_OK) status = writer_create(&model->engine, model->tokenizer, &model->config, options, writer);
    if (status == STATUS_OK) status = generate_continue(writer, 0, &ids, collect, text, result);
    vec_free(&ids);
    return status;
}

enum status text_writer_run(const char *model, const struct plan_options *plan, const struct generate_options *options,
                            const char *prompt, char text[TEXT_WRITER_BYTES], struct generate_result *result) {
    struct writer_model opened = {0};
    struct writer writer = {0};
    text[0] = '\0';
    enum status status = writer_model_open(model, plan, &opened);
    if (status == STATUS_OK) status = write_text(&opened, &writer, options, prompt, text, result);
    writer_free(&writer);
    writer_model_close(&opened);
    return status;
}
