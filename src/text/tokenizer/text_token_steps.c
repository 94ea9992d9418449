/* Stages of decoders, whose segments are tokens: fuse, byte level, byte fallback. */
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/text_steps.h"

static enum status fuse_apply(const void *settings, void *state, struct text_view view,
                              const struct text_output *output, size_t *consumed) {
    (void)settings, (void)state;
    *consumed = view.bytes;
    return output->next.write(output->next.payload, view.text, view.bytes, false);
}

static enum status fuse_finish(const void *settings, void *state, const struct text_output *output) {
    (void)settings, (void)state;
    return output->next.write(output->next.payload, "", 0, true);
}

const struct text_step_type text_fuse_step = {.name = "fuse", .apply = fuse_apply, .finish = fuse_finish};

struct byte_level_state {
    struct text_buffer bytes;
};

static enum status byte_level_apply(const void *settings, void *state, struct text_view view,
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

const struct text_step_type text_byte_level_step = {
    .name = "byte level",
    .state_bytes = sizeof(struct byte_level_state),
    .apply = byte_level_apply,
    .finish = byte_level_finish,
    .stop = byte_level_stop,
};

static const char replacement[] = "\xEF\xBF\xBD";

struct fallback_state {
    struct text_buffer bytes; /* of the byte tokens in a row that were not handed on yet */
    bool open;                /* early: some of these bytes were handed on */
    bool broken;              /* ... and what follows in it is not UTF-8 */
};

static enum status run_write(struct fallback_state *own, const struct text_sink *next) {
    const struct text_buffer *bytes = &own->bytes;
    if (utf8_valid_bytes(bytes->items, bytes->count) == bytes->count)
        return next->write(next->payload, bytes->items, bytes->count, true);
    for (size_t i = 0; i < bytes->count; i++)
        TRY(next->write(next->payload, replacement, 3, true));
    return STATUS_OK;
}

static enum status run_end(struct fallback_state *own, const struct text_sink *next) {
    if (own->bytes.count > 0) TRY(run_write(own, next));
    own->bytes.count = 0;
    return STATUS_OK;
}

/* Hands on whole characters, and bytes that no character can begin with. */
static enum status early_write(struct fallback_state *own, const struct text_sink *next) {
    size_t place = 0;
    while (place < own->bytes.count) {
        uint32_t code;
        const char *text = own->bytes.items + place;
        size_t length = utf8_decode(text, own->bytes.count - place, &code);
        if (code == UTF8_CUT && !own->broken) break;
        own->broken |= code >= UTF8_BAD;
        own->open = true;
        TRY(own->broken ? next->write(next->payload, replacement, 3, false)
                        : next->write(next->payload, text, length, false));
        place += own->broken ? 1 : length;
    }
    own->bytes.count -= place;
    for (size_t i = 0; i < own->bytes.count; i++)
        own->bytes.items[i] = own->bytes.items[place + i];
    return STATUS_OK;
}

static enum status early_end(struct fallback_state *own, const struct text_sink *next) {
    own->broken = true; /* what is left is the beginning of a character */
    TRY(early_write(own, next));
    if (own->open) TRY(next->write(next->payload, "", 0, true));
    own->open = own->broken = false;
    return STATUS_OK;
}

static enum status token_take(struct fallback_state *own, struct text_view view, const struct text_sink *next,
                              bool early, size_t *consumed) {
    unsigned char byte;
    *consumed = view.end ? view.bytes : 0;
    if (!view.end) return STATUS_OK;
    if (byte_token_read(view.text, view.bytes, &byte)) {
        TRY(text_append(&own->bytes, &(char){(char)byte}, 1));
        return early ? early_write(own, next) : STATUS_OK;
    }
    TRY(early ? early_end(own, next) : run_end(own, next));
    return next->write(next->payload, view.text, view.bytes, true);
}

static enum status fallback_apply(const void *settings, void *state, struct text_view view,
                                  const struct text_output *output, size_t *consumed) {
    (void)settings;
    return token_take(state, view, &output->next, false, consumed);
}

static enum status fallback_finish(const void *settings, void *state, const struct text_output *output) {
    (void)settings;
    return run_end(state, &output->next);
}

static enum status fallback_early_apply(const void *settings, void *state, struct text_view view,
                                        const struct text_output *output, size_t *consumed) {
    (void)settings;
    return token_take(state, view, &output->next, true, consumed);
}

static enum status fallback_early_finish(const void *settings, void *state, const struct text_output *output) {
    (void)settings;
    return early_end(state, &output->next);
}

static void fallback_drop(void *state) {
    struct fallback_state *own = state;
    own->bytes.count = 0;
    own->open = own->broken = false;
}

static void fallback_stop(void *state) { vec_free(&((struct fallback_state *)state)->bytes); }

const struct text_step_type text_byte_fallback_step = {
    .name = "byte fallback",
    .state_bytes = sizeof(struct fallback_state),
    .apply = fallback_apply,
    .finish = fallback_finish,
    .drop = fallback_drop,
    .stop = fallback_stop,
};

const struct text_step_type text_byte_fallback_early_step = {
    .name = "byte fallback, early",
    .state_bytes = sizeof(struct fallback_state),
    .apply = fallback_early_apply,
    .finish = fallback_early_finish,
    .drop = fallback_drop,
    .stop = fallback_stop,
};
