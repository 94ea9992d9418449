/* Text files into token ids, in parallel.
 *
 * Text is cut into chunks of about 256 KiB that depend on the text and the tokenizer alone, so ids are the same for any
 * number of threads. A .jsonl file is cut between lines. A .txt file is cut where a context around the cut gives the
 * same ids whole and in two parts, so its ids are those of tokenizer_encode on the whole file. Only where half a chunk
 * has no such place (no blank, no newline) is it cut between two characters. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "base/file.h"
#include "base/text.h"
#include "data/source.h"
#include "data/token_file.h"
#include "text/chat/template.h"
#include "text/tokenizer/tokenizer.h"

/* How much of the machine to use at once: memory is at most 2.5 MiB a chunk and 5 MiB a thread, but for longer .jsonl
 * lines. */
struct tokenize_effort {
    int threads; /* OpenMP's, of the calling thread; 1: only itself */
    int chunks;  /* encoded together; at most TOKENIZE_CHUNKS_MAX */
};
enum { TOKENIZE_CHUNKS_MAX = 64 };

/* A file that is being tokenized. Used by one thread at a time. */
struct tokenizing;
/* What is tokenized, and what of it is noted. All must outlive the tokenizing. */
struct tokenizing_source {
    enum source_kind kind;            /* all but SOURCE_TOKENS */
    const struct chat_template *chat; /* for SOURCE_CHAT and SOURCE_PREFERENCE_CHATS, and SOURCE_ALPACA unless NULL */
    const char *name;                 /* stands for the path in messages */
    const struct file_input *text;
    struct text_notes *notes; /* of the bytes whose ids were sent; those of keys for .jsonl files, else of damage */
};
/* Of the options: tokenizer, eos_token, chat_time_s, keys. They must outlive it. */
enum status tokenizing_create(const struct dataset_options *options, const struct tokenizing_source *source,
                              struct tokenizing **out);
void tokenizing_free(struct tokenizing *tokenizing);

/* How many bytes, from the beginning, have had their ids sent; all bytes at the end. */
size_t tokenizing_done(const struct tokenizing *tokenizing);
/* Encodes the next chunks and sends their ids to the sink, in order, from the calling thread: a document that is not
 * empty gets the special tokens of the tokenizer's template before and after it, and `eos_token` behind it unless it
 * ends with that already. Supervised files give marked ids: prompt and completion are one text, with the template, and
 * `eos_token` is trained on (example.h); for conversations see chat.h. A line of two answers gives two examples, the
 * chosen one first. BAD_INPUT for malformed text: the chunks before it are sent all the same. FAILED when the text
 * cannot be read. After a failure the caller can only free it. */
enum status tokenizing_advance(struct tokenizing *tokenizing, struct tokenize_effort effort, struct token_sink sink);
/* Frees memory that the next call allocates again. */
void tokenizing_rest(struct tokenizing *tokenizing);

/* Whether Ballast 0.1.0, whose rules for special tokens and rows of conversations were others, made the same ids from a
 * text: then its caches and the fingerprints of its runs still count. */

struct text_of_0_1_0 {
    const struct dataset_options *options; /* its end tokens and keys */
    const struct tokenizer *tokenizer;
    const char *path;
    enum source_kind kind;
    bool chat; /* examples are rendered by a chat template */
};

/* BAD_INPUT, naming file, line and rule, where 0.1.0 made other ids or may have. It reads all lines of JSON. */
enum status tokens_of_0_1_0_check(const struct text_of_0_1_0 *text);
/* The same for one end token in place of another. */
enum status tokens_of_0_1_0_check_end(const char *name, int64_t eos_token, int64_t eos_token_then);

/* The ids of a text file, made once and kept in a cache file that later runs read.
 *
 * A cache holds the tokens, then a footer with the key that they were made from (size and hash of the text, hash of
 * tokenizer.json, EOS token) and their own hash. Those of supervised files are marked ids (example.h). One whose key or
 * hash does not match is recreated. It is written under a temporary name and renamed, so that two runs may share a
 * directory. While it is being made its first ids can be read. */
struct token_cache;

/* Opens the ids of a .txt or .jsonl file if they are there; otherwise they are to be made. The options and the
 * tokenizer must outlive it, paths excepted. BAD_INPUT when the file cannot be read or is empty, when there is no
 * tokenizer, or when an id that is there is `vocab_size` or more. */
enum status token_cache_open(const struct dataset_options *options, const struct source *source,
                             struct token_cache **out);
/* A cache that is not whole is removed. NULL is allowed. */
void token_cache_close(struct token_cache *cache);

/* Whether all ids are there. */
bool token_cache_whole(const struct token_cache *cache);
/* The ids made so far. Their file stays open until token_cache_close. */
struct token_view token_cache_view(const struct token_cache *cache);
/* Makes some more ids of a text that is not whole. BAD_INPUT for a bad text or an id of `vocab_size` or more, FAILED
 * when the text cannot be read; it is then never whole, and what was there stays there. A cache that cannot be written
 * is only warned of: its ids are then kept for this run alone. */
enum status token_cache_advance(struct token_cache *cache, struct tokenize_effort effort);
/* Frees memory that advancing allocates again. */
void token_cache_rest(struct token_cache *cache);

/* A hash of the text and the settings that decide its ids, whether the ids are made or not. It may read the whole
 * text, concurrently with a thread that advances; 0 when it cannot be read. */
uint64_t token_cache_identity(struct token_cache *cache);
/* The identity that Ballast 0.1.0 gave the text. */
uint64_t token_cache_identity_of_0_1_0(struct token_cache *cache);
/* BAD_INPUT, naming file, line and rule, where the ids of 0.1.0 may differ. It may read the whole text. */
enum status token_cache_check_0_1_0(const struct token_cache *cache, const struct tokenizer *tokenizer);

struct token_cache_progress {
    const char *name; /* the text's path */
    size_t done, bytes;
};
struct token_cache_progress token_cache_progress(const struct token_cache *cache);
/* Logs once, for a text that this process tokenized, how long it took or how far it got. */
void token_cache_report(struct token_cache *cache);
/* Logs once, for a text that is whole or when the training run has `ended`, which keys of its rows are not read, how
 * Alpaca's examples are, and which bytes of it are no text. */
void token_cache_report_text(struct token_cache *cache, bool ended);
