#include "text/chat/chat.h"

#include "base/json.h"
#include "text/template/jinja.h"

/* A conversation and the work of rendering it so far, which is bounded: each turn is rendered with all turns before it.
 * Zero-initialise but for `chat` and `whole`; chat_rendering_free. */
struct chat_rendering {
    const struct chat_template *chat;
    struct chat_input whole; /* messages: normalized */
    struct jinja_output output;
    struct chat_marks marks;
    size_t bytes; /* rendered so far */
    int64_t work; /* as jinja_output counts it */
};

/* --- an assistant's turn in a rendered conversation --- */

enum {
    RENDERED_BYTES_MAX = 1 << 27,
    WORK_MAX = 1 << 26,
};

static void chat_rendering_free(struct chat_rendering *rendering) {
    jinja_output_free(&rendering->output);
    vec_free(&rendering->marks.places);
}

static bool is_over(const struct chat_rendering *rendering) {
    return rendering->bytes > RENDERED_BYTES_MAX || rendering->work > WORK_MAX;
}

static enum status render(struct chat_rendering *rendering, const json_t *messages, bool prompt) {
    struct chat_input input = rendering->whole;
    input.messages = messages;
    input.add_generation_prompt = prompt;
    enum status status = chat_template_render(rendering->chat, &input, &rendering->output);
    rendering->bytes += rendering->output.text.count;
    rendering->work += rendering->output.work;
    if (is_over(rendering))
        return status_set(STATUS_BAD_INPUT, "messages: too many and too long turns for one conversation");
    return status;
}

static json_t *first_messages(const struct chat_rendering *rendering, size_t count) {
    json_t *first = json_array();
    int failed = 0;
    for (size_t i = 0; i < count; i++)
        failed |= json_array_append(first, json_array_get(rendering->whole.messages, i));
    first = json_unless(failed, first);
    if (!first) (void)status_no_memory(0, "messages");
    return first;
}

/* Renders the first `count` messages into rendering->output. BAD_INPUT as chat_template_render, and for a conversation
 * that takes too much. */
static enum status chat_render(struct chat_rendering *rendering, size_t count, bool add_generation_prompt) {
    json_auto_t *first = first_messages(rendering, count);
    if (!first) return STATUS_FAILED;
    return render(rendering, first, add_generation_prompt);
}

/* The same into a text of its own, which is empty. */
static enum status render_apart(struct chat_rendering *rendering, size_t count, bool add_generation_prompt,
                                struct text_buffer *out) {
    TRY(chat_render(rendering, count, add_generation_prompt));
    *out = rendering->output.text;
    rendering->output.text = (struct text_buffer){0};
    return STATUS_OK;
}

static bool begins_with(const struct text_buffer *text, const struct text_buffer *begin) {
    return text->count >= begin->count && (begin->count == 0 || memcmp(text->items, begin->items, begin->count) == 0);
}

/* Renders with marks. *rendered: whether the template could render them. */
static enum status render_marked(struct chat_rendering *rendering, const json_t *messages, size_t own, bool sparse,
                                 bool prompt, bool *rendered) {
    json_t *marked = chat_marks_put(messages, own, sparse);
    if (!marked) return STATUS_FAILED;
    enum status status = render(rendering, marked, prompt);
    json_decref(marked);
    *rendered = status == STATUS_OK;
    if (status == STATUS_BAD_INPUT && !is_over(rendering)) {
        status_clear();
        status = STATUS_OK;
    }
    return *rendered ? chat_marks_take(&rendering->marks, &rendering->output.text) : status;
}

/* Finds the marks' places in `text`, the rendering of the first `count` messages. *found is false where a template that
 * changes or examines contents renders another text from marked ones. */
static enum status find_marks(struct chat_rendering *rendering, size_t count, size_t own, bool prompt,
                              const struct text_buffer *text, bool *found) {
    json_auto_t *messages = first_messages(rendering, count);
    enum status status = messages ? STATUS_OK : STATUS_FAILED;
    const struct text_buffer *made = &rendering->output.text;
    *found = false;
    for (int sparse = 0; sparse < 2 && status == STATUS_OK && !*found; sparse++) {
        status = render_marked(rendering, messages, own, sparse > 0, prompt, found);
        *found = *found && made->count == text->count && begins_with(made, text);
    }
    return status;
}

/* The words of a turn in its text, and where those of the message before it end. */
struct words {
    size_t before;     /* 0: nowhere */
    size_t first, end; /* SIZE_MAX: nowhere */
};

/* The beginning of the thought tags that end at `at`. They belong to the assistant's turn even if the template writes
 * them or gives them to the model. */
static size_t pass_tags_back(const char *text, size_t from, size_t at) {
    enum { TAG_MAX = 32 };
    for (;;) {
        size_t close = at - jinja_trailing_space(text + from, at - from), open = close;
        if (close == from || (text[close - 1] != '>' && text[close - 1] != ']')) return at;
        char wanted = text[close - 1] == '>' ? '<' : '[';
        while (open > from && close - open < TAG_MAX && text[open] != wanted)
            open--;
        char tag[TAG_MAX + 1] = "";
        memcpy(tag, text + open, close - open);
        if (text[open] != wanted || !strcasestr(tag, "think")) return at;
        at = open;
    }
}

static struct words find_words(const struct chat_marks *marks, const struct text_buffer *text) {
    struct words words = {.first = SIZE_MAX, .end = SIZE_MAX};
    size_t i = marks->places.count;
    for (; i > 0 && marks->places.items[i - 1].own; i--) {
        words.first = marks->places.items[i - 1].at;
        if (words.end == SIZE_MAX) words.end = words.first;
    }
    if (i > 0) words.before = marks->places.items[i - 1].at;
    if (words.first == SIZE_MAX) return words;
    words.first = pass_tags_back(text->items, words.before, words.first);
    return words;
}

static size_t common_bytes(const struct text_buffer *a, size_t from_a, const struct text_buffer *b, size_t from_b) {
    size_t common = 0;
    while (from_a + common < a->count && from_b + common < b->count &&
           a->items[from_a + common] == b->items[from_b + common])
        common++;
    return common;
}

static enum status refuse(size_t turn, const char *why) {
    return status_set(STATUS_BAD_INPUT,
                      "messages[%zu]: cannot tell where the assistant's turn %s" HINT
                      "put {%% generation %%} before and {%% endgeneration %%} behind what the template writes for the "
                      "assistant: such blocks say what is trained on",
                      turn, why);
}

/* The place where the two texts begin to differ, moved back so that no word or tag is cut. */
static size_t floor_to_tag(const char *text, size_t common) {
    while (common > 0 && !memchr(" \n:>]", text[common - 1], 5))
        common--;
    return common;
}

/* The beginning of the turn if the text does not begin with the model's prompt. */
static enum status find_parting(struct chat_rendering *rendering, size_t turn, const struct text_buffer *text,
                                const struct text_buffer *prompt, const struct words *words, size_t *start) {
    bool found;
    TRY(find_marks(rendering, turn, SIZE_MAX, true, prompt, &found));
    struct words given = {0};
    if (found && words->before > 0) given = find_words(&rendering->marks, prompt);
    if (given.before == 0) return refuse(turn, "begins: it does not follow what the model is given");
    size_t common = common_bytes(text, words->before, prompt, given.before);
    *start = words->before + common;
    if (*start >= words->first || given.before + common == prompt->count) return STATUS_OK;
    common = floor_to_tag(text->items + words->before, common);
    *start = words->before + common;
    return common > 0 ? STATUS_OK : refuse(turn, "begins: the template writes other text before it than for an answer");
}

static enum status find_start(struct chat_rendering *rendering, size_t turn, const struct text_buffer *text,
                              const struct text_buffer *prompt, const struct words *words, size_t *start) {
    if (begins_with(text, prompt))
        *start = prompt->count;
    else
        TRY(find_parting(rendering, turn, text, prompt, words, start));
    if (*start > words->first) *start = words->first;
    return STATUS_OK;
}

/* Whether the text after the turn's words stays the same when a user's message follows. */
static enum status ends_as_followed(struct chat_rendering *rendering, size_t turn, const struct text_buffer *text,
                                    size_t end, bool *out) {
    json_t *messages = first_messages(rendering, turn + 1);
    if (!messages) return STATUS_FAILED;
    bool rendered = false;
    json_t *next = json_pack("{s:s,s:s}", "role", "user", "content", ".");
    enum status status = json_array_append_new(messages, next) == 0
                             ? render_marked(rendering, messages, turn, false, false, &rendered)
                             : status_no_memory(0, "messages");
    json_decref(messages);
    const struct chat_marks *marks = &rendering->marks;
    *out = !rendered || marks->places.count < 2;
    for (size_t i = 0; i + 1 < marks->places.count && !*out; i++) {
        const struct chat_place *at = &marks->places.items[i];
        bool last_own = at[0].own && !at[1].own;
        *out = last_own && common_bytes(text, end, &rendering->output.text, at->at) == text->count - end;
    }
    return status;
}

/* Refuses a text that ends with the generation prompt: its template ignores add_generation_prompt and always appends
 * the prompt. */
static enum status check_end(struct chat_rendering *rendering, size_t turn, const struct text_buffer *text,
                             const struct text_buffer *prompt, size_t end) {
    size_t common = 0;
    while (end != SIZE_MAX && common < text->count - end && common < prompt->count &&
           text->items[text->count - 1 - common] == prompt->items[prompt->count - 1 - common])
        common++;
    while (common > 0 && ((unsigned char)text->items[text->count - common] & 0xC0) == 0x80)
        common--;
    if (jinja_leading_space(text->items + text->count - common, common) == common) return STATUS_OK;
    bool found, followed;
    TRY(find_marks(rendering, turn, SIZE_MAX, true, prompt, &found));
    struct words given = find_words(&rendering->marks, prompt);
    if (!found || given.before == 0 || prompt->count - given.before > common) return STATUS_OK;
    TRY(ends_as_followed(rendering, turn, text, end, &followed));
    return followed ? STATUS_OK : refuse(turn, "ends: the template writes the beginning of an answer behind it");
}

static enum status find_turn(struct chat_rendering *rendering, size_t turn, const struct text_buffer *text,
                             const struct text_buffer *prompt, size_t *start) {
    bool found;
    struct words words = {.first = SIZE_MAX, .end = SIZE_MAX};
    TRY(find_marks(rendering, turn + 1, turn, false, text, &found));
    if (found) words = find_words(&rendering->marks, text);
    TRY(find_start(rendering, turn, text, prompt, &words, start));
    return check_end(rendering, turn, text, prompt, words.end);
}

/* Renders the conversation up to and with the assistant's message `turn` into *text, which is empty, and finds where
 * the turn begins in it: at the end of the model's prompt (the rendering of the messages before it with
 * add_generation_prompt), and never after the first of the message's own words. The turn ends with the text.
 *
 * The words of all messages are found by marks, so that nothing depends on what they are. They matter
 * where the model's prompt differs from the text before the turn (Mistral's system prompt, which is only in the last of
 * the user's turns; a generation prompt that opens thoughts): the turn then begins where the two first differ after the
 * words of the message before it.
 *
 * BAD_INPUT, naming the message, when that cannot be told, and when the template puts the mark of the next answer
 * behind the turn. */
static enum status chat_turn_render(struct chat_rendering *rendering, size_t turn, struct text_buffer *text,
                                    size_t *start) {
    if (turn == 0) return status_set(STATUS_BAD_INPUT, "messages: begin with the assistant, who has nothing to answer");
    AUTO_VEC struct text_buffer prompt = {0};
    TRY(render_apart(rendering, turn + 1, false, text));
    TRY(render_apart(rendering, turn, true, &prompt));
    return find_turn(rendering, turn, text, &prompt, start);
}

/* --- conversations to marked ids --- */

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

/* The weights of the assistant's turns go to the generation blocks; there must be one block for each turn. */
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
    if (encoder->first > 0) TRY(render_apart(&encoder->rendering, encoder->first, true, &given));
    enum status status = chat_render(&encoder->rendering, json_array_size(encoder->rendering.whole.messages), false);
    size_t common = status == STATUS_OK ? common_bytes(&given, 0, &output->text, 0) : 0;
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
    json_auto_t *normalized = chat_normalize_messages(messages);
    if (!normalized) return STATUS_FAILED;
    encoder->rendering.whole = (struct chat_input){.messages = normalized,
                                                   .tools = tools,
                                                   .variables = json_object_get(object, "chat_template_kwargs"),
                                                   .now_s = encoder->now_s};
    bool answered = false;
    for (size_t i = 0; i < json_array_size(normalized); i++)
        answered |= is_assistant(json_array_get(normalized, i));
    bool whole = !answered || chat_template_has_generation(encoder->chat, tools);
    return whole ? encode_whole(encoder, out) : encode_by_turns(encoder, out);
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
