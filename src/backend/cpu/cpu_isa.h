/* Which instruction set the CPU backend uses: the widest that the processor has and this build holds, at most what the
 * environment variable BALLAST_MAX_ISA says ("avx512" or "avx2"; it caps oneDNN as well). Chosen once, at first use. */
#ifndef BALLAST_BACKEND_CPU_CPU_ISA_H
#define BALLAST_BACKEND_CPU_CPU_ISA_H

#include <stdbool.h>

#include "backend/cpu/simd/kernels.h"
#include "base/status.h"

/* STATUS_FAILED when the processor has none of them, BAD_INPUT when BALLAST_MAX_ISA is not a name. */
enum status cpu_isa_check(void);
/* The table in use. Only after cpu_isa_check succeeded. */
const struct simd_kernels *cpu_simd(void);
/* Whether its GEMMs of bf16 may use the processor's instruction for pairs: where oneDNN's do. */
bool cpu_has_bf16_dots(void);
/* Whether they may use its tiles (AMX), by the same rule; oneDNN has then asked the system for them. */
bool cpu_has_bf16_tiles(void);
/* Name of the set in use and of what oneDNN uses next to it, as "avx512+amx": results depend on both. "none" where
 * cpu_isa_check fails. */
const char *cpu_isa_name(void);

#endif
