/* Text files into token ids, in parallel.
 *
 * Text is cut into chunks of about 256 KiB that depend on the text and the tokenizer alone, so ids are the same for any
 * number of threads. A .jsonl file is cut between lines. A .txt file is cut where encoding a window about the cut gives
 * the same ids whole and in two, so its ids are those of tokenizer_encode on all of it; only where half a chunk holds
 * no such place (no blank, no newline) it is cut between two characters all the same. */
#ifndef BALLAST_DATA_TOKENIZE_H
#define BALLAST_DATA_TOKENIZE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/source.h"
#include "data/tokenizer.h"

/* Sends the ids of all documents of a file to the sink, in order, from the calling thread; `eos_token` follows each
 * document that is not empty (-1: none). The template of the tokenizer's post-processor is not applied. `name` stands
 * for the path in messages; kind is SOURCE_TEXT or SOURCE_JSONL. Memory in use is bounded (about 100 MiB at most, but
 * for longer .jsonl lines). Progress goes to the log when it takes more than some seconds. */
enum status tokenize_text(const struct tokenizer *tokenizer, int64_t eos_token, enum source_kind kind, const char *name,
                          const char *text, size_t bytes, struct token_sink sink);

#endif
