/* NCCL, opened when it is first used: a start without several GPUs neither needs nor looks for it. For this module and
 * tests. */
#ifndef BALLAST_COMM_NCCL_LIBRARY_H
#define BALLAST_COMM_NCCL_LIBRARY_H

#include "base/status.h"
#include "comm/nccl_abi.h"

/* Its functions under their names without "nccl". */
struct nccl_library {
#define NCCL_FUNCTION_FIELD(name, result, parameters) result(*name) parameters;
    NCCL_FUNCTION_LIST(NCCL_FUNCTION_FIELD)
#undef NCCL_FUNCTION_FIELD
    int version;
};

/* Opens libnccl.so.2 where the system's loader finds it, or the file that BALLAST_NCCL in the environment names. Once
 * in a process; later calls give the same. BAD_INPUT where it is missing, older than NCCL_VERSION_MIN or lacks a
 * function, with what to install. */
enum status nccl_library_open(const struct nccl_library **out);

/* OK, or FAILED "ncclSend: the library's words". */
enum status nccl_status(const struct nccl_library *library, ncclResult_t result, const char *function);

/* That of communicators which do not block. */
ncclConfig_t nccl_config(void);

/* Calls a function, unless it is chosen to fail (FAULT_COMM). */
#define NCCL_CALL(library, name, ...) (fault_point(FAULT_COMM) ? ncclSystemError : (library)->name(__VA_ARGS__))
#define NCCL_TRY(library, name, ...) TRY(nccl_status(library, NCCL_CALL(library, name, __VA_ARGS__), "nccl" #name))

#endif
