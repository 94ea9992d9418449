/* How long OpenMP's threads spin at a barrier before they sleep. */
#pragma once

/* The first thing that a program does whose kernels run concurrently with other programs, benchmarks included: starts
 * it again with `arguments` (main's), GOMP_SPINCOUNT=10000 and OMP_WAIT_POLICY=active, unless the environment says how
 * OpenMP waits or binds its threads. The process keeps the name of its program.
 *
 * In turns of a loop: GNU's default of 300000 makes a step on a machine that others use too wait for threads that are
 * not running: a small model fell from 50000 to 600 tokens/s. 10000 turns lose nothing on an idle machine and kept 8000
 * there. Where teams of several streams have more threads than there are cores, GNU's default are 100 turns, less than
 * a wake takes; `active` makes them 1000, and steps of plans that move states 11 to 15% shorter. */
void limit_spinning(char **arguments);
