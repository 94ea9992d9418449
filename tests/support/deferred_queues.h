/* Streams, events and graphs of a device that works asynchronously. One thread takes items from the heads of the
 * streams, in a random order with a seed (deferred_backend.h). The owner of an item defines its work. */
#pragma once

#include "backend/backend.h"

enum deferred_kind {
    ITEM_KERNEL,
    ITEM_ZERO,
    ITEM_ADD,
    ITEM_PACK,
    ITEM_UNPACK,
    ITEM_COPY,
    ITEM_CALL,
    ITEM_RECORD,
    ITEM_WAIT
};

struct deferred_together {
    int count;
    const struct kernel *kernels[KERNELS_TOGETHER];
    struct kernel_call calls[KERNELS_TOGETHER];
};

struct deferred_item {
    enum deferred_kind kind;
    const struct kernel *kernel;
    struct kernel_call call;
    struct deferred_together *together; /* NULL, or several kernels in place of that */
    void *to;
    const void *from;
    int64_t bytes;
    bool round_bf16; /* additions */
    bool adds;       /* unpacking */
    void (*function)(void *argument);
    void *argument;
    struct deferred_event *event;
    int64_t number; /* of the event's record */
    struct deferred_item *next;
};

/* Starts the thread that does the items. Odd seeds: it works only while somebody waits for it; even ones: whenever
 * there is work. */
void deferred_queues_begin(uint64_t seed, enum status (*run)(const struct deferred_item *item));
/* Ends it; every stream and graph must have been given back. */
void deferred_queues_end(void);

/* Puts a copy of the item at the stream's end or, in a capture, into the graph. */
void deferred_enqueue(void *stream, const struct deferred_item *item);
/* FAILED in a capture, which is spoilt by it: for what a thread may not ask for there. */
enum status deferred_refuse_capture(void);

extern const struct backend_streams deferred_streams;
extern const struct backend_graphs deferred_graphs;
