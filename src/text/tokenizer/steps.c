/* The chain of steps, and the steps that change text. */
#include "text/tokenizer/steps.h"

#include <utf8proc.h>

#include "text/tokenizer/pattern.h"

enum { LONG_BYTES_MIN = 64 };

struct text_step {
    struct text_step_spec spec;
    void *state;
    struct text_buffer kept;     /* bytes not yet consumed */
    size_t retry_bytes;          /* how many must be kept before the step is called again */
    enum text_position position; /* of the segment under way */
    struct text_output output;
};

struct text_chain {
    struct text_sink first;
    size_t count;
    struct text_step steps[];
};

static void step_reset(struct text_step *step) {
    step->kept.count = 0;
    step->retry_bytes = 0;
    const struct text_step_type *type = step->spec.type;
    if (type->reset) type->reset(step->state);
    if (!type->reset && !type->stop) memset(step->state, 0, type->state_bytes);
}

static enum status keep_rest(struct text_step *step, struct text_view view, size_t consumed) {
    size_t rest = view.bytes - consumed;
    /* A step that waits for more text is called again only when the text has doubled: linear time in all. */
    step->retry_bytes = rest < LONG_BYTES_MIN ? 0 : 2 * rest;
    if (view.text != step->kept.items) return text_append(&step->kept, view.text + consumed, rest);
    if (consumed > 0) memmove(step->kept.items, step->kept.items + consumed, rest);
    step->kept.count = rest;
    return STATUS_OK;
}

static enum status step_write(void *payload, const char *text, size_t bytes, bool end) {
    struct text_step *step = payload;
    struct text_view view = {text, bytes, end, step->position};
    if (step->kept.count > 0) {
        TRY(text_append(&step->kept, text, bytes));
        if (!end && step->kept.count < step->retry_bytes) return STATUS_OK;
        view.text = step->kept.items;
        view.bytes = step->kept.count;
    }
    if (view.bytes == 0 && !end) return STATUS_OK;
    size_t consumed = 0;
    if (!end && step->spec.type->whole) return keep_rest(step, view, 0);
    TRY(step->spec.type->apply(step->spec.settings, step->state, view, &step->output, &consumed));
    BUG_IF(end ? consumed != view.bytes : consumed > view.bytes, "stage %s consumed %zu of %zu bytes",
           step->spec.type->name, consumed, view.bytes);
    if (!end) return keep_rest(step, view, consumed);
    step_reset(step);
    step->position = SEGMENT_LATER;
    return STATUS_OK;
}

enum status text_chain_create(const struct text_step_spec *specs, size_t count, struct text_sink last,
                              struct token_sink ids, struct text_chain **out) {
    struct text_chain *chain = mem_array(1, sizeof *chain + count * sizeof chain->steps[0]);
    if (!chain) return STATUS_FAILED;
    chain->first = last;
    chain->count = count;
    for (size_t i = count; i-- > 0;) {
        struct text_step *step = &chain->steps[i];
        step->spec = specs[i];
        step->output = (struct text_output){chain->first, ids};
        step->state = mem_array(1, specs[i].type->state_bytes);
        if (!step->state) return text_chain_free(chain), STATUS_FAILED;
        chain->first = (struct text_sink){step_write, step};
    }
    *out = chain;
    return STATUS_OK;
}

enum status text_chain_write(struct text_chain *chain, const char *text, size_t bytes, bool end) {
    return chain->first.write(chain->first.payload, text, bytes, end);
}

void text_chain_reset(struct text_chain *chain, bool continues) {
    for (size_t i = 0; i < chain->count; i++) {
        struct text_step *step = &chain->steps[i];
        step_reset(step);
        step->position = continues ? SEGMENT_CONTINUES : SEGMENT_FIRST;
        if (step->spec.type->drop) step->spec.type->drop(step->state);
    }
}

enum status text_chain_finish(struct text_chain *chain) {
    for (size_t i = 0; i < chain->count; i++) {
        struct text_step *step = &chain->steps[i];
        if (step->spec.type->finish) TRY(step->spec.type->finish(step->spec.settings, step->state, &step->output));
    }
    text_chain_reset(chain, false);
    return STATUS_OK;
}

void text_chain_free(struct text_chain *chain) {
    if (!chain) return;
    for (size_t i = 0; i < chain->count; i++) {
        struct text_step *step = &chain->steps[i];
        if (step->state && step->spec.type->stop) step->spec.type->stop(step->state);
        mem_free(step->state);
        vec_free(&step->kept);
    }
    mem_free(chain);
}

void text_step_free_buffer(void *state) { vec_free((struct text_buffer *)state); }

/* --- Unicode normalization (UAX #15) in parts ---
 *
 * The text is cut into clusters at characters that neither combine with nor are reordered past what stands before
 * them, and each cluster is normalized by itself. Data and composition are utf8proc's; marks are put in order here,
 * since there may be many in a row. */

struct text_normal_form {
    utf8proc_option_t options;
    bool composes;
};

const struct text_normal_form text_nfc = {UTF8PROC_STABLE | UTF8PROC_COMPOSE, true};
const struct text_normal_form text_nfd = {UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, false};
const struct text_normal_form text_nfkc = {UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT, true};
const struct text_normal_form text_nfkd = {UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, false};

enum { LONGEST_DECOMPOSITION = 32 }; /* U+FDFA takes 18 */

struct normalize_state {
    VEC(utf8proc_int32_t) codes, sorted;
    struct text_buffer text; /* the segment, as far as it differs from the view */
};

/* The `tokenizers` library normalizes by the data of Unicode 9, where these characters are not assigned: they neither
 * decompose nor combine. Found by asking it and utf8proc 2.8 for every code point. */
static const struct unicode_range newer[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x10785},
    {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
    {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F},
    {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1F16C, 0x1F16C},
    {0x1FBF0, 0x1FBF9},
};

static bool is_newer(utf8proc_int32_t code) {
    return unicode_is_within(newer, sizeof newer / sizeof *newer, (uint32_t)code);
}

static int combining_class(utf8proc_int32_t code) {
    int class = utf8proc_get_property(code)->combining_class;
    return class > 0 && is_newer(code) ? 0 : class;
}

/* Appends the decomposition of a character, unordered. */
static enum status decompose(struct normalize_state *state, const struct text_normal_form *form, uint32_t code) {
    TRY(vec_reserve(&state->codes, state->codes.count + LONGEST_DECOMPOSITION));
    if (is_newer((utf8proc_int32_t)code)) return vec_push(&state->codes, (utf8proc_int32_t)code);
    int boundary = 0;
    utf8proc_ssize_t count = utf8proc_decompose_char((utf8proc_int32_t)code, state->codes.items + state->codes.count,
                                                     LONGEST_DECOMPOSITION, form->options, &boundary);
    BUG_IF(count < 0 || count > LONGEST_DECOMPOSITION, "U+%X decomposes to %td characters", code, (ptrdiff_t)count);
    state->codes.count += (size_t)count;
    return STATUS_OK;
}

/* Sorts marks by combining class, equal ones in their order: by counting, in linear time. */
static enum status sort_marks(struct normalize_state *state, size_t start, size_t stop) {
    utf8proc_int32_t *codes = state->codes.items;
    size_t places[257] = {0}; /* [class]: where the next mark of this class goes */
    for (size_t i = start; i < stop; i++)
        places[combining_class(codes[i]) + 1]++;
    for (size_t class = 1; class < 257; class ++)
        places[class] += places[class - 1];
    TRY(vec_reserve(&state->sorted, stop - start));
    for (size_t i = start; i < stop; i++)
        state->sorted.items[places[combining_class(codes[i])]++] = codes[i];
    memcpy(codes + start, state->sorted.items, (stop - start) * sizeof *codes);
    return STATUS_OK;
}

static enum status order_marks(struct normalize_state *state) {
    const utf8proc_int32_t *codes = state->codes.items;
    for (size_t start = 0, stop; start < state->codes.count; start = stop + 1) {
        int previous = 0;
        bool ordered = true;
        for (stop = start; stop < state->codes.count; stop++) {
            int class = combining_class(codes[stop]);
            if (class == 0) break;
            ordered &= previous <= class;
            previous = class;
        }
        if (!ordered) TRY(sort_marks(state, start, stop));
    }
    return STATUS_OK;
}

static enum status cluster_normalize(struct normalize_state *state, const struct text_normal_form *form,
                                     const char *text, size_t bytes) {
    state->codes.count = 0;
    for (size_t place = 0, length; place < bytes; place += length)
        TRY(decompose(state, form, utf8_decode_valid(text + place, &length)));
    TRY(order_marks(state));
    utf8proc_ssize_t count = (utf8proc_ssize_t)state->codes.count;
    if (form->composes) count = utf8proc_normalize_utf32(state->codes.items, count, form->options);
    BUG_IF(count < 0, "composition failed: %s", utf8proc_errmsg(count));
    for (utf8proc_ssize_t i = 0; i < count; i++)
        TRY(text_append_code(&state->text, (uint32_t)state->codes.items[i]));
    return STATUS_OK;
}

struct cluster_kind {
    bool begins; /* nothing before it reaches into it */
    bool plain;  /* stays unchanged if no combining character follows */
};

/* Characters that may combine with one before them are marks (category M) and the Jamo vowels and finals. (U+11A7,
 * just before the finals, is none; utf8proc 2.8 takes it for one, but never sees it behind a syllable here.) */
static bool may_attach(utf8proc_int32_t code) {
    if (is_newer(code)) return false;
    utf8proc_propval_t category = utf8proc_get_property(code)->category;
    return combining_class(code) > 0 || category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
           category == UTF8PROC_CATEGORY_ME || (code >= 0x1161 && code <= 0x1175) || (code >= 0x11A8 && code <= 0x11C2);
}

static enum status code_classify(struct normalize_state *state, const struct text_normal_form *form, uint32_t code,
                                 struct cluster_kind *kind) {
    state->codes.count = 0;
    TRY(decompose(state, form, code));
    kind->begins = state->codes.count > 0 && !may_attach(state->codes.items[0]);
    kind->plain = kind->begins && state->codes.count == 1 && (uint32_t)state->codes.items[0] == code;
    return STATUS_OK;
}

struct normalize_pass {
    struct normalize_state *state;
    const struct text_normal_form *form;
    struct text_view view;
    size_t plain_start; /* what was not copied begins here */
    size_t start;       /* the cluster under way begins here */
    bool plain;         /* it is one plain character so far */
};

/* The cluster under way ends at `stop`. */
static enum status cluster_finish(struct normalize_pass *pass, size_t stop) {
    const char *text = pass->view.text;
    if (pass->plain || stop == pass->start) return STATUS_OK;
    TRY(text_append(&pass->state->text, text + pass->plain_start, pass->start - pass->plain_start));
    pass->plain_start = stop;
    return cluster_normalize(pass->state, pass->form, text + pass->start, stop - pass->start);
}

static enum status normalize_apply(const void *settings, void *state, struct text_view view,
                                   const struct text_output *output, size_t *consumed) {
    struct normalize_pass pass = {state, settings, view, 0, 0, true};
    const struct text_sink *next = &output->next;
    struct text_buffer *text = &pass.state->text;
    text->count = 0;
    *consumed = view.bytes;
    for (size_t place = 0, length; place < view.bytes; place += length) {
        size_t ascii = utf8_ascii_bytes(view.text + place, view.bytes - place);
        if (ascii > 0) {
            TRY(cluster_finish(&pass, place));
            pass.start = place + ascii - 1; /* marks may follow the last one */
            pass.plain = true;
            length = ascii;
            continue;
        }
        struct cluster_kind kind;
        TRY(code_classify(pass.state, pass.form, utf8_decode_valid(view.text + place, &length), &kind));
        if (kind.begins) {
            TRY(cluster_finish(&pass, place));
            pass.start = place;
        }
        pass.plain = kind.begins && kind.plain;
    }
    TRY(cluster_finish(&pass, view.bytes));
    if (pass.plain_start == 0) return next->write(next->payload, view.text, view.bytes, true);
    TRY(text_append(text, view.text + pass.plain_start, view.bytes - pass.plain_start));
    return next->write(next->payload, text->items, text->count, true);
}

static void normalize_stop(void *state) {
    struct normalize_state *own = state;
    vec_free(&own->codes);
    vec_free(&own->sorted);
    vec_free(&own->text);
}

const struct text_step_type text_normalize_step = {
    .name = "normalize",
    .state_bytes = sizeof(struct normalize_state),
    .whole = true,
    .apply = normalize_apply,
    .stop = normalize_stop,
};

/* --- steps that change single characters: fix, prefix, map, strip --- */

static enum status fix_apply(const void *settings, void *state, struct text_view view, const struct text_output *output,
                             size_t *consumed) {
    (void)settings, (void)state;
    static const char replacement[] = "\xEF\xBF\xBD";
    const struct text_sink *next = &output->next;
    for (size_t place = 0, length;; place += length) {
        const char *text = view.text + place;
        size_t valid = utf8_valid_bytes(text, view.bytes - place);
        place += valid;
        *consumed = place;
        if (place == view.bytes) return next->write(next->payload, text, valid, view.end);
        if (valid > 0) TRY(next->write(next->payload, text, valid, false));
        uint32_t code;
        length = utf8_decode(view.text + place, view.bytes - place, &code);
        if (code == UTF8_CUT && !view.end) return STATUS_OK;
        TRY(next->write(next->payload, replacement, 3, false));
    }
}

const struct text_step_type text_fix_step = {.name = "fix", .apply = fix_apply};

static bool has_place(enum text_prefix_place place, enum text_position position) {
    if (position == SEGMENT_CONTINUES) return false;
    return place == PREFIX_EACH || (place == PREFIX_FIRST) == (position == SEGMENT_FIRST);
}

static bool is_there(const struct text_prefix *prefix, struct text_view view) {
    return view.bytes >= prefix->bytes && memcmp(view.text, prefix->text, prefix->bytes) == 0;
}

static enum status prefix_apply(const void *settings, void *state, struct text_view view,
                                const struct text_output *output, size_t *consumed) {
    (void)state;
    const struct text_prefix *prefix = settings;
    const struct text_sink *next = &output->next;
    bool begins = view.bytes > 0 || prefix->empty_too;
    if (begins && has_place(prefix->place, view.position) && !(prefix->unless_there && is_there(prefix, view)))
        TRY(next->write(next->payload, prefix->text, prefix->bytes, false));
    *consumed = view.bytes;
    return next->write(next->payload, view.text, view.bytes, view.end);
}

const struct text_step_type text_prefix_step = {.name = "prefix", .whole = true, .apply = prefix_apply};

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

static enum status map_apply(const void *settings, void *state, struct text_view view, const struct text_output *output,
                             size_t *consumed) {
    const struct text_map *map = settings;
    struct text_buffer *text = state;
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

const struct text_step_type text_map_step = {
    .name = "map",
    .state_bytes = sizeof(struct text_buffer),
    .apply = map_apply,
    .stop = text_step_free_buffer,
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

/* The beginning of the trailing ones, which are removed if nothing else follows. */
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

const struct text_step_type text_strip_step = {
    .name = "strip",
    .state_bytes = sizeof(struct strip_state),
    .apply = strip_apply,
};

/* --- replacing the matches of a pattern --- */

struct replace_state {
    struct split_matcher *matcher;
    struct text_buffer text; /* what a view becomes */
};

static enum status replace_apply(const void *settings, void *state, struct text_view view,
                                 const struct text_output *output, size_t *consumed) {
    const struct text_replace *replace = settings;
    struct replace_state *own = state;
    const struct text_sink *next = &output->next;
    size_t place = 0, start = 0, stop = 0;
    enum split_result result = SPLIT_FOUND;
    bool drops = replace->drop_in_first && view.position == SEGMENT_FIRST;
    own->text.count = 0;
    if (!own->matcher) TRY(split_matcher_create(replace->pattern, &own->matcher));
    while (place < view.bytes) {
        TRY(split_pattern_find(replace->pattern, own->matcher, view.text, view.bytes, place, view.end, &result, &start,
                               &stop));
        if (result != SPLIT_FOUND) break;
        TRY(text_append(&own->text, view.text + place, start - place));
        if (!drops) TRY(text_append(&own->text, replace->content, replace->content_bytes));
        place = stop;
    }
    stop = result == SPLIT_MORE ? start : view.bytes;
    *consumed = stop;
    split_matcher_pass(own->matcher, view.text, stop);
    if (own->text.count == 0) return next->write(next->payload, view.text + place, stop - place, view.end);
    TRY(text_append(&own->text, view.text + place, stop - place));
    return next->write(next->payload, own->text.items, own->text.count, view.end);
}

static void replace_reset(void *state) { split_matcher_reset(((struct replace_state *)state)->matcher); }

static void replace_stop(void *state) {
    struct replace_state *own = state;
    split_matcher_free(own->matcher);
    vec_free(&own->text);
}

const struct text_step_type text_replace_step = {
    .name = "replace",
    .state_bytes = sizeof(struct replace_state),
    .apply = replace_apply,
    .reset = replace_reset,
    .stop = replace_stop,
};
