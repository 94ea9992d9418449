#include "tokenizer/text_stages.h"
#include "tokenizer/unicode_class.h"

struct strip_state {
    size_t taken; /* from the beginning of the segment */
    bool begun;   /* something else was seen */
};

static bool is_taken(const struct text_strip *strip, uint32_t code) {
    return strip->code == STRIP_SPACE ? unicode_is_space(code) : code == strip->code;
}

static size_t start_find(const struct text_strip *strip, struct strip_state *state, struct text_view view) {
    size_t place = 0;
    for (size_t length; !state->begun && place < view.bytes; place += length) {
        bool taken = state->taken < strip->start && is_taken(strip, utf8_decode_valid(view.text + place, &length));
        if (!taken) return state->begun = true, place;
        state->taken++;
    }
    return place;
}

/* Where those at the end begin, which are taken if nothing else follows. */
static size_t stop_find(const struct text_strip *strip, struct text_view view, size_t start) {
    size_t place = view.bytes, length;
    for (size_t taken = 0; place > start && taken < strip->stop; taken++, place -= length)
        if (!is_taken(strip, utf8_decode_last(view.text, place, &length))) break;
    return place;
}

static enum status strip_run(const void *settings, void *state, struct text_view view, const struct text_output *output,
                             size_t *consumed) {
    struct strip_state *own = state;
    own->begun |= view.position == SEGMENT_CONTINUES;
    size_t start = start_find(settings, own, view), stop = stop_find(settings, view, start);
    *consumed = view.end ? view.bytes : stop;
    return output->next.write(output->next.payload, view.text + start, stop - start, view.end);
}

static void strip_reset(void *state) { *(struct strip_state *)state = (struct strip_state){0}; }

const struct text_stage_type text_strip_stage = {
    .name = "strip",
    .state_bytes = sizeof(struct strip_state),
    .run = strip_run,
    .reset = strip_reset,
};
