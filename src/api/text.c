/* ballast_generate, and ballast_writer_…, which keeps a model loaded for several texts. */
#include "api/library.h"
#include "generate/batch.h"

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), "a public number is the internal one")
SAME(BALLAST_FINISH_END, GENERATE_FINISH_END);
SAME(BALLAST_FINISH_STOP, GENERATE_FINISH_STOP);
SAME(BALLAST_FINISH_LENGTH, GENERATE_FINISH_LENGTH);
SAME(BALLAST_FINISH_STOPPED, GENERATE_FINISH_INTERRUPTED);

struct ballast_writer {
    struct writer_model model;
};

/* The text to generate. */
struct text_request {
    struct generate_options options;
    struct prompt_encoder encoder;
    struct prompts prompts;
    ballast_piece_callback *piece;
    void *payload;
};

static bool pass_piece(void *payload, const char *text, size_t bytes) {
    const struct text_request *request = payload;
    return request->piece(text, bytes, request->payload) == 0;
}

static enum status read_request(const struct ballast_generate_options *given, const char *prompt,
                                const struct ballast_text *out, struct text_request *request) {
    library_stopped = 0;
    TRY(library_require(prompt, "prompt"));
    TRY(library_require((const void *)(uintptr_t)request->piece, "piece"));
    if (out) TRY(library_require_version(out->version, BALLAST_TEXT_VERSION, "out"));
    TRY(library_read_text(given, &request->options));
    if (!given) return STATUS_OK;
    if (given->chat > 1)
        return status_set(STATUS_BAD_INPUT, "options.chat: %lld is not 0 or 1", (long long)given->chat);
    request->encoder.chat = given->chat == 1;
    request->encoder.system = given->system;
    if (given->system && !request->encoder.chat)
        return status_set(STATUS_BAD_INPUT, "options.system: is for options.chat");
    return library_read_time("options.chat_time_s", given->chat_time_s, &request->encoder.time_s);
}

static void drop_request(struct text_request *request) {
    prompts_free(&request->prompts);
    prompt_encoder_close(&request->encoder);
}

static enum status open_model(const char *model, const struct ballast_plan_options *plan, struct writer_model *out) {
    struct plan_options planning;
    TRY(library_require(model, "model"));
    TRY(library_read_plan(plan, false, &planning));
    planning.comm = NULL;               /* each rank generates its own texts */
    SETTINGS_GIVE(&planning, batch, 1); /* one text at a time */
    return writer_model_open(model, &planning, out);
}

/* Reads generation_config.json again, because an end token added by a chat template applies to one text only. */
static enum status refresh_config(struct writer_model *model) {
    struct generation_config config;
    TRY(generation_config_read(model->session.model, model->tokenizer, true, &config));
    generation_config_free(&model->config);
    model->config = config;
    return STATUS_OK;
}

static enum status encode(struct writer_model *model, const char *prompt, struct text_request *request) {
    request->encoder.model = model;
    return prompts_add_text(&request->encoder, prompt, &request->prompts);
}

static enum status write_text(struct writer_model *model, struct text_request *request, struct ballast_text *out) {
    AUTO(writer_free) struct writer writer = {0};
    struct generate_result result;
    TRY(writer_create(&model->engine, model->tokenizer, &model->config, &request->options, &writer));
    TRY(generate_continue(&writer, 0, &request->prompts.items[0].ids, pass_piece, request, &result));
    if (out)
        *out = (struct ballast_text){.version = BALLAST_TEXT_VERSION,
                                     .finish = (enum ballast_finish)result.finish,
                                     .prompt_tokens = result.prompt_tokens,
                                     .tokens = result.tokens,
                                     .prompt_s = result.prompt_seconds,
                                     .s = result.seconds};
    return STATUS_OK;
}

/* Checks the prompt before it loads the weights. */
static enum status generate_once(const char *model_folder, const struct ballast_plan_options *plan,
                                 const struct ballast_generate_options *options, const char *prompt,
                                 ballast_piece_callback *piece, void *payload, struct ballast_text *out) {
    AUTO(writer_model_close) struct writer_model model = {.tokenizer = NULL};
    AUTO(drop_request) struct text_request request = {.piece = piece, .payload = payload}; /* borrows from the model */
    TRY(read_request(options, prompt, out, &request));
    TRY(open_model(model_folder, plan, &model));
    TRY(encode(&model, prompt, &request));
    TRY(writer_model_load(&model));
    return write_text(&model, &request, out);
}

enum ballast_status ballast_generate(const char *model, const struct ballast_plan_options *plan,
                                     const struct ballast_generate_options *options, const char *prompt,
                                     ballast_piece_callback *piece, void *payload, struct ballast_text *out) {
    return LIBRARY_CALL(generate_once(model, plan, options, prompt, piece, payload, out));
}

static enum status open_writer(const char *model, const struct ballast_plan_options *plan,
                               struct ballast_writer **out) {
    TRY(library_require(out, "out"));
    struct ballast_writer *writer = mem_array(1, sizeof *writer);
    if (!writer) return STATUS_FAILED;
    enum status status = open_model(model, plan, &writer->model);
    if (status == STATUS_OK) status = writer_model_load(&writer->model);
    if (status == STATUS_OK)
        *out = writer;
    else
        ballast_writer_close(writer);
    return status;
}

enum ballast_status ballast_writer_open(const char *model, const struct ballast_plan_options *plan,
                                        struct ballast_writer **out) {
    return LIBRARY_CALL(open_writer(model, plan, out));
}

static enum status write_next(struct ballast_writer *writer, const struct ballast_generate_options *options,
                              const char *prompt, ballast_piece_callback *piece, void *payload,
                              struct ballast_text *out) {
    AUTO(drop_request) struct text_request request = {.piece = piece, .payload = payload};
    TRY(library_require(writer, "writer"));
    TRY(read_request(options, prompt, out, &request));
    const struct writer_model *model = &writer->model;
    model->session.machine.backend->set_threads(
        model->plan.chosen.threads); /* a thread's own setting; this may be another thread */
    TRY(refresh_config(&writer->model));
    TRY(encode(&writer->model, prompt, &request));
    return write_text(&writer->model, &request, out);
}

enum ballast_status ballast_writer_write(struct ballast_writer *writer, const struct ballast_generate_options *options,
                                         const char *prompt, ballast_piece_callback *piece, void *payload,
                                         struct ballast_text *out) {
    return LIBRARY_CALL(write_next(writer, options, prompt, piece, payload, out));
}

void ballast_writer_close(struct ballast_writer *writer) {
    if (!writer) return;
    writer_model_close(&writer->model);
    mem_free(writer);
}
