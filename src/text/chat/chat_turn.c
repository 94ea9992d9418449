#include "text/chat/chat_turn.h"

#include <string.h>

#include "text/template/jinja_text.h"

enum {
    RENDERED_BYTES_MAX = 1 << 27,
    WORK_MAX = 1 << 26,
};

void chat_rendering_free(struct chat_rendering *rendering) {
    jinja_output_free(&rendering->output);
    chat_marks_free(&rendering->marks);
}

static enum status render(struct chat_rendering *rendering, const json_t *messages, bool prompt) {
    struct chat_input input = rendering->whole;
    input.messages = messages;
    input.add_generation_prompt = prompt;
    enum status status = chat_template_render(rendering->chat, &input, &rendering->output);
    rendering->bytes += rendering->output.text.count;
    rendering->work += rendering->output.work;
    if (rendering->bytes > RENDERED_BYTES_MAX || rendering->work > WORK_MAX)
        return status_set(STATUS_BAD_INPUT, "messages: too many and too long turns for one conversation");
    return status;
}

static json_t *first_messages(const struct chat_rendering *rendering, size_t count) {
    json_t *first = json_array();
    for (size_t i = 0; i < count && first; i++)
        if (json_array_append(first, json_array_get(rendering->whole.messages, i)) != 0) {
            json_decref(first);
            first = NULL;
        }
    if (!first) (void)status_no_memory(0, "messages");
    return first;
}

enum status chat_render(struct chat_rendering *rendering, size_t count, bool add_generation_prompt) {
    json_t *first = first_messages(rendering, count);
    if (!first) return STATUS_FAILED;
    enum status status = render(rendering, first, add_generation_prompt);
    json_decref(first);
    return status;
}

static bool is_over(const struct chat_rendering *rendering) {
    return rendering->bytes > RENDERED_BYTES_MAX || rendering->work > WORK_MAX;
}

/* Renders with marks. *told: whether the template could render them. */
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
    json_t *messages = first_messages(rendering, count);
    enum status status = messages ? STATUS_OK : STATUS_FAILED;
    const struct text_buffer *made = &rendering->output.text;
    *found = false;
    for (int sparse = 0; sparse < 2 && status == STATUS_OK && !*found; sparse++) {
        status = render_marked(rendering, messages, own, sparse > 0, prompt, found);
        *found = *found && made->count == text->count &&
                 (text->count == 0 || memcmp(made->items, text->items, text->count) == 0);
    }
    json_decref(messages);
    return status;
}

/* The words of a turn in its text, and where those of the message before it end. */
struct words {
    size_t before;     /* 0: nowhere */
    size_t first, end; /* SIZE_MAX: nowhere */
};

/* Where the thought tags that end at a place begin. They belong to the assistant's turn even where the template writes
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
    (void)status_set(STATUS_BAD_INPUT, "messages[%zu]: cannot tell where the assistant's turn %s", turn, why);
    return status_hint(
        STATUS_BAD_INPUT,
        "put {%% generation %%} before and {%% endgeneration %%} behind what the template writes for the "
        "assistant: such blocks say what is trained on");
}

/* Where the two texts begin to differ, moved back so that no word or tag is cut. */
static size_t floor_to_tag(const char *text, size_t common) {
    while (common > 0 && !memchr(" \n:>]", text[common - 1], 5))
        common--;
    return common;
}

/* Where the turn begins when the text does not begin with the model's prompt. */
static enum status find_parting(struct chat_rendering *rendering, size_t turn, const struct text_buffer *text,
                                const struct text_buffer *prompt, const struct words *words, size_t *start) {
    bool found;
    TRY(find_marks(rendering, turn, SIZE_MAX, true, prompt, &found));
    if (!found || words->before == 0) return refuse(turn, "begins: it does not follow what the model is given");
    struct words given = find_words(&rendering->marks, prompt);
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
    if (common_bytes(text, 0, prompt, 0) == prompt->count)
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

enum status chat_turn_render(struct chat_rendering *rendering, size_t turn, struct text_buffer *text, size_t *start) {
    if (turn == 0) return status_set(STATUS_BAD_INPUT, "messages: begin with the assistant, who has nothing to answer");
    struct text_buffer prompt;
    TRY(chat_render(rendering, turn + 1, false));
    *text = rendering->output.text;
    rendering->output.text = (struct text_buffer){0};
    TRY(chat_render(rendering, turn, true));
    prompt = rendering->output.text;
    rendering->output.text = (struct text_buffer){0};
    enum status status = find_turn(rendering, turn, text, &prompt, start);
    vec_free(&prompt);
    return status;
}
