/* Which activations to keep and which to compute again, chosen exactly for a chain.
 *
 * Rotor (Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova: "Optimal checkpointing for heterogeneous chains: how to
 * train deep neural networks with limited memory", arXiv 1911.13214): the fastest memory-persistent schedule, that is
 * one that keeps a checkpoint or a saved set until the backward that reads it. C(i,l,m), the least time to go from x_i
 * and the gradient of x_{l+1} to the gradient of x_i in m slots besides x_i, is C(i,i,m) = f_i + b_i where m >=
 * max(x_{i+1} + s_i + ftmp_i, x_i + x_{i+1} + s_i + btmp_i) C(i,l,m) = min  f_i + … + f_{j-1} + C(j,l,m-x_j) +
 * C(i,j-1,m)   over i < j <= l      (x_j is a checkpoint) C(i,i,m) + C(i+1,l,m-s_i)   where m >= x_{l+1} + s_i + ftmp_i
 * (block i keeps all) where m >= max(x_{l+1} + x_{i+1} + ftmp_i, x_{l+1} + x_j + x_{j+1} + ftmp_j over i < j < l) with
 * s_i for what block i saves. The condition of the third line is ours: C(i,i,m) makes block i's forward fit next to the
 * gradient of x_{i+1}, but the one that is there then is that of x_{l+1}. It never binds in a chain whose gradients do
 * not grow towards its end; without it others could overrun the budget. */
#ifndef BALLAST_PLAN_ROTOR_H
#define BALLAST_PLAN_ROTOR_H

#include <stdint.h>

#include "plan/recompute.h"

#define ROTOR_TABLE_BYTES_MAX ((size_t)256 << 20) /* 360 blocks in 500 slots, or 100 in 6600 */

/* The fastest schedule in `slots`, x_0 included, and what it costs; the peak is at most `slots`. Sizes of the chain are
 * in slots. Takes time O(blocks^3 slots) and memory O(blocks^2 slots). NO_FIT when there is no schedule; BAD_INPUT as
 * chain_check, or when the table would take more than ROTOR_TABLE_BYTES_MAX. The caller frees `out` with vec_free. */
enum status rotor_solve(const struct chain *chain, int64_t slots, struct recompute_schedule *out,
                        struct recompute_cost *cost);

/* The fastest schedules in several numbers of slots, ascending, read off one table. Where there is none, schedule and
 * cost are empty. The caller frees each of `out` with vec_free, also after a failure. */
enum status rotor_solve_each(const struct chain *chain, const int64_t *slots, int count, struct recompute_schedule *out,
                             struct recompute_cost *costs);

#endif
