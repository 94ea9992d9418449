/* Compiled regular expressions (PCRE2 with JIT) that find the pieces of a text, which may arrive in parts. */
#ifndef BALLAST_TEXT_TOKENIZER_SPLIT_PATTERN_H
#define BALLAST_TEXT_TOKENIZER_SPLIT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct split_pattern;
/* Compiles a pattern of pattern_translate.h, or one that matches the text itself if `literal`. BAD_INPUT "WHERE: ..."
 * for what is malformed, not supported, or able to match nothing. May be used by several threads. */
enum status split_pattern_compile(const char *where, const char *pattern, size_t bytes, bool literal,
                                  struct split_pattern **out);
/* NULL is allowed. */
void split_pattern_free(struct split_pattern *pattern);

/* Working memory of one thread for one pattern. */
struct split_matcher;
enum status split_matcher_create(const struct split_pattern *pattern, struct split_matcher **out);
void split_matcher_free(struct split_matcher *matcher);
/* Tells the matcher that the next call is about another text (as after creation), or about the text after these bytes,
 * which say whether a line begins there. */
void split_matcher_reset(struct split_matcher *matcher);
void split_matcher_pass(struct split_matcher *matcher, const char *text, size_t bytes);

enum split_result {
    SPLIT_FOUND,
    SPLIT_NONE, /* no match begins at `from` or later */
    SPLIT_MORE  /* the text that follows decides: ask again with more of it */
};
/* The first match in valid UTF-8 `text` that begins at `from` or later. With `end` false the text goes on beyond
 * `bytes` and only matches that no continuation can change are found. Never an empty match. */
enum status split_pattern_find(const struct split_pattern *pattern, struct split_matcher *matcher, const char *text,
                               size_t bytes, size_t from, bool end, enum split_result *result, size_t *start,
                               size_t *stop);

#endif
