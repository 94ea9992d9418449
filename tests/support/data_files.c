#include "support/data_files.h"

#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "support/temp_folder.h"

void token_file_write_raw(const char *path, int32_t magic, int32_t version, int32_t count, int token_bytes,
                          const uint32_t *ids, size_t id_count) {
    size_t bytes = TOKEN_HEADER_BYTES + id_count * (size_t)token_bytes;
    unsigned char *file = mem_array(bytes, 1);
    int32_t header[3] = {magic, version, count};
    memcpy(file, header, sizeof header);
    for (size_t i = 0; i < id_count; i++) {
        uint16_t narrow = (uint16_t)ids[i];
        memcpy(file + TOKEN_HEADER_BYTES + i * (size_t)token_bytes,
               token_bytes == 2 ? (void *)&narrow : (void *)&ids[i], (size_t)token_bytes);
    }
    temp_write(path, file, bytes);
    mem_free(file);
}

void token_file_write(const char *path, int token_bytes, const uint32_t *ids, size_t count) {
    if (token_bytes == 2)
        token_file_write_raw(path, TOKEN_MAGIC_16, TOKEN_VERSION_16, (int32_t)count, 2, ids, count);
    else
        token_file_write_raw(path, TOKEN_MAGIC_32, TOKEN_VERSION_32, (int32_t)count, 4, ids, count);
}

char *random_text(uint64_t seed, size_t words, size_t *bytes) {
    static const char *const word[] = {"the",   "river",  "ran",   "under", "a",     "bridge",  "of",     "stone",
                                       "whose", "arches", "we'll", "see",   "again", "1987",    "größer", "日本語",
                                       "it's",  "x",      "quiet", "and",   "long",  "letters", "kept",   "Δt"};
    static const char *const gap[] = {" ",   " ",    " ",  " ",  " ",   " ",  ", ",  ". ",
                                      ".\n", "\n\n", "  ", "\t", " \n", "! ", "\r\n"};
    enum { WORDS = sizeof word / sizeof word[0], GAPS = sizeof gap / sizeof gap[0], LONGEST = 16 };
    char *text = mem_array(words * LONGEST + 1, 1), *at = text;
    for (size_t i = 0; text && i < words; i++) {
        uint64_t draw = random_u64(seed, RANDOM_TEST, 1, i);
        /* Squared, so that some words are frequent. */
        uint64_t pick = (draw % WORDS) * (draw / WORDS % WORDS) / WORDS;
        at = stpcpy(at, word[pick]);
        at = stpcpy(at, gap[(draw >> 40) % GAPS]);
    }
    *bytes = (size_t)(at - text);
    return text;
}

void random_text_write(const char *path, uint64_t seed, size_t words) {
    size_t bytes;
    char *text = random_text(seed, words, &bytes);
    temp_write(path, text, bytes);
    mem_free(text);
}
