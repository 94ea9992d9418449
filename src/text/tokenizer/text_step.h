/* A chain of steps that text passes through: each step takes text in parts and hands text on.
 *
 * Text comes in segments: the parts of one segment follow each other, and the last has `end` set. What a step does
 * depends on the segments alone, not on how they were cut into parts. So a text larger than memory can be passed in
 * parts, with the same result as in one piece. Text between steps is valid UTF-8, cut between characters, except
 * before the step that fixes it (text_fix_step). */
#ifndef BALLAST_TEXT_TOKENIZER_TEXT_STEP_H
#define BALLAST_TEXT_TOKENIZER_TEXT_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/utf8.h"
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

/* What a step sees: the bytes of the segment that it has not yet consumed. */
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
    size_t state_bytes;
    /* Prepares zeroed state; NULL if zeroes will do. On failure `stop` is called all the same. */
    enum status (*start)(const void *settings, void *state);
    /* Hands on what it can and sets how many bytes it consumed; the rest is passed again with more text after it. Where
     * view.end is set it must consume all bytes and close the segment. */
    enum status (*apply)(const void *settings, void *state, struct text_view view, const struct text_output *output,
                         size_t *consumed);
    /* Makes the state ready for a new segment; may be NULL. */
    void (*reset)(void *state);
    /* For steps that join segments, else NULL: `finish` hands on what is left when the text ends, `drop` discards it
     * when a new text begins instead. */
    enum status (*finish)(const void *settings, void *state, const struct text_output *output);
    void (*drop)(void *state);
    void (*stop)(void *state); /* may be NULL */
};

/* A step of a tokenizer: what it does and its settings, which several chains may share. */
struct text_step_spec {
    const struct text_step_type *type;
    const void *settings;
};

/* A chain belongs to one thread. `last` takes the text of the last step; specs and settings must outlive it. */
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

#endif
