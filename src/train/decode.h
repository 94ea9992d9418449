/* Logits of the next token, from key-value caches: what is not in them yet goes through the prefill program in chunks,
 * a single token through the decode program. */
#ifndef BALLAST_TRAIN_DECODE_H
#define BALLAST_TRAIN_DECODE_H

#include "train/engine.h"

struct decoding {
    const struct engine *engine; /* borrowed; its setup has `prefill` and `decode` */
    int64_t positions;           /* rows of the caches: the setup's sequence length */
    size_t start;                /* index of the token whose key and value are in row 0 */
    size_t filled;               /* tokens in the caches */
};

/* A new text. */
void decoding_begin(const struct engine *engine, struct decoding *out);
/* The logits [vocab] of the token after `ids`, of which those seen by earlier calls must be the same; valid until the
 * next call. A text that outgrows the caches is computed anew from its last tokens: as many as they hold in the first
 * call, half as many in later ones. */
enum status decoding_run(struct decoding *decoding, const uint32_t *ids, size_t count, const float **logits);

#endif
