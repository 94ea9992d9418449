/* The ids of a text file, made once and kept in a cache file that later runs read.
 *
 * A cache holds the tokens, then a footer with the key that they were made from (size and hash of the text, hash of
 * tokenizer.json, EOS token) and their own hash. Those of supervised files are marked ids (example.h). One whose key or
 * hash does not match is recreated. It is written under a temporary name and renamed, so that two runs may share a
 * directory. While it is being made its first ids can be read. */
#pragma once

#include "base/base.h"
#include "data/source.h"
#include "data/token_file.h"
#include "data/tokenize.h"
#include "text/tokenizer/tokenizer.h"

struct token_cache_options {
    const char *folder;                  /* of the cache files; created when missing */
    const struct tokenizer *tokenizer;   /* may be NULL: then text is refused */
    const char *tokenizer_path;          /* the tokenizer.json that it was read from */
    int64_t eos_token;                   /* after each document; -1 for none */
    int64_t eos_token_of_0_1_0;          /* the one that Ballast 0.1.0 took */
    int64_t vocab_size;                  /* of the model; ids of supervised files are not compared with it */
    const char *chat_folder;             /* where the chat template is, for conversations (text/chat/template.h) */
    int64_t chat_time_s;                 /* what the template is told of the time */
    const struct jsonl_columns *columns; /* of .jsonl files; NULL: none given. They must outlive it */
};

struct token_cache;

/* Opens the ids of a .txt or .jsonl file if they are there; otherwise they are to be made. The tokenizer must outlive
 * it. BAD_INPUT when the file cannot be read or is empty, when there is no tokenizer, or when an id that is there is
 * `vocab_size` or more. */
enum status token_cache_open(const struct token_cache_options *options, const struct source *source,
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
