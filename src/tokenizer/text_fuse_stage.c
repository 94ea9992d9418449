#include "tokenizer/text_stages.h"

static enum status fuse_run(const void *settings, void *state, struct text_view view, const struct text_output *output,
                            size_t *consumed) {
    (void)settings, (void)state;
    *consumed = view.bytes;
    return output->next.write(output->next.payload, view.text, view.bytes, false);
}

static enum status fuse_finish(const void *settings, void *state, const struct text_output *output) {
    (void)settings, (void)state;
    return output->next.write(output->next.payload, "", 0, true);
}

const struct text_stage_type text_fuse_stage = {.name = "fuse", .run = fuse_run, .finish = fuse_finish};
