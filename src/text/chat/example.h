/* Supervised examples as marked ids: the marks say which tokens are trained on and where examples begin. */
#pragma once

#include "base/base.h"
#include "base/text.h"
#include "text/tokenizer/tokenizer.h"

/* A marked id: the id in the low 29 bits, and marks. */
#define EXAMPLE_ID UINT32_C(0x1fffffff)
#define EXAMPLE_MASKED UINT32_C(0x20000000)  /* never a target, not even with --loss-on all */
#define EXAMPLE_TRAINED UINT32_C(0x40000000) /* a target of the loss */
#define EXAMPLE_FIRST UINT32_C(0x80000000)   /* the first of an example */

/* Part of a text that is trained on or, where `masked`, kept out of every loss. */
struct example_range {
    size_t from, to;
    bool masked;
};

/* Turns texts into marked ids; belongs to one thread. */
struct example_encoder;
/* The tokenizer must outlive it. */
enum status example_encoder_create(const struct tokenizer *tokenizer, struct example_encoder **out);
void example_encoder_free(struct example_encoder *encoder);

/* Appends the marked ids of a text of valid UTF-8 with ranges (in order, apart, at characters' borders).
 *
 * The ids are those of the whole text. A border is placed after the ids that the whole text and the text up to the
 * border begin with in common. Where a token begins at the border, this is exact. A token that crosses the border, or
 * that depends on the text after it, counts as part of the text after it. `add_special_tokens` as for tokenizer_encode;
 * `eos_token`, unless negative, is added at the end and trained on, but not behind one that is trained on. BAD_INPUT
 * when a text has too many ranges for its length. On failure `out` may hold a part. */
enum status example_encode(struct example_encoder *encoder, const char *text, size_t bytes,
                           const struct example_range *ranges, size_t count, bool add_special_tokens, int64_t eos_token,
                           struct token_ids *out);
