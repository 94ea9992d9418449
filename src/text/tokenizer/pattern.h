/* Regular expressions of a tokenizer.json (Oniguruma, Ruby syntax) written for PCRE2 with the same meaning.
 *
 * Only constructs that are known to mean the same are accepted, so that a text is always split as the `tokenizers`
 * library splits it:
 *
 *   - literals   any character; \ before a punctuation mark; \a \e \f \n \r \t \v \uHHHH \xHH (below 80) \x{H...}
 *   - classes    . [...] [^...] with ranges; \s \S \d \D \p{..} \P{..} with a general category (L, Lu, N, ...)
 *   - groups     (...) (?:...) (?>...) (?=...) (?!...), (?i:...) around ASCII literals
 *   - anchors    ^ $, the ends of lines
 *   - repeats    * + ? {n} {n,} {n,m}, lazy with ?, possessive with + (after braces the + repeats, as in Ruby)
 *
 * All else (other anchors, \w, \b, look-behind, back-references, sets within sets ...) is refused by name. So a match
 * depends on at most one character before it. */
#pragma once

#include "base/base.h"
#include "base/text.h"

enum { PATTERN_CODES = 0x110000 };
/* Appends the characters of a class as ranges \x{H}-\x{H}, to stand between [ and ]: those below `codes` for which
 * `is` holds; all others if `negated`. */
enum status pattern_write_class(struct text_buffer *out, bool (*is)(uint32_t), uint32_t codes, bool negated);

/* Compiled regular expressions (PCRE2 with JIT) that find the pieces of a text, which may arrive in parts. */

struct split_pattern;
/* Compiles a valid UTF-8 pattern, or one that matches the text itself if `literal`. BAD_INPUT "WHERE: ..." for what is
 * malformed, not listed above, or able to match nothing. May be used by several threads. */
enum status split_pattern_compile(const char *where, const char *pattern, size_t bytes, bool literal,
                                  struct split_pattern **out);
/* NULL is allowed. */
void split_pattern_free(struct split_pattern *pattern);

/* Working memory of one thread for one pattern. */
struct split_matcher;
enum status split_matcher_create(const struct split_pattern *pattern, struct split_matcher **out);
void split_matcher_free(struct split_matcher *matcher);
/* Tells the matcher (NULL is allowed) that the next call is about another text, as after creation. */
void split_matcher_reset(struct split_matcher *matcher);
/* ... or about the text after these bytes, which say whether a line begins there. */
void split_matcher_pass(struct split_matcher *matcher, const char *text, size_t bytes);

enum split_result {
    SPLIT_FOUND,
    SPLIT_NONE, /* no match begins at `from` or later */
    SPLIT_MORE  /* the text that follows decides: ask again with more of it. No match begins before *start */
};
/* The first match in valid UTF-8 `text` that begins at `from` or later. With `end` false the text goes on beyond
 * `bytes` and only matches that no continuation can change are found. Never an empty match. */
enum status split_pattern_find(const struct split_pattern *pattern, struct split_matcher *matcher, const char *text,
                               size_t bytes, size_t from, bool end, enum split_result *result, size_t *start,
                               size_t *stop);

/* --- classes of characters as the `tokenizers` library's regular expressions see them --- */

struct unicode_range {
    uint32_t first, last;
};
/* Whether one of the ranges holds a character; they are in ascending order. */
bool unicode_is_within(const struct unicode_range *ranges, size_t count, uint32_t code);

struct unicode_addition {
    uint32_t first, last;
    char category[3]; /* general category: "Lu" */
};
/* Characters that Unicode 15 and 16 assigned or gave another category, in order. Debian 12's PCRE2 knows Unicode 14;
 * the library's engine knows 16. Added to a class of a newer PCRE2 they change nothing. */
extern const struct unicode_addition unicode_additions[];
extern const size_t unicode_addition_count;

/* Category Mn, from which such a character may be gone. */
bool unicode_is_nonspacing(uint32_t code);
/* White_Space: `\s`. */
bool unicode_is_space(uint32_t code);
/* Alphabetic, marks, decimal digits, connectors and joiners: `\w` of Rust's regex crate. */
bool unicode_is_word(uint32_t code);

/* --- as the library's own tables have them --- */

/* Categories Mn, Mc and Me. */
bool unicode_is_mark(uint32_t code);
/* ASCII punctuation and symbols, and category P. */
bool unicode_is_punctuation(uint32_t code);
/* Lowercase_Mapping, where it is one character. */
uint32_t unicode_to_lower(uint32_t code);
