/* A rank's part of a frozen weight in fewer bits, which ranks share: a weight of its own, with the codes and scales
 * that the whole weight has for these numbers. Blocks are those of the whole weight; a part whose numbers would not be
 * whole blocks of it is none. Rows of int8 and of integers, where a row is a block, and the one block of all may be
 * cut: each part has the scale.
 *
 * nf4 becomes nf4-fp32, since the groups of its scales are not those of a part's: the scales are the same numbers. */
#ifndef BALLAST_IR_WEIGHT_PART_H
#define BALLAST_IR_WEIGHT_PART_H

#include "ir/tensor.h"
#include "ir/weight_sections.h"

/* Of a part of a weight in that format. */
enum weight_format weight_part_format(enum weight_format whole);
/* What the whole is, of a tensor with `part` and `code`. */
struct weight_code weight_part_whole(const struct tensor *tensor);
/* Whether a tensor's numbers are whole blocks of the whole weight. */
bool weight_part_fits(const struct tensor *tensor);

/* The sections of a tensor with `part` and `code`, of which weight_part_fits holds, from those of the whole weight, of
 * which it holds at most WEIGHT_PART_CAPACITY bytes. Numbers that are nowhere in the whole are 0. The tensor and what
 * `whole` reads outlive it. FAILED without memory, or as `whole` fails. */
enum { WEIGHT_PART_CAPACITY = (1 << 20) + 3 * (1 << 16) };
struct weight_part_reader;
enum status weight_part_open(const struct tensor *tensor, struct weight_source whole, struct weight_part_reader **out);
/* Closes NULL too. */
void weight_part_close(struct weight_part_reader *reader);
/* The reader must outlive it. */
struct weight_source weight_part_source(struct weight_part_reader *reader);

#endif
