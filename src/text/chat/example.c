#include "text/chat/example.h"

#include "base/text.h"

enum {
    EXACT_BYTES = 1 << 22, /* as long as it takes no more, the text is encoded up to each border from its beginning */
    FAR_BYTES = 1 << 11,
    CONTEXT_BYTES = 64,
    CONTEXT_LAST = 8, /* ids at a context's end that may be others where it ends */
    CUT_TRIES = 4,
    WORK_LIMIT_BYTES = 1 << 24,
};

struct example_encoder {
    struct tokenizer_encoder *encoder;
    struct token_ids whole, prefix;
};

enum status example_encoder_create(const struct tokenizer *tokenizer, struct example_encoder **out) {
    struct example_encoder *made = mem_array(1, sizeof *made);
    if (!made) return STATUS_FAILED;
    enum status status = tokenizer_encoder_create(tokenizer, &made->encoder);
    if (status != STATUS_OK)
        mem_free(made);
    else
        *out = made;
    return status;
}

void example_encoder_free(struct example_encoder *encoder) {
    if (!encoder) return;
    tokenizer_encoder_free(encoder->encoder);
    vec_free(&encoder->whole);
    vec_free(&encoder->prefix);
    mem_free(encoder);
}

/* A text that is being marked. Ids from `index` on equal those of the text from `at` on encoded by itself, so later
 * text need not be encoded from the beginning. */
struct marking {
    struct example_encoder *encoder;
    const char *text;
    size_t bytes;
    bool add_special_tokens;
    size_t at, index;
    size_t work_bytes; /* encoded so far */
    size_t ends;       /* special tokens that a text from the beginning may have at its end */
};

/* The ids of bytes from .. to-1, as they go on there, into encoder->prefix. */
static enum status encode_part(struct marking *m, size_t from, size_t to) {
    struct example_encoder *encoder = m->encoder;
    m->work_bytes += to - from;
    encoder->prefix.count = 0;
    return tokenizer_encoder_append(encoder->encoder, m->text + from, to - from, from > 0, m->add_special_tokens,
                                    &encoder->prefix);
}

/* How many of the part's ids are those of the whole from `index` on. */
static size_t common_ids(const struct marking *m, size_t index) {
    const struct token_ids *whole = &m->encoder->whole, *part = &m->encoder->prefix;
    size_t common = 0;
    while (index + common < whole->count && common < part->count && whole->items[index + common] == part->items[common])
        common++;
    return common;
}

static bool is_space(char c) { return c == ' ' || c == '\n'; }

/* Moves m->at to a place before the border where the text can be cut without changing ids, if there is one. The part
 * before it then has ids of the whole, and so has a context after it, except for the context's last ids. */
static enum status move_on(struct marking *m, size_t border) {
    size_t min = m->at + (border - m->at) / 2, place = border - CONTEXT_BYTES;
    for (int tries = 0; place > min && tries < CUT_TRIES; place--) {
        if (!is_space(m->text[place]) || is_space(m->text[place - 1])) continue;
        tries++;
        size_t end = place + 2 * CONTEXT_BYTES < m->bytes ? place + 2 * CONTEXT_BYTES : m->bytes;
        TRY(encode_part(m, m->at, place));
        size_t common = common_ids(m, m->index), index = m->index + common;
        if (common + (m->at == 0 ? m->ends : 0) < m->encoder->prefix.count) continue;
        TRY(encode_part(m, place, utf8_floor(m->text, end < m->bytes ? end : end - 1)));
        size_t count = m->encoder->prefix.count;
        if (count <= CONTEXT_LAST || common_ids(m, index) + CONTEXT_LAST < count) continue;
        m->at = place;
        m->index = index;
        return STATUS_OK;
    }
    return STATUS_OK;
}

/* The number of ids before a byte of the text. */
static enum status find_border(struct marking *m, size_t at, bool far, size_t *index) {
    if (far && at - m->at > FAR_BYTES) TRY(move_on(m, at));
    TRY(encode_part(m, m->at, at));
    size_t here = m->index + common_ids(m, m->index);
    if (here > *index) *index = here;
    return STATUS_OK;
}

static enum status mark_ranges(struct marking *m, const struct example_range *ranges, size_t count, uint32_t *marked) {
    size_t index = 0, work = 0;
    for (size_t i = 0; i < count; i++)
        work += ranges[i].from + ranges[i].to;
    bool far = work > EXACT_BYTES;
    if (far) TRY(encode_part(m, 0, 0));
    if (far) m->ends = m->encoder->prefix.count;
    for (size_t i = 0; i < count; i++) {
        if (m->work_bytes > WORK_LIMIT_BYTES + 2 * m->bytes)
            return status_set(STATUS_BAD_INPUT, "%zu turns are too many for an example of %zu bytes", count, m->bytes);
        TRY(find_border(m, ranges[i].from, far, &index));
        size_t first = index;
        if (ranges[i].to == m->bytes)
            index = m->encoder->whole.count;
        else
            TRY(find_border(m, ranges[i].to, far, &index));
        for (size_t k = first; k < index; k++)
            marked[k] |= ranges[i].masked ? EXAMPLE_MASKED : EXAMPLE_TRAINED;
    }
    return STATUS_OK;
}

static enum status check_ids(const struct token_ids *ids) {
    for (size_t i = 0; i < ids->count; i++)
        if (ids->items[i] > EXAMPLE_ID)
            return status_set(STATUS_BAD_INPUT, "the tokenizer's id %u is too large for supervised data",
                              ids->items[i]);
    return STATUS_OK;
}

enum status example_encode(struct example_encoder *encoder, const char *text, size_t bytes,
                           const struct example_range *ranges, size_t count, bool add_special_tokens, int64_t eos_token,
                           struct token_ids *out) {
    const struct token_ids *whole = &encoder->whole;
    size_t first = out->count;
    encoder->whole.count = 0;
    TRY(tokenizer_encoder_append(encoder->encoder, text, bytes, false, add_special_tokens, &encoder->whole));
    TRY(check_ids(whole));
    TRY(token_ids_append(out, whole->items, whole->count));
    struct marking marking = {
        .encoder = encoder, .text = text, .bytes = bytes, .add_special_tokens = add_special_tokens};
    if (whole->count > 0) TRY(mark_ranges(&marking, ranges, count, out->items + first));
    /* One that ends the prompt does not end an empty completion. */
    uint32_t last = out->count > first ? out->items[out->count - 1] : 0;
    bool ended = (last & EXAMPLE_TRAINED) && (last & EXAMPLE_ID) == eos_token;
    if (eos_token >= 0 && !ended) TRY(vec_push(out, (uint32_t)eos_token | EXAMPLE_TRAINED));
    if (out->count > first) out->items[first] |= EXAMPLE_FIRST;
    return STATUS_OK;
}
