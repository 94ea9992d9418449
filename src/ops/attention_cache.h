/* What attention and attention over caches have in common. */
#ifndef BALLAST_OPS_ATTENTION_CACHE_H
#define BALLAST_OPS_ATTENTION_CACHE_H

#include "ops/ops.h"

/* The attributes that attention's time depends on. */
void attention_key(const struct attention_attributes *attributes, struct op_key *key);
/* Attention's `decode`: keys and values of all tokens go to two caches made here; the tokens' rows there are the
 * graph's input "rows" [S,T] int32. */
struct node *attention_cache_decode(struct graph *graph, const char *name, struct tensor *const *in,
                                    const void *attributes);

#endif
