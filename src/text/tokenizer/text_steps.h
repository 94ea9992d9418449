/* The steps that tokenizers are made of, with their settings. */
#ifndef BALLAST_TEXT_TOKENIZER_TEXT_STEPS_H
#define BALLAST_TEXT_TOKENIZER_TEXT_STEPS_H

#include "text/tokenizer/split_pattern.h"
#include "text/tokenizer/text_step.h"

/* Any bytes -> valid UTF-8, each maximal ill-formed part as U+FFFD. No settings. */
extern const struct text_step_type text_fix_step;

/* Text before segments. */
extern const struct text_step_type text_prefix_step;
enum text_prefix_place { PREFIX_EACH, PREFIX_FIRST /* of the text only */, PREFIX_LATER /* all but the first */ };
struct text_prefix {
    const char *text;
    size_t bytes;
    enum text_prefix_place place;
    bool unless_there; /* not before a segment that begins with it; it is one character then */
    bool empty_too;    /* also before an empty segment */
};

/* Matches of a pattern, or a string if `pattern` is NULL, replaced within each segment. */
extern const struct text_step_type text_replace_step;
struct text_replace {
    const struct split_pattern *pattern;
    const char *string;
    size_t string_bytes;
    const char *content; /* the replacement */
    size_t content_bytes;
    bool drop_in_first; /* matches in the text's first segment are deleted instead */
};

/* Each character replaced by up to two. Settings: one of those below. */
extern const struct text_step_type text_map_step;
struct text_map;
extern const struct text_map text_lowercase, text_strip_accents;

/* Removes a character from the ends of each segment. */
extern const struct text_step_type text_strip_step;
enum { STRIP_SPACE = 0x110000 };
struct text_strip {
    uint32_t code;      /* the character to remove, or STRIP_SPACE for all white space */
    size_t start, stop; /* how many at most, at the beginning and at the end; SIZE_MAX for all */
};

/* --- steps of decoders: segments are tokens --- */

/* All segments -> one. No settings. */
extern const struct text_step_type text_fuse_step;
/* Characters of the byte alphabet -> bytes, all segments -> one: to be fixed. A segment with any other character is
 * taken as it is. No settings. */
extern const struct text_step_type text_byte_level_step;
/* Segments <0x00> to <0xFF> -> bytes: byte tokens in a row become one segment if they are UTF-8, else one U+FFFD
 * for each byte. No settings. */
extern const struct text_step_type text_byte_fallback_step;
/* The same, but each character is handed on as soon as it is complete, so only the bytes after it become U+FFFD. */
extern const struct text_step_type text_byte_fallback_early_step;

/* --- */

/* Unicode normalization forms. Settings: one of text_nfc ... text_nfkd. */
extern const struct text_step_type text_normalize_step;
struct text_normal_form;
extern const struct text_normal_form text_nfc, text_nfd, text_nfkc, text_nfkd;

/* Segments -> pieces, each a segment of its own, by the matches of a pattern. */
extern const struct text_step_type text_split_step;
enum split_behavior {
    SPLIT_ISOLATED,             /* matches are pieces, and so is the text between them */
    SPLIT_REMOVED,              /* only the text between matches */
    SPLIT_CONTIGUOUS,           /* matches that touch are one piece */
    SPLIT_MERGED_WITH_PREVIOUS, /* a match belongs to the piece before it */
    SPLIT_MERGED_WITH_NEXT      /* ... after it */
};
struct text_split {
    const struct split_pattern *pattern;
    enum split_behavior behavior;
    bool invert; /* swaps matches and the text between them */
};

#endif
