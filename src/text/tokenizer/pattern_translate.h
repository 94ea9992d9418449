/* Regular expressions of a tokenizer.json (Oniguruma, Ruby syntax) written for PCRE2 with the same meaning.
 *
 * Only constructs that are known to mean the same are accepted, so that a text is always split as the `tokenizers`
 * library splits it:
 *
 *     literals   any character; \ before a punctuation mark; \a \e \f \n \r \t \v \uHHHH \xHH (below 80) \x{H...}
 *     classes    . [...] [^...] with ranges; \s \S \d \D \p{..} \P{..} with a general category (L, Lu, N, ...)
 *     groups     (...) (?:...) (?>...) (?=...) (?!...), (?i:...) around ASCII literals
 *     anchors    ^ $, the ends of lines
 *     repeats    * + ? {n} {n,} {n,m}, lazy with ?, possessive with + (after braces the + repeats, as in Ruby)
 *
 * All else (other anchors, \w, \b, look-behind, back-references, sets within sets ...) is refused by name. So a match
 * depends on at most one character before it. */
#ifndef BALLAST_TEXT_TOKENIZER_PATTERN_TRANSLATE_H
#define BALLAST_TEXT_TOKENIZER_PATTERN_TRANSLATE_H

#include "base/utf8.h"

/* Appends the PCRE2 form of a valid UTF-8 pattern. BAD_INPUT "WHERE: ..." for what is malformed or not listed above. */
enum status pattern_translate(const char *where, const char *pattern, size_t bytes, struct text_buffer *out);
/* Appends a pattern that matches the text itself. */
enum status pattern_translate_literal(const char *text, size_t bytes, struct text_buffer *out);

#endif
