/* The passes that make a program, in their order. Each leaves a program that the next can read; tests run them one by
 * one. */
#ifndef BALLAST_PROGRAM_PASSES_H
#define BALLAST_PROGRAM_PASSES_H

#include "program/program.h"

/* Sections, instructions and buffers, all on stream 0, without offsets or waits.
 *
 * A step's grains are cut into passes of `grains_per_pass`: a first pass (which zeroes the accumulators), repeated
 * middle passes, and a last one for what is left. In a pass, nodes of one block and phase form a group, and each group
 * runs for one grain after the other, so that weights are used for all grains while they are at hand and a block's
 * temporaries are shared by the grains. Every accumulator so receives its grains in order, whatever the pass. */
enum status program_schedule(const struct graph *graph, const struct plan *plan,
                             const struct workspace_table *workspace, struct program **out);

/* Sets each buffer's live range: first to last use in issue order; a buffer that enters a repeated section from outside
 * lives to that section's end; results live to the end of the program. */
void program_set_lifetimes(struct program *program);

/* Offsets: persistent buffers first, in their order, so that programs of one model agree on where its parameters lie;
 * the others greedily, by the best of several orders. Sets tier_bytes and live_bytes. */
enum status program_place(struct program *program);

/* Adds the waits that data flow and shared bytes need between streams. */
enum status program_synchronise(struct program *program);

#endif
