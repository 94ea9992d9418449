#include "data/chat.h"

#include <string.h>

#include "base/mem.h"
#include "data/utf8.h"

/* Each turn is rendered with all before it: the texts of one conversation, in all. */
enum { WORK_LIMIT_BYTES = 1 << 26 };

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
    struct jinja_output output;
    VEC(struct turn) turns;
    VEC(struct text_span) spans;
    size_t work_bytes;
};

enum status chat_encoder_create(const struct chat_template *chat, struct example_encoder *examples, int64_t now_s,
                                struct chat_encoder **out) {
    struct chat_encoder *made = mem_array(1, sizeof *made);
    if (!made) return STATUS_FAILED;
    *made = (struct chat_encoder){.chat = chat, .examples = examples, .now_s = now_s};
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
    jinja_output_free(&encoder->output);
    mem_free(encoder);
}

static enum status check_messages(const json_t *messages) {
    if (!messages) return status_set(STATUS_BAD_INPUT, "messages: missing");
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return status_set(STATUS_BAD_INPUT, "messages: must be a list of at least one message");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        if (!json_is_object(message) || !json_is_string(json_object_get(message, "role")))
            return status_set(STATUS_BAD_INPUT, "messages[%zu]: must be an object with a \"role\"", i);
    }
    return STATUS_OK;
}

static bool is_assistant(const json_t *message) {
    return strcmp(json_string_value(json_object_get(message, "role")), "assistant") == 0;
}

/* Renders the first `count` messages into the encoder's output. */
static enum status render(struct chat_encoder *encoder, const struct chat_input *whole, size_t count, bool prompt) {
    json_t *first = json_array();
    int failed = !first;
    for (size_t i = 0; i < count && !failed; i++)
        failed |= json_array_append(first, json_array_get(whole->messages, i));
    struct chat_input input = *whole;
    input.messages = first;
    input.add_generation_prompt = prompt;
    enum status status =
        failed ? status_no_memory(0, "messages") : chat_template_render(encoder->chat, &input, &encoder->output);
    json_decref(first);
    encoder->work_bytes += encoder->output.text.count;
    if (status == STATUS_OK && encoder->work_bytes > WORK_LIMIT_BYTES)
        status = status_set(STATUS_BAD_INPUT, "messages: too many and too long turns for one conversation");
    return status;
}

static size_t common_bytes(const struct text_buffer *a, const struct text_buffer *b) {
    size_t common = 0;
    while (common < a->count && common < b->count && a->items[common] == b->items[common])
        common++;
    return common;
}

/* What the template makes of a turn begins where the text with it departs from what the model was given. */
static enum status render_turn(struct chat_encoder *encoder, const struct chat_input *input, struct turn *turn) {
    if (turn->message == 0)
        return status_set(STATUS_BAD_INPUT, "messages: begin with the assistant, who has nothing to answer");
    TRY(render(encoder, input, turn->message + 1, false));
    turn->text = encoder->output.text;
    encoder->output.text = (struct text_buffer){0};
    TRY(render(encoder, input, turn->message, true));
    turn->start = common_bytes(&encoder->output.text, &turn->text);
    if (turn->start < turn->text.count) turn->start = utf8_floor(turn->text.items, turn->start);
    return STATUS_OK;
}

static enum status render_turns(struct chat_encoder *encoder, const struct chat_input *input) {
    for (size_t i = 0; i < json_array_size(input->messages); i++) {
        if (!is_assistant(json_array_get(input->messages, i))) continue;
        TRY(vec_push(&encoder->turns, (struct turn){.message = i}));
        TRY(render_turn(encoder, input, &encoder->turns.items[encoder->turns.count - 1]));
    }
    return STATUS_OK;
}

/* One example: the conversation up to the last turn that is in none yet, and of the turns before it those that read
 * there as by themselves. */
static enum status encode_turns(struct chat_encoder *encoder, size_t last, struct token_ids *out) {
    const struct text_buffer *text = &encoder->turns.items[last].text;
    size_t end = 0;
    encoder->spans.count = 0;
    for (size_t i = 0; i <= last; i++) {
        struct turn *turn = &encoder->turns.items[i];
        bool same = common_bytes(&turn->text, text) == turn->text.count;
        if (turn->done || !same || turn->start < end) continue;
        TRY(vec_push(&encoder->spans, (struct text_span){turn->start, turn->text.count}));
        end = turn->text.count;
        turn->done = true;
    }
    return example_encode(encoder->examples, text->items, text->count, encoder->spans.items, encoder->spans.count,
                          false, -1, out);
}

static enum status encode_by_turns(struct chat_encoder *encoder, const struct chat_input *input,
                                   struct token_ids *out) {
    TRY(render_turns(encoder, input));
    for (size_t i = encoder->turns.count; i-- > 0;) {
        if (encoder->turns.items[i].done) continue;
        TRY(encode_turns(encoder, i, out));
        encoder->turns.items[i].done = true;
    }
    return STATUS_OK;
}

static enum status encode_whole(struct chat_encoder *encoder, const struct chat_input *input, struct token_ids *out) {
    TRY(render(encoder, input, json_array_size(input->messages), false));
    const struct jinja_output *output = &encoder->output;
    return example_encode(encoder->examples, output->text.items, output->text.count, output->generations.items,
                          output->generations.count, false, -1, out);
}

static enum status encode(struct chat_encoder *encoder, const json_t *object, struct token_ids *out) {
    const json_t *messages = json_object_get(object, "messages"), *tools = json_object_get(object, "tools");
    TRY(check_messages(messages));
    if (tools && !json_is_array(tools) && !json_is_null(tools))
        return status_set(STATUS_BAD_INPUT, "tools: must be a list");
    json_t *normalized = chat_normalize_messages(messages);
    if (!normalized) return STATUS_FAILED;
    struct chat_input input = {.messages = normalized, .tools = tools, .now_s = encoder->now_s};
    bool answered = false;
    for (size_t i = 0; i < json_array_size(normalized); i++)
        answered |= is_assistant(json_array_get(normalized, i));
    bool whole = !answered || chat_template_has_generation(encoder->chat, tools);
    enum status status = whole ? encode_whole(encoder, &input, out) : encode_by_turns(encoder, &input, out);
    json_decref(normalized);
    return status;
}

enum status chat_encode(struct chat_encoder *encoder, const char *file, int64_t line, const json_t *object,
                        struct token_ids *out) {
    encoder->work_bytes = 0;
    enum status status = encode(encoder, object, out);
    forget_turns(encoder);
    if (status != STATUS_BAD_INPUT) return status;
    return status_prefix(status, "%s: line %lld", file, (long long)line);
}
