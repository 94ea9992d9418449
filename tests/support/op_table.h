/* All operators that have kernels, in the order of OP_LIST. */
#pragma once

#include "ir/ops/ops.h"

extern const struct op *const op_table[];
extern const int op_table_count;
