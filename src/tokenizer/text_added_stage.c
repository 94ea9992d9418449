#include "tokenizer/added_tokens.h"
#include "tokenizer/unicode_class.h"

enum { LONGEST_CHARACTER_BYTES = 4 };

struct added_state {
    size_t scanned_bytes; /* at the beginning of the view: no token begins there */
    size_t taken_bytes;   /* ... that belong to a token already, though another may yet begin in them */
    bool previous_word;   /* the character before the view is a word character */
};

struct added_run {
    const struct added_set *set;
    struct added_state *state;
    struct text_view view;
    const struct text_output *output;
    size_t start; /* text from here on was not handed on */
};

static bool word_before(const struct added_run *run, size_t place) {
    size_t length;
    if (place == 0) return run->state->previous_word;
    return unicode_is_word(utf8_decode_last(run->view.text, place, &length));
}

static bool word_after(const struct added_run *run, size_t place) {
    size_t length;
    return place < run->view.bytes && unicode_is_word(utf8_decode_valid(run->view.text + place, &length));
}

/* Where the white space before `place` begins, not going back beyond `least`. */
static size_t space_start(const struct added_run *run, size_t least, size_t place) {
    for (size_t length; place > least; place -= length)
        if (!unicode_is_space(utf8_decode_last(run->view.text, place, &length))) break;
    return place;
}

static size_t space_stop(const struct added_run *run, size_t place) {
    for (size_t length; place < run->view.bytes; place += length)
        if (!unicode_is_space(utf8_decode_valid(run->view.text + place, &length))) break;
    return place;
}

static enum status text_hand_on(struct added_run *run, size_t stop, bool end) {
    const struct text_sink *next = &run->output->next;
    size_t start = run->start;
    if (stop > start) run->start = stop;
    size_t bytes = stop > start ? stop - start : 0;
    return bytes == 0 && !end ? STATUS_OK : next->write(next->payload, run->view.text + start, bytes, end);
}

/* The token matched at [start, stop). *more is set when the text after it must be seen first. */
static enum status token_take(struct added_run *run, const struct added_token *token, size_t start, size_t stop,
                              bool *more) {
    if (token->single_word && (word_before(run, start) || word_after(run, stop))) return STATUS_OK;
    if (token->right_strip) stop = space_stop(run, stop);
    *more = token->right_strip && stop == run->view.bytes && !run->view.end;
    if (*more) return STATUS_OK;
    /* White space that the last token took is not taken again. */
    if (token->left_strip) start = space_start(run, run->start, start);
    TRY(text_hand_on(run, start, true));
    run->start = stop;
    return run->output->ids.write(run->output->ids.payload, &token->id, 1);
}

/* Looks for tokens that begin at `place` up to `limit`; leaves `place` where it stopped. */
static enum status tokens_find(struct added_run *run, size_t limit, size_t *place) {
    const struct token_trie *trie = &run->set->trie;
    const unsigned char *text = (const unsigned char *)run->view.text;
    while (*place < limit) {
        uint32_t value;
        size_t length = 0;
        if (trie->first[text[*place]])
            length = token_trie_match(trie, run->view.text + *place, run->view.bytes - *place, &value);
        if (length == 0) {
            ++*place;
            continue;
        }
        bool more = false;
        TRY(token_take(run, &run->set->tokens[value], *place, *place + length, &more));
        if (more) break;
        *place += length;
    }
    return STATUS_OK;
}

/* Remembers where the next view begins: at `place` or, if that is earlier, with the text not handed on. */
static size_t state_save(struct added_run *run, size_t place) {
    size_t base = place < run->start ? place : run->start;
    if (base > 0) run->state->previous_word = word_before(run, base);
    run->state->scanned_bytes = place - base;
    run->state->taken_bytes = run->start - base;
    return base;
}

static enum status added_run(const void *settings, void *state, struct text_view view, const struct text_output *output,
                             size_t *consumed) {
    struct added_run run = {settings, state, view, output, 0};
    run.start = run.state->taken_bytes;
    size_t place = run.state->scanned_bytes, limit = view.bytes;
    size_t ahead = run.set->trie.longest_bytes + LONGEST_CHARACTER_BYTES;
    if (!view.end) limit = view.bytes > ahead ? view.bytes - ahead : 0;
    TRY(tokens_find(&run, limit, &place));
    if (view.end) {
        *consumed = view.bytes;
        return text_hand_on(&run, view.bytes, true);
    }
    place = utf8_floor(view.text, place);
    size_t stop = place;
    if (run.set->strips_left) stop = space_start(&run, run.start, stop);
    TRY(text_hand_on(&run, stop, false));
    *consumed = state_save(&run, place);
    return STATUS_OK;
}

static void added_reset(void *state) { *(struct added_state *)state = (struct added_state){0}; }

const struct text_stage_type text_added_stage = {
    .name = "added tokens",
    .state_bytes = sizeof(struct added_state),
    .run = added_run,
    .reset = added_reset,
};
