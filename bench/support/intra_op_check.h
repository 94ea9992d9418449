/* Checks programs from files before they are solved. */
#pragma once

#include "plan/layout/intra_op.h"

/* What intra_op_solve takes for granted. BAD_INPUT naming node, edge or moment. */
enum status intra_op_check(const struct intra_op_program *program);
