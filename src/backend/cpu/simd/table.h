/* Declares the functions of this folder for the instruction set that is being compiled; simd_table.c makes the table of
 * them. */
#ifndef BALLAST_BACKEND_CPU_SIMD_TABLE_H
#define BALLAST_BACKEND_CPU_SIMD_TABLE_H

#include "backend/cpu/simd/kernels.h"
#include "backend/cpu/simd/simd.h"

#define SIMD_DECLARE(result, name, arguments) result SIMD_NAME(simd_##name) arguments;
SIMD_LIST(SIMD_DECLARE)
#undef SIMD_DECLARE

#endif
