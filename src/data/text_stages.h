/* The stages that tokenizers are made of, with their settings. */
#ifndef BALLAST_DATA_TEXT_STAGES_H
#define BALLAST_DATA_TEXT_STAGES_H

#include "data/split_pattern.h"
#include "data/text_stage.h"

/* Any bytes -> valid UTF-8, each maximal ill-formed part as U+FFFD. No settings. */
extern const struct text_stage_type text_mend_stage;

/* A space before a segment that does not begin with one. No settings. */
extern const struct text_stage_type text_prefix_space_stage;

/* Unicode normalization forms. Settings: one of text_nfc ... text_nfkd. */
extern const struct text_stage_type text_normalize_stage;
struct text_normal_form;
extern const struct text_normal_form text_nfc, text_nfd, text_nfkc, text_nfkd;

/* Segments -> pieces, each a segment of its own, by the matches of a pattern. */
extern const struct text_stage_type text_split_stage;
enum split_behavior {
    SPLIT_ISOLATED,             /* matches and what lies between them are pieces */
    SPLIT_REMOVED,              /* only what lies between */
    SPLIT_CONTIGUOUS,           /* matches that touch are one piece */
    SPLIT_MERGED_WITH_PREVIOUS, /* a match belongs to the piece before it */
    SPLIT_MERGED_WITH_NEXT      /* ... after it */
};
struct text_split {
    const struct split_pattern *pattern;
    enum split_behavior behavior;
    bool invert; /* what lies between counts as match, and the other way round */
};

#endif
