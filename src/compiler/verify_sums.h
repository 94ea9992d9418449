/* A part of program_verify_ranks: gradients are the sums that the recipe says, and parameters are what updates by these
 * make of them, wherever their parts are. */
#pragma once

#include "compiler/program.h"

/* Executes two steps of all ranks' programs symbolically. The value of a range of elements is a number that depends
 * on every micro-batch added to it, on the order of all additions, and on every update. FAILED, naming rank and
 * instruction, where a norm or an update reads another gradient than the recipe's, straight from its definition (each
 * lane's micro-batches in order, lanes by the tree, rounds in order); where forward or backward reads a parameter that
 * was not updated by exactly these once a step; where a step ends with parameters or states that were not; where nobody
 * has a range of a state; where data is moved to another tensor's place; or where a loss is added to another share's.
 * The programs' operations match (verify_ranks.h). */
enum status program_verify_sums(const struct program *const *programs, int ranks, const struct recipe *recipe);
