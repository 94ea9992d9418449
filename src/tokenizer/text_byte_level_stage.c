#include "tokenizer/byte_alphabet.h"
#include "tokenizer/text_stages.h"

struct byte_level_state {
    struct text_buffer bytes;
};

static enum status byte_level_run(const void *settings, void *state, struct text_view view,
                                  const struct text_output *output, size_t *consumed) {
    (void)settings;
    struct text_buffer *bytes = &((struct byte_level_state *)state)->bytes;
    *consumed = view.end ? view.bytes : 0;
    if (!view.end) return STATUS_OK;
    bytes->count = 0;
    TRY(byte_alphabet_read(bytes, view.text, view.bytes));
    return output->next.write(output->next.payload, bytes->items, bytes->count, false);
}

static enum status byte_level_finish(const void *settings, void *state, const struct text_output *output) {
    (void)settings, (void)state;
    return output->next.write(output->next.payload, "", 0, true);
}

static void byte_level_stop(void *state) { vec_free(&((struct byte_level_state *)state)->bytes); }

const struct text_stage_type text_byte_level_stage = {
    .name = "byte level",
    .state_bytes = sizeof(struct byte_level_state),
    .run = byte_level_run,
    .finish = byte_level_finish,
    .stop = byte_level_stop,
};
