/* A part of program_verify_ranks: gradients are the sums that the recipe says. */
#ifndef BALLAST_PROGRAM_VERIFY_SUMS_H
#define BALLAST_PROGRAM_VERIFY_SUMS_H

#include "program/program.h"

/* Executes two steps of all ranks' programs symbolically: a gradient's value is a number that depends on every grain
 * added to it and on the order of all additions. FAILED, naming rank and instruction, where what reads a finished
 * gradient finds another one than the recipe's, straight from its definition: each lane's grains in order, lanes by the
 * tree, rounds in order; or where a loss is added to another share's. */
enum status program_verify_sums(const struct program *const *programs, int ranks, const struct recipe *recipe);

#endif
