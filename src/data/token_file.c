#include "data/token_file.h"

#include <string.h>
#include <xxhash.h>

enum { HEADER_BYTES = 256 * 4, BLOCK_BYTES = 1 << 18 };

static const struct {
    int32_t magic, version;
    int token_bytes;
} formats[] = {{20240520, 1, 2}, {20240801, 7, 4}};
enum { FORMATS = sizeof formats / sizeof formats[0] };

/* The width of a token; 0, with the message set, when magic or version is unknown. */
static int find_format(const char *name, const int32_t *header) {
    for (size_t i = 0; i < FORMATS; i++) {
        if (header[0] != formats[i].magic) continue;
        if (header[1] == formats[i].version) return formats[i].token_bytes;
        (void)status_set(STATUS_BAD_INPUT, "%s: version: %d is not known for token files with magic %d (%d is)", name,
                         header[1], header[0], formats[i].version);
        return 0;
    }
    (void)status_set(STATUS_BAD_INPUT, "%s: magic: %d is not that of a token file (%d for uint16, %d for uint32)", name,
                     header[0], formats[0].magic, formats[1].magic);
    return 0;
}

enum status token_file_parse(const char *name, const unsigned char *data, size_t bytes, struct token_view *out) {
    if (bytes < HEADER_BYTES)
        return status_set(STATUS_BAD_INPUT, "%s: %zu bytes are less than a token file's header takes (%d)", name, bytes,
                          HEADER_BYTES);
    int32_t header[3];
    memcpy(header, data, sizeof header);
    int token_bytes = find_format(name, header);
    if (token_bytes == 0) return STATUS_BAD_INPUT;
    size_t body = bytes - HEADER_BYTES;
    if (header[2] < 0 || (size_t)header[2] * (size_t)token_bytes != body)
        return status_set(STATUS_BAD_INPUT,
                          "%s: count: %d tokens of %d bytes contradict the file's %zu bytes of tokens%s", name,
                          header[2], token_bytes, body,
                          header[2] >= 0 && (size_t)header[2] * (size_t)token_bytes > body ? " (truncated?)" : "");
    *out = (struct token_view){.tokens = data + HEADER_BYTES,
                               .token_bytes = token_bytes,
                               .count = header[2],
                               .id_limit = (int64_t)1 << 8 * token_bytes};
    return STATUS_OK;
}

static uint32_t token_at(const struct token_view *view, int64_t index) {
    return view->token_bytes == 2 ? ((const uint16_t *)view->tokens)[index] : ((const uint32_t *)view->tokens)[index];
}

static uint32_t largest_token(const struct token_view *view, int64_t first, int64_t count) {
    uint32_t largest = 0;
    for (int64_t i = first; i < first + count; i++) {
        uint32_t token = token_at(view, i);
        if (token > largest) largest = token;
    }
    return largest;
}

enum status token_refuse_id(const char *name, int64_t index, uint32_t id, int64_t vocab_size) {
    (void)status_set(STATUS_BAD_INPUT, "%s: token %lld has id %u, but the model's vocabulary has %lld (ids 0 to %lld)",
                     name, (long long)index, id, (long long)vocab_size, (long long)vocab_size - 1);
    return status_hint(STATUS_BAD_INPUT, "were these tokens made for another model's tokenizer?");
}

static enum status refuse_token(const char *name, const struct token_view *view, int64_t from, int64_t vocab_size) {
    while (token_at(view, from) < vocab_size)
        from++;
    return token_refuse_id(name, from, token_at(view, from), vocab_size);
}

enum status token_view_examine(const char *name, const struct token_view *view, int64_t vocab_size, uint64_t *hash) {
    XXH3_state_t *state = XXH3_createState();
    if (!state) return status_set(STATUS_FAILED, "out of memory for a hash");
    XXH3_64bits_reset(state);
    enum status status = STATUS_OK;
    int64_t block = BLOCK_BYTES / view->token_bytes;
    for (int64_t first = 0; first < view->count && status == STATUS_OK; first += block) {
        int64_t count = view->count - first < block ? view->count - first : block;
        size_t token_bytes = (size_t)view->token_bytes;
        XXH3_64bits_update(state, (const char *)view->tokens + (size_t)first * token_bytes,
                           (size_t)count * token_bytes);
        if (view->id_limit > vocab_size && largest_token(view, first, count) >= vocab_size)
            status = refuse_token(name, view, first, vocab_size);
    }
    if (status == STATUS_OK) *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return status;
}

void token_view_read(const struct token_view *view, int64_t first, int64_t count, int32_t *out) {
    for (int64_t i = 0; i < count; i++)
        out[i] = (int32_t)token_at(view, first + i);
}
