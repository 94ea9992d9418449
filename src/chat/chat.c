#include "chat/chat.h"

#include <string.h>

#include "base/mem.h"
#include "chat/chat_turn.h"

/* An assistant's turn. */
struct turn {
    size_t message;          /* its number */
    struct text_buffer text; /* the conversation up to and with it */
    size_t start;            /* where it begins in that */
    bool done;               /* it is part of an example */
};

struct chat_encoder {
    const struct chat_template *chat;
    struct example_encoder *examples;
    int64_t now_s;
    size_t first; /* messages before it are not trained on */
    struct chat_rendering rendering;
    VEC(struct turn) turns;
    VEC(struct text_span) spans;
};

enum status chat_encoder_create(const struct chat_template *chat, struct example_encoder *examples, int64_t now_s,
                                struct chat_encoder **out) {
    struct chat_encoder *made = mem_array(1, sizeof *made);
    if (!made) return STATUS_FAILED;
    *made = (struct chat_encoder){.chat = chat, .examples = examples, .now_s = now_s, .rendering.chat = chat};
    *out = made;
    return STATUS_OK;
}

static void forget_turns(struct chat_encoder *encoder) {
    for (size_t i = 0; i < encoder->turns.count; i++)
        vec_free(&encoder->turns.items[i].text);
    encoder->turns.count = 0;
}

void chat_encoder_free(struct chat_encoder *encoder) {
    if (!encoder) return;
    forget_turns(encoder);
    vec_free(&encoder->turns);
    vec_free(&encoder->spans);
    chat_rendering_free(&encoder->rendering);
    mem_free(encoder);
}

static bool is_assistant(const json_t *message) {
    return strcmp(json_string_value(json_object_get(message, "role")), "assistant") == 0;
}

static bool begins_with(const struct text_buffer *text, const struct text_buffer *begin) {
    return text->count >= begin->count && (begin->count == 0 || memcmp(text->items, begin->items, begin->count) == 0);
}

static enum status render_turns(struct chat_encoder *encoder) {
    const json_t *messages = encoder->rendering.whole.messages;
    for (size_t i = encoder->first; i < json_array_size(messages); i++) {
        if (!is_assistant(json_array_get(messages, i))) continue;
        TRY(vec_push(&encoder->turns, (struct turn){.message = i}));
        struct turn *turn = &encoder->turns.items[encoder->turns.count - 1];
        TRY(chat_turn_render(&encoder->rendering, i, &turn->text, &turn->start));
    }
    return STATUS_OK;
}

/* One example: the conversation up to the last turn that has no example yet. It trains on that turn and on the earlier
 * turns that are rendered in it as by themselves. */
static enum status encode_turns(struct chat_encoder *encoder, size_t last, struct token_ids *out) {
    const struct text_buffer *text = &encoder->turns.items[last].text;
    size_t end = 0;
    encoder->spans.count = 0;
    for (size_t i = 0; i <= last; i++) {
        struct turn *turn = &encoder->turns.items[i];
        bool same = begins_with(text, &turn->text);
        if (turn->done || !same || turn->start < end) continue;
        TRY(vec_push(&encoder->spans, (struct text_span){turn->start, turn->text.count}));
        end = turn->text.count;
        turn->done = true;
    }
    return example_encode(encoder->examples, text->items, text->count, encoder->spans.items, encoder->spans.count,
                          false, -1, out);
}

static enum status encode_by_turns(struct chat_encoder *encoder, struct token_ids *out) {
    TRY(render_turns(encoder));
    for (size_t i = encoder->turns.count; i-- > 0;) {
        if (encoder->turns.items[i].done) continue;
        TRY(encode_turns(encoder, i, out));
        encoder->turns.items[i].done = true;
    }
    return STATUS_OK;
}

/* Generation blocks that end behind what the model is given before the answer. */
static void drop_earlier(const struct text_buffer *given, struct jinja_output *output) {
    size_t common = 0, kept = 0;
    while (common < given->count && common < output->text.count && given->items[common] == output->text.items[common])
        common++;
    for (size_t i = 0; i < output->generations.count; i++)
        if (output->generations.items[i].to > common) output->generations.items[kept++] = output->generations.items[i];
    output->generations.count = kept;
}

static enum status encode_whole(struct chat_encoder *encoder, struct token_ids *out) {
    struct jinja_output *output = &encoder->rendering.output;
    struct text_buffer given = {0};
    if (encoder->first > 0) {
        TRY(chat_render(&encoder->rendering, encoder->first, true));
        given = output->text;
        output->text = (struct text_buffer){0};
    }
    enum status status = chat_render(&encoder->rendering, json_array_size(encoder->rendering.whole.messages), false);
    if (status == STATUS_OK) drop_earlier(&given, output);
    vec_free(&given);
    TRY(status);
    return example_encode(encoder->examples, output->text.items, output->text.count, output->generations.items,
                          output->generations.count, false, -1, out);
}

static enum status encode(struct chat_encoder *encoder, const json_t *object, struct token_ids *out) {
    const json_t *messages = json_object_get(object, "messages"), *tools = json_object_get(object, "tools");
    TRY(chat_check_messages(messages));
    if (tools && !json_is_array(tools) && !json_is_null(tools))
        return status_set(STATUS_BAD_INPUT, "tools: must be a list");
    json_t *normalized = chat_normalize_messages(messages);
    if (!normalized) return STATUS_FAILED;
    encoder->rendering.whole = (struct chat_input){.messages = normalized, .tools = tools, .now_s = encoder->now_s};
    bool answered = false;
    for (size_t i = 0; i < json_array_size(normalized); i++)
        answered |= is_assistant(json_array_get(normalized, i));
    bool whole = !answered || chat_template_has_generation(encoder->chat, tools);
    enum status status = whole ? encode_whole(encoder, out) : encode_by_turns(encoder, out);
    json_decref(normalized);
    return status;
}

enum status chat_encode(struct chat_encoder *encoder, const char *file, int64_t line, const json_t *object,
                        struct token_ids *out) {
    return chat_encode_from(encoder, file, line, object, 0, out);
}

enum status chat_encode_from(struct chat_encoder *encoder, const char *file, int64_t line, const json_t *object,
                             size_t first, struct token_ids *out) {
    encoder->first = first;
    encoder->rendering.bytes = 0;
    encoder->rendering.work = 0;
    enum status status = encode(encoder, object, out);
    forget_turns(encoder);
    if (status != STATUS_BAD_INPUT) return status;
    return status_prefix(status, "%s: line %lld", file, (long long)line);
}
