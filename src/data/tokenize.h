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
#include "data/chat_template.h"
#include "data/source.h"
#include "data/tokenizer.h"

struct tokenize_options {
    const struct tokenizer *tokenizer;
    int64_t eos_token;                /* -1: none */
    enum source_kind kind;            /* all but SOURCE_TOKENS */
    const struct chat_template *chat; /* for SOURCE_CHAT */
    int64_t chat_time_s;              /* what it is told of the time */
};

/* Sends the ids of all documents of a file to the sink, in order, from the calling thread; `eos_token` follows each
 * document that is not empty. The template of the tokenizer's post-processor is not applied. Of supervised files they
 * are marked ids: prompt and completion are one text, with the template, and `eos_token` is trained on (example.h); for
 * conversations see chat.h.
 * `name` stands for the path in messages. Memory in use is bounded (about 100 MiB at most, but for longer .jsonl
 * lines). Progress goes to the log when it takes more than some seconds. */
enum status tokenize_text(const struct tokenize_options *options, const char *name, const char *text, size_t bytes,
                          struct token_sink sink);

#endif
