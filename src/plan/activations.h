/* The activation schedule of a wave: the order of the blocks' forwards and backwards, and the tiers where activations
 * wait for backward.
 *
 *     "f0-13 d0-3 b13-10 f9 b9 …"
 *
 * f3: forward of block 3; b3: its backward; h3, d3: activations of block 3's first forward that a backward will read
 * are moved to the host or the disk in between. f0-13 and b13-0 are ranges. A block with another forward before its
 * backward is recomputed: each reader reads the latest result, and a result is freed after its last reader. So keeping,
 * recomputing and every nested sequence of Rotor (plan/recompute.h) have one form, without notes on what is freed when.
 * The empty text keeps everything. */
#pragma once

#include "base/base.h"
#include "machine/rates.h"
#include "plan/recompute.h"

/* A step is a whole block, so this is far more than any schedule needs. */
enum { ACTIVATION_STEPS_MAX = 1 << 14 };

enum activation_action { ACTIVATION_FORWARD, ACTIVATION_BACKWARD, ACTIVATION_MOVE };

struct activation_step {
    enum activation_action action;
    int32_t block;
    enum tier tier; /* ACTIVATION_MOVE: host or disk */
};

struct activation_steps {
    VEC(struct activation_step) list;
};

/* Parses the steps of an activation schedule for a model of `blocks` blocks, counting embedding and head. First
 * forwards come in ascending order, before all backwards. Each backward comes once, in descending order. Only blocks
 * whose backward is still to come repeat their forward. A block's results are moved at most once, after its forward and
 * before the first backward. BAD_INPUT names the rule and the place. The caller frees with activation_steps_free, also
 * after a failure. */
enum status activations_parse(const char *text, int32_t blocks, struct activation_steps *out);
void activation_steps_free(struct activation_steps *steps);

/* Writes these steps as text, neighbours as ranges. FAILED when it does not fit. */
enum status activations_print(const struct activation_steps *steps, char *text, size_t bytes);

/* Converts a recomputation schedule in which each block is one block of the chain. It omits what forwards keep, since a
 * block with another forward to come keeps nothing. The caller frees, also after a failure. */
enum status activations_from_recompute(const struct recompute_schedule *schedule, struct activation_steps *out);
