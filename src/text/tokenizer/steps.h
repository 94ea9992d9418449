/* A chain of steps that text passes through: each step takes text in parts and hands text on.
 *
 * Text comes in segments: the parts of one segment follow each other, and the last has `end` set. A step's output
 * depends on the segments alone, not on how they were cut into parts. So decoders hand on text as tokens come, and a
 * text larger than memory can be split into words. Text between steps is valid UTF-8, cut between characters, except
 * before the step that fixes it (text_fix_step). */
#pragma once

#include "base/base.h"
#include "base/text.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/tables.h"
#include "text/tokenizer/tokenizer.h"

/* Where text goes. An empty part with `end` closes a segment; a segment may be empty. */
struct text_sink {
    enum status (*write)(void *payload, const char *text, size_t bytes, bool end);
    void *payload;
};

enum text_position {
    SEGMENT_FIRST,     /* the text begins with it */
    SEGMENT_CONTINUES, /* continues a segment that another chain began, so nothing is done to its beginning */
    SEGMENT_LATER      /* a segment or a token came before it */
};

/* A step's view: the bytes of the segment that it has not yet consumed. */
struct text_view {
    const char *text;
    size_t bytes;
    bool end; /* the segment ends here */
    enum text_position position;
};

struct text_output {
    struct text_sink next;
    struct token_sink ids; /* for steps that find tokens themselves */
};

struct text_step_type {
    const char *name;
    size_t state_bytes; /* of state, which begins as zeroes */
    bool whole;         /* it is called with whole segments only: view.end is always set */
    /* Passes on as much as it can and sets how many bytes it consumed. The rest is passed again with more text after
     * it. If view.end is set it must consume all bytes and close the segment. */
    enum status (*apply)(const void *settings, void *state, struct text_view view, const struct text_output *output,
                         size_t *consumed);
    /* Makes the state ready for a new segment; NULL: a state without `stop` is zeroed, another stays. */
    void (*reset)(void *state);
    /* For steps that join segments, else NULL: `finish` hands on what is left when the text ends, `drop` discards it
     * when a new text begins instead. */
    enum status (*finish)(const void *settings, void *state, const struct text_output *output);
    void (*drop)(void *state);
    void (*stop)(void *state); /* may be NULL */
};
/* A `stop` of states that begin with a struct text_buffer. */
void text_step_free_buffer(void *state);

/* A step of a tokenizer: what it does and its settings, which several chains may share. */
struct text_step_spec {
    const struct text_step_type *type;
    const void *settings;
};

/* Steps in order: a VEC. */
struct text_step_specs {
    struct text_step_spec *items;
    size_t count, capacity;
};

/* A chain belongs to one thread. `last` takes the text of the last step and `ids` what steps find themselves; one that
 * nothing comes to may be zeroes. Specs and settings must outlive it. */
struct text_chain;
enum status text_chain_create(const struct text_step_spec *specs, size_t count, struct text_sink last,
                              struct token_sink ids, struct text_chain **out);
enum status text_chain_write(struct text_chain *chain, const char *text, size_t bytes, bool end);
/* After the last segment of a text: hands on what the steps still hold and makes the chain ready for the next text. */
enum status text_chain_finish(struct text_chain *chain);
/* Discards the text under way. The next text is a new one, or continues one that another chain began (`continues`). */
void text_chain_reset(struct text_chain *chain, bool continues);
/* NULL is allowed. */
void text_chain_free(struct text_chain *chain);

/* The steps that tokenizers are made of, with their settings. */

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

/* Matches of a pattern replaced within each segment. */
extern const struct text_step_type text_replace_step;
struct text_replace {
    const struct split_pattern *pattern;
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
/* Characters of the byte alphabet -> bytes, all segments -> one, not yet valid UTF-8. A segment with any other
 * character is passed unchanged. No settings. */
extern const struct text_step_type text_byte_level_step;
/* Segments <0x00> to <0xFF> -> bytes: byte tokens in a row become one segment if they are UTF-8, else one U+FFFD
 * for each byte. No settings. */
extern const struct text_step_type text_byte_fallback_step;

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

/* Tokens that the model does not make: they are found in the text as written, before anything else splits it. */

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
