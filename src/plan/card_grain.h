/* How many tokens a grain has on a GPU, where nothing else is asked for: a matter of the model and the card alone, so
 * that a plan for a described card has the grains that the card itself would be given.
 *
 * More tokens fill the card's multiprocessors better, and pay once for what each grain costs however small it is:
 * gradients in fp32 are read and written by the product that adds to them. But a grain's activations are in memory at
 * once. */
#ifndef BALLAST_PLAN_CARD_GRAIN_H
#define BALLAST_PLAN_CARD_GRAIN_H

#include <stdint.h>

enum { CARD_GRAIN_LEAST = 4096, CARD_GRAIN_MOST = 32768 };

/* For a card of so many multiprocessors, and memory: CARD_GRAIN_LEAST times a power of two, to CARD_GRAIN_MOST. */
int64_t card_grain_tokens(int multiprocessors, int64_t memory_bytes, int64_t layers, int64_t width);

#endif
