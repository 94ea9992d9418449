/* Recipes: lines, the micro-batch for a GPU, checks and JSON. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "plan/plan.h"

/* Named choices of a recipe, as lines "NAME VALUE\n": the algorithm that a device's library chose for each GEMM, and
 * the tensor-parallel strategy of each node. Names and values contain no blanks.
 *
 * Recipes are copied as values, and the lines can be long: so each text is kept once, never changes, and all recipes
 * with these lines point to it. */

/* The one text with these lines, valid until recipe_lines_forget; NULL where there are no lines. By any thread. FAILED
 * without memory. */
enum status recipe_lines_keep(const char *lines, const char **out);
/* Frees all texts: for who makes recipes without end. None of them is used afterwards, and no thread keeps one now. */
void recipe_lines_forget(void);

/* Default number of tokens in a micro-batch on a GPU. It depends only on the model and the GPU, so that a plan for a
 * target device has the micro-batches that the GPU itself would get.
 *
 * More tokens fill the GPU's multiprocessors better, and amortize the fixed cost of a micro-batch: GEMMs read and write
 * the fp32 gradients that they add to. But a micro-batch's activations are in memory at once. */

enum { GPU_MICRO_BATCH_MIN = 4096, GPU_MICRO_BATCH_MAX = 32768 };

/* For a GPU with this many multiprocessors and this memory: GPU_MICRO_BATCH_MIN times a power of two, up to
 * GPU_MICRO_BATCH_MAX. */
int64_t gpu_micro_batch_tokens(int multiprocessors, int64_t memory_bytes, int64_t layers, int64_t width);

/* The part of plan_check that is about the recipe. */
enum status recipe_check(const struct recipe *recipe);
/* BAD_INPUT for a field of another type, a key that is not known, or a number out of its range. */
enum status recipe_from_json(const char *file, const json_t *object, struct recipe *out);
/* A number of a plan's part, "recipe.", or "" for what stands in none; checked before it becomes a narrower type. */
enum status plan_read_int(const char *file, const json_t *object, const char *part, const char *field, int64_t min,
                          int64_t max, const char *rule, int64_t *out);
