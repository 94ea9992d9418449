/* Tokens that the model does not make: they are found in the text as written, before anything else splits it. */
#ifndef BALLAST_TEXT_TOKENIZER_ADDED_TOKENS_H
#define BALLAST_TEXT_TOKENIZER_ADDED_TOKENS_H

#include "text/tokenizer/string_table.h"
#include "text/tokenizer/text_step.h"
#include "text/tokenizer/token_trie.h"

struct added_token {
    const char *content; /* as in the file */
    size_t content_bytes;
    const char *pattern; /* the text to find: the content, normalized if `normalized` */
    size_t pattern_bytes;
    uint32_t id;
    bool single_word; /* only where no word character touches it */
    bool left_strip;  /* takes white space before it */
    bool right_strip; /* ... after it */
    bool normalized;  /* is looked for in the normalized text */
    bool special;     /* can be left out of decoded text */
};

/* The tokens that one step looks for. */
struct added_set {
    const struct added_token *tokens; /* the trie's values are indices into it */
    struct token_trie trie;
    bool strips_left;
};

/* Settings: a struct added_set with at least one token. A token closes the segment and its id goes to output->ids; the
 * text between tokens is handed on. Leftmost, then longest match; matches do not overlap. */
extern const struct text_step_type text_added_step;

#endif
