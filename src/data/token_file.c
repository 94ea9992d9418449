#include "data/token_file.h"

#include <string.h>
#include <xxhash.h>

#include "base/mem.h"

enum { HEADER_BYTES = 256 * 4, BLOCK_TOKENS = 1 << 16 };

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

enum status token_file_parse(const char *name, const struct file_input *input, struct token_view *out) {
    size_t bytes = input->bytes;
    if (bytes < HEADER_BYTES)
        return status_set(STATUS_BAD_INPUT, "%s: %zu bytes are less than a token file's header takes (%d)", name, bytes,
                          HEADER_BYTES);
    int32_t header[3];
    TRY(file_input_read(input, 0, sizeof header, header));
    int token_bytes = find_format(name, header);
    if (token_bytes == 0) return STATUS_BAD_INPUT;
    size_t body = bytes - HEADER_BYTES;
    if (header[2] < 0 || (size_t)header[2] * (size_t)token_bytes != body)
        return status_set(STATUS_BAD_INPUT,
                          "%s: count: %d tokens of %d bytes contradict the file's %zu bytes of tokens%s", name,
                          header[2], token_bytes, body,
                          header[2] >= 0 && (size_t)header[2] * (size_t)token_bytes > body ? " (truncated?)" : "");
    *out = (struct token_view){.input = *input,
                               .offset = HEADER_BYTES,
                               .token_bytes = token_bytes,
                               .count = header[2],
                               .id_limit = (int64_t)1 << 8 * token_bytes};
    return STATUS_OK;
}

enum status token_view_read(const struct token_view *view, int64_t first, int64_t count, int32_t *out) {
    size_t width = (size_t)view->token_bytes, bytes = (size_t)count * width;
    /* Narrow ids are read into the end of the buffer, and widened from the front. */
    unsigned char *buffer = (unsigned char *)out + (size_t)count * sizeof *out - bytes;
    TRY(file_input_read(&view->input, view->offset + (size_t)first * width, bytes, buffer));
    for (int64_t i = 0; width == 2 && i < count; i++) {
        uint16_t id;
        memcpy(&id, buffer + (size_t)i * sizeof id, sizeof id);
        out[i] = id;
    }
    return STATUS_OK;
}

enum status token_refuse_id(const char *name, int64_t index, uint32_t id, int64_t vocab_size) {
    (void)status_set(STATUS_BAD_INPUT, "%s: token %lld has id %u, but the model's vocabulary has %lld (ids 0 to %lld)",
                     name, (long long)index, id, (long long)vocab_size, (long long)vocab_size - 1);
    return status_hint(STATUS_BAD_INPUT, "were these tokens made for another model's tokenizer?");
}

static enum status examine_block(const char *name, const int32_t *ids, int64_t first, int64_t count,
                                 int64_t vocab_size) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++)
        if ((uint32_t)ids[i] > largest) largest = (uint32_t)ids[i];
    if (largest < vocab_size) return STATUS_OK;
    int64_t at = 0;
    while ((uint32_t)ids[at] < vocab_size)
        at++;
    return token_refuse_id(name, first + at, (uint32_t)ids[at], vocab_size);
}

/* Hashed as they lie in the file, then widened from the end. */
static enum status examine_all(const char *name, const struct token_view *view, int64_t vocab_size, XXH3_state_t *state,
                               int32_t *buffer) {
    size_t width = (size_t)view->token_bytes;
    for (int64_t first = 0; first < view->count; first += BLOCK_TOKENS) {
        int64_t count = view->count - first < BLOCK_TOKENS ? view->count - first : BLOCK_TOKENS;
        size_t bytes = (size_t)count * width;
        TRY(file_input_read(&view->input, view->offset + (size_t)first * width, bytes, buffer));
        XXH3_64bits_update(state, buffer, bytes);
        if (view->id_limit <= vocab_size) continue;
        for (int64_t i = count; width == 2 && i-- > 0;) {
            uint16_t id;
            memcpy(&id, (char *)buffer + (size_t)i * sizeof id, sizeof id);
            buffer[i] = id;
        }
        TRY(examine_block(name, buffer, first, count, vocab_size));
    }
    return STATUS_OK;
}

enum status token_view_examine(const char *name, const struct token_view *view, int64_t vocab_size, uint64_t *hash) {
    XXH3_state_t *state = XXH3_createState();
    int32_t *buffer = mem_array(BLOCK_TOKENS, sizeof *buffer);
    enum status status;
    TRY_GOTO(status, buffer ? STATUS_OK : STATUS_FAILED, done);
    TRY_GOTO(status, state ? STATUS_OK : status_set(STATUS_FAILED, "out of memory for a hash"), done);
    XXH3_64bits_reset(state);
    TRY_GOTO(status, examine_all(name, view, vocab_size, state, buffer), done);
    *hash = XXH3_64bits_digest(state);
done:
    XXH3_freeState(state);
    mem_free(buffer);
    return status;
}
