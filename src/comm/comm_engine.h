/* What the engines share; for this module alone. */
#pragma once

#include "comm/comm.h"
#include "comm/wire.h"

enum { COMM_MESSAGE_BYTES = 4 << 20, COMM_MESSAGE_BYTES_MAX = 1 << 30 };

/* The beginning of each engine's own. */
struct comm_operation {
    struct comm *comm;
    const struct comm_engine *engine; /* that made it */
    bool refused;                     /* the last start failed at its fault point */
};

/* `context` is the wire's. */
enum status mpi_comm_open(const struct wire *wire, void *context, const struct comm_settings *settings,
                          struct comm **out);
