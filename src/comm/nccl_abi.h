/* NCCL's public interface, as far as Ballast uses it: names, values and layouts of NVIDIA's NCCL documentation, "API"
 * (docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html). Debian has no package with nccl.h, and a build needs
 * none: the library is opened when it is used (nccl_comm.h). */
#pragma once

#include <limits.h>

#include "base/base.h"

/* ncclGetVersion's number: 2.17.1 is 21701. */
enum { NCCL_VERSION_MIN = 21700, NCCL_UNIQUE_ID_BYTES = 128 };

typedef enum {
    ncclSuccess,
    ncclUnhandledCudaError,
    ncclSystemError,
    ncclInternalError,
    ncclInvalidArgument,
    ncclInvalidUsage,
    ncclRemoteError,
    ncclInProgress /* of a communicator that does not block: ask ncclCommGetAsyncError */
} ncclResult_t;

typedef enum { ncclInt8 } ncclDataType_t; /* bytes: Ballast's sums are its own */

typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

/* Since 2.17; later libraries have more fields, and know by `size` and `version` which are there. */
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking;
    int cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
} ncclConfig_t;

#define NCCL_CONFIG_MAGIC 0xcafebeefu
/* Value of fields that the library chooses. */
#define NCCL_CONFIG_UNDEF_INT INT_MIN

/* A stream is cudaStream_t, which this module knows as a backend's stream. X(name without "nccl", result, parameters).
 */
#define NCCL_FUNCTION_LIST(X)                                                                                          \
    X(GetVersion, ncclResult_t, (int *version))                                                                        \
    X(GetErrorString, const char *, (ncclResult_t result))                                                             \
    X(GetUniqueId, ncclResult_t, (ncclUniqueId * id))                                                                  \
    X(CommInitRankConfig, ncclResult_t,                                                                                \
      (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config))                                 \
    X(CommGetAsyncError, ncclResult_t, (ncclComm_t comm, ncclResult_t * result))                                       \
    X(CommAbort, ncclResult_t, (ncclComm_t comm))                                                                      \
    X(CommDestroy, ncclResult_t, (ncclComm_t comm))                                                                    \
    X(GroupStart, ncclResult_t, (void))                                                                                \
    X(GroupEnd, ncclResult_t, (void))                                                                                  \
    X(Send, ncclResult_t,                                                                                              \
      (const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, void *stream))                  \
    X(Recv, ncclResult_t, (void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, void *stream))      \
    X(AllGather, ncclResult_t,                                                                                         \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, void *stream))                  \
    X(Broadcast, ncclResult_t,                                                                                         \
      (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, void *stream))
