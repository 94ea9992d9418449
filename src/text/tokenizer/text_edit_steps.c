/* Stages that change single characters: fix, prefix, map, strip. */
#include <string.h>
#include <utf8proc.h>

#include "text/tokenizer/text_steps.h"
#include "text/tokenizer/unicode_class.h"

static enum status fix_apply(const void *settings, void *state, struct text_view view, const struct text_output *output,
                             size_t *consumed) {
    (void)settings, (void)state;
    static const char replacement[] = "\xEF\xBF\xBD";
    const struct text_sink *next = &output->next;
    size_t place = 0;
    while (place < view.bytes) {
        size_t valid = utf8_valid_bytes(view.text + place, view.bytes - place);
        if (valid > 0) TRY(next->write(next->payload, view.text + place, valid, false));
        place += valid;
        if (place == view.bytes) break;
        uint32_t code;
        size_t length = utf8_decode(view.text + place, view.bytes - place, &code);
        if (code == UTF8_CUT && !view.end) break;
        TRY(next->write(next->payload, replacement, 3, false));
        place += length;
    }
    *consumed = place;
    return view.end ? next->write(next->payload, "", 0, true) : STATUS_OK;
}

const struct text_step_type text_fix_step = {.name = "fix", .apply = fix_apply};

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

static enum status prefix_apply(const void *settings, void *state, struct text_view view,
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

const struct text_step_type text_prefix_step = {
    .name = "prefix",
    .state_bytes = sizeof(struct prefix_state),
    .apply = prefix_apply,
    .reset = prefix_reset,
};

enum { CODES_MAX = 2 };

struct text_map {
    size_t (*map)(uint32_t code, uint32_t out[CODES_MAX]); /* returns how many it wrote */
};

/* Lowercase_Mapping character by character. Only U+0130 becomes two (SpecialCasing.txt, unconditional mappings). */
static size_t lowercase(uint32_t code, uint32_t out[CODES_MAX]) {
    out[0] = code == 0x130 ? 'i' : unicode_to_lower(code);
    out[1] = 0x307;
    return code == 0x130 ? 2 : 1;
}

static size_t strip_accent(uint32_t code, uint32_t out[CODES_MAX]) {
    out[0] = code;
    return unicode_is_mark(code) ? 0 : 1;
}

const struct text_map text_lowercase = {lowercase}, text_strip_accents = {strip_accent};

struct map_state {
    struct text_buffer text;
};

static enum status map_apply(const void *settings, void *state, struct text_view view, const struct text_output *output,
                             size_t *consumed) {
    const struct text_map *map = settings;
    struct text_buffer *text = &((struct map_state *)state)->text;
    text->count = 0;
    for (size_t place = 0, length; place < view.bytes; place += length) {
        uint32_t codes[CODES_MAX];
        size_t count = map->map(utf8_decode_valid(view.text + place, &length), codes);
        for (size_t i = 0; i < count; i++)
            TRY(text_append_code(text, codes[i]));
    }
    *consumed = view.bytes;
    return output->next.write(output->next.payload, text->items, text->count, view.end);
}

static void map_stop(void *state) { vec_free(&((struct map_state *)state)->text); }

const struct text_step_type text_map_step = {
    .name = "map",
    .state_bytes = sizeof(struct map_state),
    .apply = map_apply,
    .stop = map_stop,
};

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

static enum status strip_apply(const void *settings, void *state, struct text_view view,
                               const struct text_output *output, size_t *consumed) {
    struct strip_state *own = state;
    own->begun |= view.position == SEGMENT_CONTINUES;
    size_t start = start_find(settings, own, view), stop = stop_find(settings, view, start);
    *consumed = view.end ? view.bytes : stop;
    return output->next.write(output->next.payload, view.text + start, stop - start, view.end);
}

static void strip_reset(void *state) { *(struct strip_state *)state = (struct strip_state){0}; }

const struct text_step_type text_strip_step = {
    .name = "strip",
    .state_bytes = sizeof(struct strip_state),
    .apply = strip_apply,
    .reset = strip_reset,
};
