/* Data files for tests, written without the code under test. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { TOKEN_MAGIC_16 = 20240520, TOKEN_VERSION_16 = 1, TOKEN_MAGIC_32 = 20240801, TOKEN_VERSION_32 = 7 };
enum { TOKEN_HEADER_BYTES = 1024 };

/* Writes a token file with the ids in `token_bytes` (2 or 4) each, whatever magic, version and count it claims. */
void token_file_write_raw(const char *path, int32_t magic, int32_t version, int32_t count, int token_bytes,
                          const uint32_t *ids, size_t id_count);
/* A well-formed one. */
void token_file_write(const char *path, int token_bytes, const uint32_t *ids, size_t count);

/* `words` words of a small language, with punctuation, numbers, runs of blanks and some text that is not ASCII: the
 * same for the same seed. NUL-terminated; the caller frees with mem_free. */
char *random_text(uint64_t seed, size_t words, size_t *bytes);

/* The same in a file. */
void random_text_write(const char *path, uint64_t seed, size_t words);
