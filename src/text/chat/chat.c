#include "text/chat/chat.h"

#include <string.h>

#include "base/mem.h"
#include "text/chat/chat_turn.h"

/* An assistant's turn. */
struct turn {
    size_t message;          /* its number */
    struct text_buffer text; /* the conversation up to and with it */
    size_t start;            /* where it begins in that */
    bool done;               /* it is part of an example */
    bool masked;             /* its weight is 0 */
};

struct chat_encoder {
    const struct chat_template *chat;
    struct example_encoder *examples;
    int64_t now_s;
    size_t first; /* messages before it are not trained on */
    struct chat_rendering rendering;
    VEC(struct turn) turns;
    VEC(struct example_range) ranges;
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
    vec_free(&encoder->ranges);
    chat_rendering_free(&encoder->rendering);
    mem_free(encoder);
}

static bool is_assistant(const json_t *message) {
    return strcmp(json_string_value(json_object_get(message, "role")), "assistant") == 0;
}

/* Whether a message's weight is 0, under whichever of these names: of OpenAI and Mistral, and of axolotl. */
static enum status read_weight(const json_t *message, size_t i, bool *masked) {
    static const char *const names[] = {"weight", "train", "training", "loss"};
    *masked = false;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        const json_t *value = json_object_get(message, names[k]);
        if (!value || json_is_null(value)) continue;
        double weight = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
        bool off = weight == 0, known = json_is_boolean(value) || (json_is_number(value) && (off || weight == 1));
        if (!known)
            return status_hint(
                status_set(STATUS_BAD_INPUT, "messages[%zu].%s: must be 0, 1, true or false", i, names[k]),
                "Ballast has no fractional turn weights; use 0 or 1");
        if (!off && !is_assistant(message))
            return status_hint(status_set(STATUS_BAD_INPUT,
                                          "messages[%zu].%s: only the assistant's turns can be trained on", i,
                                          names[k]),
                               "leave the key out of other turns, or train on all tokens with --loss-on all");
        *masked |= off;
    }
    return STATUS_OK;
}

static bool begins_with(const struct text_buffer *text, const struct text_buffer *begin) {
    return text->count >= begin->count && (begin->count == 0 || memcmp(text->items, begin->items, begin->count) == 0);
}

static enum status render_turns(struct chat_encoder *encoder) {
    const json_t *messages = encoder->rendering.whole.messages;
    for (size_t i = encoder->first; i < json_array_size(messages); i++) {
        bool masked;
        TRY(read_weight(json_array_get(messages, i), i, &masked));
        if (!is_assistant(json_array_get(messages, i))) continue;
        TRY(vec_push(&encoder->turns, (struct turn){.message = i, .masked = masked}));
        struct turn *turn = &encoder->turns.items[encoder->turns.count - 1];
        TRY(chat_turn_render(&encoder->rendering, i, &turn->text, &turn->start));
    }
    return STATUS_OK;
}

/* The text of the example that ends with a turn: behind the conversation's last turn all that follows it too. */
static enum status find_text(struct chat_encoder *encoder, const struct turn *turn, const struct text_buffer **text) {
    struct chat_rendering *rendering = &encoder->rendering;
    size_t count = json_array_size(rendering->whole.messages);
    bool last = turn + 1 == encoder->turns.items + encoder->turns.count;
    *text = &turn->text;
    if (!last || turn->message + 1 == count) return STATUS_OK;
    TRY(chat_render(rendering, count, false));
    if (begins_with(&rendering->output.text, &turn->text)) *text = &rendering->output.text;
    return STATUS_OK;
}

/* One example: the conversation up to the last turn that has no example yet. It trains on that turn and on the earlier
 * turns that are rendered in it as by themselves. */
static enum status encode_turns(struct chat_encoder *encoder, size_t last, struct token_ids *out) {
    const struct text_buffer *text;
    size_t end = 0;
    TRY(find_text(encoder, &encoder->turns.items[last], &text));
    encoder->ranges.count = 0;
    for (size_t i = 0; i <= last; i++) {
        struct turn *turn = &encoder->turns.items[i];
        bool same = begins_with(text, &turn->text);
        if (turn->done || !same || turn->start < end) continue;
        TRY(vec_push(&encoder->ranges, (struct example_range){turn->start, turn->text.count, turn->masked}));
        end = turn->text.count;
        turn->done = true;
    }
    return example_encode(encoder->examples, text->items, text->count, encoder->ranges.items, encoder->ranges.count,
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

static size_t common_bytes(const struct text_buffer *a, const struct text_buffer *b) {
    size_t common = 0;
    while (common < a->count && common < b->count && a->items[common] == b->items[common])
        common++;
    return common;
}

/* The weights of the assistant's turns go to the generation blocks, of which there must be one for each turn. */
static enum status mask_ranges(struct chat_encoder *encoder) {
    const json_t *messages = encoder->rendering.whole.messages;
    size_t turn = 0, masked_turns = 0;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        bool masked;
        TRY(read_weight(json_array_get(messages, i), i, &masked));
        if (!is_assistant(json_array_get(messages, i))) continue;
        if (turn < encoder->ranges.count) encoder->ranges.items[turn].masked = masked;
        masked_turns += masked;
        turn++;
    }
    if (masked_turns == 0 || turn == encoder->ranges.count) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT,
                      "messages: have weights, and the chat template makes %zu generation blocks for %zu "
                      "turns of the assistant",
                      encoder->ranges.count, turn);
}

static enum status encode_whole(struct chat_encoder *encoder, struct token_ids *out) {
    struct jinja_output *output = &encoder->rendering.output;
    struct text_buffer given = {0};
    size_t kept = 0;
    if (encoder->first > 0) {
        TRY(chat_render(&encoder->rendering, encoder->first, true));
        given = output->text;
        output->text = (struct text_buffer){0};
    }
    enum status status = chat_render(&encoder->rendering, json_array_size(encoder->rendering.whole.messages), false);
    size_t common = status == STATUS_OK ? common_bytes(&given, &output->text) : 0;
    vec_free(&given);
    TRY(status);
    encoder->ranges.count = 0;
    for (size_t i = 0; i < output->generations.count; i++)
        TRY(vec_push(&encoder->ranges, (struct example_range){output->generations.items[i].from,
                                                              output->generations.items[i].to, false}));
    TRY(mask_ranges(encoder));
    /* Blocks that end within what the model is given before the answer are left out. */
    for (size_t i = 0; i < encoder->ranges.count; i++)
        if (encoder->ranges.items[i].to > common) encoder->ranges.items[kept++] = encoder->ranges.items[i];
    encoder->ranges.count = kept;
    return example_encode(encoder->examples, output->text.items, output->text.count, encoder->ranges.items, kept, false,
                          -1, out);
}

static enum status encode(struct chat_encoder *encoder, const json_t *object, struct token_ids *out) {
    const json_t *messages = json_object_get(object, "messages"), *tools = json_object_get(object, "tools");
    TRY(chat_check_messages(messages));
    if (tools && !json_is_array(tools) && !json_is_null(tools))
        return status_set(STATUS_BAD_INPUT, "tools: must be a list");
    json_t *normalized = chat_normalize_messages(messages);
    if (!normalized) return STATUS_FAILED;
    encoder->rendering.whole = (struct chat_input){.messages = normalized,
                                                   .tools = tools,
                                                   .variables = json_object_get(object, "chat_template_kwargs"),
                                                   .now_s = encoder->now_s};
    bool answered = false;
    for (size_t i = 0; i < json_array_size(normalized); i++)
        answered |= is_assistant(json_array_get(normalized, i));
    bool whole = !answered || chat_template_has_generation(encoder->chat, tools);
    enum status status = whole ? encode_whole(encoder, out) : encode_by_turns(encoder, out);
    json_decref(normalized);
    return status;
}

enum status chat_encode(struct chat_encoder *encoder, const char *file, int64_t line, const json_t *object,
                        size_t first, struct token_ids *out) {
    encoder->first = first;
    encoder->rendering.bytes = 0;
    encoder->rendering.work = 0;
    enum status status = encode(encoder, object, out);
    forget_turns(encoder);
    if (status != STATUS_BAD_INPUT) return status;
    return status_prefix(status, "%s: line %lld", file, (long long)line);
}
