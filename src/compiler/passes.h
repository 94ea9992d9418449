/* The passes that make a program, in their order. Tests call them one by one. */
#pragma once

#include "compiler/program.h"

/* Makes sections, instructions and buffers, without live ranges, offsets or waits, all on stream 0 but for
 * collectives. Each buffer is in the tier where the policy keeps it between uses, and instructions use it there.
 *
 * A step is a list of shares (plan/lane_shares.h; one, where there is one lane, round and rank). A share's
 * micro-batches are cut into waves of `micro_batches_per_wave`: a first wave (which zeroes the accumulators), repeated
 * middle waves, and a last one, in which the share's sums are added to others and reduced over ranks. The step's first
 * wave makes the deferred updates; its last one finishes the gradients; then comes the update. The order within a wave
 * is that of executions.h. */
enum status program_schedule(const struct graph *graph, const struct plan *plan,
                             const struct workspace_table *workspace, struct program **out);

/* Where the policy cuts parameters: each use of whole ones gets a buffer into which the ranks' shards are gathered
 * before. Whole parameters wait for one of `policy.buffers` places. */
enum status program_gather(struct program *program, const struct policy *policy);

/* Adds the copies between tiers: an instruction that uses a buffer of another tier gets a copy of it, which is fetched
 * before and, if changed, stored after. Assigns instructions to streams, and sets the live ranges of buffers. */
enum status program_move(struct program *program, const struct policy *policy);

/* Sets each buffer's live range: first to last use in issue order; a buffer that enters a repeated section from outside
 * lives to that section's end; results live to the end of the program. */
void program_set_lifetimes(struct program *program);

/* Offsets: persistent buffers first, in their order, so that programs of one model agree on where its parameters lie;
 * the others greedily, by the best of several orders. Sets tier_bytes and live_bytes. */
enum status program_place(struct program *program);

/* Adds the waits that data flow and shared bytes need between streams. */
enum status program_synchronise(struct program *program);
