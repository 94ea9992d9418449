/* The step that replaces matches of a pattern or a string. */
#include <string.h>

#include "text/tokenizer/text_steps.h"

struct replace_state {
    struct split_matcher *matcher; /* NULL for a string */
    struct text_buffer text;       /* what a view becomes */
};

static enum status string_find(const struct text_replace *replace, struct text_view view, size_t from,
                               enum split_result *result, size_t *start, size_t *stop) {
    size_t bytes = replace->string_bytes;
    const char *place = memmem(view.text + from, view.bytes - from, replace->string, bytes);
    *result = place ? SPLIT_FOUND : SPLIT_NONE;
    if (place) *start = (size_t)(place - view.text);
    *stop = *start + bytes;
    return STATUS_OK;
}

/* How much of the view's end may be the beginning of the string. */
static size_t string_begun(const struct text_replace *replace, struct text_view view, size_t from) {
    size_t bytes = replace->string_bytes - 1;
    if (bytes > view.bytes - from) bytes = view.bytes - from;
    while (bytes > 0 && memcmp(view.text + view.bytes - bytes, replace->string, bytes) != 0)
        bytes--;
    return bytes;
}

static enum status match_find(const struct text_replace *replace, struct replace_state *state, struct text_view view,
                              size_t from, enum split_result *result, size_t *start, size_t *stop) {
    if (!replace->pattern) return string_find(replace, view, from, result, start, stop);
    return split_pattern_find(replace->pattern, state->matcher, view.text, view.bytes, from, view.end, result, start,
                              stop);
}

static enum status replace_apply(const void *settings, void *state, struct text_view view,
                                 const struct text_output *output, size_t *consumed) {
    const struct text_replace *replace = settings;
    struct replace_state *own = state;
    const struct text_sink *next = &output->next;
    size_t place = 0, start = 0, stop = 0;
    enum split_result result = SPLIT_FOUND;
    bool drops = replace->drop_in_first && view.position == SEGMENT_FIRST;
    own->text.count = 0;
    while (place < view.bytes) {
        TRY(match_find(replace, own, view, place, &result, &start, &stop));
        if (result != SPLIT_FOUND) break;
        TRY(text_append(&own->text, view.text + place, start - place));
        if (!drops) TRY(text_append(&own->text, replace->content, replace->content_bytes));
        place = stop;
    }
    stop = view.bytes;
    if (!view.end && place < view.bytes) stop = replace->pattern ? place : stop - string_begun(replace, view, place);
    *consumed = stop;
    if (replace->pattern) split_matcher_pass(own->matcher, view.text, stop);
    if (own->text.count == 0) return next->write(next->payload, view.text + place, stop - place, view.end);
    TRY(text_append(&own->text, view.text + place, stop - place));
    return next->write(next->payload, own->text.items, own->text.count, view.end);
}

static enum status replace_start(const void *settings, void *state) {
    const struct text_replace *replace = settings;
    struct replace_state *own = state;
    return replace->pattern ? split_matcher_create(replace->pattern, &own->matcher) : STATUS_OK;
}

static void replace_reset(void *state) {
    struct replace_state *own = state;
    if (own->matcher) split_matcher_reset(own->matcher);
}

static void replace_stop(void *state) {
    struct replace_state *own = state;
    split_matcher_free(own->matcher);
    vec_free(&own->text);
}

const struct text_step_type text_replace_step = {
    .name = "replace",
    .state_bytes = sizeof(struct replace_state),
    .start = replace_start,
    .apply = replace_apply,
    .reset = replace_reset,
    .stop = replace_stop,
};
