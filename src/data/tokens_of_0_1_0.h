/* Whether Ballast 0.1.0, whose rules for special tokens and rows of conversations were others, made the same ids from a
 * text: then its caches and the fingerprints of its runs still count. */
#ifndef BALLAST_DATA_TOKENS_OF_0_1_0_H
#define BALLAST_DATA_TOKENS_OF_0_1_0_H

#include "data/jsonl.h"
#include "data/source.h"
#include "text/tokenizer/tokenizer.h"

struct text_of_0_1_0 {
    const char *path;
    enum source_kind kind;
    bool chat; /* examples are rendered by a chat template */
    const struct tokenizer *tokenizer;
    int64_t eos_token, eos_token_then; /* now, and by the rule of 0.1.0 */
    const struct jsonl_columns *columns;
};

/* BAD_INPUT, naming file, line and rule, where 0.1.0 made other ids or may have. It reads all lines of JSON. */
enum status tokens_of_0_1_0_check(const struct text_of_0_1_0 *text);
/* The same for one end token in place of another. */
enum status tokens_of_0_1_0_check_end(const char *name, int64_t eos_token, int64_t eos_token_then);

#endif
