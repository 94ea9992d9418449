#include <utf8proc.h>

#include "tokenizer/text_stages.h"
#include "tokenizer/unicode_class.h"

enum { MOST_CODES = 2 };

struct text_map {
    size_t (*map)(uint32_t code, uint32_t out[MOST_CODES]); /* returns how many it wrote */
};

/* Lowercase_Mapping character by character. Only U+0130 becomes two (SpecialCasing.txt, unconditional mappings). */
static size_t lowercase(uint32_t code, uint32_t out[MOST_CODES]) {
    out[0] = code == 0x130 ? 'i' : unicode_to_lower(code);
    out[1] = 0x307;
    return code == 0x130 ? 2 : 1;
}

static size_t strip_accent(uint32_t code, uint32_t out[MOST_CODES]) {
    out[0] = code;
    return unicode_is_mark(code) ? 0 : 1;
}

const struct text_map text_lowercase = {lowercase}, text_strip_accents = {strip_accent};

struct map_state {
    struct text_buffer text;
};

static enum status map_run(const void *settings, void *state, struct text_view view, const struct text_output *output,
                           size_t *consumed) {
    const struct text_map *map = settings;
    struct text_buffer *text = &((struct map_state *)state)->text;
    text->count = 0;
    for (size_t place = 0, length; place < view.bytes; place += length) {
        uint32_t codes[MOST_CODES];
        size_t count = map->map(utf8_decode_valid(view.text + place, &length), codes);
        for (size_t i = 0; i < count; i++)
            TRY(text_append_code(text, codes[i]));
    }
    *consumed = view.bytes;
    return output->next.write(output->next.payload, text->items, text->count, view.end);
}

static void map_stop(void *state) { vec_free(&((struct map_state *)state)->text); }

const struct text_stage_type text_map_stage = {
    .name = "map",
    .state_bytes = sizeof(struct map_state),
    .run = map_run,
    .stop = map_stop,
};
