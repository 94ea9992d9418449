/* A sharded training step as a chain (plan/chain.h): the blocks of a model on one device of a mesh, each as its
 * strategies leave it. Times are of one micro-batch and hold the communication of strategies and conversions, which a
 * block that is computed again makes again (Colossal-Auto, arXiv 2302.02599, section 5). */
#ifndef BALLAST_PLAN_LAYOUT_SHARD_CHAIN_H
#define BALLAST_PLAN_LAYOUT_SHARD_CHAIN_H

#include "plan/chain.h"
#include "plan/layout/shard_program.h"

struct shard_chain {
    struct chain chain;  /* in seconds and bytes of a device */
    int64_t state_bytes; /* of a device: parameters, their gradients and optimizer state */
};

/* Of the choices of a solution. Free with shard_chain_free, also after a failure. BAD_INPUT as chain_check. */
enum status shard_chain_make(const struct shard_program *program, const int *choice, struct shard_chain *out);
void shard_chain_free(struct shard_chain *chain);

#endif
