/* Text to ids, whole or in parts, and the steps that find added tokens and split. */

#include "text/tokenizer/parts.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/steps.h"

enum { LONGEST_CHARACTER_BYTES = 4 };

struct added_state {
    size_t scanned_bytes; /* at the beginning of the view: no token begins there */
    size_t taken_bytes;   /* ... that belong to a token already, though another may yet begin in them */
    bool previous_word;   /* the character before the view is a word character */
};

struct added_pass {
    const struct added_set *set;
    struct added_state *state;
    struct text_view view;
    const struct text_output *output;
    size_t start; /* text from here on was not handed on */
};

static bool word_before(const struct added_pass *pass, size_t place) {
    size_t length;
    if (place == 0) return pass->state->previous_word;
    return unicode_is_word(utf8_decode_last(pass->view.text, place, &length));
}

static bool word_after(const struct added_pass *pass, size_t place) {
    size_t length;
    return place < pass->view.bytes && unicode_is_word(utf8_decode_valid(pass->view.text + place, &length));
}

/* Where the white space before `place` begins, not going back beyond `min`. */
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

static enum status text_hand_on(struct added_pass *pass, size_t stop, bool end) {
    const struct text_sink *next = &pass->output->next;
    size_t start = pass->start;
    if (stop > start) pass->start = stop;
    size_t bytes = stop > start ? stop - start : 0;
    return bytes == 0 && !end ? STATUS_OK : next->write(next->payload, pass->view.text + start, bytes, end);
}

/* The token matched at [start, stop). *more is set when the text after it must be seen first. */
static enum status token_take(struct added_pass *pass, const struct added_token *token, size_t start, size_t stop,
                              bool *more) {
    if (token->single_word && (word_before(pass, start) || word_after(pass, stop))) return STATUS_OK;
    if (token->right_strip) stop = space_stop(pass, stop);
    *more = token->right_strip && stop == pass->view.bytes && !pass->view.end;
    if (*more) return STATUS_OK;
    /* White space that the last token took is not taken again. */
    if (token->left_strip) start = space_start(pass, pass->start, start);
    TRY(text_hand_on(pass, start, true));
    pass->start = stop;
    return pass->output->ids.write(pass->output->ids.payload, &token->id, 1);
}

/* Looks for tokens that begin at `place` up to `limit`; leaves `place` where it stopped. */
static enum status tokens_find(struct added_pass *pass, size_t limit, size_t *place) {
    const struct token_trie *trie = &pass->set->trie;
    const unsigned char *text = (const unsigned char *)pass->view.text;
    while (*place < limit) {
        uint32_t value;
        size_t length = 0;
        if (trie->first[text[*place]])
            length = token_trie_match(trie, pass->view.text + *place, pass->view.bytes - *place, &value);
        if (length == 0) {
            ++*place;
            continue;
        }
        bool more = false;
        TRY(token_take(pass, &pass->set->tokens[value], *place, *place + length, &more));
        if (more) break;
        *place += length;
    }
    return STATUS_OK;
}

/* Remembers where the next view begins: at `place` or, if that is earlier, with the text not handed on. */
static size_t state_save(struct added_pass *pass, size_t place) {
    size_t base = place < pass->start ? place : pass->start;
    if (base > 0) pass->state->previous_word = word_before(pass, base);
    pass->state->scanned_bytes = place - base;
    pass->state->taken_bytes = pass->start - base;
    return base;
}

static enum status added_apply(const void *settings, void *state, struct text_view view,
                               const struct text_output *output, size_t *consumed) {
    struct added_pass pass = {settings, state, view, output, 0};
    pass.start = pass.state->taken_bytes;
    size_t place = pass.state->scanned_bytes, limit = view.bytes;
    size_t ahead = pass.set->trie.longest_bytes + LONGEST_CHARACTER_BYTES;
    if (!view.end) limit = view.bytes > ahead ? view.bytes - ahead : 0;
    TRY(tokens_find(&pass, limit, &place));
    if (view.end) {
        *consumed = view.bytes;
        return text_hand_on(&pass, view.bytes, true);
    }
    place = utf8_floor(view.text, place);
    size_t stop = place;
    if (pass.set->strips_left) stop = space_start(&pass, pass.start, stop);
    TRY(text_hand_on(&pass, stop, false));
    *consumed = state_save(&pass, place);
    return STATUS_OK;
}

const struct text_step_type text_added_step = {
    .name = "added tokens",
    .state_bytes = sizeof(struct added_state),
    .apply = added_apply,
};

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
    size_t start; /* of the held part, or of what has not been looked at */
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

static enum status split_start(const void *settings, void *state) {
    const struct text_split *split = settings;
    return split_matcher_create(split->pattern, &((struct split_state *)state)->matcher);
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
    .start = split_start,
    .apply = split_apply,
    .reset = split_reset,
    .stop = split_stop,
};

/* --- encoders --- */

enum {
    IDS_AT_ONCE = 4096,
    /* Long texts go through the steps in parts of this size: small enough for the cache of a core. */
    PART_BYTES = 1 << 17
};

struct tokenizer_encoder {
    const struct tokenizer *tokenizer;
    struct text_chain *chain;
    struct token_sink sink;
    bool begun, add_special_tokens;
    size_t count;
    uint32_t ids[IDS_AT_ONCE];
};

static enum status ids_flush(struct tokenizer_encoder *encoder) {
    size_t count = encoder->count;
    encoder->count = 0;
    return count > 0 ? encoder->sink.write(encoder->sink.payload, encoder->ids, count) : STATUS_OK;
}

static enum status ids_take(void *payload, const uint32_t *ids, size_t count) {
    struct tokenizer_encoder *encoder = payload;
    while (count > 0) {
        if (encoder->count == IDS_AT_ONCE) TRY(ids_flush(encoder));
        size_t space = IDS_AT_ONCE - encoder->count, taken = count < space ? count : space;
        memcpy(encoder->ids + encoder->count, ids, taken * sizeof *ids);
        encoder->count += taken;
        ids += taken;
        count -= taken;
    }
    return STATUS_OK;
}

static enum status text_ignore(void *payload, const char *text, size_t bytes, bool end) {
    (void)payload, (void)text, (void)bytes, (void)end;
    BUG("text came out of the last stage of a tokenizer");
}

enum status tokenizer_encoder_create(const struct tokenizer *tokenizer, struct tokenizer_encoder **out) {
    struct tokenizer_encoder *made = mem_array(1, sizeof *made);
    if (!made) return STATUS_FAILED;
    made->tokenizer = tokenizer;
    enum status status =
        text_chain_create(tokenizer->steps.items, tokenizer->steps.count, (struct text_sink){text_ignore, NULL},
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

static void encoder_open(struct tokenizer_encoder *encoder, bool add_special_tokens, bool continues,
                         struct token_sink sink) {
    text_chain_reset(encoder->chain, continues);
    encoder->sink = sink;
    encoder->count = 0;
    encoder->begun = true;
    encoder->add_special_tokens = add_special_tokens;
}

enum status tokenizer_encoder_begin(struct tokenizer_encoder *encoder, bool add_special_tokens,
                                    struct token_sink sink) {
    const struct token_ids *before = &encoder->tokenizer->before;
    encoder_open(encoder, add_special_tokens, false, sink);
    return add_special_tokens ? ids_take(encoder, before->items, before->count) : STATUS_OK;
}

enum status tokenizer_encoder_push(struct tokenizer_encoder *encoder, const char *text, size_t bytes) {
    BUG_IF(!encoder->begun, "tokenizer_encoder_push without tokenizer_encoder_begin");
    for (size_t part; bytes > 0; text += part, bytes -= part) {
        part = bytes < PART_BYTES ? bytes : PART_BYTES;
        TRY(text_chain_write(encoder->chain, text, part, false));
    }
    return STATUS_OK;
}

enum status tokenizer_encoder_finish(struct tokenizer_encoder *encoder) {
    const struct token_ids *after = &encoder->tokenizer->after;
    BUG_IF(!encoder->begun, "tokenizer_encoder_finish without tokenizer_encoder_begin");
    encoder->begun = false;
    TRY(text_chain_write(encoder->chain, "", 0, true));
    if (encoder->add_special_tokens) TRY(ids_take(encoder, after->items, after->count));
    return ids_flush(encoder);
}

enum status tokenizer_encoder_encode(struct tokenizer_encoder *encoder, const char *text, size_t bytes,
                                     bool add_special_tokens, struct token_sink sink) {
    TRY(tokenizer_encoder_begin(encoder, add_special_tokens, sink));
    TRY(tokenizer_encoder_push(encoder, text, bytes));
    return tokenizer_encoder_finish(encoder);
}

static enum status ids_append(void *payload, const uint32_t *ids, size_t count) {
    return token_ids_append(payload, ids, count);
}

enum status token_ids_append(struct token_ids *out, const uint32_t *ids, size_t count) {
    size_t total;
    if (!mem_add(out->count, count, &total)) return status_no_memory(SIZE_MAX, "token ids");
    TRY(vec_reserve(out, total));
    if (count > 0) memcpy(out->items + out->count, ids, count * sizeof *ids);
    out->count = total;
    return STATUS_OK;
}

enum status tokenizer_encoder_append(struct tokenizer_encoder *encoder, const char *text, size_t bytes, bool continues,
                                     bool add_special_tokens, struct token_ids *out) {
    struct token_sink sink = {ids_append, out};
    if (!continues) return tokenizer_encoder_encode(encoder, text, bytes, add_special_tokens, sink);
    encoder_open(encoder, false, true, sink);
    TRY(tokenizer_encoder_push(encoder, text, bytes));
    return tokenizer_encoder_finish(encoder);
}

enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes, bool add_special_tokens,
                             struct token_ids *out) {
    struct tokenizer_encoder *encoder;
    TRY(tokenizer_encoder_create(tokenizer, &encoder));
    enum status status = tokenizer_encoder_append(encoder, text, bytes, false, add_special_tokens, out);
    tokenizer_encoder_free(encoder);
    return status;
}
