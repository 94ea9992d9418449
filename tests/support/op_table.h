/* All operators that have kernels, in the order of OP_LIST. */
#ifndef BALLAST_TESTS_OP_TABLE_H
#define BALLAST_TESTS_OP_TABLE_H

#include "ir/ops/ops.h"

extern const struct op *const op_table[];
extern const int op_table_count;

#endif
