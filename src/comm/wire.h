/* A message-passing library behind a table of functions, which a plugin (mpi_plugin.c) provides. Plain C without
 * anything of Ballast's, since a plugin is compiled on its own.
 *
 * One thread makes all calls. Each that can fail returns NULL, or what went wrong in words that stay valid until the
 * next call. Ranks are those of `renumber`, after it was called. Requests are persistent: made once, started and tested
 * any number of times, and named by small numbers. */
#pragma once

#include "base/base.h"

enum { WIRE_VERSION = 1, WIRE_TEXT_BYTES = 128, WIRE_HOST_BYTES = 64 };

struct wire_piece {
    void *address;
    int64_t bytes; /* below 2 GiB */
};

enum wire_kind {
    WIRE_SEND,       /* over when the buffer may be used again */
    WIRE_READY_SEND, /* the same; the receive has been posted, which is the caller's to know */
    WIRE_SYNC_SEND,  /* over when it is being received */
    WIRE_RECEIVE
};

struct wire_world {
    int rank, ranks;
    char library[WIRE_TEXT_BYTES]; /* name and version */
    char host[WIRE_HOST_BYTES];
};

struct wire {
    int version;      /* WIRE_VERSION */
    const char *name; /* "openmpi" */
    const char *(*open)(void *context, struct wire_world *out);
    /* machine[r] is the lowest rank on the machine of rank r: ranks of one machine may share memory. */
    const char *(*find_machines)(void *context, int *machine);
    const char *(*renumber)(void *context, int rank);
    /* Pieces are copied; buffers stay where they are until forget. Messages between two ranks with one tag arrive in
     * the order of their starts. Tags are below 32768. */
    const char *(*request)(void *context, enum wire_kind kind, int peer, int tag, const struct wire_piece *pieces,
                           int count, int *out);
    const char *(*start)(void *context, int request);
    /* *done: it is over, or was not started. Also moves on all others. */
    const char *(*test)(void *context, int request, bool *done);
    /* Ends a receive that is still waiting. */
    void (*forget)(void *context, int request);
    /* Ends all ranks; this one too. */
    void (*abort)(void *context, int status);
    /* Waits for all ranks. */
    const char *(*close)(void *context);
};

/* The symbol that a plugin exports. */
#define WIRE_PLUGIN_SYMBOL "ballast_wire"
typedef const struct wire *wire_plugin_function(void);
