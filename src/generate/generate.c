#include "generate/generate.h"

#include "base/clock.h"
#include "generate/decode.h"
#include "generate/writer.h"

static const char *const finish_names[] = {
#define GENERATE_FINISH_NAME(name, text) text,
    GENERATE_FINISH_LIST(GENERATE_FINISH_NAME)
#undef GENERATE_FINISH_NAME
};

const char *generate_finish_name(enum generate_finish finish) { return finish_names[finish]; }

#define PLACE(field, ...) [SETTING_##field] = SETTING_PLACE(struct generate_options, field),
const struct settings_holder text_settings = {SETTINGS_GIVEN_AT(struct generate_options),
                                              .places = {SETTING_LIST_TEXT(PLACE)}};
#undef PLACE

void generate_options_init(struct generate_options *out) {
    *out = (struct generate_options){.tokens = setting_table[SETTING_tokens].int_value};
}

enum status generate_options_check(const struct generate_options *options) {
    if (options->tokens < 0) return status_set(STATUS_BAD_INPUT, "tokens: %" PRId64 " is negative", options->tokens);
    for (size_t i = 0; i < options->stop_count; i++)
        if (options->stops[i][0] == '\0') return status_set(STATUS_BAD_INPUT, "stop: is empty");
    return STATUS_OK;
}

static enum status next_logits(struct decoding *decoding, const struct token_ids *ids, const float **logits) {
    if (!decoding_continues(decoding, 0, ids->count)) return decoding_read(decoding, 0, ids->items, ids->count, logits);
    struct decoding_token token = {.text = 0, .id = ids->items[ids->count - 1]};
    return decoding_step(decoding, &token, 1, logits);
}

static enum status write_text(struct writer *writer, struct written_text *text, struct generate_result *result) {
    int64_t start = clock_now_ns(), first = 0;
    const float *logits;
    TRY(decoding_read(&writer->decoding, 0, text->ids->items, text->ids->count, &logits));
    first = clock_now_ns();
    TRY(written_text_take(writer, text, logits));
    while (!text->finished) {
        TRY(next_logits(&writer->decoding, text->ids, &logits));
        TRY(written_text_take(writer, text, logits));
    }
    result->prompt_seconds = (double)(first - start) * 1e-9;
    result->seconds = (double)(clock_now_ns() - first) * 1e-9;
    result->tokens = text->new_tokens;
    result->finish = text->finish;
    return STATUS_OK;
}

enum status generate_continue(struct writer *writer, uint32_t text, struct token_ids *ids, generate_sink *sink,
                              void *payload, struct generate_result *result) {
    struct written_text written;
    struct generate_result made = {.prompt_tokens = (int64_t)ids->count};
    enum status status;
    TRY_GOTO(status, written_text_begin(writer, text, ids, sink, payload, &written), done);
    TRY_GOTO(status, write_text(writer, &written, &made), done);
    if (result) *result = made;
done:
    written_text_free(&written);
    return status;
}
