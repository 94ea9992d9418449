/* BPE tokenizers (byte-level, and SentencePiece-style with byte fallback), read from and written to Hugging Face's
 * tokenizer.json.
 *
 *     struct tokenizer *tokenizer;
 *     TRY(tokenizer_open("model/tokenizer.json", &tokenizer));
 *     struct token_ids ids = {0};
 *     TRY(tokenizer_encode(tokenizer, text, bytes, true, &ids));
 *     ...
 *     vec_free(&ids);
 *     tokenizer_free(tokenizer);
 *
 * Ids are equal to those of the `tokenizers` library, and decoded text is equal to its text byte by byte. Text is
 * UTF-8. That library is only ever given valid text, so invalid bytes are treated as its users treat them, with
 * `bytes.decode("utf-8", errors="replace")`: each maximal ill-formed part (Unicode 15, section 3.9, table 3-8) becomes
 * one U+FFFD before anything else looks at the text.
 *
 * components.c lists the supported contents of a file, component by component. Every component or setting that is not
 * listed there is refused by name with STATUS_BAD_INPUT.
 *
 * A `const struct tokenizer` may be used by any number of threads at once. An encoder belongs to one thread.
 *
 * Files, in the order to read them:
 *   tokenizer: this file; parts: the parts of a tokenizer;
 *   open: reads a tokenizer.json; components: all that it may name; config: what the files next to it change;
 *   steps: a chain of steps that a text goes through in parts, and those that change text;
 *   encode, decode: text to ids and back, with the steps that only they have;
 *   bpe: words to ids, and where a word may be cut;
 *   pattern, unicode: regular expressions with the meaning of the `tokenizers` library, and the characters they know;
 *   tables: strings and pairs to numbers, the longest token at a place;
 *   train: a new tokenizer from a text. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "base/file.h"

struct tokenizer;

/* Token ids in order: a VEC, for vec_push and vec_free. */
struct token_ids {
    uint32_t *items;
    size_t count, capacity;
};
enum status token_ids_append(struct token_ids *out, const uint32_t *ids, size_t count);

/* Reads a tokenizer.json. BAD_INPUT, naming file and field, when it is malformed or asks for what is not supported. */
enum status tokenizer_open(const char *path, struct tokenizer **out);
/* Reads the file's JSON object, which it takes over; `name` stands for the path in messages. */
enum status tokenizer_read(const char *name, json_t *file, struct tokenizer **out);
/* The same of a model's directory, as transformers reads it: special tokens that only tokenizer_config.json,
 * special_tokens_map.json or added_tokens.json name are added. Tokens whose ids would be `limit` or more are left out,
 * with a warning. */
enum status tokenizer_open_with_beside(const char *folder, const char *path, int64_t limit, struct tokenizer **out);
/* NULL is allowed. */
void tokenizer_free(struct tokenizer *tokenizer);
static inline void tokenizer_release(struct tokenizer **tokenizer) { tokenizer_free(*tokenizer); } /* for AUTO */

/* The eos_token that those files name, which the tokenizer need not have; NULL: none. */
const char *tokenizer_end_token(const struct tokenizer *tokenizer);
/* A hash of the changes by those files; 0: none. */
uint64_t tokenizer_changes(const struct tokenizer *tokenizer);
/* The special tokens of the template before a text and after it. */
const struct token_ids *tokenizer_before(const struct tokenizer *tokenizer);
const struct token_ids *tokenizer_after(const struct tokenizer *tokenizer);

/* The largest id + 1, added tokens included: what a model's vocabulary must at least hold. */
int64_t tokenizer_vocab_size(const struct tokenizer *tokenizer);
/* The id of a token by its content, added tokens first ("<|endoftext|>"); false when there is none. Tokens of the
 * model are named as in the file ("Ġthe" in the byte-level alphabet, "▁the"). */
bool tokenizer_find(const struct tokenizer *tokenizer, const char *content, uint32_t *id);
/* True for added tokens that are marked special (decoding can skip them). */
bool tokenizer_is_special(const struct tokenizer *tokenizer, uint32_t id);

/* Appends the ids of a text. Added and special tokens written in the text become their ids; `add_special_tokens` adds
 * those of the post-processor's template (BOS, EOS) before and after. On failure `out` may hold a part of the ids. */
enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes, bool add_special_tokens,
                             struct token_ids *out);

/* The text of `count` ids in fresh memory with a NUL after it (the caller frees with mem_free). Ids that no token has
 * are passed over; bytes that are not UTF-8 become U+FFFD, as above. `bytes` may be NULL. */
enum status tokenizer_decode(const struct tokenizer *tokenizer, const uint32_t *ids, size_t count,
                             bool skip_special_tokens, char **text, size_t *bytes);

/* Decodes ids as they come, as in generation. Text goes to the sink as soon as its characters are complete and no later
 * id can change them. So the end of it may wait for an id or for the finish. Each call of the sink gets whole
 * characters. The complete text is that of tokenizer_decode, except in one case. If tokens of single bytes (byte
 * fallback) make whole characters and then bytes that are not UTF-8, the sink already has the characters. Then only the
 * bytes after them become U+FFFD, one for each. */
struct tokenizer_decoder;
/* Where text goes. A result other than STATUS_OK stops the decoding and is returned by it. */
struct tokenizer_text_sink {
    enum status (*write)(void *payload, const char *text, size_t bytes);
    void *payload;
};

/* The tokenizer must outlive the decoder, which belongs to one thread. */
enum status tokenizer_decoder_create(const struct tokenizer *tokenizer, bool skip_special_tokens,
                                     struct tokenizer_decoder **out);
/* NULL is allowed. */
void tokenizer_decoder_free(struct tokenizer_decoder *decoder);
enum status tokenizer_decoder_push(struct tokenizer_decoder *decoder, const uint32_t *ids, size_t count,
                                   struct tokenizer_text_sink sink);
/* The rest of the text. After it, or after a failure, the decoder is ready for the next text. */
enum status tokenizer_decoder_finish(struct tokenizer_decoder *decoder, struct tokenizer_text_sink sink);

/* Encoding many texts: an encoder keeps its buffers and a bounded cache of words between calls. */
struct tokenizer_encoder;
/* Where ids go. A result other than STATUS_OK stops the encoding and is returned by it. */
struct token_sink {
    enum status (*write)(void *payload, const uint32_t *ids, size_t count);
    void *payload;
};

/* The tokenizer must outlive the encoder. */
enum status tokenizer_encoder_create(const struct tokenizer *tokenizer, struct tokenizer_encoder **out);
void tokenizer_encoder_free(struct tokenizer_encoder *encoder);
/* Appends the ids of a text as tokenizer_encode. `continues`: its beginning is encoded elsewhere, so that nothing is
 * added to or removed from it as at a beginning, and no special tokens of the template are added. After a failure,
 * where `out` may hold a part of the ids, the encoder is ready for the next text. */
enum status tokenizer_encoder_append(struct tokenizer_encoder *encoder, const char *text, size_t bytes, bool continues,
                                     bool add_special_tokens, struct token_ids *out);

/* Trains a byte-level BPE tokenizer with GPT-2's split on a text and writes it as a tokenizer.json (in place of the
 * file, or not at all). Ids: the special tokens in their order, the 256 bytes, then the merges; a pair is merged only
 * if it occurs at least twice. Same text, same file: the merges are those of the `tokenizers` library's BpeTrainer
 * (min_frequency 2, ByteLevel alphabet, the text as one sequence).
 *
 * BAD_INPUT when `vocab_size` is less than the special tokens and bytes take, or more than the text can give; the
 * message says how many it can. */
enum status tokenizer_train_file(const struct file_input *text, int64_t vocab_size, const char *const *special_tokens,
                                 size_t special_token_count, const char *out_tokenizer_json);

/* docs/tokenizers.md: what a tokenizer.json may hold, from the tables by which it is read. */
void tokenizer_print_document(FILE *out);
