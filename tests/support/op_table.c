#include "support/op_table.h"

const struct op *const op_table[] = {
#define OP_ROW(name) &op_##name,
    OP_LIST(OP_ROW)
#undef OP_ROW
};

const int op_table_count = (int)(sizeof op_table / sizeof *op_table);
