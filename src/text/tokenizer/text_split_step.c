/* The step that cuts a segment into pieces by the matches of a pattern. */
#include "text/tokenizer/text_steps.h"

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
