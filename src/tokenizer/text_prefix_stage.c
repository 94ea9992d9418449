#include <string.h>

#include "tokenizer/text_stages.h"

struct prefix_state {
    bool begun; /* the segment's beginning was handed on */
};

static bool has_place(enum text_prefix_place place, enum text_position position) {
    if (position == SEGMENT_CONTINUES) return false;
    return place == PREFIX_EACH || (place == PREFIX_FIRST) == (position == SEGMENT_FIRST);
}

static bool is_there(const struct text_prefix *prefix, struct text_view view) {
    return view.bytes >= prefix->bytes && memcmp(view.text, prefix->text, prefix->bytes) == 0;
}

static enum status prefix_run(const void *settings, void *state, struct text_view view,
                              const struct text_output *output, size_t *consumed) {
    const struct text_prefix *prefix = settings;
    struct prefix_state *now = state;
    const struct text_sink *next = &output->next;
    bool begins = !now->begun && (view.bytes > 0 || (view.end && prefix->empty_too));
    now->begun |= begins;
    if (begins && has_place(prefix->place, view.position) && !(prefix->unless_there && is_there(prefix, view)))
        TRY(next->write(next->payload, prefix->text, prefix->bytes, false));
    *consumed = view.bytes;
    return next->write(next->payload, view.text, view.bytes, view.end);
}

static void prefix_reset(void *state) { *(struct prefix_state *)state = (struct prefix_state){0}; }

const struct text_stage_type text_prefix_stage = {
    .name = "prefix",
    .state_bytes = sizeof(struct prefix_state),
    .run = prefix_run,
    .reset = prefix_reset,
};
