/* Chooses strategies and recomputation together (Colossal-Auto, arXiv 2302.02599, section 5.3). The paper describes
 * this; its published code does not do it.
 *
 * The intra-op program is solved under memory limits B x 1.3^i, from the device's B on, until memory no longer binds.
 * Each solution's blocks form a chain whose times include communication. The checkpoint solver (plan/recompute.h) finds
 * the fastest schedule of the chain that fits B. The fastest result of all limits is used. A looser limit allows faster
 * layouts in the first phase; the second phase pays for them with recomputation. So no solution of either phase alone
 * is faster: i = 0 includes strategies that fit with all activations kept, and the last i includes the fastest
 * strategies with checkpoints. */
#pragma once

#include "plan/layout/shard_program.h"
#include "plan/recompute.h"

/* ---- the step as a chain ----
 *
 * A sharded training step as a chain (plan/recompute.h): the blocks of a model on one device of a mesh, each as its
 * strategies leave it. Times are of one micro-batch and hold the communication of strategies and conversions, which a
 * block that is computed again makes again (Colossal-Auto, arXiv 2302.02599, section 5). */

struct shard_chain {
    struct chain chain;  /* in seconds and bytes of a device */
    int64_t state_bytes; /* of a device: parameters, their gradients and optimizer state */
};

/* Makes the chain of a solution's choices. Free with shard_chain_free, also after a failure. BAD_INPUT as
 * chain_check. */
enum status shard_chain_make(const struct shard_program *program, const int *choice, struct shard_chain *out);
void shard_chain_free(struct shard_chain *chain);

struct joint_solution {
    struct intra_op_solution strategies;
    struct recompute_schedule schedule; /* of blocks */
    double seconds;                     /* of one micro-batch, all computed again included */
    int64_t peak_bytes;                 /* of a device */
    double kept_s;                      /* of the fastest strategies that fit with all kept; INFINITY: there are none */
    double checkpoints_s;               /* of the fastest strategies, with checkpoints; INFINITY: they do not fit */
    int limits;                         /* under which the first phase was solved */
};

/* `program->program.memory_limit` is not read: `device_bytes` is the limit. `node_limit`: of each intra-op solution
 * (intra_op_solve). NO_FIT where nothing fits. Free with joint_solution_free, also after a failure. */
enum status joint_solve(const struct shard_program *program, int64_t device_bytes, int64_t node_limit,
                        struct joint_solution *out);
void joint_solution_free(struct joint_solution *solution);

/* The second phase alone: the fastest schedule for these choices. NO_FIT where there is none. The caller frees
 * `schedule` with vec_free, also after a failure. */
enum status joint_checkpoints(const struct shard_program *program, const int *choice, int64_t device_bytes,
                              struct recompute_schedule *schedule, double *seconds, int64_t *peak_bytes);
