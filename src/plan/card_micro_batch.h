/* How many tokens a micro-batch has on a GPU, where nothing else is asked for: a matter of the model and the card
 * alone, so that a plan for a described card has the micro-batches that the card itself would be given.
 *
 * More tokens fill the card's multiprocessors better, and pay once for what each micro-batch costs however small it is:
 * gradients in fp32 are read and written by the product that adds to them. But a micro-batch's activations are in
 * memory at once. */
#ifndef BALLAST_PLAN_CARD_MICRO_BATCH_H
#define BALLAST_PLAN_CARD_MICRO_BATCH_H

#include <stdint.h>

enum { CARD_MICRO_BATCH_LEAST = 4096, CARD_MICRO_BATCH_MOST = 32768 };

/* For a card of so many multiprocessors, and memory: CARD_MICRO_BATCH_LEAST times a power of two, to
 * CARD_MICRO_BATCH_MOST. */
int64_t card_micro_batch_tokens(int multiprocessors, int64_t memory_bytes, int64_t layers, int64_t width);

#endif
