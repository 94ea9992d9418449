/* Text to ids, whole or in parts, and the steps that find added tokens and split. */

#include "text/tokenizer/parts.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/steps.h"

struct added_pass {
    const struct added_set *set;
    struct text_view view;
    const struct text_output *output;
    size_t start; /* text from here on was not handed on */
};

static bool word_before(const struct added_pass *pass, size_t place) {
    size_t length;
    return place > 0 && unicode_is_word(utf8_decode_last(pass->view.text, place, &length));
}

static bool word_after(const struct added_pass *pass, size_t place) {
    size_t length;
    return place < pass->view.bytes && unicode_is_word(utf8_decode_valid(pass->view.text + place, &length));
}

/* The beginning of the white space before `place`, not before `min`. */
static size_t space_start(const struct added_pass *pass, size_t min, size_t place) {
    for (size_t length; place > min; place -= length)
        if (!unicode_is_space(utf8_decode_last(pass->view.text, place, &length))) break;
    return place;
}

static size_t space_stop(const struct added_pass *pass, size_t place) {
    for (size_t length; place < pass->view.bytes; place += length)
        if (!unicode_is_space(utf8_decode_valid(pass->view.text + place, &length))) break;
    return place;
}

/* The text before a token, or before the segment's end. */
static enum status text_hand_on(struct added_pass *pass, size_t stop) {
    const struct text_sink *next = &pass->output->next;
    size_t bytes = stop > pass->start ? stop - pass->start : 0;
    return next->write(next->payload, pass->view.text + pass->start, bytes, true);
}

/* The token matched at [start, stop). */
static enum status token_take(struct added_pass *pass, const struct added_token *token, size_t start, size_t stop) {
    if (token->single_word && (word_before(pass, start) || word_after(pass, stop))) return STATUS_OK;
    if (token->right_strip) stop = space_stop(pass, stop);
    /* White space that the last token took is not taken again. */
    if (token->left_strip) start = space_start(pass, pass->start, start);
    TRY(text_hand_on(pass, start));
    pass->start = stop;
    return pass->output->ids.write(pass->output->ids.payload, &token->id, 1);
}

/* A token may begin in the white space that the one before it took. */
static enum status added_apply(const void *settings, void *state, struct text_view view,
                               const struct text_output *output, size_t *consumed) {
    (void)state;
    struct added_pass pass = {settings, view, output, 0};
    const struct token_trie *trie = &pass.set->trie;
    *consumed = view.bytes;
    for (size_t place = 0, length; place<view.bytes; place += length> 0 ? length : 1) {
        uint32_t value;
        length = 0;
        if (trie->first[(unsigned char)view.text[place]])
            length = token_trie_match(trie, view.text + place, view.bytes - place, &value);
        if (length > 0) TRY(token_take(&pass, &pass.set->tokens[value], place, place + length));
    }
    return text_hand_on(&pass, view.bytes);
}

const struct text_step_type text_added_step = {.name = "added tokens", .whole = true, .apply = added_apply};

/* --- cutting a segment into pieces by the matches of a pattern --- */

/* The segment is a sequence of parts: matches and the text between them. A part is held as long as a later one may join
 * it; the held part is always the beginning of the view. */
struct split_state {
    struct split_matcher *matcher;
    size_t held_bytes; /* 0 when none is held */
    bool held_match, previous_match;
};

struct split_pass {
    const struct text_split *settings;
    struct split_state *state;
    const char *text;
    const struct text_sink *next;
    size_t start; /* of the held part, or of the text that has not been examined */
};

static enum status held_write(struct split_pass *pass) {
    struct split_state *state = pass->state;
    if (state->held_bytes == 0) return STATUS_OK;
    bool removed = pass->settings->behavior == SPLIT_REMOVED && state->held_match;
    const char *text = pass->text + pass->start;
    size_t bytes = state->held_bytes;
    pass->start += bytes;
    state->held_bytes = 0;
    /* Empty segments are handed on too, since the segment after them must not count as the text's first. */
    return pass->next->write(pass->next->payload, text, removed ? 0 : bytes, true);
}

static bool joins(const struct split_pass *pass, bool match) {
    if (pass->state->held_bytes == 0) return false;
    switch (pass->settings->behavior) {
    case SPLIT_CONTIGUOUS: return match == pass->state->previous_match;
    case SPLIT_MERGED_WITH_PREVIOUS: return match && !pass->state->previous_match;
    case SPLIT_MERGED_WITH_NEXT: return !match && pass->state->previous_match;
    default: return false;
    }
}

static enum status part_take(struct split_pass *pass, size_t bytes, bool found) {
    if (bytes == 0) return STATUS_OK;
    struct split_state *state = pass->state;
    bool match = found != pass->settings->invert;
    if (!joins(pass, match)) TRY(held_write(pass));
    state->held_bytes += bytes;
    state->held_match = state->previous_match = match;
    bool waits = pass->settings->behavior != SPLIT_ISOLATED && pass->settings->behavior != SPLIT_REMOVED;
    return waits ? STATUS_OK : held_write(pass);
}

static enum status split_apply(const void *settings, void *state, struct text_view view,
                               const struct text_output *output, size_t *consumed) {
    struct split_pass pass = {settings, state, view.text, &output->next, 0};
    size_t place = pass.state->held_bytes;
    enum split_result result = SPLIT_FOUND;
    if (!pass.state->matcher) TRY(split_matcher_create(pass.settings->pattern, &pass.state->matcher));
    while (place < view.bytes && result == SPLIT_FOUND) {
        size_t start, stop;
        TRY(split_pattern_find(pass.settings->pattern, pass.state->matcher, view.text, view.bytes, place, view.end,
                               &result, &start, &stop));
        if (result == SPLIT_NONE && view.end) start = stop = view.bytes;
        if (result != SPLIT_FOUND && !view.end) break;
        TRY(part_take(&pass, start - place, false));
        TRY(part_take(&pass, stop - start, true));
        place = stop;
    }
    if (view.end) TRY(held_write(&pass));
    *consumed = pass.start;
    split_matcher_pass(pass.state->matcher, view.text, pass.start);
    return view.end && view.bytes == 0 ? pass.next->write(pass.next->payload, "", 0, true) : STATUS_OK;
}

static void split_reset(void *state) {
    struct split_state *split = state;
    *split = (struct split_state){.matcher = split->matcher};
    split_matcher_reset(split->matcher);
}

static void split_stop(void *state) { split_matcher_free(((struct split_state *)state)->matcher); }

const struct text_step_type text_split_step = {
    .name = "split",
    .state_bytes = sizeof(struct split_state),
    .apply = split_apply,
    .reset = split_reset,
    .stop = split_stop,
};

/* --- encoders --- */

struct tokenizer_encoder {
    const struct tokenizer *tokenizer;
    struct text_chain *chain;
    struct token_ids *out; /* of the text under way */
};

enum status token_ids_append(struct token_ids *out, const uint32_t *ids, size_t count) {
    size_t total;
    if (!mem_add(out->count, count, &total)) return status_no_memory(SIZE_MAX, "token ids");
    TRY(vec_reserve(out, total));
    if (count > 0) memcpy(out->items + out->count, ids, count * sizeof *ids);
    out->count = total;
    return STATUS_OK;
}

static enum status ids_take(void *payload, const uint32_t *ids, size_t count) {
    return token_ids_append(((struct tokenizer_encoder *)payload)->out, ids, count);
}

enum status tokenizer_encoder_create(const struct tokenizer *tokenizer, struct tokenizer_encoder **out) {
    struct tokenizer_encoder *made = mem_array(1, sizeof *made);
    if (!made) return STATUS_FAILED;
    made->tokenizer = tokenizer;
    enum status status = text_chain_create(tokenizer->steps.items, tokenizer->steps.count, (struct text_sink){0},
                                           (struct token_sink){ids_take, made}, &made->chain);
    if (status != STATUS_OK) return mem_free(made), status;
    *out = made;
    return STATUS_OK;
}

void tokenizer_encoder_free(struct tokenizer_encoder *encoder) {
    if (!encoder) return;
    text_chain_free(encoder->chain);
    mem_free(encoder);
}

enum status tokenizer_encoder_append(struct tokenizer_encoder *encoder, const char *text, size_t bytes, bool continues,
                                     bool add_special_tokens, struct token_ids *out) {
    const struct tokenizer *tokenizer = encoder->tokenizer;
    bool template = add_special_tokens && !continues;
    text_chain_reset(encoder->chain, continues);
    encoder->out = out;
    if (template) TRY(token_ids_append(out, tokenizer->before.items, tokenizer->before.count));
    TRY(text_chain_write(encoder->chain, bytes > 0 ? text : "", bytes, true));
    return template ? token_ids_append(out, tokenizer->after.items, tokenizer->after.count) : STATUS_OK;
}

enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes, bool add_special_tokens,
                             struct token_ids *out) {
    struct tokenizer_encoder *encoder;
    TRY(tokenizer_encoder_create(tokenizer, &encoder));
    enum status status = tokenizer_encoder_append(encoder, text, bytes, false, add_special_tokens, out);
    tokenizer_encoder_free(encoder);
    return status;
}
