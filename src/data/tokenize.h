/* Tokenizes text files in parallel.
 *
 * Text is cut into chunks of about 256 KiB that depend only on the text and the tokenizer, so ids are the same for any
 * number of threads. A .jsonl file is cut between lines. A .txt file is cut where a context around the cut gives the
 * same ids whole and in two parts, so its ids are those of tokenizer_encode on the whole file. If half a chunk has no
 * such place (no space, no newline), the cut is between two characters. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "base/file.h"
#include "base/text.h"
#include "data/source.h"
#include "data/token_file.h"
#include "text/chat/template.h"
#include "text/tokenizer/tokenizer.h"

/* Resources to use at once: memory is at most 2.5 MiB per chunk and 5 MiB per thread, plus longer .jsonl lines. */
struct tokenize_effort {
    int threads; /* OpenMP threads of the calling thread; 1: only itself */
    int chunks;  /* encoded together; at most TOKENIZE_CHUNKS_MAX */
};
enum { TOKENIZE_CHUNKS_MAX = 64 };

/* A file being tokenized. Used by one thread at a time. */
struct tokenizing;
/* The file to tokenize, and its notes. All must outlive the tokenizing. */
struct tokenizing_source {
    enum source_kind kind;            /* any except SOURCE_TOKENS */
    const struct chat_template *chat; /* for SOURCE_CHAT and SOURCE_PREFERENCE_CHATS, and SOURCE_ALPACA unless NULL */
    const char *name;                 /* replaces the path in messages */
    const struct file_input *text;
    struct text_notes *notes; /* on the bytes whose ids were sent: unread keys for .jsonl files, otherwise damage */
};
/* Uses these options: tokenizer, eos_token, chat_time_s, keys. They must outlive it. */
enum status tokenizing_create(const struct dataset_options *options, const struct tokenizing_source *source,
                              struct tokenizing **out);
void tokenizing_free(struct tokenizing *tokenizing);

/* Number of bytes, from the beginning, whose ids were sent; all bytes at the end. */
size_t tokenizing_done(const struct tokenizing *tokenizing);
/* Encodes the next chunks and sends their ids to the sink, in order, on the calling thread.
 * - A document that is not empty gets the special tokens of the tokenizer's template before and after it, then
 *   `eos_token` unless it already ends with that.
 * - Supervised files give marked ids (example.h). Prompt and completion are one text, with the template; `eos_token` is
 *   trained on. For conversations see chat.h.
 * - A line of two answers gives two examples, the chosen one first.
 *
 * BAD_INPUT for malformed text; the chunks before it are still sent. FAILED if the text cannot be read. After a failure
 * the caller can only free it. */
enum status tokenizing_advance(struct tokenizing *tokenizing, struct tokenize_effort effort, struct token_sink sink);
/* Frees memory that the next call allocates again. */
void tokenizing_rest(struct tokenizing *tokenizing);

/* Whether Ballast 0.1.0, which had other rules for special tokens and rows of conversations, made the same ids from a
 * text. If so, its caches and its runs' fingerprints remain valid. */

struct text_of_0_1_0 {
    const struct dataset_options *options; /* its end tokens and keys */
    const struct tokenizer *tokenizer;
    const char *path;
    enum source_kind kind;
    bool chat; /* whether a chat template renders examples */
};

/* BAD_INPUT, naming file, line and rule, if 0.1.0 made other ids or may have. Reads all lines of JSON. */
enum status tokens_of_0_1_0_check(const struct text_of_0_1_0 *text);
/* Checks the replacement of one end token by another. */
enum status tokens_of_0_1_0_check_end(const char *name, int64_t eos_token, int64_t eos_token_then);

/* The ids of a text file, made once and stored in a cache file for later runs.
 *
 * A cache has the tokens, then a footer with the key of their inputs (size and hash of the text, hash of
 * tokenizer.json, EOS token) and their own hash. Ids of supervised files are marked (example.h). A cache whose key or
 * hash does not match is recreated. It is written under a temporary name and renamed, so two runs may share a
 * directory. Its first ids can be read while the rest is being made. */
struct token_cache;

/* Opens the ids of a .txt or .jsonl file if they exist; otherwise they will be made. The options and the tokenizer must
 * outlive it, except paths. BAD_INPUT if the file cannot be read or is empty, if there is no tokenizer, or if an
 * existing id is `vocab_size` or more. */
enum status token_cache_open(const struct dataset_options *options, const struct source *source,
                             struct token_cache **out);
/* Removes an incomplete cache. Accepts NULL. */
void token_cache_close(struct token_cache *cache);

/* Whether all ids exist. */
bool token_cache_whole(const struct token_cache *cache);
/* The ids made so far. Their file stays open until token_cache_close. */
struct token_view token_cache_view(const struct token_cache *cache);
/* Makes some more ids of an incomplete text. BAD_INPUT for a bad text or an id of `vocab_size` or more, FAILED if the
 * text cannot be read. The text then stays incomplete, with the ids so far. If the cache cannot be written, warns and
 * keeps its ids for this run only. */
enum status token_cache_advance(struct token_cache *cache, struct tokenize_effort effort);
/* Frees memory that advancing allocates again. */
void token_cache_rest(struct token_cache *cache);

/* A hash of the text and the settings that determine its ids, whether the ids are made or not. May read the whole text,
 * concurrently with a thread that advances; 0 if it cannot be read. */
uint64_t token_cache_identity(struct token_cache *cache);
/* The identity of the text in Ballast 0.1.0. */
uint64_t token_cache_identity_of_0_1_0(struct token_cache *cache);
/* BAD_INPUT, naming file, line and rule, if the ids of 0.1.0 may differ. May read the whole text. */
enum status token_cache_check_0_1_0(const struct token_cache *cache, const struct tokenizer *tokenizer);

struct token_cache_progress {
    const char *name; /* the text's path */
    size_t done, bytes;
};
struct token_cache_progress token_cache_progress(const struct token_cache *cache);
/* Logs once, for a text that this process tokenized, its time or progress. */
void token_cache_report(struct token_cache *cache);
/* Logs once, for a complete text or after the training run has `ended`: unread keys of its rows, the form of Alpaca's
 * examples, bytes that are not text. */
void token_cache_report_text(struct token_cache *cache, bool ended);
