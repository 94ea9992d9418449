/* The step that finds added tokens in the text. */
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/unicode_class.h"

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

static void added_reset(void *state) { *(struct added_state *)state = (struct added_state){0}; }

const struct text_step_type text_added_step = {
    .name = "added tokens",
    .state_bytes = sizeof(struct added_state),
    .apply = added_apply,
    .reset = added_reset,
};
