/* Where updates stand among a step's executions: executions.c has the rest of the list. */
#ifndef BALLAST_COMPILER_EXECUTION_UPDATES_H
#define BALLAST_COMPILER_EXECUTION_UPDATES_H

#include "compiler/executions.h"

/* Appends one node's execution to the present group. */
enum status executions_add(const struct execution_source *source, const struct node *node, int64_t slot,
                           struct execution_list *out);
/* A value that goes to another stage, or comes from one. */
struct execution executions_transfer(const struct execution_source *source, const struct pipeline_value *value,
                                     int64_t slot);

/* Finds source->early and source->ready; completed_by is known. FAILED without memory. */
enum status execution_updates_find(struct execution_source *source);

/* A trained parameter of the chunk that other stages use. */
bool execution_updates_share(const struct execution_source *source, const struct pipeline_value *value, int32_t chunk);
/* One parameter of a deferred update, sent or received. */
enum status execution_updates_add_transfer(const struct execution_source *source, const struct pipeline_value *value,
                                           bool deferred, struct execution_list *out);
/* Deferred updates that stand before the forward of `block`. */
enum status execution_updates_add_deferred(struct execution_source *source, int32_t block, struct execution_list *out);
/* Early updates of the chunks whose last gradient the backward of `block` completes. */
enum status execution_updates_add_early(const struct execution_source *source, int32_t block,
                                        struct execution_list *out);

#endif
