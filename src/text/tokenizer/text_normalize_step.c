/* Unicode normalization (UAX #15) in parts.
 *
 * The text is cut into clusters at characters that neither combine with nor are reordered past what stands before
 * them, and each cluster is normalized by itself. Data and composition are utf8proc's; marks are put in order here,
 * since there may be many in a row. */
#include <string.h>
#include <utf8proc.h>

#include "text/tokenizer/text_steps.h"

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
    struct text_buffer text; /* what differs from the view */
};

/* The `tokenizers` library normalizes by the data of Unicode 9, where these characters are not assigned: they neither
 * decompose nor combine. Found by asking it and utf8proc 2.8 for every code point. */
static const struct {
    utf8proc_int32_t first, last;
} newer[] = {
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
    size_t low = 0, high = sizeof newer / sizeof *newer;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (newer[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sizeof newer / sizeof *newer && newer[low].first <= code;
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
    bool plain;  /* stays as it is when nothing follows that combines with it */
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
    const struct text_sink *next;
    size_t plain_start; /* what was not handed on begins here */
    size_t start;       /* the cluster under way begins here */
    bool plain;         /* it is one plain character so far */
};

/* The cluster under way ends at `stop`. */
static enum status cluster_finish(struct normalize_pass *pass, size_t stop) {
    if (pass->plain || stop == pass->start) return STATUS_OK;
    const struct text_sink *next = pass->next;
    const char *text = pass->view.text;
    pass->state->text.count = 0;
    TRY(cluster_normalize(pass->state, pass->form, text + pass->start, stop - pass->start));
    if (pass->start > pass->plain_start)
        TRY(next->write(next->payload, text + pass->plain_start, pass->start - pass->plain_start, false));
    pass->plain_start = stop;
    return next->write(next->payload, pass->state->text.items, pass->state->text.count, false);
}

static enum status normalize_apply(const void *settings, void *state, struct text_view view,
                                   const struct text_output *output, size_t *consumed) {
    struct normalize_pass pass = {state, settings, view, &output->next, 0, 0, true};
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
    size_t stop = view.end ? view.bytes : pass.start;
    if (view.end) TRY(cluster_finish(&pass, stop));
    *consumed = stop;
    const struct text_sink *next = pass.next;
    return next->write(next->payload, view.text + pass.plain_start, stop - pass.plain_start, view.end);
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
    .apply = normalize_apply,
    .stop = normalize_stop,
};
