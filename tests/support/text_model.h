/* A tiny model with a tokenizer, for tests of text. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Makes a Llama in the new directory, with a byte-level tokenizer of `tokens` tokens that is trained on `text` and a
 * vocabulary of `vocab`. `zero`: all weights are 0, so that all tokens are equally likely; else they start at random.
 */
void text_model_make(const char *folder, const char *text, int64_t tokens, int64_t vocab, bool zero);
