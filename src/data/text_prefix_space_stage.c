#include "data/text_stages.h"

struct prefix_space_state {
    bool begun;
};

static enum status prefix_space_run(const void *settings, void *state, struct text_view view,
                                    const struct text_output *output, size_t *consumed) {
    (void)settings;
    struct prefix_space_state *now = state;
    const struct text_sink *next = &output->next;
    if (!now->begun && view.bytes > 0 && view.text[0] != ' ') TRY(next->write(next->payload, " ", 1, false));
    now->begun |= view.bytes > 0;
    *consumed = view.bytes;
    return next->write(next->payload, view.text, view.bytes, view.end);
}

static void prefix_space_reset(void *state) { *(struct prefix_space_state *)state = (struct prefix_space_state){0}; }

const struct text_stage_type text_prefix_space_stage = {
    .name = "prefix space",
    .state_bytes = sizeof(struct prefix_space_state),
    .run = prefix_space_run,
    .reset = prefix_space_reset,
};
